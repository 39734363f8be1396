//! Work requests and completions.

use crate::pair::{End, pair};
use nix::errno::Errno;
use std::time::Duration;
use warpverbs_verbs::testing::fake;
use warpverbs_verbs::{
    AsyncEvent, CompChannel, Completion, Cq, CqEvent, CqOptions, Data, Op, QpAttrs, QpState,
    RecvList, Remote, Rkey, SendFlags, SendList, Srq, SrqOptions, Status, WcOpcode,
};

#[test]
fn receives_tell_what_came() {
    let Some(fake) = fake() else { return };
    let (a, b) = pair(&fake);
    for id in 0..4 {
        b.receive(id, 64 * id, 64);
    }
    let sge = a.mr.sge(0, 5).unwrap();
    a.mr.region().write(0, b"hello").unwrap();
    a.send(0, Op::Send, &[sge]);
    a.send(1, Op::SendImm(0xdead_beef), &[sge, sge]);
    a.send(2, Op::SendInvalidate(Rkey(42)), &[]);
    a.send(3, Op::WriteImm(b.remote(1000), 7), &[sge]);
    let came = b.poll();
    let told: Vec<_> = came
        .iter()
        .map(|c| (c.id(), c.opcode(), c.byte_len(), c.imm(), c.invalidated_rkey()))
        .collect();
    assert_eq!(
        told,
        [
            (0, WcOpcode::Recv, 5, None, None),
            (1, WcOpcode::Recv, 10, Some(0xdead_beef), None),
            (2, WcOpcode::Recv, 0, None, Some(42)),
            (3, WcOpcode::RecvWriteImm, 5, Some(7), None)
        ]
    );
    assert!(came.iter().all(|c| c.qpn() == b.qp.qpn()));
    assert_eq!((b.bytes(64, 10), b.bytes(1000, 5)), (b"hellohello".to_vec(), b"hello".to_vec()));
}

#[test]
fn a_list_is_posted_whole_and_used_again() {
    let Some(fake) = fake() else { return };
    let (a, b) = pair(&fake);
    let mut list = SendList::new(8, 8, 64);
    for round in 0..3u64 {
        list.clear();
        for i in 0..8 {
            let text = [b'a' + i as u8 + round as u8; 4];
            let op = Op::Write(b.remote(8 * i));
            list.push(i, op, Data::Inline(&text), SendFlags::empty()).unwrap();
        }
        list.signal_last();
        a.qp.post_send(&mut list).unwrap();
        let ended = a.poll();
        assert_eq!(ended.iter().map(Completion::id).collect::<Vec<_>>(), [7]);
        for i in 0..8 {
            assert_eq!(b.bytes(8 * i, 4), [b'a' + i as u8 + round as u8; 4]);
        }
    }
    fake.fail_next("ibv_post_send", libc::ENOMEM);
    let error = a.qp.post_send(&mut list).unwrap_err();
    assert_eq!((error.source.errno, error.posted, error.total), (Errno::ENOMEM, 0, 8));
    // The device of this library refuses a list of five entries, the second of the three.
    let five = [a.mr.sge(0, 1).unwrap(); 5];
    let mut list = SendList::new(3, 7, 0);
    for (id, sges) in [(0, 1), (1, 5), (2, 1)] {
        let op = Op::Write(b.remote(0));
        list.push(id, op, Data::Sges(&five[..sges]), SendFlags::SIGNALED).unwrap();
    }
    let error = a.qp.post_send(&mut list).unwrap_err();
    assert_eq!((error.posted, error.total, list.id(error.posted)), (1, 3, Some(1)));
    assert_eq!(a.poll().len(), 1);
}

#[test]
fn keys_guard_memory_on_both_sides() {
    let Some(fake) = fake() else { return };
    let statuses = |op: fn(&End) -> Op, lkey: u32| {
        let (a, b) = pair(&fake);
        let sge = a.mr.sge(0, 8).unwrap();
        let sge = warpverbs_verbs::Sge::new(sge.addr, sge.len, sge.lkey.0 ^ lkey);
        a.receive(50, 0, 8);
        a.send(1, op(&b), &[sge]);
        a.send(2, Op::Send, &[]);
        assert_eq!(a.qp.state().unwrap(), QpState::Err);
        a.poll().iter().map(|c| (c.id(), c.status())).collect::<Vec<_>>()
    };
    let beyond = |b: &End| Op::Write(Remote { addr: b.remote(4090).addr, ..b.remote(0) });
    let flushed = [(50, Status::Flushed), (2, Status::Flushed)];
    let remote = statuses(beyond, 0);
    assert_eq!((remote[0], &remote[1..]), ((1, Status::RemoteAccess), &flushed[..]));
    let local = statuses(|b| Op::Write(b.remote(0)), 1);
    assert_eq!((local[0], &local[1..]), ((1, Status::LocalProtection), &flushed[..]));
    let unready = statuses(|_| Op::Send, 0);
    assert_eq!(unready[0], (1, Status::RnrRetryExceeded));
}

#[test]
fn a_peer_that_is_gone_is_missed() {
    let Some(fake) = fake() else { return };
    let (a, b) = pair(&fake);
    drop(b);
    a.send(1, Op::Send, &[]);
    let ended = a.poll();
    assert_eq!(ended[0].status(), Status::RetryExceeded);
    assert_eq!(ended[0].vendor_error(), 0x77);
    assert!(format!("{ended:?}").contains("RetryExceeded"), "{ended:?}");
}

#[test]
fn shared_receives_serve_several_qps_and_warn_when_they_run_out() {
    let Some(fake) = fake() else { return };
    let context = fake.verbs().device("fake0").unwrap().open().unwrap();
    let mut shared = None;
    let b = End::new(&context, |pd| {
        shared = Some(Srq::new(pd, SrqOptions { max_wr: 8, max_sge: 1 }).unwrap());
        shared.clone()
    });
    let (srq, a) = (shared.unwrap(), End::new(&context, |_| None));
    a.connect(&b);
    b.connect(&a);
    assert_eq!(srq.room(), SrqOptions { max_wr: 8, max_sge: 4 });
    let mut list = RecvList::new(4, 4);
    for id in 0..4 {
        list.push(id, &[b.mr.sge(64 * id, 64).unwrap()]).unwrap();
    }
    srq.post_recv(&mut list).unwrap();
    assert_eq!(b.qp.post_recv(&mut list).unwrap_err().source.errno, Errno::EINVAL);
    srq.set_limit(3).unwrap();
    assert_eq!(srq.limit().unwrap(), 3);
    assert!(srq.set_limit(9).is_err());
    for _ in 0..2 {
        a.send(0, Op::Send, &[a.mr.sge(0, 4).unwrap()]);
    }
    assert_eq!(b.poll().len(), 2);
    let event = AsyncEvent::SrqLimit { srqn: srq.id() };
    assert_eq!(context.next_event(Duration::from_secs(30)).unwrap(), Some(event));
    assert_eq!(srq.limit().unwrap(), 0);
}

#[test]
fn an_armed_cq_reports_once() {
    let Some(fake) = fake() else { return };
    let (a, b) = pair(&fake);
    let channel = CompChannel::new(a.pd.context()).unwrap();
    let options = CqOptions::new(8).channel(&channel, 1);
    let cq = Cq::with(a.pd.context(), &options).unwrap();
    let mut end = End::new(a.pd.context(), |_| None);
    let options = warpverbs_verbs::QpOptions::new(&cq);
    end.qp = warpverbs_verbs::Qp::new(&end.pd, &options).unwrap();
    b.qp.modify(QpState::Reset, &QpAttrs::default()).unwrap();
    end.connect(&b);
    b.connect(&end);
    let op = Op::Write(b.remote(0));
    end.send(1, op, &[]);
    assert_eq!(channel.wait(Duration::ZERO).unwrap(), None, "not armed");
    cq.arm(false).unwrap();
    end.send(2, op, &[]);
    end.send(3, op, &[]);
    let event = Some(CqEvent { cq: cq.id() });
    assert_eq!(channel.wait(Duration::from_secs(30)).unwrap(), event);
    assert_eq!(channel.wait(Duration::from_millis(1)).unwrap(), None, "once");
    let mut out = [Completion::default(); 2];
    assert_eq!(cq.poll(&mut out).unwrap(), 2);
    assert_eq!((cq.poll(&mut out).unwrap(), cq.poll(&mut out).unwrap()), (1, 0));
    assert!(cq.resize(4).is_ok() && cq.capacity() == 4);
}

#[test]
fn a_cq_that_overran_is_an_error_and_an_event() {
    let Some(fake) = fake() else { return };
    let (a, b) = pair(&fake);
    a.cq.resize(2).unwrap();
    for id in 0..3 {
        a.send(id, Op::Write(b.remote(0)), &[]);
    }
    let event = AsyncEvent::CqError { cqn: a.cq.id() };
    assert_eq!(a.pd.context().next_event(Duration::from_secs(30)).unwrap(), Some(event));
    let error = a.cq.poll(&mut [Completion::default(); 4]).unwrap_err();
    assert_eq!((error.call, error.errno), ("ibv_poll_cq", Errno::EIO));
}
