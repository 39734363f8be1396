//! Every operation of the send queue.

use crate::common::{POLICIES, Pair, bytes, word};
use warpverbs_transport::{
    Access, CqMode, EndpointConfig, Error, LocalRegion, MaskedCompareSwap, MaskedCs, MaskedFa,
    MaskedFetchAdd, Poster, SendFlags, UsageError,
};

const SIGNALED: SendFlags = SendFlags::SIGNALED;

fn fill(pair: &Pair) {
    let data: Vec<u8> = (0..pair.src.len()).map(|i| (i * 7 + i / 256) as u8).collect();
    pair.src.write(0, &data).unwrap();
}

pub(crate) fn writes_and_reads(pair: &Pair, host: Poster<'_>) {
    fill(pair);
    let (local, remote) = (pair.src.local(), pair.dst.remote());
    for len in [1, 8, 63, 64, 4096, 65536] {
        let part = local.slice(0, len).unwrap();
        host.wait(host.post_write(part, remote, SIGNALED).unwrap()).unwrap();
        assert_eq!(bytes(&pair.dst, 0, len as usize), bytes(&pair.src, 0, len as usize));
    }
    let pieces =
        [local.slice(5, 3).unwrap(), local.slice(0, 0).unwrap(), local.slice(90, 10).unwrap()];
    host.wait(host.post_write(pieces, remote.slice(1, 13).unwrap(), SIGNALED).unwrap()).unwrap();
    assert_eq!(bytes(&pair.dst, 1, 3), bytes(&pair.src, 5, 3));
    assert_eq!(bytes(&pair.dst, 4, 10), bytes(&pair.src, 90, 10));

    let inline = host.post_write_inline(b"from the queue itself", remote, SIGNALED).unwrap();
    host.wait(inline).unwrap();
    assert_eq!(bytes(&pair.dst, 0, 21), b"from the queue itself");

    let back = local.slice(1000, 21).unwrap();
    host.wait(host.post_read(back, remote, SIGNALED | SendFlags::FENCE).unwrap()).unwrap();
    assert_eq!(bytes(&pair.src, 1000, 21), b"from the queue itself");

    host.wait(host.post_nop(SIGNALED).unwrap()).unwrap();
}

fn atomics(pair: &Pair, host: Poster<'_>) {
    let (result, target) = (pair.src.local(), pair.dst.remote().slice(64, 8).unwrap());
    pair.dst.write(64, &40u64.to_le_bytes()).unwrap();
    host.wait(host.post_fetch_add(result, target, 2, SIGNALED).unwrap()).unwrap();
    assert_eq!((word(&pair.src, 0), word(&pair.dst, 64)), (40, 42));
    assert_eq!(host.fetch_add(target, u64::MAX).unwrap(), 42);
    assert_eq!(host.compare_swap(target, 0, 7).unwrap(), 41);
    assert_eq!(host.compare_swap(target, 41, 7).unwrap(), 41);
    assert_eq!(word(&pair.dst, 64), 7);
    host.wait(host.post_compare_swap(result, target, 7, 9, SIGNALED).unwrap()).unwrap();
    assert_eq!((word(&pair.src, 0), word(&pair.dst, 64)), (7, 9));

    // Two 32-bit fields; no carry from the lower one. Two WQEBBs.
    pair.dst.write(64, &0x1_ffff_ffffu64.to_le_bytes()).unwrap();
    let fields = MaskedFetchAdd::B8(MaskedFa { add: 0x1_0000_0001, boundary: 1 << 31 });
    host.wait(host.post_masked_fetch_add(result, target, fields, SIGNALED).unwrap()).unwrap();
    assert_eq!((word(&pair.src, 0), word(&pair.dst, 64)), (0x1_ffff_ffff, 0x2_0000_0000));
    let wide = MaskedCs { compare: 2 << 32, compare_mask: 0xff << 32, swap: 0xab, swap_mask: 0xff };
    let wide = MaskedCompareSwap::B8(wide);
    let posted = host.post_masked_compare_swap(result, target, wide, SIGNALED).unwrap();
    assert_eq!(posted.end() - posted.index(), 2);
    host.wait(posted).unwrap();
    assert_eq!(word(&pair.dst, 64), 0x2_0000_00ab);
    // A 4-byte result comes back big-endian.
    let narrow = MaskedFetchAdd::B4(MaskedFa { add: 1, boundary: 0 });
    host.wait(host.post_masked_fetch_add(result, target, narrow, SIGNALED).unwrap()).unwrap();
    assert_eq!(bytes(&pair.src, 0, 4), 0xabu32.to_be_bytes());
    assert_eq!(word(&pair.dst, 64), 0x2_0000_00ac);
}

#[test]
fn every_operation_under_every_doorbell_policy() {
    for (policy, seed) in POLICIES.into_iter().zip(1..) {
        for mode in [CqMode::Collapsed, CqMode::Ring] {
            let config = EndpointConfig::host().send_cq(mode);
            let pair = Pair::with_policy(policy, seed, &config);
            writes_and_reads(&pair, pair.a.host().unwrap());
            atomics(&pair, pair.b.host().map(|_| pair.a.host().unwrap()).unwrap());
            assert!(pair.a.health().unwrap().is_ok() && pair.b.health().unwrap().is_ok());
        }
    }
}

#[test]
fn two_block_requests_go_over_every_ring_and_word_boundary() {
    let pair = Pair::new(&EndpointConfig::host().send_depth(128));
    let (host, target) = (pair.a.host().unwrap(), pair.dst.remote());
    let add =
        |to| MaskedCs { compare: to, compare_mask: u64::MAX, swap: to + 1, swap_mask: u64::MAX };
    // An odd start makes requests of two lie across slots 63|64 and 127|0.
    host.wait(host.post_nop(SIGNALED).unwrap()).unwrap();
    for n in 0..1000 {
        let step = MaskedCompareSwap::B8(add(n));
        let posted =
            host.post_masked_compare_swap(pair.src.local(), target, step, SendFlags::UNSIGNALED);
        let _ = posted.unwrap();
    }
    host.quiet().unwrap();
    assert_eq!(word(&pair.dst, 0), 1000);
}

#[test]
fn unsignalled_work_completes_and_never_fills_the_queue() {
    let pair = Pair::new(&EndpointConfig::host().send_depth(128));
    let host = pair.a.host().unwrap();
    for value in 0..2000u64 {
        let at = pair.dst.remote().slice(value % 64 * 8, 8).unwrap();
        let _ = host.post_write_inline(&value.to_le_bytes(), at, SendFlags::UNSIGNALED).unwrap();
    }
    host.quiet().unwrap();
    for slot in 0..64 {
        assert_eq!(word(&pair.dst, slot * 8) % 64, slot);
        assert!(word(&pair.dst, slot * 8) >= 2000 - 64);
    }
    let lone = host.post_write_inline(&[1], pair.dst.remote(), SendFlags::UNSIGNALED).unwrap();
    host.wait(lone).unwrap();
    assert_eq!(bytes(&pair.dst, 0, 1), [1]);
    host.quiet().unwrap();
}

#[test]
fn keys_are_taken_back_on_both_sides() {
    let pair = Pair::new(&EndpointConfig::host());
    let (a, b) = (pair.a.host().unwrap(), pair.b.host().unwrap());
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::INVALIDATE;
    let window = pair.device.alloc_host(64, access).unwrap();
    let _ = b.post_recv(pair.dst.local()).unwrap();
    a.wait(
        a.post_send_inval(pair.src.local().slice(0, 4).unwrap(), window.rkey(), SIGNALED).unwrap(),
    )
    .unwrap();
    let received = b.wait_recv().unwrap();
    assert_eq!(received.kind, warpverbs_transport::ReceivedKind::SendInval(window.rkey()));
    let late = a.post_write_inline(b"late", window.remote(), SIGNALED).unwrap();
    let error = a.wait(late).unwrap_err();
    assert!(error.to_string().contains("remote access error"), "{error}");

    let own = pair.device.alloc_host(64, access).unwrap();
    b.with_timeout(std::time::Duration::ZERO).poll().unwrap();
    let pair = Pair::on(pair.device.clone(), &EndpointConfig::host());
    let host = pair.a.host().unwrap();
    host.wait(host.post_local_inval(own.lkey(), SIGNALED).unwrap()).unwrap();
    let stale = host.post_write(own.local(), pair.dst.remote(), SIGNALED).unwrap();
    let error = host.wait(stale).unwrap_err();
    assert!(error.to_string().contains("local protection error"), "{error}");
}

#[test]
fn requests_that_cannot_be_are_refused_before_they_are_posted() {
    let pair = Pair::new(&EndpointConfig::host().inline_bytes(16));
    let (host, local, remote) = (pair.a.host().unwrap(), pair.src.local(), pair.dst.remote());
    let short = remote.slice(0, 4).unwrap();
    let refused = [
        host.post_write(local, short, SIGNALED),
        host.post_read(local, short, SIGNALED),
        host.post_write_inline(&[0; 17], remote, SIGNALED),
        host.post_write_inline(&[], remote, SIGNALED),
        host.post_write_inline(&[0; 8], short, SIGNALED),
        host.post_send_inline(&[0; 17], SIGNALED),
        host.post_write([local.slice(0, 1).unwrap(); 15], remote, SIGNALED),
        host.post_send(LocalRegion::new(0, (1 << 30) + 1, 1), SIGNALED),
        host.post_send(LocalRegion::new(0, u64::MAX, 1), SIGNALED),
        host.post_fetch_add(local, short, 1, SIGNALED),
        host.post_fetch_add(local, remote.slice(4, 8).unwrap(), 1, SIGNALED),
        host.post_compare_swap(local.slice(0, 7).unwrap(), remote, 0, 1, SIGNALED),
        host.post_recv([local, local]),
    ];
    for (case, result) in refused.into_iter().enumerate() {
        assert!(matches!(result, Err(Error::Usage(_))), "case {case}: {result:?}");
    }
    assert!(matches!(remote.slice(65530, 8), Err(UsageError::OutOfRange { .. })));
    // None of them left a hole.
    host.wait(host.post_write(local, remote, SIGNALED).unwrap()).unwrap();
    assert_eq!(pair.a.health().unwrap().send.reserved, 1);
}
