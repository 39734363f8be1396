//! The first error, its cause, and recovery.

use crate::common::{Pair, settle, word};
use std::time::Duration;
use warpverbs_nic::{Config, SoftNic};
use warpverbs_transport::{
    Access, AsyncEvent, CqMode, Endpoint, EndpointConfig, ErrorKind, QpState, QueueKind,
    RemoteRegion, SendFlags, Syndrome, TransportError, WaitError, WorkError,
};

const SIGNALED: SendFlags = SendFlags::SIGNALED;

fn work(error: TransportError) -> WorkError {
    match error {
        TransportError::Work(work) => work,
        other => panic!("{other}"),
    }
}

#[test]
fn the_first_cause_outlives_the_flush_that_follows() {
    for mode in [CqMode::Collapsed, CqMode::Ring] {
        let pair = Pair::new(&EndpointConfig::host().send_cq(mode));
        let host = pair.a.host().unwrap();
        let good = host.post_write_inline(&[1; 8], pair.dst.remote(), SIGNALED).unwrap();
        host.wait(good).unwrap();
        let wrong = RemoteRegion::new(pair.dst.addr(), 8, pair.dst.rkey() ^ 0x100);
        let bad = host.post_write_inline(&[2; 8], wrong, SIGNALED).unwrap();
        let mut last = bad;
        for _ in 0..20 {
            match host.post_nop(SIGNALED) {
                Ok(posted) => last = posted,
                Err(error) => assert_eq!(work(error).syndrome, Syndrome::RemoteAccess),
            }
        }
        let error = work(host.wait(last).unwrap_err());
        assert_eq!(
            (error.syndrome, error.qpn, error.queue),
            (Syndrome::RemoteAccess, pair.a.qpn(), QueueKind::Send)
        );
        assert_eq!((u64::from(error.index), error.kind()), (bad.index(), ErrorKind::BadCaller));
        assert_eq!(error.opcode.unwrap().name(), "RDMA_WRITE");
        assert_eq!(work(host.post_nop(SIGNALED).unwrap_err()), error);

        let health = pair.a.health().unwrap();
        assert!(!health.is_ok());
        assert_eq!((health.state, health.syndrome()), (QpState::Err, Some(Syndrome::RemoteAccess)));
        assert_eq!(health.first_error.as_ref().unwrap().index, bad.index());
        let text = health.to_string();
        assert!(text.contains("remote access error") && text.contains("not registered"), "{text}");
        assert_eq!(word(&pair.dst, 0), u64::from_le_bytes([1; 8]));
    }
}

#[test]
fn waits_end_by_their_deadline_and_may_be_repeated() {
    let nic = SoftNic::new(Config { seed: Some(2), ..Config::default() }).unwrap();
    let pair = Pair::stepped(&nic, &EndpointConfig::host().send_depth(128));
    let patient = pair.a.host().unwrap();
    let host = patient.with_timeout(Duration::from_millis(1));
    let mut last = host.post_nop(SIGNALED).unwrap();
    for _ in 1..128 {
        last = host.post_nop(SendFlags::UNSIGNALED).unwrap();
    }
    let TransportError::Wait(WaitError::Timeout { expected: 128, actual: 0, .. }) =
        host.wait(last).unwrap_err()
    else {
        panic!("expected a timeout at 0 of 128");
    };
    let full = host.post_nop(SIGNALED).unwrap_err();
    assert!(
        matches!(full, TransportError::Wait(WaitError::QueueFull { depth: 128, .. })),
        "{full}"
    );
    assert_eq!(full.kind(), ErrorKind::BadLuck);
    assert!(matches!(host.wait_recv(), Err(TransportError::Wait(WaitError::Timeout { .. }))));
    // Nothing was lost: the NIC comes back, and so does everything posted.
    settle(&nic);
    patient.wait(last).unwrap();
    assert_eq!(pair.a.health().unwrap().send.completed, 128);
}

#[test]
fn an_abort_ends_every_wait_until_reset() {
    let nic = SoftNic::new(Config { seed: Some(3), ..Config::default() }).unwrap();
    let mut pair = Pair::stepped(&nic, &EndpointConfig::host());
    let host = pair.a.host().unwrap().with_timeout(Duration::from_secs(3600));
    let posted = host.post_nop(SIGNALED).unwrap();
    std::thread::scope(|scope| {
        let waiters =
            [scope.spawn(|| host.wait(posted)), scope.spawn(|| host.wait_recv().map(drop))];
        pair.a.abort().unwrap();
        for waiter in waiters {
            let error = waiter.join().unwrap().unwrap_err();
            assert!(matches!(error, TransportError::Wait(WaitError::Aborted { .. })), "{error}");
        }
    });
    assert!(pair.a.health().unwrap().aborted);
    pair.a.reset().unwrap();
    assert!(pair.a.health().unwrap().is_ok());
}

#[test]
fn a_scratch_slot_is_not_reused_while_the_nic_may_write_it() {
    let nic = SoftNic::new(Config { seed: Some(4), ..Config::default() }).unwrap();
    let pair = Pair::stepped(&nic, &EndpointConfig::host());
    let host = pair.a.host().unwrap().with_timeout(Duration::ZERO);
    for _ in 0..64 {
        let error = host.fetch_add(pair.dst.remote(), 1).unwrap_err();
        assert!(matches!(error, TransportError::Wait(WaitError::Timeout { .. })), "{error}");
    }
    let error = host.fetch_add(pair.dst.remote(), 1).unwrap_err();
    assert!(matches!(error, TransportError::Wait(WaitError::NoScratch { .. })), "{error}");
}

#[test]
fn access_without_its_local_half_is_refused() {
    let pair = Pair::new(&EndpointConfig::host());
    let error = pair.device.alloc_host(64, Access::REMOTE_WRITE).unwrap_err();
    assert!(error.to_string().contains("LOCAL_WRITE"), "{error}");
}

#[test]
fn events_of_queues_ports_and_devices_are_in_the_health_of_those_concerned() {
    let nic = SoftNic::new(Config::default()).unwrap();
    let pair = Pair::stepped(&nic, &EndpointConfig::host());
    let port = AsyncEvent::Port { port: 1, active: false };
    nic.raise(port);
    for end in [&pair.a, &pair.b] {
        let health = end.health().unwrap();
        assert_eq!((health.is_ok(), &health.events[..]), (true, &[port][..]), "{health}");
        assert!(end.health().unwrap().events.is_empty(), "reported once");
    }
    // Each endpoint hears of its own two CQs.
    (0..64).for_each(|cqn| nic.raise(AsyncEvent::CqError { cqn }));
    let of = |end: &Endpoint| {
        let health = end.health().unwrap();
        assert!(!health.is_ok() && health.failure == Some(health.events[0]), "{health}");
        assert!(health.to_string().contains("CqError"), "{health}");
        health.events
    };
    let (a, b) = (of(&pair.a), of(&pair.b));
    assert_eq!((a.len(), b.len()), (2, 2));
    assert!(a.iter().all(|event| !b.contains(event)), "{a:?} {b:?}");
    let later = pair.a.health().unwrap();
    assert_eq!((later.failure, later.is_ok()), (Some(a[0]), false), "the first failure stays");
}
