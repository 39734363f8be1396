//! Differences of queues of the formats of bnxt_re and ionic. All else is tested by the same tests
//! as mlx5's, here and in `crates/conformance`.

use crate::common::{NICS, Pair, all_access, bytes, connect, word};
use warpverbs_transport::{
    Context, CqMode, EndpointConfig, MaskedCompareSwap, MaskedCs, NicFormat, SendFlags,
    TransportError, UsageError, WorkError,
};

const SIGNALED: SendFlags = SendFlags::SIGNALED;
const OTHERS: [(&str, NicFormat, usize); 2] =
    [("soft-bnxt", NicFormat::Bnxt, 1), ("soft-ionic", NicFormat::Ionic, 2)];

#[test]
fn ends_of_every_two_formats_reach_each_other() {
    let context = Context::new().unwrap();
    let devices = NICS.map(|nic| context.open(nic).unwrap());
    let config = EndpointConfig::host();
    for (a, b) in devices.iter().flat_map(|a| devices.iter().map(move |b| (a, b))) {
        let (a, b, src, dst) = (
            a.endpoint(&config).unwrap(),
            b.endpoint(&config).unwrap(),
            a.alloc_host(4096, all_access()).unwrap(),
            b.alloc_host(4096, all_access()).unwrap(),
        );
        connect(&a, &b);
        let data: Vec<u8> = (0..4096u32).map(|i| (i * 7 + a.qpn()) as u8).collect();
        src.write(0, &data).unwrap();
        let (host, peer) = (a.host().unwrap(), b.host().unwrap());
        let (local, remote) = (src.local(), dst.remote());
        peer.post_recv(dst.local().slice(2048, 64).unwrap()).unwrap();
        let half = local.slice(0, 2048).unwrap();
        host.wait(host.post_write(half, remote, SIGNALED).unwrap()).unwrap();
        let message = host.post_send_inline(&data[..16], SIGNALED).unwrap();
        host.wait(message).unwrap();
        assert_eq!(peer.wait_recv().unwrap().byte_len, 16);
        assert_eq!(host.fetch_add(remote.slice(4088, 8).unwrap(), 5).unwrap(), 0);
        host.wait(host.post_nop(SIGNALED).unwrap()).unwrap();
        assert_eq!(bytes(&dst, 0, 2048), data[..2048]);
        assert_eq!(bytes(&dst, 2048, 16), data[..16]);
        assert_eq!(word(&dst, 4088), 5);
        for end in [&a, &b] {
            let health = end.health().unwrap();
            assert!(health.is_ok(), "{health}");
        }
    }
}

#[test]
fn a_format_refuses_what_it_does_not_have() {
    for (nic, format, entries) in OTHERS {
        let pair = Pair::over(nic, &EndpointConfig::host().inline_bytes(64));
        let (host, local, remote) = (pair.a.host().unwrap(), pair.src.local(), pair.dst.remote());
        let step = MaskedCs { compare: 0, compare_mask: 0, swap: 1, swap_mask: 1 };
        let step = MaskedCompareSwap::B8(step);
        let piece = local.slice(0, 8).unwrap();
        for refused in [
            host.post_masked_compare_swap(local, remote, step, SIGNALED),
            host.post_local_inval(pair.src.rkey(), SIGNALED),
            host.post_write(vec![piece; entries + 1], remote, SIGNALED),
        ] {
            not_of(format, refused);
        }
        not_of(format, pair.device.srq(4, 1));
        not_of(format, pair.device.endpoint(&EndpointConfig::host().consume_only(true)));
        let most = 16 * entries;
        let long = host.post_write_inline(&vec![1; most + 1], remote, SIGNALED).unwrap_err();
        assert!(
            matches!(long, TransportError::Usage(UsageError::Inline { max, .. }) if max == most),
            "{long}"
        );
        host.wait(host.post_write(vec![piece; entries], remote, SIGNALED).unwrap()).unwrap();
        assert_eq!(pair.a.inline_bytes(), most);
    }
}

/// The message names the format.
fn not_of<T>(expected: NicFormat, refused: Result<T, TransportError>) {
    match refused.err() {
        Some(TransportError::Usage(why @ UsageError::NotOfFormat { format, .. })) => {
            assert_eq!(format, expected);
            assert!(why.to_string().contains(&expected.to_string()), "{why}");
        }
        other => panic!("{other:?}, expected a refusal by {expected}"),
    }
}

#[test]
fn the_first_error_is_told_and_a_reset_ends_it() {
    for nic in NICS {
        let config = EndpointConfig::host().send_depth(128).send_cq(CqMode::Ring).recv_depth(4);
        let mut pair = Pair::over(nic, &config);
        for round in 0..5u64 {
            let remote = pair.dst.remote();
            {
                let (host, peer) = (pair.a.host().unwrap(), pair.b.host().unwrap());
                // Laps of the CQs, of which some entries are left there.
                for n in 0..150 + round {
                    let write = host.post_write_inline(&n.to_le_bytes(), remote, SIGNALED).unwrap();
                    host.wait(write).unwrap();
                    peer.post_recv(pair.dst.local().slice(64, 8).unwrap()).unwrap();
                    let _ = host.post_send_inline(&[round as u8; 8], SIGNALED).unwrap();
                    assert_eq!(peer.wait_recv().unwrap().byte_len, 8);
                }
                assert_eq!(word(&pair.dst, 0), 149 + round);
                assert_eq!(bytes(&pair.dst, 64, 8), [round as u8; 8]);
                let wrong = warpverbs_transport::RemoteRegion::new(
                    remote.addr(),
                    8,
                    pair.dst.rkey() ^ 0x100,
                );
                let bad = host.post_write_inline(&[1; 8], wrong, SIGNALED).unwrap();
                let _ = host.post_write_inline(&[2; 8], remote, SIGNALED);
                let error = host.wait(bad).unwrap_err();
                let TransportError::Work(WorkError { syndrome, .. }) = &error else {
                    panic!("{nic}: {error}");
                };
                assert_eq!(*syndrome, warpverbs_transport::Syndrome::RemoteAccess, "{nic}");
                assert_eq!(host.post_nop(SIGNALED).unwrap_err().to_string(), error.to_string());
            }
            let health = pair.a.health().unwrap();
            assert!(!health.is_ok() && health.error.is_some(), "{health}");
            pair.restart();
            let health = pair.a.health().unwrap();
            assert!(health.is_ok(), "{nic}: {health}");
            assert_eq!((health.send.reserved, health.send.completed), (0, 0));
        }
    }
}
