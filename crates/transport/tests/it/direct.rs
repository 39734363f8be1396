//! Work that the host posts to a device of libibverbs by calls, beyond the cases of every NIC.

use crate::common::{Pair, all_access, bytes, simt, word};
use crate::stress::add_up;
use crate::verbs::{context, device};
use std::thread;
use std::time::Duration;
use warpverbs_transport::{
    EndpointConfig, LocalRegion, MaskedFa, MaskedFetchAdd, QpState, QueueKind, SendFlags, Syndrome,
    TransportError, WaitError,
};
use warpverbs_verbs::testing::fake;

const SIGNALED: SendFlags = SendFlags::SIGNALED;
const UNSIGNALED: SendFlags = SendFlags::UNSIGNALED;

/// Threads of this process that are engines of the device's software NIC.
fn engines() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.trim_end() == "nic-fake0").count()
}

fn syndrome(error: &TransportError) -> Option<Syndrome> {
    match error {
        TransportError::Work(work) => Some(work.syndrome),
        _ => None,
    }
}

#[test]
fn only_rings_need_an_engine() {
    let Some(fake) = fake() else { return };
    let device = device(&fake);
    let pair = Pair::on(device.clone(), &EndpointConfig::host());
    let host = pair.a.host().unwrap();
    let post = || host.post_write_inline(&[7; 8], pair.dst.remote(), SIGNALED).unwrap();
    host.wait(post()).unwrap();
    assert_eq!((engines(), word(&pair.dst, 0)), (0, u64::from_le_bytes([7; 8])));
    let rings = Pair::on(device, &EndpointConfig::for_gpu(&simt()));
    let beside = rings.a.host().unwrap();
    beside
        .wait(beside.post_write(rings.src.local(), rings.dst.remote(), SIGNALED).unwrap())
        .unwrap();
    assert_eq!(engines(), 1);
    host.wait(post()).unwrap();
}

#[test]
fn threads_post_in_the_order_of_their_indexes() {
    let Some(fake) = fake() else { return };
    add_up(&Pair::on(device(&fake), &EndpointConfig::host().send_depth(128)), 4, 1000);
}

#[test]
fn a_queue_longer_than_the_devices_fills_and_empties() {
    let Some(fake) = fake() else { return };
    // The device takes 1024 requests and remembers as many completions.
    let pair = Pair::on(device(&fake), &EndpointConfig::host().send_depth(32768));
    let host = pair.a.host().unwrap();
    for flags in [UNSIGNALED, SIGNALED] {
        for n in 0..5000u64 {
            let _ = host.post_write_inline(&n.to_le_bytes(), pair.dst.remote(), flags).unwrap();
        }
    }
    host.quiet().unwrap();
    assert_eq!(word(&pair.dst, 0), 4999);
    let health = pair.a.health().unwrap();
    assert!(health.is_ok() && health.send.completed == health.send.reserved, "{health}");
}

#[test]
fn a_request_takes_one_index_whatever_its_length() {
    let Some(fake) = fake() else { return };
    let pair = Pair::on(device(&fake), &EndpointConfig::host().inline_bytes(64));
    let host = pair.a.host().unwrap();
    let message: [u8; 64] = std::array::from_fn(|i| i as u8);
    // As a WQE it would be two WQEBBs.
    let posted = host.post_write_inline(&message, pair.dst.remote(), SIGNALED).unwrap();
    assert_eq!((posted.index(), posted.end()), (0, 1));
    host.wait(posted).unwrap();
    assert_eq!(bytes(&pair.dst, 0, 64), message);
    assert_eq!(host.post_nop(SIGNALED).unwrap().index(), 1);
}

#[test]
fn a_nop_is_done_when_all_before_it_is() {
    let Some(fake) = fake() else { return };
    let pair = Pair::on(device(&fake), &EndpointConfig::host());
    let host = pair.a.host().unwrap();
    for round in 0..100u64 {
        let written = host.post_write_inline(&round.to_le_bytes(), pair.dst.remote(), UNSIGNALED);
        assert!(!host.is_done(written.unwrap()).unwrap(), "nobody asked");
        let nops = [(); 3].map(|()| host.post_nop(UNSIGNALED).unwrap());
        host.wait(nops[2]).unwrap();
        assert_eq!(host.poll().unwrap(), nops[2].end());
        assert_eq!(word(&pair.dst, 0), round);
    }
    assert!(pair.a.health().unwrap().is_ok());
}

#[test]
fn what_libibverbs_has_no_request_for_fails_in_its_turn() {
    let Some(fake) = fake() else { return };
    let mut pair = Pair::on(device(&fake), &EndpointConfig::host());
    for round in 0..3 {
        let host = pair.a.host().unwrap();
        let _ = host.post_write_inline(&[1; 8], pair.dst.remote(), UNSIGNALED).unwrap();
        let (result, target) = (pair.src.local(), pair.dst.remote());
        let masked = MaskedFetchAdd::B8(MaskedFa { add: 1, boundary: 0 });
        let bad = host.post_masked_fetch_add(result, target, masked, UNSIGNALED).unwrap();
        // Behind it; it may be known by now.
        let behind = host.post_write_inline(&[2; 8], target, SIGNALED);
        let error = behind.and_then(|behind| host.wait(behind)).unwrap_err();
        let TransportError::Work(work) = &error else { panic!("{error}") };
        assert_eq!((work.syndrome, u64::from(work.index)), (Syndrome::LocalQpOp, bad.index()));
        assert_eq!(bytes(&pair.dst, 0, 8), [1; 8], "round {round}: before it, not behind it");
        let health = pair.a.health().unwrap();
        assert_eq!(health.state, QpState::Err);
        let text = health.to_string();
        assert!(text.contains("MASKED_FA"), "{text}");
        assert!(health.first_error.is_some_and(|first| first.rule.is_some()), "{text}");
        pair.restart();
        assert!(pair.a.health().unwrap().is_ok());
    }
}

#[test]
fn keys_are_checked_and_forgotten_with_their_regions() {
    let Some(fake) = fake() else { return };
    let device = device(&fake);
    let pair = Pair::on(device.clone(), &EndpointConfig::host());
    let host = pair.a.host().unwrap();
    let gone = device.alloc_host(64, all_access()).unwrap();
    let (stale, target) = (gone.local(), pair.dst.remote());
    host.wait(host.post_write(stale, target, SIGNALED).unwrap()).unwrap();
    drop(gone);
    let posted = host.post_write(stale, target, SIGNALED).unwrap();
    let error = host.wait(posted).unwrap_err();
    assert_eq!(syndrome(&error), Some(Syndrome::LocalProt), "{error}");
    // Of another domain: found when it is posted, so no message ever meets it.
    let pair = Pair::on(device, &EndpointConfig::host());
    let receiver = pair.b.host().unwrap();
    let key = pair.dst.lkey() ^ 0xffff_ff00;
    let _ = receiver.post_recv(LocalRegion::new(pair.dst.addr(), 8, key)).unwrap();
    let error = receiver.wait_recv().unwrap_err();
    let TransportError::Work(work) = &error else { panic!("{error}") };
    assert_eq!((work.syndrome, work.queue), (Syndrome::LocalProt, QueueKind::Receive));
}

#[test]
fn a_full_device_is_waited_for_and_a_refusal_ends_the_queue() {
    let Some(fake) = fake() else { return };
    let pair = Pair::on(device(&fake), &EndpointConfig::host());
    let host = pair.a.host().unwrap();
    let post = || host.post_write_inline(&[3; 8], pair.dst.remote(), SIGNALED);
    fake.fail_next("ibv_post_send", nix::errno::Errno::ENOMEM as i32);
    fake.fail_next("ibv_post_recv", nix::errno::Errno::ENOMEM as i32);
    host.wait(post().unwrap()).unwrap();
    let _ = host.post_recv(pair.src.local()).unwrap();
    fake.fail_next("ibv_post_send", nix::errno::Errno::ENOMEM as i32);
    let error = host.with_timeout(Duration::ZERO).post_nop(SIGNALED).and_then(|_| post());
    assert!(error.is_ok(), "a NOP needs no room: {error:?}");
    fake.fail_next("ibv_post_send", nix::errno::Errno::EINVAL as i32);
    let error = host.wait(post().unwrap()).unwrap_err();
    assert_eq!(syndrome(&error), Some(Syndrome::LocalQpOp), "{error}");
    let health = pair.a.health().unwrap().to_string();
    assert!(health.contains("22"), "the error number: {health}");
}

#[test]
fn receives_are_as_many_as_the_queue_has() {
    let Some(fake) = fake() else { return };
    let pair = Pair::on(device(&fake), &EndpointConfig::host().recv_depth(16));
    let (a, b) = (pair.a.host().unwrap(), pair.b.host().unwrap());
    for round in 0..3u64 {
        for n in 0..16 {
            assert_eq!(b.post_recv(pair.dst.local()).unwrap().index(), round * 16 + n);
        }
        let error = b.with_timeout(Duration::ZERO).post_recv(pair.dst.local()).unwrap_err();
        assert!(
            matches!(error, TransportError::Wait(WaitError::QueueFull { depth: 16, .. })),
            "{error}"
        );
        for n in 0..16 {
            let _ = a.post_send_imm(pair.src.local().slice(0, 8).unwrap(), n, UNSIGNALED).unwrap();
        }
        for n in 0..16 {
            assert_eq!(b.wait_recv().unwrap().index, round * 16 + n);
        }
    }
}

#[test]
fn work_of_a_failed_queue_is_flushed_and_waits_end() {
    let Some(fake) = fake() else { return };
    let pair = Pair::on(device(&fake), &EndpointConfig::host());
    let (a, b) = (pair.a.host().unwrap(), pair.b.host().unwrap());
    pair.a.fail().unwrap();
    assert_eq!(pair.a.state(), QpState::Err);
    let posted = a.post_nop(SIGNALED).unwrap();
    let error = a.wait(posted).unwrap_err();
    assert_eq!(syndrome(&error), Some(Syndrome::WrFlush), "{error}");
    thread::scope(|scope| {
        let waits = scope.spawn(|| b.wait_recv());
        // The wait is likely to have begun, and ends the same if it has not.
        thread::sleep(Duration::from_millis(10));
        pair.b.abort().unwrap();
        let error = waits.join().unwrap().unwrap_err();
        assert!(matches!(error, TransportError::Wait(WaitError::Aborted { .. })), "{error}");
    });
    let waits = b.with_timeout(Duration::from_millis(5)).wait_recv().unwrap_err();
    assert!(matches!(waits, TransportError::Wait(WaitError::Aborted { .. })), "{waits}");
}

#[test]
fn a_device_that_is_gone_ends_what_it_had() {
    let Some(fake) = fake() else { return };
    let context = context(&fake);
    let pair = Pair::on(context.open("fake0").unwrap(), &EndpointConfig::host());
    let host = pair.a.host().unwrap();
    let posted = host.post_write_inline(&[1; 8], pair.dst.remote(), SIGNALED).unwrap();
    fake.fail_next("ibv_poll_cq", 5);
    let error = host.wait(posted).unwrap_err();
    let TransportError::Work(work) = &error else { panic!("{error}") };
    // IBV_WC_FATAL_ERR, which has no syndrome of its own.
    assert_eq!((work.syndrome, work.index), (Syndrome::Unknown(0xc0 | 19), 0), "{error}");
    // An endpoint that only receives hears of it, too.
    let receiver = pair.b.host().unwrap();
    let _ = receiver.post_recv(pair.dst.local()).unwrap();
    fake.fail_next("ibv_poll_cq", 5);
    let error = receiver.wait_recv().unwrap_err();
    let TransportError::Work(work) = &error else { panic!("{error}") };
    assert_eq!((work.syndrome, work.queue), (Syndrome::Unknown(0xc0 | 19), QueueKind::Receive));
}

#[test]
fn the_device_is_told_what_is_solicited() {
    let Some(fake) = fake() else { return };
    for config in [EndpointConfig::host(), EndpointConfig::for_gpu(&simt())] {
        let pair = Pair::on(device(&fake), &config);
        let (a, b) = (pair.a.host().unwrap(), pair.b.host().unwrap());
        let here = pair.src.local().slice(0, 8).unwrap();
        let before = fake.solicited();
        for flags in [SIGNALED, SIGNALED | SendFlags::SOLICITED] {
            for _ in 0..3 {
                let _ = b.post_recv(pair.dst.local()).unwrap();
            }
            let _ = a.post_send(here, flags).unwrap();
            let _ = a.post_send_inline(&[1; 8], flags).unwrap();
            a.wait(a.post_write_imm(here, pair.dst.remote(), 1, flags).unwrap()).unwrap();
        }
        assert_eq!(fake.solicited() - before, 3);
    }
}
