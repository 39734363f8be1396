//! Messages: receives, immediates, shared receive queues.

use crate::common::{Pair, bytes};
use std::time::Duration;
use warpverbs_transport::{
    Endpoint, EndpointConfig, Error, QueueKind, ReceivedKind, SendFlags, UsageError, WaitError,
};

const SIGNALED: SendFlags = SendFlags::SIGNALED;

#[test]
fn messages_arrive_in_order_with_their_kind() {
    let pair = Pair::new(&EndpointConfig::host().recv_sges(2));
    let (a, b) = (pair.a.host().unwrap(), pair.b.host().unwrap());
    let dst = |at, len| pair.dst.local().slice(at, len).unwrap();
    let src = |at, len| pair.src.local().slice(at, len).unwrap();
    pair.src.write(0, b"scattered message, imm").unwrap();

    assert_eq!(b.post_recv([dst(0, 9), dst(100, 50)]).unwrap().index(), 0);
    let _ = b.post_recv(dst(200, 8)).unwrap();
    let _ = b.post_recv([]).unwrap();
    let _ = b.post_recv([]).unwrap();
    let _ = a.post_send(src(0, 17), SIGNALED).unwrap();
    let _ = a.post_send_imm(src(19, 3), 0xdead_beef, SIGNALED).unwrap();
    let _ =
        a.post_write_imm(src(0, 4), pair.dst.remote().slice(300, 4).unwrap(), 5, SIGNALED).unwrap();
    let _ = a.post_send([], SIGNALED).unwrap();
    a.quiet().unwrap();

    let got: Vec<_> = (0..4).map(|_| b.wait_recv().unwrap()).collect();
    let kinds: Vec<_> = got.iter().map(|r| (r.index, r.byte_len, r.kind)).collect();
    let expected = [
        (0, 17, ReceivedKind::Send),
        (1, 3, ReceivedKind::SendImm(0xdead_beef)),
        (2, 4, ReceivedKind::WriteImm(5)),
        (3, 0, ReceivedKind::Send),
    ];
    assert_eq!(kinds, expected);
    assert_eq!(
        (bytes(&pair.dst, 0, 9), bytes(&pair.dst, 100, 8)),
        (b"scattered".into(), b" message".into())
    );
    assert_eq!(
        (bytes(&pair.dst, 200, 3), bytes(&pair.dst, 300, 4)),
        (b"imm".into(), b"scat".into())
    );
    assert_eq!(b.poll_recv().unwrap(), None);
}

#[test]
fn receives_wrap_their_ring_and_keep_their_index() {
    let pair = Pair::new(&EndpointConfig::host().recv_depth(4));
    let (a, b) = (pair.a.host().unwrap(), pair.b.host().unwrap());
    for n in (0..66_000u64).step_by(4) {
        for i in n..n + 4 {
            let at = pair.dst.local().slice(i % 4 * 8, 8).unwrap();
            assert_eq!(b.post_recv(at).unwrap().index(), i);
        }
        for i in n..n + 4 {
            let _ = a.post_send_inline(&i.to_le_bytes(), SendFlags::UNSIGNALED).unwrap();
        }
        for i in n..n + 4 {
            let received = b.wait_recv().unwrap();
            assert_eq!((received.index, received.byte_len), (i, 8));
            assert_eq!(bytes(&pair.dst, i % 4 * 8, 8), i.to_le_bytes());
        }
    }
}

#[test]
fn a_full_receive_queue_says_so_and_takes_nothing() {
    let pair = Pair::new(&EndpointConfig::host().recv_depth(2));
    let b = pair.b.host().unwrap().with_timeout(Duration::ZERO);
    let _ = (b.post_recv([]).unwrap(), b.post_recv([]).unwrap());
    let full = b.post_recv([]).unwrap_err();
    let Error::Wait(WaitError::QueueFull { queue: QueueKind::Receive, depth: 2, .. }) = full else {
        panic!("{full}");
    };
    assert_eq!(pair.b.health().unwrap().receive.reserved, 2);
}

#[test]
fn endpoints_share_a_receive_queue_through_many_laps() {
    let pair = Pair::new(&EndpointConfig::host());
    let srq = pair.device.srq(8, 1).unwrap();
    let config = EndpointConfig::host().recv_depth(64).srq(&srq);
    let pairs: Vec<_> = (0..3)
        .map(|_| {
            let sender = pair.device.endpoint(&EndpointConfig::host()).unwrap();
            let receiver = pair.device.endpoint(&config).unwrap();
            sender.connect(&receiver.handle()).unwrap();
            receiver.connect(&sender.handle()).unwrap();
            (sender, receiver)
        })
        .collect();
    for _ in 0..7 {
        srq.post_recv(pair.dst.local().slice(0, 8).unwrap()).unwrap();
    }
    let full = srq.post_recv([]).unwrap_err();
    assert!(matches!(full, Error::Wait(WaitError::SharedQueueFull { receives: 7, .. })));
    let own = pairs[0].1.host().unwrap().post_recv([]).unwrap_err();
    assert!(matches!(own, Error::Usage(UsageError::NoReceiveQueue { .. })));
    for n in 0..600u64 {
        let (sender, receiver) = &pairs[(n * n % 3) as usize];
        let _ = sender.host().unwrap().post_send_inline(&n.to_le_bytes(), SIGNALED).unwrap();
        let received = receiver.host().unwrap().wait_recv().unwrap();
        assert_eq!(received.byte_len, 8);
        assert!(received.index < 8);
        assert_eq!(bytes(&pair.dst, 0, 8), n.to_le_bytes());
        srq.post_recv(pair.dst.local().slice(0, 8).unwrap()).unwrap();
    }
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
    let connected = || {
        let sender = pair.device.endpoint(&EndpointConfig::host()).unwrap();
        let receiver = pair.device.endpoint(&config).unwrap();
        sender.connect(&receiver.handle()).unwrap();
        receiver.connect(&sender.handle()).unwrap();
        (sender, receiver)
    };
    let send = |sender: &Endpoint, data: &[u8]| {
        let host = sender.host().unwrap();
        host.wait(host.post_send_inline(data, SIGNALED)?)
    };

    let (sender, receiver) = connected();
    send(&sender, &[1; 9]).unwrap_err();
    let error = receiver.host().unwrap().wait_recv().unwrap_err();
    assert!(matches!(error, Error::Work(_)), "{error}");
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
