//! Requests at the edges of the ring, and such as cannot be. Tests of the operations themselves are
//! in `crates/conformance`.

use crate::common::{Pair, bytes, word};
use warpverbs_transport::{
    EndpointConfig, LocalRegion, MaskedCompareSwap, MaskedCs, Poster, SendFlags, TransportError,
    UsageError,
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
        assert!(matches!(result, Err(TransportError::Usage(_))), "case {case}: {result:?}");
    }
    assert!(matches!(remote.slice(65530, 8), Err(UsageError::OutOfRange { .. })));
    // None of them left a hole.
    host.wait(host.post_write(local, remote, SIGNALED).unwrap()).unwrap();
    assert_eq!(pair.a.health().unwrap().send.reserved, 1);
}
