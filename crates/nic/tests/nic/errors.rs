//! Every error: the syndrome at the requester, what the responder sees, ERR on the right side, and
//! everything else flushed.

use warpverbs_dev::{Pair, PairConfig, PortConfig, Receives, local, remote, sge};
use warpverbs_mem::Access;
use warpverbs_mlx5::cqe::{Cqe, ErrorSide};
use warpverbs_mlx5::flags::Completion;
use warpverbs_mlx5::num::{Lkey, Rkey};
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_mlx5::wqe::{Local, Position, Remote, Sge, WqeBuilder};
use warpverbs_nic::{
    AsyncEvent, FirstError, OnSendError, QpAttrs, QpState, QueueKind, Rule, Status,
};

/// The fields of an error CQE: side, index, syndrome and vendor syndrome.
fn error(cqe: Option<Cqe>) -> Option<(ErrorSide, u16, Syndrome, u8)> {
    match cqe? {
        Cqe::Error { side, wqe_counter, syndrome, vendor, .. } => {
            Some((side, wqe_counter, syndrome, vendor))
        }
        other => panic!("not an error: {other:?}"),
    }
}

fn failed(syndrome: Syndrome, index: u16) -> Option<(ErrorSide, u16, Syndrome, u8)> {
    Some((ErrorSide::Requester, index, syndrome, syndrome.usual_vendor()))
}

fn receive_failed(syndrome: Syndrome, index: u16) -> Option<(ErrorSide, u16, Syndrome, u8)> {
    Some((ErrorSide::Responder, index, syndrome, syndrome.usual_vendor()))
}

/// One request that goes wrong: what it is, its syndrome, that of the responder's first receive if its
/// QP ends as well, the field at fault, and the WQE.
type Case = (
    &'static str,
    Syndrome,
    Option<Syndrome>,
    &'static str,
    fn(&Pair, &mut [u8], Position) -> usize,
);

fn finish(wqe: WqeBuilder<'_>) -> usize {
    wqe.finish().unwrap().len()
}

const fn bad_rkey(mr: Remote) -> Remote {
    Remote { rkey: Rkey(mr.rkey.0 ^ 1), ..mr }
}

fn bad_lkey(sge: Sge) -> Sge {
    Sge { lkey: Lkey(sge.lkey.0 ^ 0x100), ..sge }
}

const SIZE: u64 = 1 << 16;

const FLUSHED: Option<Syndrome> = Some(Syndrome::WrFlush);

const CASES: &[Case] = &[
    ("unknown opcode", Syndrome::LocalQpOp, None, "ctrl.opcode", |_, buf, at| {
        let len = finish(WqeBuilder::nop(buf, at));
        buf[3] = 0x3f;
        len
    }),
    ("wrong lkey", Syndrome::LocalProt, None, "data.lkey", |p, buf, at| {
        let from = bad_lkey(sge(&p.mr_a, 0, 8));
        finish(WqeBuilder::write(buf, at, remote(&p.mr_b, 0)).sge(from))
    }),
    ("second segment beyond its region", Syndrome::LocalProt, None, "data.lkey", |p, buf, at| {
        let from = [sge(&p.mr_a, 0, 8), sge(&p.mr_a, SIZE - 7, 8)];
        finish(WqeBuilder::read(buf, at, remote(&p.mr_b, 0)).sge(from[0]).sge(from[1]))
    }),
    ("message too long", Syndrome::LocalLength, None, "data.byte_count", |p, buf, at| {
        let from = sge(&p.mr_a, 0, (1 << 30) + 1);
        finish(WqeBuilder::write(buf, at, remote(&p.mr_b, 0)).sge(from))
    }),
    ("wrong rkey of a WRITE", Syndrome::RemoteAccess, FLUSHED, "raddr.rkey", |p, buf, at| {
        finish(WqeBuilder::write(buf, at, bad_rkey(remote(&p.mr_b, 0))).inline(b"x"))
    }),
    ("READ beyond its region", Syndrome::RemoteAccess, FLUSHED, "raddr.rkey", |p, buf, at| {
        finish(WqeBuilder::read(buf, at, remote(&p.mr_b, SIZE - 4)).sge(sge(&p.mr_a, 0, 8)))
    }),
    (
        "wrong rkey of a WRITE with immediate",
        Syndrome::RemoteAccess,
        Some(Syndrome::LocalAccess),
        "raddr.rkey",
        |p, buf, at| {
            finish(WqeBuilder::write_imm(buf, at, bad_rkey(remote(&p.mr_b, 0)), 1).inline(b"x"))
        },
    ),
    ("misaligned atomic", Syndrome::RemoteInvalReq, FLUSHED, "raddr.raddr", |p, buf, at| {
        finish(WqeBuilder::fetch_add(buf, at, remote(&p.mr_b, 4), 1, local(&p.mr_a, 0)))
    }),
    (
        "SEND longer than the receive",
        Syndrome::RemoteInvalReq,
        Some(Syndrome::LocalLength),
        "data.byte_count",
        |p, buf, at| finish(WqeBuilder::send(buf, at).sge(sge(&p.mr_a, 0, 17))),
    ),
    ("invalidating a wrong local key", Syndrome::LocalQpOp, None, "data.lkey", |p, buf, at| {
        finish(WqeBuilder::local_inval(buf, at, Rkey(p.mr_a.rkey() ^ 1)))
    }),
    ("atomic result under a wrong key", Syndrome::LocalProt, None, "data.lkey", |p, buf, at| {
        let back = Local { addr: p.mr_a.addr(), lkey: Lkey(2) };
        finish(WqeBuilder::compare_swap(buf, at, remote(&p.mr_b, 0), 0, 0, back))
    }),
];

#[test]
fn each_error_ends_the_right_side_and_flushes_the_rest() {
    for &(name, syndrome, at_peer, field, build) in CASES {
        let mut pair = Pair::default();
        for _ in 0..2 {
            let to = sge(&pair.mr_b, 0, 16);
            pair.b.post_recv(&[to]);
        }
        pair.a.put_wqe(|buf, at| WqeBuilder::nop(buf, at).signaled());
        let mut bytes = [0; 1024];
        let len = build(&pair, &mut bytes, pair.a.position());
        let index = pair.a.put_bytes(&bytes[..len]) as u16;
        let rest = [Completion::OnError, Completion::Always, Completion::OnFirstError]
            .map(|when| pair.a.put_wqe(|buf, at| WqeBuilder::nop(buf, at).completion(when)) as u16);
        pair.a.announce();
        pair.run();

        let first = pair.a.poll_send();
        assert!(matches!(first, Some(Cqe::Requester { wqe_counter: 0, .. })), "{name}: {first:?}");
        assert_eq!(error(pair.a.poll_send()), failed(syndrome, index), "{name}");
        // The third of the rest asked for the first error alone.
        for &flushed in &rest[..2] {
            assert_eq!(error(pair.a.poll_send()), failed(Syndrome::WrFlush, flushed), "{name}");
        }
        assert_eq!((pair.a.poll_send(), pair.a.qp.state()), (None, QpState::Err), "{name}");
        let violations = pair.nic.take_violations();
        let [violation] = violations[..] else { panic!("{name}: {violations:?}") };
        let place = (violation.rule.field(), violation.qpn, violation.index);
        assert_eq!(place, (field, pair.a.qp.qpn(), u64::from(index)), "{name}");
        // The rule alone does not know that a key was to be invalidated.
        let inval = name.starts_with("invalidating");
        let of_rule = if inval { Syndrome::LocalProt } else { syndrome };
        assert_eq!(violation.rule.status(), Some(of_rule.status()), "{name}");
        let (index, status) = (u64::from(index), syndrome.status());
        let first = FirstError { index, status, rule: Some(violation.rule) };
        assert_eq!(pair.a.qp.first_error(), Some(first), "{name}");

        let state = if at_peer.is_some() { QpState::Err } else { QpState::Rts };
        assert_eq!(pair.b.qp.state(), state, "{name}");
        if let Some(first) = at_peer {
            assert_eq!(error(pair.b.poll_recv()), receive_failed(first, 0), "{name}");
            assert_eq!(error(pair.b.poll_recv()), receive_failed(Syndrome::WrFlush, 1), "{name}");
        }
        assert_eq!(pair.b.poll_recv(), None, "{name}");
    }
}

#[test]
fn rights_are_checked_on_both_sides() {
    let none = Access::empty();
    let rights =
        [(none, Access::all(), Syndrome::LocalProt), (Access::all(), none, Syndrome::RemoteAccess)];
    for (a, b, expected) in rights {
        let mut pair = Pair::default();
        let mr = |region, access| pair.nic.reg_mr(&pair.pd, region, access).unwrap();
        let (mr_a, mr_b) = (mr(pair.mr_a.region(), a), mr(pair.mr_b.region(), b));
        let (from, to) = (remote(&mr_b, 0), sge(&mr_a, 0, 8));
        pair.a.post_wqe(|buf, at| WqeBuilder::read(buf, at, from).sge(to));
        pair.run();
        assert_eq!(pair.a.sent(), [(0, Some(expected))]);
    }
}

#[test]
fn keys_of_another_domain_are_refused() {
    let mut pair = Pair::default();
    let other = pair.nic.alloc_pd();
    let mr = pair.nic.reg_mr(&other, pair.mr_b.region(), Access::all()).unwrap();
    let to = remote(&mr, 0);
    pair.a.post_wqe(|buf, at| WqeBuilder::write(buf, at, to).inline(b"x"));
    pair.run();
    assert_eq!(pair.a.sent(), [(0, Some(Syndrome::RemoteAccess))]);
    let rule = pair.nic.take_violations()[0].rule;
    let expected = pair.pd.number();
    assert!(
        matches!(rule, Rule::Key { error: warpverbs_mem::AccessError::WrongPd { expected: e, .. }, .. } if e == expected)
    );
}

#[test]
fn a_qp_grants_what_its_attributes_say() {
    let attrs = QpAttrs { access: Some(Access::REMOTE_READ), ..QpAttrs::default() };
    let mut pair = Pair::new(PairConfig { attrs, ..PairConfig::default() }).unwrap();
    let (there, here) = (remote(&pair.mr_b, 0), sge(&pair.mr_a, 0, 8));
    pair.a.post_wqe(|buf, at| WqeBuilder::read(buf, at, there).sge(here).signaled());
    pair.a.post_wqe(|buf, at| WqeBuilder::write(buf, at, there).sge(here));
    pair.run();
    assert_eq!(pair.a.sent(), [(0, None), (1, Some(Syndrome::RemoteInvalReq))]);
    let request = AsyncEvent::QpRequestError { qpn: pair.b.qp.qpn() };
    let events: Vec<_> = std::iter::from_fn(|| pair.nic.poll_event()).collect();
    assert!(events.contains(&request), "{events:?}");
}

#[test]
fn reads_need_depth_on_both_sides() {
    let zero_here = QpAttrs { max_rd_atomic: Some(0), ..QpAttrs::default() };
    let zero_there = QpAttrs { max_dest_rd_atomic: Some(0), ..QpAttrs::default() };
    for (attrs, expected) in
        [(zero_here, Syndrome::LocalQpOp), (zero_there, Syndrome::RemoteInvalReq)]
    {
        let mut pair = Pair::new(PairConfig { attrs, ..PairConfig::default() }).unwrap();
        let (there, here) = (remote(&pair.mr_b, 0), sge(&pair.mr_a, 0, 8));
        pair.a.post_wqe(|buf, at| WqeBuilder::read(buf, at, there).sge(here));
        pair.run();
        assert_eq!(pair.a.sent(), [(0, Some(expected))]);
    }
}

#[test]
fn a_bad_receive_is_an_operational_error() {
    let key = |pair: &Pair| Sge { lkey: Lkey(pair.mr_b.lkey() ^ 1), ..sge(&pair.mr_b, 0, 8) };
    for bad_key in [true, false] {
        let mut pair = Pair::default();
        match bad_key {
            true => pair.b.post_recv(&[key(&pair)]),
            // byte_count 0 with an lkey that does not end the list.
            false => pair.b.post_recv_bytes(&[0; 64]),
        }
        pair.a.post_wqe(|buf, at| WqeBuilder::send(buf, at).inline(b"x"));
        pair.run();
        assert_eq!(pair.a.sent(), [(0, Some(Syndrome::RemoteOp))]);
        let own = if bad_key { Syndrome::LocalProt } else { Syndrome::LocalQpOp };
        assert_eq!(pair.b.received(), [(0, Some(own))]);
        let violations = pair.nic.take_violations();
        let place = (violations[0].queue, violations[0].qpn, violations[0].index);
        assert_eq!(place, (QueueKind::Receive, pair.b.qp.qpn(), 0));
        assert_eq!(violations.len(), 1);
    }
}

#[test]
fn a_refused_invalidation_is_not_answered() {
    let attrs = QpAttrs { timeout: Some(1), retry: Some(2), ..QpAttrs::default() };
    let mut pair = Pair::new(PairConfig { attrs, ..PairConfig::default() }).unwrap();
    pair.b.post_recv(&[]);
    let plain = pair.nic.reg_mr(&pair.pd, pair.mr_b.region(), Access::LOCAL_WRITE).unwrap();
    pair.a.post_wqe(|buf, at| WqeBuilder::send_inval(buf, at, Rkey(plain.rkey())));
    pair.run();
    assert_eq!(pair.a.poll_send(), None);
    assert_eq!(pair.b.received(), [(0, Some(Syndrome::RemoteInvalReq))]);
    pair.run_for(std::time::Duration::from_millis(1));
    assert_eq!(pair.a.sent(), [(0, Some(Syndrome::TransportRetryExc))]);
    assert_eq!(pair.a.qp.stats().timeouts, 3);
}

#[test]
fn silence_is_an_error_after_all_retries() {
    let attrs = QpAttrs { timeout: Some(10), retry: Some(3), ..QpAttrs::default() };
    let mut pair = Pair::new(PairConfig { attrs, ..PairConfig::default() }).unwrap();
    pair.b.qp.modify(QpState::Err, &QpAttrs::default()).unwrap();
    pair.a.post_wqe(|buf, at| WqeBuilder::send(buf, at));
    let timeout = warpverbs_nic::ack_timeout(10).unwrap();
    pair.run_for(timeout * 3 - std::time::Duration::from_nanos(1));
    assert_eq!(pair.a.poll_send(), None);
    pair.run_for(std::time::Duration::from_nanos(1));
    assert_eq!(pair.a.sent(), [(0, Some(Syndrome::TransportRetryExc))]);
}

#[test]
fn only_sends_stop_if_asked() {
    let a = PortConfig { on_send_error: OnSendError::StopSends, ..PortConfig::default() };
    let mut pair = Pair::new(PairConfig { a, ..PairConfig::default() }).unwrap();
    let bad = bad_lkey(sge(&pair.mr_a, 0, 8));
    pair.a.post_wqe(|buf, at| WqeBuilder::send(buf, at).sge(bad));
    pair.a.post_wqe(|buf, at| WqeBuilder::nop(buf, at).signaled());
    pair.run();
    assert_eq!(pair.a.sent(), [(0, Some(Syndrome::LocalProt)), (1, FLUSHED)]);
    assert_eq!(pair.a.qp.state(), QpState::Sqe);
    // Receives go on.
    pair.a.post_recv(&[sge(&pair.mr_a, 0, 8)]);
    pair.b.post_wqe(|buf, at| WqeBuilder::send(buf, at).inline(b"still"));
    pair.run();
    assert!(matches!(pair.a.poll_recv(), Some(Cqe::Receive { byte_cnt: 5, .. })));
    pair.a.qp.modify(QpState::Rts, &QpAttrs::default()).unwrap();
    pair.a.post_wqe(|buf, at| WqeBuilder::nop(buf, at).signaled());
    pair.run();
    assert_eq!(pair.a.sent(), [(2, None)]);
}

#[test]
fn what_is_posted_in_err_is_flushed() {
    let mut pair = Pair::default();
    pair.a.qp.modify(QpState::Err, &QpAttrs::default()).unwrap();
    pair.a.post_wqe(|buf, at| WqeBuilder::nop(buf, at));
    pair.a.post_recv(&[]);
    pair.run();
    assert_eq!(pair.a.sent(), [(0, Some(Syndrome::WrFlush))]);
    assert_eq!(pair.a.received(), [(0, Some(Syndrome::WrFlush))]);
    pair.a.post_recv(&[]);
    pair.run();
    assert_eq!(pair.a.received(), [(1, Some(Syndrome::WrFlush))]);
}

#[test]
fn a_reset_qp_starts_anew() {
    let mut pair = Pair::default();
    pair.a.post_wqe(|buf, at| WqeBuilder::nop(buf, at).signaled());
    pair.run();
    assert_eq!(pair.a.sent(), [(0, None)]);
    pair.a.reset();
    warpverbs_dev::connect(&pair.a, pair.b.qp.qpn(), QpAttrs::default());
    // The same doorbell value as before.
    pair.a.post_wqe(|buf, at| WqeBuilder::nop(buf, at).signaled());
    pair.run();
    assert_eq!(pair.a.sent(), [(0, None)]);
    assert_eq!(pair.nic.take_violations(), []);
}

#[test]
fn a_collapsed_cq_keeps_the_newest_and_the_qp_the_first_error() {
    let a = PortConfig { cq_mode: warpverbs_nic::CqMode::Collapsed, ..PortConfig::default() };
    let mut pair = Pair::new(PairConfig { a, ..PairConfig::default() }).unwrap();
    let bad = bad_rkey(remote(&pair.mr_b, 0));
    pair.a.put_wqe(|buf, at| WqeBuilder::write(buf, at, bad).inline(b"x"));
    pair.a.post_wqe(|buf, at| WqeBuilder::nop(buf, at));
    pair.run();
    let newest = Cqe::parse(&pair.a.collapsed()).unwrap();
    assert_eq!(error(Some(newest)), failed(Syndrome::WrFlush, 1));
    let first = pair.a.qp.first_error().unwrap();
    assert_eq!((first.index, first.status), (0, Status::RemoteAccess));
}

#[test]
fn a_qp_may_be_its_own_peer() {
    let mut pair = Pair::default();
    let config = PortConfig { receives: Receives::Own { log: 2 }, ..PortConfig::default() };
    let mut own = warpverbs_dev::Port::new(&pair.nic, &pair.pd, &config).unwrap();
    warpverbs_dev::connect(&own, own.qp.qpn(), QpAttrs::default());
    own.post_recv(&[sge(&pair.mr_b, 0, 8)]);
    own.post_wqe(|buf, at| WqeBuilder::send(buf, at).inline(b"to me").signaled());
    pair.run();
    assert!(matches!(own.poll_recv(), Some(Cqe::Receive { byte_cnt: 5, .. })));
    assert_eq!(own.sent(), [(0, None)]);
    own.post_wqe(|buf, at| WqeBuilder::send(buf, at).sge(bad_lkey(sge(&pair.mr_a, 0, 1))));
    pair.run();
    assert_eq!(own.sent(), [(1, Some(Syndrome::LocalProt))]);
    pair.a.post_wqe(|buf, at| WqeBuilder::nop(buf, at).signaled());
    assert_eq!(pair.run(), 1, "others go on");
}
