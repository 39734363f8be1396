//! Requests as WQEs.

use super::script::{Entries, Entry, Len, Payload, Request};
use super::world::Keys;
use warpverbs_dev::{Poster, QueueFormat};
use warpverbs_mlx5::amo::{MaskedCompareSwap, MaskedCs, MaskedFa, MaskedFetchAdd};
use warpverbs_mlx5::flags::{Completion, Fence};
use warpverbs_mlx5::num::{Lkey, MAX_WQE, Rkey};
use warpverbs_mlx5::wqe::{BuildError, Local, Position, Remote, Sge, WqeBuilder};
use warpverbs_rdma::{Data, Op, SendFlags, WorkRequest};

impl Len {
    fn bytes(self) -> u32 {
        match self {
            Self::Short(len) => u32::from(len % 65),
            Self::Long(len) => u32::from(len % 16_385),
            Self::Wild(len) => len,
        }
    }
}

impl Entry {
    pub(crate) fn sge(&self, keys: &Keys) -> Sge {
        let (addr, key) = keys.place(self.place);
        Sge { addr, len: self.len.bytes(), lkey: Lkey(key) }
    }
}

impl Entries {
    pub(crate) fn sges(&self, keys: &Keys) -> Vec<Sge> {
        let count = usize::from(self.count) % (self.list.len() + 1);
        self.list[..count].iter().map(|entry| entry.sge(keys)).collect()
    }
}

impl Payload {
    fn sges(&self, keys: &Keys) -> Vec<Sge> {
        match self {
            Self::One(entry) => vec![entry.sge(keys)],
            Self::Several(entries) => entries.sges(keys),
            Self::Inline(_) => vec![],
        }
    }

    fn add<'b>(&self, builder: WqeBuilder<'b>, keys: &Keys) -> WqeBuilder<'b> {
        match self {
            Self::Inline(len) => builder.inline(&[0x11; 255][..usize::from(*len)]),
            _ => self.sges(keys).into_iter().fold(builder, WqeBuilder::sge),
        }
    }
}

/// The WQE of `request` that is next, at the beginning of `buf`; its bytes and those of its payload.
pub(crate) fn build(
    request: &Request,
    flags: u8,
    keys: &Keys,
    port: &Poster,
    buf: &mut [u8; MAX_WQE],
) -> Option<(usize, u32)> {
    if port.format == QueueFormat::Mlx5 {
        return Some((mlx5(request, flags, keys, buf, port.position()).ok()?, 0));
    }
    let (op, payload) = common(request, keys)?;
    let (bytes, sges) = ([0x11; 255], payload.sges(keys));
    let data = match payload {
        Payload::Inline(len) => Data::Inline(&bytes[..len.into()]),
        _ => Data::Sges(&sges),
    };
    let mut asked = SendFlags::empty();
    asked.set(SendFlags::SIGNALED, flags & 3 != 1);
    asked.set(SendFlags::FENCE, flags >> 2 & 7 != 0);
    asked.set(SendFlags::SOLICITED, flags & 32 != 0);
    port.try_build(&WorkRequest { id: 0, op, data, flags: asked }, buf)
}

/// A request that every format has.
fn common(request: &Request, keys: &Keys) -> Option<(Op, Payload)> {
    let remote = |place| {
        let (addr, key) = keys.place(place);
        Remote { addr, rkey: Rkey(key) }
    };
    Some(match *request {
        Request::Write { to, payload, imm: None } => (Op::Write(remote(to)), payload),
        Request::Write { to, payload, imm: Some(imm) } => (Op::WriteImm(remote(to), imm), payload),
        Request::Read { from, to } => (Op::Read(remote(from)), Payload::One(to)),
        Request::Send { payload, imm: None } => (Op::Send, payload),
        Request::Send { payload, imm: Some(imm) } => (Op::SendImm(imm), payload),
        Request::SendInval { key, payload } => (Op::SendInvalidate(remote(key).rkey), payload),
        Request::Atomic { at, swap, operands: [x, y], result, .. } => {
            let remote = remote(at);
            let op = match swap {
                true => Op::CompareSwap { remote, compare: x, swap: y },
                false => Op::FetchAdd { remote, add: x },
            };
            (op, Payload::One(Entry { place: result, len: Len::Short(8) }))
        }
        Request::LocalInval { .. } | Request::Nop | Request::Wait { .. } | Request::Dump { .. } => {
            return None;
        }
    })
}

/// The bytes of `request` at the beginning of `buf`; how many.
fn mlx5(
    request: &Request,
    flags: u8,
    keys: &Keys,
    buf: &mut [u8],
    at: Position,
) -> Result<usize, BuildError> {
    let remote = |place| {
        let (addr, key) = keys.place(place);
        Remote { addr, rkey: Rkey(key) }
    };
    let builder = match request {
        Request::Write { to, payload, imm: None } => {
            payload.add(WqeBuilder::write(buf, at, remote(*to)), keys)
        }
        Request::Write { to, payload, imm: Some(imm) } => {
            payload.add(WqeBuilder::write_imm(buf, at, remote(*to), *imm), keys)
        }
        Request::Read { from, to } => WqeBuilder::read(buf, at, remote(*from)).sge(to.sge(keys)),
        Request::Send { payload, imm: None } => payload.add(WqeBuilder::send(buf, at), keys),
        Request::Send { payload, imm: Some(imm) } => {
            payload.add(WqeBuilder::send_imm(buf, at, *imm), keys)
        }
        Request::SendInval { key, payload } => {
            payload.add(WqeBuilder::send_inval(buf, at, remote(*key).rkey), keys)
        }
        Request::Atomic { .. } => atomic(request, keys, buf, at),
        Request::LocalInval { key } => WqeBuilder::local_inval(buf, at, remote(*key).rkey),
        Request::Nop => WqeBuilder::nop(buf, at),
        Request::Wait { cqn, index } => {
            WqeBuilder::wait(buf, at, u32::from(cqn % 16), u32::from(*index))
        }
        Request::Dump { from } => WqeBuilder::dump(buf, at, from.sge(keys)),
    };
    flagged(builder, flags).finish().map(<[u8]>::len)
}

fn atomic<'b>(request: &Request, keys: &Keys, buf: &'b mut [u8], pos: Position) -> WqeBuilder<'b> {
    let Request::Atomic { at, masked, swap, operands: [x, y], result } = *request else {
        return WqeBuilder::nop(buf, pos);
    };
    let ((addr, rkey), (result, lkey)) = (keys.place(at), keys.place(result));
    let to = Remote { addr, rkey: Rkey(rkey) };
    let local = Local { addr: result, lkey: Lkey(lkey) };
    let (low, high) = (x as u32, (x >> 32) as u32);
    match (swap, masked) {
        (true, None) => WqeBuilder::compare_swap(buf, pos, to, x, y, local),
        (false, None) => WqeBuilder::fetch_add(buf, pos, to, x, local),
        (true, Some(wide)) => {
            let narrow =
                MaskedCs { compare: low, compare_mask: high, swap: y as u32, swap_mask: !0 };
            let full = MaskedCs { compare: x, compare_mask: y, swap: y, swap_mask: x };
            let operands = match wide {
                true => MaskedCompareSwap::B8(full),
                false => MaskedCompareSwap::B4(narrow),
            };
            WqeBuilder::masked_compare_swap(buf, pos, to, operands, local)
        }
        (false, Some(wide)) => {
            let operands = match wide {
                true => MaskedFetchAdd::B8(MaskedFa { add: x, boundary: y }),
                false => MaskedFetchAdd::B4(MaskedFa { add: low, boundary: high }),
            };
            WqeBuilder::masked_fetch_add(buf, pos, to, operands, local)
        }
    }
}

/// Bits 1..0: completion, mostly signalled; bits 4..2: fence; bit 5: solicited.
fn flagged(builder: WqeBuilder<'_>, flags: u8) -> WqeBuilder<'_> {
    let completion = [
        Completion::Always,
        Completion::OnError,
        Completion::OnFirstError,
        Completion::AlwaysWithEvent,
    ];
    let fence =
        [Fence::None, Fence::InitiatorSmall, Fence::Fence, Fence::Strong, Fence::FenceAndSmall];
    let builder = builder
        .completion(completion[usize::from(flags & 3)])
        .fence(fence[usize::from(flags >> 2 & 7) % fence.len()]);
    if flags & 32 != 0 { builder.solicited() } else { builder }
}
