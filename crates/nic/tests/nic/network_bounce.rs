//! Memory that only a copy engine reaches, on QPs whose peer is on the network: nothing is reported
//! before its bytes are there, order is kept, and the engine waits for no copy.

use crate::device_network::{self, DONE, LEN, attrs, outcome, rig, rig_with};
use std::time::Duration;
use warpverbs_dev::{Device, bytes, local, pattern, remote, sge};
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_mlx5::wqe::WqeBuilder;
use warpverbs_nic::{Mtu, QpAttrs, Rule};

#[test]
fn a_write_is_complete_when_its_bytes_are_there() {
    let mut rig = rig();
    let (from, to) = (sge(&rig.near.mr, 3, 10), remote(&rig.far.mr, 5));
    rig.near.view.write(3, b"0123456789").unwrap();
    rig.post(|b, at| WqeBuilder::write(b, at, to).sge(from).signaled());
    rig.steps();
    assert_eq!((rig.near.copier.waiting(), rig.net.a.nic.stats().net.sent), (1, 0), "no bytes yet");
    rig.near.copier.allow(1);
    rig.steps();
    assert_eq!((rig.far.copier.waiting(), rig.sent()), (1, None), "they are not there");
    assert_eq!(rig.net.b.nic.stats().net.sent, 0, "nor acknowledged");
    rig.far.copier.allow(1);
    rig.net.run();
    assert_eq!(bytes(&rig.far.view, 5, 10), b"0123456789");
    assert_eq!(rig.sent(), DONE);
}

#[test]
fn a_receive_is_complete_when_its_bytes_are_there() {
    let mut rig = rig();
    rig.net.b.port.post_recv(&[
        sge(&rig.far.mr, 0, 4),
        sge(&rig.net.b.mr, 0, 2),
        sge(&rig.far.mr, 9, 9),
    ]);
    rig.post(|b, at| WqeBuilder::send(b, at).inline(b"scattered").signaled());
    rig.steps();
    assert_eq!((rig.received(), rig.sent()), (None, None));
    assert_eq!(bytes(rig.net.b.mr.region(), 0, 2), [0; 2], "the host's part waits for the first");
    rig.far.copier.allow(1);
    rig.steps();
    assert_eq!((rig.received(), rig.sent()), (None, None));
    rig.far.copier.allow(1);
    rig.net.run();
    assert_eq!((rig.received(), rig.sent()), (DONE, DONE));
    let parts = [
        bytes(&rig.far.view, 0, 4),
        bytes(rig.net.b.mr.region(), 0, 2),
        bytes(&rig.far.view, 9, 3),
    ];
    assert_eq!(parts.concat(), b"scattered");
}

#[test]
fn a_read_is_complete_when_its_bytes_are_here_and_sees_what_was_written_before() {
    let mut rig = rig();
    let (there, here) = (remote(&rig.far.mr, 100), sge(&rig.near.mr, 200, 6));
    rig.post(|b, at| WqeBuilder::write(b, at, there).inline(b"before"));
    rig.post(|b, at| WqeBuilder::read(b, at, there).sge(here).signaled());
    rig.steps();
    assert_eq!(rig.far.copier.waiting(), 2, "the WRITE's bytes in, then the READ's out");
    rig.far.copier.allow(2);
    rig.steps();
    assert_eq!((rig.near.copier.waiting(), rig.sent()), (1, None));
    rig.near.copier.allow(1);
    rig.net.run();
    assert_eq!(bytes(&rig.near.view, 200, 6), b"before");
    assert_eq!(rig.sent(), DONE);
}

#[test]
fn a_flag_does_not_overtake_data() {
    let mut rig = rig();
    let host = remote(&rig.net.b.mr, 0);
    let (data, behind) = (remote(&rig.far.mr, 0), remote(&rig.far.mr, 4));
    rig.post(|b, at| WqeBuilder::write(b, at, data).inline(b"data"));
    rig.post(|b, at| WqeBuilder::write(b, at, host).inline(b"flag"));
    rig.post(|b, at| WqeBuilder::write(b, at, behind).inline(b"more").signaled());
    rig.steps();
    assert_eq!(bytes(rig.net.b.mr.region(), 0, 4), [0; 4]);
    assert_eq!(rig.far.copier.waiting(), 1, "data behind a flag waits for it");
    rig.far.copier.allow(1);
    rig.steps();
    assert_eq!(bytes(rig.net.b.mr.region(), 0, 4), b"flag");
    rig.far.copier.allow(1);
    rig.net.run();
    assert_eq!((bytes(&rig.far.view, 0, 8), rig.sent()), (b"datamore".to_vec(), DONE));
    // Data and flag that lie together are two copies all the same.
    for word in [b"DATA", b"MORE"] {
        let to = if word == b"DATA" { data } else { behind };
        rig.post(|b, at| WqeBuilder::write(b, at, to).inline(word).signaled());
    }
    rig.steps();
    assert_eq!(rig.far.copier.waiting(), 2);
    rig.far.copier.allow(1);
    rig.steps();
    assert_eq!(bytes(&rig.far.view, 0, 8), b"DATAmore");
    rig.far.copier.allow(1);
    rig.net.run();
    assert_eq!((rig.sent(), rig.sent()), (DONE, DONE));
}

/// A WRITE may come as several messages of whole packets.
#[test]
fn whole_packets_may_share_a_copy_and_a_flag_behind_them_does_not() {
    let mut rig = rig_with(QpAttrs { mtu: Some(Mtu::B256), ..attrs() });
    let from = sge(&rig.net.a.mr, 0, 256);
    for at in [0, 256, 512] {
        let to = remote(&rig.far.mr, at);
        rig.post(|b, at| WqeBuilder::write(b, at, to).sge(from));
    }
    let to = remote(&rig.far.mr, 768);
    rig.post(|b, at| WqeBuilder::write(b, at, to).inline(b"flag").signaled());
    rig.steps();
    assert_eq!(rig.far.copier.waiting(), 2);
    rig.go();
    rig.net.run();
    assert_eq!((bytes(&rig.far.view, 768, 4), rig.sent()), (b"flag".to_vec(), DONE));
}

#[test]
fn a_fenced_write_takes_what_a_read_brought() {
    let mut rig = rig();
    rig.far.view.write(0, b"read me").unwrap();
    let (there, here, back) =
        (remote(&rig.far.mr, 0), sge(&rig.near.mr, 0, 7), remote(&rig.far.mr, 50));
    rig.post(|b, at| WqeBuilder::read(b, at, there).sge(here));
    rig.post(|b, at| {
        let fence = warpverbs_mlx5::flags::Fence::Fence;
        WqeBuilder::write(b, at, back).sge(here).fence(fence).signaled()
    });
    rig.go();
    rig.net.run();
    assert_eq!((bytes(&rig.far.view, 50, 7), rig.sent()), (b"read me".to_vec(), DONE));
}

#[test]
fn long_messages_go_in_few_copies_and_come_out_whole() {
    let mut rig = rig();
    rig.go();
    let data = pattern(LEN, 1);
    rig.near.view.write(0, &data).unwrap();
    let (from, to) = (sge(&rig.near.mr, 0, LEN as u32), remote(&rig.far.mr, 0));
    rig.post(|b, at| WqeBuilder::write(b, at, to).sge(from).signaled());
    rig.net.run_for(Duration::from_millis(1));
    assert_eq!(rig.sent(), DONE);
    assert!(bytes(&rig.far.view, 0, LEN) == data);
    let [a, b] = [&rig.net.a, &rig.net.b].map(|host| host.nic.stats().net);
    assert_eq!((a.bounced_bytes, b.bounced_bytes), (LEN as u64, LEN as u64));
    assert!(a.bounced_copies <= 16 && b.bounced_copies <= 32, "{a:?} {b:?}");
    rig.near.view.fill(0, LEN, 0).unwrap();
    let (back, there) = (sge(&rig.near.mr, 0, LEN as u32), remote(&rig.far.mr, 0));
    rig.post(|b, at| WqeBuilder::read(b, at, there).sge(back).signaled());
    rig.net.run_for(Duration::from_millis(1));
    assert_eq!(rig.sent(), DONE);
    assert!(bytes(&rig.near.view, 0, LEN) == data);
    let [a, b] = [&rig.net.a, &rig.net.b].map(|host| host.nic.stats().net);
    assert_eq!((a.bounce_full, b.bounce_full), (0, 0));
}

#[test]
fn what_finds_no_bounce_buffer_comes_again() {
    let mut rig = rig();
    rig.near.copier.pace(1);
    let (from, to) = (sge(&rig.near.mr, 0, LEN as u32), remote(&rig.far.mr, 0));
    rig.near.view.write(0, &pattern(LEN, 9)).unwrap();
    for _ in 0..16 {
        rig.post(|b, at| WqeBuilder::write(b, at, to).sge(from).signaled());
    }
    // Nothing is acknowledged, and everything is sent again and again.
    for _ in 0..40 {
        rig.net.clock.advance(Duration::from_micros(50));
        rig.steps();
    }
    rig.far.copier.pace(2);
    let all = rig.net.run_until(Duration::from_secs(1), |net| {
        while let Some(cqe) = net.a.port.poll_send() {
            assert_eq!(outcome(Some(cqe)), DONE);
        }
        net.a.port.qp.stats().wqes.total() == 16
    });
    assert!(all, "{:?}", rig.net.b.nic.stats());
    assert!(bytes(&rig.far.view, 0, LEN) == pattern(LEN, 9));
}

#[test]
fn atomics_on_a_device_are_done_once_after_what_came_before_and_before_what_comes_after() {
    let mut rig = rig();
    let word = remote(&rig.far.mr, 16);
    let here = local(&rig.near.mr, 8);
    rig.post(|b, at| WqeBuilder::write(b, at, word).inline(&40u64.to_le_bytes()));
    rig.post(|b, at| WqeBuilder::fetch_add(b, at, word, 2, here).signaled());
    rig.post(|b, at| WqeBuilder::write(b, at, word).inline(&7u64.to_le_bytes()).signaled());
    for left in (0..3).rev() {
        rig.steps();
        assert_eq!(rig.far.copier.waiting(), 1, "WRITE, fetch, store: {left} to come");
        assert_eq!(rig.sent(), None);
        rig.far.copier.allow(1);
    }
    rig.steps();
    assert_eq!(bytes(&rig.far.view, 16, 8), 42u64.to_le_bytes());
    rig.go();
    rig.net.run();
    assert_eq!((rig.sent(), rig.sent()), (DONE, DONE));
    assert_eq!(bytes(&rig.far.view, 16, 8), 7u64.to_le_bytes());
    assert_eq!(bytes(&rig.near.view, 8, 8), 40u64.to_le_bytes());
    rig.post(|b, at| WqeBuilder::compare_swap(b, at, word, 7, 8, here).signaled());
    rig.net.run();
    assert_eq!(rig.sent(), DONE);
    assert_eq!(bytes(&rig.far.view, 16, 8), 8u64.to_le_bytes());
    // On the host, behind a copy: also after what came before.
    let (word, data) = (remote(&rig.net.b.mr, 8), remote(&rig.far.mr, 0));
    rig.post(|b, at| WqeBuilder::write(b, at, data).inline(b"first"));
    rig.post(|b, at| WqeBuilder::fetch_add(b, at, word, 1, here).signaled());
    rig.net.run();
    assert_eq!((rig.sent(), bytes(rig.net.b.mr.region(), 8, 1)), (DONE, vec![1]));
}

#[test]
fn a_key_taken_back_is_refused_as_ever() {
    let mut rig = rig();
    let to = remote(&rig.far.mr, LEN as u64 - 3);
    rig.post(|b, at| WqeBuilder::write(b, at, to).inline(b"four").signaled());
    rig.net.run();
    assert_eq!(rig.sent(), Some(Err(Syndrome::RemoteAccess)));
    assert!(matches!(rig.net.b.nic.take_violations()[0].rule, Rule::Key { .. }));

    let mut rig = device_network::rig();
    rig.near.copier.pace(1);
    let (from, to) = (sge(&rig.near.mr, 0, LEN as u32), remote(&rig.far.mr, 0));
    rig.post(|b, at| WqeBuilder::write(b, at, to).sge(from).signaled());
    rig.steps();
    let Device { mr, view, copier } = rig.far;
    drop(mr);
    copier.allow(u64::MAX);
    rig.net.run_for(Duration::from_millis(20));
    assert_eq!(outcome(rig.net.a.port.poll_send()), Some(Err(Syndrome::RemoteAccess)));
    drop(view);
}
