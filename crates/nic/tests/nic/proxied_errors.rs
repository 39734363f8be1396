//! Failures on a proxied QP complete as they do in loopback: the same work is done both ways, and
//! the two streams of completions are compared.

use proptest::prelude::*;
use warpverbs_dev::{
    FakePlan, Pair, PairConfig, Port, ProxiedConfig, ProxiedPair, local, remote, sge,
};
use warpverbs_mlx5::cqe::Cqe;
use warpverbs_mlx5::num::{Lkey, MAX_WQE, Rkey};
use warpverbs_mlx5::opcode::SendOpcode;
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_mlx5::wqe::{Remote, Sge, WqeBuilder};
use warpverbs_nic::{Mr, QpAttrs};

/// One WQE, good or bad.
#[derive(Clone, Copy, Debug)]
enum Work {
    Write { len: u32 },
    BadLkey,
    BeyondRegion,
    BadRkey,
    BeyondPeer,
    ReadBadRkey,
    AtomicBadRkey,
    Send { len: u32 },
    Nop,
    NeverWritten,
}

fn work() -> impl Strategy<Value = Work> {
    let good = || prop_oneof![(1u32..64).prop_map(|len| Work::Write { len }), Just(Work::Nop)];
    prop_oneof![
        12 => good(),
        1 => Just(Work::BadLkey),
        1 => Just(Work::BeyondRegion),
        1 => Just(Work::BadRkey),
        1 => Just(Work::BeyondPeer),
        1 => Just(Work::ReadBadRkey),
        1 => Just(Work::AtomicBadRkey),
        1 => Just(Work::NeverWritten),
        // Receives have room for 32.
        4 => (1u32..40).prop_map(|len| Work::Send { len }),
    ]
}

fn put(port: &mut Port, mr: &Mr, far: Remote, work: Work, signaled: bool) {
    let at = port.position();
    let mut buf = [0; MAX_WQE];
    let near = |len| sge(mr, 0, len);
    let bad = Remote { rkey: Rkey(0x0bad_0bad), ..far };
    let end = mr.len() as u64;
    let wqe = match work {
        Work::Write { len } => WqeBuilder::write(&mut buf, at, far).sge(near(len)),
        Work::BadLkey => {
            let bad = Sge { lkey: Lkey(mr.lkey() ^ 1), ..near(8) };
            WqeBuilder::write(&mut buf, at, far).sge(bad)
        }
        Work::BeyondRegion => WqeBuilder::write(&mut buf, at, far).sge(sge(mr, end - 4, 8)),
        Work::BadRkey => WqeBuilder::write(&mut buf, at, bad).sge(near(8)),
        Work::BeyondPeer => {
            let far = Remote { addr: far.addr + end - 4, ..far };
            WqeBuilder::write(&mut buf, at, far).sge(near(8))
        }
        Work::ReadBadRkey => WqeBuilder::read(&mut buf, at, bad).sge(near(8)),
        Work::AtomicBadRkey => WqeBuilder::fetch_add(&mut buf, at, bad, 1, local(mr, 0)),
        Work::Send { len } => WqeBuilder::send(&mut buf, at).sge(near(len)),
        Work::Nop => WqeBuilder::nop(&mut buf, at),
        Work::NeverWritten => {
            port.put_bytes(&[0xff; 64]);
            return;
        }
    };
    let wqe = if signaled { wqe.signaled() } else { wqe };
    let len = wqe.finish().map(<[u8]>::len).unwrap();
    port.put_bytes(&buf[..len]);
}

/// A completion without the numbers in which two QPs differ.
fn plain(cqe: Cqe) -> (u16, Option<SendOpcode>, Option<(Syndrome, u8)>, u32) {
    match cqe {
        Cqe::Requester { wqe_counter, opcode, byte_cnt, .. } => {
            (wqe_counter, Some(opcode), None, byte_cnt)
        }
        Cqe::Receive { wqe_counter, byte_cnt, .. } => (wqe_counter, None, None, byte_cnt),
        Cqe::Error { wqe_counter, opcode, syndrome, vendor, .. } => {
            (wqe_counter, Some(opcode), Some((syndrome, vendor)), 0)
        }
    }
}

fn all(port: &mut Port) -> [Vec<impl PartialEq + std::fmt::Debug + use<>>; 2] {
    let sends = std::iter::from_fn(|| port.poll_send()).map(plain).collect();
    let receives = std::iter::from_fn(|| port.poll_recv()).map(plain).collect();
    [sends, receives]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn streams_of_completions_are_those_of_loopback(
        program in prop::collection::vec((work(), any::<bool>()), 1..30),
        receives in 0usize..40,
        seed: u64,
        takes_at_most in prop::option::of(1usize..5),
        polls_at_most in prop::option::of(1usize..5),
    ) {
        // Messages that find no receive are waited for without end.
        let sends = program.iter().filter(|(work, _)| matches!(work, Work::Send { .. })).count();
        let receives = receives.max(sends);
        let attrs = QpAttrs::default();
        let mut here = Pair::new(PairConfig { attrs, ..PairConfig::default() }).unwrap();
        let plan = FakePlan { seed, takes_at_most, polls_at_most, ..FakePlan::default() };
        let mut there =
            ProxiedPair::new(ProxiedConfig { plan, ..ProxiedConfig::default() }).unwrap();
        for _ in 0..receives {
            here.b.post_recv(&[sge(&here.mr_b, 0, 32)]);
            there.b.port.post_recv(&[sge(&there.b.mr, 0, 32)]);
        }
        there.run();
        let targets = [remote(&here.mr_b, 0), there.b.remote(0)];
        for &(work, signaled) in &program {
            put(&mut here.a, &here.mr_a, targets[0], work, signaled);
            put(&mut there.a.port, &there.a.mr, targets[1], work, signaled);
        }
        for port in [&here.a, &there.a.port] {
            port.announce();
        }
        here.run();
        there.run();
        prop_assert_eq!(all(&mut there.a.port), all(&mut here.a));
        prop_assert_eq!(all(&mut there.b.port), all(&mut here.b));
        prop_assert_eq!(there.a.port.qp.state(), here.a.qp.state());
        prop_assert_eq!(there.b.port.qp.state(), here.b.qp.state());
        let causes = [&here.a, &there.a.port].map(|port| {
            port.qp.first_error().map(|first| (first.index, first.status))
        });
        prop_assert_eq!(causes[0], causes[1]);
    }
}
