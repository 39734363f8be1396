//! Requests as WQEs.

use super::script::{Entries, Entry, Len, Payload, Request};
use super::world::Keys;
use warpverbs_mlx5::amo::{MaskedCompareSwap, MaskedCs, MaskedFa, MaskedFetchAdd};
use warpverbs_mlx5::flags::{Completion, Fence};
use warpverbs_mlx5::num::{Lkey, Rkey};
use warpverbs_mlx5::wqe::{BuildError, Local, Position, Remote, Sge, WqeBuilder};

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
    fn add<'b>(&self, builder: WqeBuilder<'b>, keys: &Keys) -> WqeBuilder<'b> {
        match self {
            Self::One(entry) => builder.sge(entry.sge(keys)),
            Self::Several(entries) => entries.sges(keys).into_iter().fold(builder, WqeBuilder::sge),
            Self::Inline(len) => builder.inline(&[0x11; 255][..usize::from(*len)]),
        }
    }
}

/// The bytes of `request` at the beginning of `buf`; how many.
pub(crate) fn build(
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
