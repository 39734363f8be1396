//! Receive queues: laps, bounds, and shared ones.

use crate::common::{NICS, Pair, bytes, connect};
use std::time::Duration;
use warpverbs_transport::{
    AsyncEvent, Endpoint, EndpointConfig, QueueKind, SendFlags, TransportError, WaitError,
};

const SIGNALED: SendFlags = SendFlags::SIGNALED;

#[test]
fn receives_wrap_their_ring_and_keep_their_index() {
    const DEPTH: u32 = 32;
    for nic in NICS {
        let pair = Pair::over(nic, &EndpointConfig::host().recv_depth(DEPTH));
        // A ring of ionic's keeps one place free.
        let each = u64::from(DEPTH) - u64::from(nic == "soft-ionic");
        let (a, b) = (pair.a.host().unwrap(), pair.b.host().unwrap());
        // Beyond 16 bits, in which queues count.
        for n in (0..66_000u64).step_by(each as usize) {
            for i in n..n + each {
                let at = pair.dst.local().slice(i % each * 8, 8).unwrap();
                assert_eq!(b.post_recv(at).unwrap().index(), i);
            }
            for i in n..n + each {
                let _ = a.post_send_inline(&i.to_le_bytes(), SendFlags::UNSIGNALED).unwrap();
            }
            for i in n..n + each {
                let received = b.wait_recv().unwrap();
                assert_eq!((received.index, received.byte_len), (i, 8));
                assert_eq!(bytes(&pair.dst, i % each * 8, 8), i.to_le_bytes());
            }
        }
    }
}

#[test]
fn a_full_receive_queue_says_so_and_takes_nothing() {
    let pair = Pair::new(&EndpointConfig::host().recv_depth(2));
    let b = pair.b.host().unwrap().with_timeout(Duration::ZERO);
    let _ = (b.post_recv([]).unwrap(), b.post_recv([]).unwrap());
    let full = b.post_recv([]).unwrap_err();
    let TransportError::Wait(WaitError::QueueFull { queue: QueueKind::Receive, depth: 2, .. }) =
        full
    else {
        panic!("{full}");
    };
    assert_eq!(pair.b.health().unwrap().receive.reserved, 2);
}

#[test]
fn a_shared_queue_gets_back_what_its_endpoints_took() {
    let pair = Pair::new(&EndpointConfig::host());
    let srq = pair.device.srq(4, 1).unwrap();
    let config = EndpointConfig::host().recv_depth(4).srq(&srq);
    let fill = || {
        let posted = std::iter::from_fn(|| srq.post_recv(pair.dst.local().slice(0, 8).ok()?).ok());
        posted.count()
    };
    assert_eq!(fill(), 3);
    let connected = || pair.device.pair(&config).unwrap();
    let send = |sender: &Endpoint, data: &[u8]| {
        let host = sender.host().unwrap();
        host.wait(host.post_send_inline(data, SIGNALED)?)
    };

    let (sender, receiver) = connected();
    send(&sender, &[1; 9]).unwrap_err();
    let error = receiver.host().unwrap().wait_recv().unwrap_err();
    assert!(matches!(error, TransportError::Work(_)), "{error}");
    assert_eq!(fill(), 1, "the receive that was too small");

    let (sender, receiver) = connected();
    send(&sender, &[1; 8]).unwrap();
    drop(receiver);
    assert_eq!(fill(), 1, "a message that nobody asked for");

    let (sender, mut receiver) = connected();
    send(&sender, &[1; 8]).unwrap();
    receiver.reset().unwrap();
    assert_eq!(fill(), 1, "a message from before a reset");
}

#[test]
fn a_shared_queue_deeper_than_the_endpoint_s_own_overruns_no_cq() {
    let pair = Pair::new(&EndpointConfig::host());
    let srq = pair.device.srq(32, 1).unwrap();
    for i in 0..31 {
        srq.post_recv(pair.dst.local().slice(8 * i, 8).unwrap()).unwrap();
    }
    let sender = pair.device.endpoint(&EndpointConfig::host()).unwrap();
    let config = EndpointConfig::host().recv_depth(4).srq(&srq);
    let receiver = pair.device.endpoint(&config).unwrap();
    connect(&sender, &receiver);
    srq.set_limit(8);
    let (host, peer) = (sender.host().unwrap(), receiver.host().unwrap());
    // Nobody polls while 31 messages arrive.
    for i in 0..31u64 {
        host.wait(host.post_send_inline(&i.to_le_bytes(), SIGNALED).unwrap()).unwrap();
    }
    for i in 0..31u64 {
        assert_eq!(peer.wait_recv().unwrap().byte_len, 8);
        assert_eq!(bytes(&pair.dst, 8 * i, 8), i.to_le_bytes());
    }
    let health = receiver.health().unwrap();
    assert!(health.is_ok(), "{health}");
    assert_eq!(health.events, [AsyncEvent::SrqLimit { srqn: srq.srqn() }]);
    assert!(sender.health().unwrap().events.is_empty());
}
