//! A model of what two connected QPs do, in a page of code: two arrays and two queues of receives.

use crate::ignored::scramble;
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::VecDeque;
use warpverbs_dev::{Port, local, sge};
use warpverbs_mlx5::cqe::{Cqe, ReceivedKind};
use warpverbs_mlx5::flags::Fence;
use warpverbs_mlx5::num::{MAX_WQE, Rkey};
use warpverbs_mlx5::opcode::SendOpcode;
use warpverbs_mlx5::wqe::{Remote, Sge, WqeBuilder};
use warpverbs_nic::Mr;

/// Bytes of either buffer that take part.
pub(crate) const SIZE: usize = 512;

#[derive(Clone, Debug)]
pub(crate) enum Work {
    Write {
        from: u16,
        to: u16,
        len: u16,
    },
    Inline {
        to: u16,
        data: Vec<u8>,
    },
    WriteImm {
        from: u16,
        to: u16,
        len: u16,
        imm: u32,
    },
    Read {
        from: u16,
        to: [u16; 2],
        len: [u16; 2],
    },
    Send {
        from: [u16; 2],
        len: [u16; 2],
        imm: Option<u32>,
        receive: [u16; 2],
    },
    FetchAdd {
        word: u16,
        add: u64,
        back: u16,
    },
    CompareSwap {
        word: u16,
        equal: bool,
        swap: u64,
        back: u16,
    },
    Nop,
    /// Of a key made for it.
    LocalInval,
    Dump {
        from: u16,
        len: u16,
    },
}

pub(crate) fn work() -> impl Strategy<Value = Work> {
    let at = || 0u16..(SIZE as u16 - 128);
    let len = || 1u16..64;
    let word = || (0u16..(SIZE as u16 / 8)).prop_map(|word| word * 8);
    prop_oneof![
        (at(), at(), len()).prop_map(|(from, to, len)| Work::Write { from, to, len }),
        (at(), prop::collection::vec(any::<u8>(), 0..128))
            .prop_map(|(to, data)| Work::Inline { to, data }),
        (at(), at(), len(), any::<u32>()).prop_map(|(from, to, len, imm)| Work::WriteImm {
            from,
            to,
            len,
            imm
        }),
        (at(), [at(), at()], [len(), len()]).prop_map(|(from, to, len)| Work::Read {
            from,
            to,
            len
        }),
        ([at(), at()], [len(), len()], any::<Option<u32>>(), [at(), at()])
            .prop_map(|(from, len, imm, receive)| Work::Send { from, len, imm, receive }),
        (word(), any::<u64>(), word()).prop_map(|(word, add, back)| Work::FetchAdd {
            word,
            add,
            back
        }),
        (word(), any::<bool>(), any::<u64>(), word())
            .prop_map(|(word, equal, swap, back)| Work::CompareSwap { word, equal, swap, back }),
        Just(Work::Nop),
    ]
}

/// As [`work`], with what a proxied QP refuses.
pub(crate) fn native_work() -> impl Strategy<Value = Work> {
    let dump = (0u16..(SIZE as u16 - 128), 1u16..64);
    let dump = dump.prop_map(|(from, len)| Work::Dump { from, len });
    prop_oneof![6 => work(), 1 => Just(Work::Nop), 1 => Just(Work::LocalInval), 1 => dump]
}

/// One side of the model.
#[derive(Default)]
pub(crate) struct Side {
    pub(crate) memory: Vec<u8>,
    sent: VecDeque<(u16, SendOpcode, u32)>,
    received: VecDeque<(u16, ReceivedKind, u32)>,
    receives: u64,
}

impl Side {
    pub(crate) fn new(fill: u8) -> Self {
        Self { memory: (0..SIZE).map(|i| fill ^ i as u8).collect(), ..Self::default() }
    }

    fn get(&self, at: u16, len: usize) -> Vec<u8> {
        self.memory[usize::from(at)..usize::from(at) + len].to_vec()
    }

    fn put(&mut self, at: u16, data: &[u8]) {
        self.memory[usize::from(at)..usize::from(at) + data.len()].copy_from_slice(data);
    }

    fn word(&self, at: u16) -> u64 {
        u64::from_le_bytes(self.get(at, 8).try_into().unwrap())
    }
}

/// Does to the model what the WQE does; its opcode and the bytes in its CQE.
fn apply(me: &mut Side, peer: &mut Side, work: &Work) -> (SendOpcode, u32) {
    let receive = |peer: &mut Side, kind, len| {
        peer.received.push_back((peer.receives as u16, kind, len));
        peer.receives += 1;
    };
    match work {
        Work::Write { from, to, len } => {
            peer.put(*to, &me.get(*from, (*len).into()));
            (SendOpcode::RdmaWrite, 0)
        }
        Work::Inline { to, data } => {
            peer.put(*to, data);
            (SendOpcode::RdmaWrite, 0)
        }
        Work::WriteImm { from, to, len, imm } => {
            peer.put(*to, &me.get(*from, (*len).into()));
            receive(peer, ReceivedKind::WriteImm(*imm), (*len).into());
            (SendOpcode::RdmaWriteImm, 0)
        }
        Work::Read { from, to, len } => {
            let total = usize::from(len[0] + len[1]);
            let data = peer.get(*from, total);
            let (first, second) = data.split_at(len[0].into());
            me.put(to[0], first);
            me.put(to[1], second);
            (SendOpcode::RdmaRead, total as u32)
        }
        Work::Send { from, len, imm, receive: to } => {
            let data = [me.get(from[0], len[0].into()), me.get(from[1], len[1].into())].concat();
            let (first, second) = data.split_at(data.len().min(40));
            peer.put(to[0], first);
            peer.put(to[1], second);
            let kind = imm.map_or(ReceivedKind::Send, ReceivedKind::SendImm);
            receive(peer, kind, data.len() as u32);
            (imm.map_or(SendOpcode::Send, |_| SendOpcode::SendImm), 0)
        }
        Work::FetchAdd { word, add, back } => {
            let old = peer.word(*word);
            peer.put(*word, &old.wrapping_add(*add).to_le_bytes());
            me.put(*back, &old.to_le_bytes());
            (SendOpcode::AtomicFa, 8)
        }
        Work::CompareSwap { word, equal, swap, back } => {
            let old = peer.word(*word);
            if *equal {
                peer.put(*word, &swap.to_le_bytes());
            }
            me.put(*back, &old.to_le_bytes());
            (SendOpcode::AtomicCs, 8)
        }
        Work::Nop => (SendOpcode::Nop, 0),
        Work::LocalInval => (SendOpcode::LocalInval, 0),
        Work::Dump { .. } => (SendOpcode::Dump, 0),
    }
}

/// Where the work of one side goes.
pub(crate) struct Ends<'p> {
    pub(crate) port: &'p mut Port,
    pub(crate) peer: &'p mut Port,
    pub(crate) mr: &'p Mr,
    pub(crate) far: &'p Mr,
    /// The beginning of the peer's buffer, for work requests.
    pub(crate) target: Remote,
    /// Registers memory, for a key to invalidate.
    pub(crate) fresh_key: &'p dyn Fn() -> Rkey,
}

impl Ends<'_> {
    fn remote(&self, at: u16) -> Remote {
        Remote { addr: self.target.addr + u64::from(at), ..self.target }
    }

    fn here(&self, at: u16, len: u16) -> Sge {
        sge(self.mr, at.into(), len.into())
    }

    /// Puts the same work into the ring of the port. Its index.
    fn put(&mut self, work: &Work, peer_word: u64, signaled: bool) -> u64 {
        match work {
            Work::Send { receive, .. } => {
                let to = [(receive[0], 40), (receive[1], 88)];
                self.peer.post_recv(&to.map(|(at, len)| sge(self.far, at.into(), len)));
            }
            Work::WriteImm { .. } => self.peer.post_recv(&[]),
            _ => {}
        }
        let mut bytes = [0; MAX_WQE];
        let wqe = self.build(&mut bytes, work, peer_word);
        let wqe = if signaled { wqe.signaled() } else { wqe };
        // Without a fence, a READ may bring what a later request has written, and that request may
        // send what is there before the READ has come (IBTA 10.8.3.3).
        let local =
            matches!(work, Work::Nop | Work::LocalInval | Work::Dump { .. } | Work::Read { .. });
        let wqe = if local { wqe } else { wqe.fence(Fence::Fence) };
        let len = wqe.finish().map(<[u8]>::len).unwrap();
        // Each lap leaves something else where no device looks.
        let mut noise = StdRng::seed_from_u64(self.port.posted);
        scramble(&mut bytes[..len], false, || noise.random());
        self.port.put_bytes(&bytes[..len])
    }

    fn build<'b>(&self, buf: &'b mut [u8], work: &Work, peer_word: u64) -> WqeBuilder<'b> {
        let at = self.port.position();
        match work {
            Work::Write { from, to, len } => {
                WqeBuilder::write(buf, at, self.remote(*to)).sge(self.here(*from, *len))
            }
            Work::Inline { to, data } => WqeBuilder::write(buf, at, self.remote(*to)).inline(data),
            Work::WriteImm { from, to, len, imm } => {
                WqeBuilder::write_imm(buf, at, self.remote(*to), *imm).sge(self.here(*from, *len))
            }
            Work::Read { from, to, len } => WqeBuilder::read(buf, at, self.remote(*from))
                .sge(self.here(to[0], len[0]))
                .sge(self.here(to[1], len[1])),
            Work::Send { from, len, imm, .. } => {
                let wqe = match imm {
                    Some(imm) => WqeBuilder::send_imm(buf, at, *imm),
                    None => WqeBuilder::send(buf, at),
                };
                wqe.sge(self.here(from[0], len[0])).sge(self.here(from[1], len[1]))
            }
            Work::FetchAdd { word, add, back } => {
                let back = local(self.mr, (*back).into());
                WqeBuilder::fetch_add(buf, at, self.remote(*word), *add, back)
            }
            Work::CompareSwap { word, equal, swap, back } => {
                let compare = if *equal { peer_word } else { !peer_word };
                let back = local(self.mr, (*back).into());
                WqeBuilder::compare_swap(buf, at, self.remote(*word), compare, *swap, back)
            }
            Work::Nop => WqeBuilder::nop(buf, at),
            Work::LocalInval => WqeBuilder::local_inval(buf, at, (self.fresh_key)()),
            Work::Dump { from, len } => WqeBuilder::dump(buf, at, self.here(*from, *len)),
        }
    }

    /// Puts a batch into ring and model, its last WQE signalled, and rings.
    pub(crate) fn post(&mut self, sides: &mut [Side; 2], from_a: bool, batch: &mut [(Work, bool)]) {
        let [a, b] = sides;
        let (me, other) = if from_a { (a, b) } else { (b, a) };
        // A CQE frees the ring for the next batch.
        if let Some(last) = batch.last_mut() {
            last.1 = true;
        }
        for (work, signaled) in batch {
            let old = match work {
                Work::CompareSwap { word, .. } => other.word(*word),
                _ => 0,
            };
            let index = self.put(work, old, *signaled);
            let (opcode, brought) = apply(me, other, work);
            if *signaled {
                me.sent.push_back((index as u16, opcode, brought));
            }
        }
        self.port.announce();
    }
}

/// The completions of a port are those of the model, and no more.
pub(crate) fn check(port: &mut Port, side: &mut Side) -> Result<(), TestCaseError> {
    let qpn = port.position().qpn;
    for (wqe_counter, opcode, byte_cnt) in side.sent.drain(..) {
        let expected = Cqe::Requester { qpn, wqe_counter, opcode, byte_cnt };
        prop_assert_eq!(port.poll_send(), Some(expected));
    }
    for (wqe_counter, kind, byte_cnt) in side.received.drain(..) {
        let (srqn, solicited) = (0, false);
        let expected =
            Cqe::Receive { qpn, wqe_counter, kind, byte_cnt, srqn, solicited, from: None };
        prop_assert_eq!(port.poll_recv(), Some(expected));
    }
    prop_assert_eq!(port.poll_send(), None);
    prop_assert_eq!(port.poll_recv(), None);
    Ok(())
}
