//! Random sequences of work on both sides against a model that is a page of code: two arrays and
//! two queues of receives. Memory and completions must agree after every batch.

use proptest::prelude::*;
use std::collections::VecDeque;
use warpverbs_mlx5::cqe::{Cqe, ReceiveKind};
use warpverbs_mlx5::opcode::SendOpcode;
use warpverbs_mlx5::wqe::WqeBuilder;
use warpverbs_nic::testing::{Pair, PairConfig, Port, PortConfig, bytes, local, remote, sge};
use warpverbs_nic::{Config, DoorbellPolicy, Mr};

/// Bytes of either buffer that take part.
const SIZE: usize = 512;

#[derive(Clone, Debug)]
enum Work {
    Write { from: u16, to: u16, len: u16 },
    Inline { to: u16, data: Vec<u8> },
    WriteImm { from: u16, to: u16, len: u16, imm: u32 },
    Read { from: u16, to: [u16; 2], len: [u16; 2] },
    Send { from: [u16; 2], len: [u16; 2], imm: Option<u32>, receive: [u16; 2] },
    FetchAdd { word: u16, add: u64, back: u16 },
    CompareSwap { word: u16, equal: bool, swap: u64, back: u16 },
    Nop,
}

fn work() -> impl Strategy<Value = Work> {
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

/// One side of the model.
#[derive(Default)]
struct Side {
    memory: Vec<u8>,
    sent: VecDeque<(u16, SendOpcode, u32)>,
    received: VecDeque<(u16, ReceiveKind, u32)>,
    receives: u64,
}

impl Side {
    fn new(fill: u8) -> Self {
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
            receive(peer, ReceiveKind::WriteImm(*imm), (*len).into());
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
            let kind = imm.map_or(ReceiveKind::Send, ReceiveKind::SendImm);
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
    }
}

/// Puts the same work into the ring of `port`.
fn put(
    port: &mut Port,
    peer: &mut Port,
    mr: &Mr,
    far: &Mr,
    work: &Work,
    peer_word: u64,
    signaled: bool,
) -> u64 {
    let here = |at: u16, len: u16| sge(mr, at.into(), len.into());
    match work {
        Work::Send { receive, .. } => {
            let to = [(receive[0], 40), (receive[1], 88)].map(|(at, len)| sge(far, at.into(), len));
            peer.post_recv(&to);
        }
        Work::WriteImm { .. } => peer.post_recv(&[]),
        _ => {}
    }
    let build = |buf: &mut [u8], at| {
        let wqe = match work {
            Work::Write { from, to, len } => {
                WqeBuilder::write(buf, at, remote(far, (*to).into())).sge(here(*from, *len))
            }
            Work::Inline { to, data } => {
                WqeBuilder::write(buf, at, remote(far, (*to).into())).inline(data)
            }
            Work::WriteImm { from, to, len, imm } => {
                let there = remote(far, (*to).into());
                WqeBuilder::write_imm(buf, at, there, *imm).sge(here(*from, *len))
            }
            Work::Read { from, to, len } => WqeBuilder::read(buf, at, remote(far, (*from).into()))
                .sge(here(to[0], len[0]))
                .sge(here(to[1], len[1])),
            Work::Send { from, len, imm, .. } => {
                let wqe = match imm {
                    Some(imm) => WqeBuilder::send_imm(buf, at, *imm),
                    None => WqeBuilder::send(buf, at),
                };
                wqe.sge(here(from[0], len[0])).sge(here(from[1], len[1]))
            }
            Work::FetchAdd { word, add, back } => {
                let there = remote(far, (*word).into());
                WqeBuilder::fetch_add(buf, at, there, *add, local(mr, (*back).into()))
            }
            Work::CompareSwap { word, equal, swap, back } => {
                let compare = if *equal { peer_word } else { !peer_word };
                let there = remote(far, (*word).into());
                WqeBuilder::compare_swap(buf, at, there, compare, *swap, local(mr, (*back).into()))
            }
            Work::Nop => WqeBuilder::nop(buf, at),
        };
        if signaled { wqe.signaled() } else { wqe }.finish().map(<[u8]>::len)
    };
    port.put(build).unwrap()
}

fn check(pair: &mut Pair, a: &mut Side, b: &mut Side) -> Result<(), TestCaseError> {
    for (port, side) in [(&mut pair.a, a), (&mut pair.b, b)] {
        let qpn = port.position().qpn;
        for (wqe_counter, opcode, byte_cnt) in side.sent.drain(..) {
            let expected = Cqe::Requester { qpn, wqe_counter, opcode, byte_cnt };
            prop_assert_eq!(port.poll_send(), Some(expected));
        }
        for (wqe_counter, kind, byte_cnt) in side.received.drain(..) {
            let (srqn, solicited) = (0, false);
            let expected = Cqe::Receive { qpn, wqe_counter, kind, byte_cnt, srqn, solicited };
            prop_assert_eq!(port.poll_recv(), Some(expected));
        }
        prop_assert_eq!(port.poll_send(), None);
        prop_assert_eq!(port.poll_recv(), None);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_nic_does_what_the_model_does(
        batches in prop::collection::vec(
            (any::<bool>(), prop::collection::vec((work(), any::<bool>()), 1..6)), 1..30),
        slice in prop::sample::select(vec![4096u64, 1 << 20]),
        policy in prop::sample::select(vec![
            DoorbellPolicy::DoorbellFirst,
            DoorbellPolicy::RecordFirst,
            DoorbellPolicy::Random,
            DoorbellPolicy::DropThenRecover { polls: 1 },
        ]),
    ) {
        let nic = Config { seed: Some(9), slice_bytes: slice, policy, ..Config::default() };
        // Five WQEs of up to three WQEBBs fit; ring ends are crossed at every offset.
        let port = PortConfig { log_sq: 5, receives: warpverbs_nic::testing::Receives::Own { log: 3 }, ..PortConfig::default() };
        let mut pair = Pair::new(PairConfig { nic, a: port.clone(), b: port, ..PairConfig::default() }).unwrap();
        let (mut a, mut b) = (Side::new(0x11), Side::new(0xee));
        pair.mr_a.region().write(0, &a.memory).unwrap();
        pair.mr_b.region().write(0, &b.memory).unwrap();
        for (from_a, mut batch) in batches {
            let (port, peer, mr, far, me, other) = if from_a {
                (&mut pair.a, &mut pair.b, &pair.mr_a, &pair.mr_b, &mut a, &mut b)
            } else {
                (&mut pair.b, &mut pair.a, &pair.mr_b, &pair.mr_a, &mut b, &mut a)
            };
            // A CQE frees the ring for the next batch.
            if let Some(last) = batch.last_mut() {
                last.1 = true;
            }
            for (work, signaled) in &batch {
                let old = match work {
                    Work::CompareSwap { word, .. } => other.word(*word),
                    _ => 0,
                };
                let index = put(port, peer, mr, far, work, old, *signaled);
                let (opcode, brought) = apply(me, other, work);
                if *signaled {
                    me.sent.push_back((index as u16, opcode, brought));
                }
            }
            port.record();
            port.ring();
            pair.run();
            check(&mut pair, &mut a, &mut b)?;
            prop_assert_eq!(bytes(pair.mr_a.region(), 0, SIZE), a.memory.clone());
            prop_assert_eq!(bytes(pair.mr_b.region(), 0, SIZE), b.memory.clone());
        }
        prop_assert_eq!(pair.nic.take_violations(), vec![]);
        prop_assert_eq!(pair.nic.stats().qps.errors, 0);
    }
}
