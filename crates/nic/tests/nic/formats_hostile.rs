//! Work that no poster may post, over queues of every format: success or a violation that names the field, never
//! a panic, a hang, or a touch outside of registered memory.

use crate::formats::{pairs, request};
use crate::rig::{LEN, Rig};
use proptest::prelude::*;
use std::time::Duration;
use warpverbs_bnxt::doorbell::Kind;
use warpverbs_bnxt::packets::Packets;
use warpverbs_bnxt::ring::{Library, Ring};
use warpverbs_dev::{PortConfig, Poster, QueueFormat, Reported};
use warpverbs_nic::DoorbellPolicy::{DoorbellFirst, DropThenRecover, RecordFirst};
use warpverbs_nic::{AsyncEvent, Config, CqMode, Mtu, QpState, SoftNic, Status};
use warpverbs_rdma::{Data, Op, Qpn, Remote, SendFlags, Sge};

#[derive(Clone, Debug)]
enum Input {
    /// Bytes that nobody meant.
    Noise(Vec<u8>),
    /// A right WQE, with some bytes changed.
    Changed { kind: u8, offset: u64, len: u32, changes: Vec<(usize, u8)> },
}

fn input() -> impl Strategy<Value = Input> {
    let changes = prop::collection::vec((0..128usize, any::<u8>()), 0..4);
    let changed = (any::<u8>(), 0..LEN as u64 + 512, 0..8192u32, changes);
    prop_oneof![
        prop::collection::vec(any::<u8>(), 64..=256).prop_map(Input::Noise),
        changed.prop_map(|(kind, offset, len, changes)| Input::Changed {
            kind,
            offset,
            len,
            changes
        }),
    ]
}

/// Puts a WQE into the ring. Whether it is an atomic, as far as nothing was changed.
fn put(rig: &mut Rig, input: Input) -> bool {
    let (kind, offset, len, changes) = match input {
        Input::Noise(noise) => {
            rig.a.put_bytes(&noise, 0);
            return false;
        }
        Input::Changed { kind, offset, len, changes } => (kind, offset, len, changes),
    };
    let (there, sges, word) = (rig.there(offset), [rig.sge(offset, len); 2], [rig.sge(0, 8)]);
    // Beyond one unit, where a format has that.
    let inline = if rig.a.format == QueueFormat::Mlx5 { 70 } else { 31 };
    let (op, data) = match kind % 7 {
        0 => (Op::Write(there), Data::Sges(&sges[..1])),
        1 => (Op::Read(there), Data::Sges(&sges)),
        2 => (Op::Send, Data::Sges(&sges[..1])),
        3 => (Op::WriteImm(there, 7), Data::Inline(&[7; 70][..inline])),
        4 => (Op::FetchAdd { remote: there, add: 1 }, Data::Sges(&word)),
        5 => (Op::CompareSwap { remote: there, compare: 1, swap: 2 }, Data::Sges(&word)),
        _ => (Op::SendInvalidate(there.rkey), Data::Inline(&[1; 20])),
    };
    let mut buf = [0; 1024];
    let built = rig.a.try_build(&request(op, data, SendFlags::SIGNALED), &mut buf);
    let (size, bytes) = built.unwrap();
    for (at, byte) in changes {
        buf[at % size] ^= byte;
    }
    rig.a.put_bytes(&buf[..size], bytes);
    matches!(op, Op::FetchAdd { .. } | Op::CompareSwap { .. })
}

/// Polls everything; the first completion of a send that reports a failure.
fn drain(rig: &mut Rig) -> Option<Reported> {
    let sent: Vec<_> = std::iter::from_fn(|| rig.a.poll_send()).collect();
    while rig.b.poll_recv().is_some() {}
    while rig.b.poll_send().is_some() {}
    sent.into_iter().find(|found| !matches!(found, Reported::Sent { status: Status::Success, .. }))
}

fn is_invalid(found: Option<Reported>) -> bool {
    matches!(found, Some(Reported::Sent { status: Status::RemoteInvalidRequest, .. }))
}

/// The fields that the violations of both NICs name, once.
fn fields(rig: &Rig) -> Vec<&'static str> {
    let found = rig.nics.iter().flat_map(SoftNic::take_violations);
    found.map(|violation| violation.rule.field()).collect()
}

fn violations(rig: &Rig) -> u64 {
    rig.nics.iter().map(|nic| nic.stats().violations).sum()
}

fn format() -> impl Strategy<Value = QueueFormat> {
    prop::sample::select(QueueFormat::ALL.to_vec())
}

/// A doorbell that is nearly right: what it would be, with some bits changed; or any.
fn bell() -> impl Strategy<Value = (u64, u64, Option<u64>)> {
    let bits = || prop_oneof![Just(0u64), (0u32..64).prop_map(|bit| 1 << bit), any::<u64>()];
    (0u64..300, bits(), prop::option::of(bits()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_wqe_is_executed_or_named(
        format in format(),
        apart in any::<bool>(),
        inputs in prop::collection::vec((input(), any::<[u8; 32]>(), any::<bool>()), 1..12),
    ) {
        let nic = Config { seed: Some(3), ..Config::default() };
        let mut rig = Rig::new(format, format, apart, nic);
        for (input, receive, receive_is_good) in inputs {
            if receive_is_good {
                rig.b.post_recv(&[Sge::new(rig.mr_b.addr(), LEN as u32, rig.mr_b.lkey())]);
            } else {
                let mut wqe = [0; 128];
                wqe.chunks_exact_mut(32).for_each(|part| part.copy_from_slice(&receive));
                rig.b.post_recv_bytes(&wqe);
            }
            let before = violations(&rig);
            let is_atomic = put(&mut rig, input);
            rig.a.ring();
            rig.run_for(Duration::from_secs(2));
            let failure = drain(&mut rig);
            let failed = failure.is_some();
            prop_assert_eq!(failed, rig.a.qp.state() == QpState::Err);
            // Between NICs, the connection refuses a misaligned atomic before the peer's NIC sees it,
            // and names no rule.
            let misaligned = apart && is_atomic && is_invalid(failure);
            let named = violations(&rig) > before;
            prop_assert!(!failed || named || misaligned, "an error without a violation: {failure:?}");
            prop_assert!(rig.is_intact());
            if failed || rig.b.qp.state() != QpState::Rts || rig.a.posted > 40 {
                rig.restart();
            }
        }
        let stale: u64 = rig.nics.iter().map(|nic| nic.stats().stale_slots).sum();
        prop_assert_eq!(stale, 0);
    }

    /// Over rings that nobody has written, nothing is executed.
    #[test]
    fn any_doorbell_executes_nothing(
        format in format(),
        bells in prop::collection::vec(bell(), 1..40),
        policy in prop::sample::select(vec![DoorbellFirst, RecordFirst, DropThenRecover { polls: 2 }]),
    ) {
        let nic = Config { policy, record_polls: 3, ..Config::default() };
        let port = PortConfig { log_cq: 10, ..PortConfig::default() };
        let mut rig = Rig::with(format, format, false, nic, &port);
        let mut cqes = 0;
        for (posted, bits, receives) in bells {
            let word = u64::from_le_bytes(rig.a.doorbell(posted)) ^ bits;
            // mlx5's record counts sends as well.
            if let Some(other) = receives {
                rig.a.ring_recv(word ^ other);
            }
            rig.a.ring_bytes(word.to_le_bytes());
            rig.run();
            while let Some(found) = rig.a.poll_send() {
                let executed = matches!(found, Reported::Sent { status: Status::Success, .. });
                prop_assert!(!executed, "{found:?}");
                cqes += 1;
            }
            while rig.a.poll_recv().is_some() {}
            if rig.a.qp.state() == QpState::Err {
                rig.restart();
            }
        }
        let stats = rig.nics[0].stats();
        prop_assert_eq!((stats.qps.wqes.total(), stats.qps.bytes, stats.stale_slots), (0, 0, 0));
        prop_assert_eq!(stats.qps.send_cqes, cqes, "every CQE that is counted was found");
        prop_assert!(stats.violations >= stats.qps.errors && rig.is_intact());
    }
}

/// In loopback a violation names the field. Between NICs, the connection refuses the atomic by itself.
#[test]
fn a_misaligned_atomic_is_refused() {
    for (format, apart) in QueueFormat::ALL.into_iter().flat_map(|f| [(f, false), (f, true)]) {
        let mut rig = Rig::new(format, format, apart, Config::default());
        let (word, op) = ([rig.sge(0, 8)], Op::FetchAdd { remote: rig.there(4), add: 1 });
        rig.a.post(&request(op, Data::Sges(&word), SendFlags::SIGNALED));
        rig.run_for(Duration::from_secs(2));
        let failure = drain(&mut rig);
        assert!(is_invalid(failure), "{format:?} {apart} {failure:?}");
        let expected: &[_] = if apart { &[] } else { &["raddr.raddr"] };
        assert_eq!(fields(&rig), expected, "{format:?} {apart}");
    }
}

/// Doorbells that announce nothing, and the field that their violation names.
#[test]
fn a_wrong_doorbell_names_its_field() {
    use QueueFormat::{BnxtStatic, BnxtVariable, IonicV2};
    let cases = [
        (BnxtStatic, 1 << 58, "doorbell.valid"),
        (BnxtStatic, 1 << 24, "doorbell.epoch"),
        (BnxtStatic, 1 << 23, "doorbell.index"),
        (BnxtStatic, 1 << 33, "doorbell.qpn"),
        (BnxtStatic, 1 << 60, "doorbell.kind"),
        (BnxtStatic, 1 << 52, "doorbell.reserved"),
        (BnxtVariable, 0xff, "doorbell.index"),
        (IonicV2, 1 << 8, "doorbell.index"),
        (IonicV2, 1 << 16, "doorbell.arm"),
        (IonicV2, 1 << 25, "doorbell.qpn"),
        (IonicV2, 1 << 63, "doorbell.reserved"),
    ];
    for (format, bits, field) in cases {
        let mut rig = Rig::new(format, format, false, Config::default());
        let from = [rig.sge(0, 8)];
        rig.a.put(&request(Op::Write(rig.there(0)), Data::Sges(&from), SendFlags::SIGNALED));
        let right = u64::from_le_bytes(rig.a.doorbell(rig.a.posted));
        rig.a.ring_bytes((right ^ bits).to_le_bytes());
        rig.run();
        assert_eq!((fields(&rig), rig.a.poll_send()), (vec![field], None), "{format:?} {bits:#x}");
        // It is not believed, and the right one is.
        rig.a.ring();
        rig.run();
        assert!(matches!(rig.a.poll_send(), Some(Reported::Sent { status: Status::Success, .. })));
    }
}

/// The right doorbell of the first receive of a QP.
fn first_receive(format: QueueFormat, qpn: u32) -> u64 {
    match format {
        QueueFormat::IonicV1 | QueueFormat::IonicV2 => {
            let queue = Qpn::truncate(qpn);
            warpverbs_ionic::doorbell::Doorbell { queue, index: 1, arm: None }.word()
        }
        _ => Ring::new(32, Library::Current).unwrap().doorbell(Kind::Receive, qpn, 1).word(),
    }
}

/// Doorbells of receives that announce none: the message that wants one ends the connection.
#[test]
fn a_wrong_doorbell_of_receives_names_its_field() {
    use QueueFormat::{BnxtStatic, IonicV2};
    let cases = [
        (BnxtStatic, 1 << 58, "doorbell.valid"),
        (BnxtStatic, 1 << 23, "doorbell.index"),
        (BnxtStatic, 1 << 33, "doorbell.queue"),
        (BnxtStatic, 1 << 60, "doorbell.kind"),
        (BnxtStatic, 1 << 52, "doorbell.reserved"),
        (IonicV2, 1 << 8, "doorbell.index"),
        (IonicV2, 1 << 16, "doorbell.arm"),
        (IonicV2, 1 << 25, "doorbell.queue"),
        (IonicV2, 1 << 47, "doorbell.queue"),
        (IonicV2, 1 << 63, "doorbell.reserved"),
    ];
    for ((format, bits, field), apart) in cases.into_iter().flat_map(|c| [(c, false), (c, true)]) {
        let mut rig = Rig::new(format, format, apart, Config::default());
        let right = first_receive(format, rig.b.qp.qpn());
        for (word, status, fields_named) in
            [(right, Status::Success, vec![]), (right ^ bits, Status::RemoteOperation, vec![field])]
        {
            rig.restart();
            rig.b.post_recv(&[Sge::new(rig.mr_b.addr(), 64, rig.mr_b.lkey())]);
            rig.b.ring_recv(word);
            rig.a.post(&request(Op::Send, Data::Inline(b"x"), SendFlags::SIGNALED));
            rig.run_for(Duration::from_secs(2));
            let found = rig.a.poll_send();
            let ended = matches!(found, Some(Reported::Sent { status: s, .. }) if s == status);
            assert!(ended, "{found:?} {format:?} {bits:#x} {apart}");
            assert_eq!(fields(&rig), fields_named, "{format:?} {bits:#x} {apart}");
        }
    }
}

/// The field that is wrong, and how it becomes so.
type Wrong = (&'static str, fn(Packets) -> Packets);

/// Packet numbers beside a WQE that are not its connection's.
#[test]
fn wrong_packet_numbers_are_named() {
    use QueueFormat::{BnxtEarly, BnxtStatic, BnxtVariable};
    for (format, apart) in
        [BnxtStatic, BnxtVariable, BnxtEarly].into_iter().flat_map(|f| [(f, false), (f, true)])
    {
        let wrong: [Wrong; 4] = [
            ("entry.first", |right| Packets { first: right.first ^ 1, ..right }),
            ("entry.next", |right| Packets { next: right.next ^ 0x80_0000, ..right }),
            // As if the path MTU were 4096.
            ("entry.next", |right| Packets { next: (right.first + 1) & 0xff_ffff, ..right }),
            ("entry.start", |right| Packets { start: right.start.map(|at| at ^ 1), ..right }),
        ];
        // Tables of the older forms do not tell where.
        let told = if format == BnxtEarly { 3 } else { 4 };
        for (field, wrong) in &wrong[..told] {
            let mut rig = Rig::new(format, format, apart, Config::default());
            let (sges, to) = ([rig.sge(0, 3000)], rig.there(0));
            let write = request(Op::Write(to), Data::Sges(&sges), SendFlags::SIGNALED);
            // Twenty of three packets, around the end of the packet numbers.
            for _ in 0..20 {
                rig.a.post(&write);
                rig.run();
                let done = rig.a.poll_send();
                assert!(matches!(done, Some(Reported::Sent { status: Status::Success, .. })));
            }
            let start = (rig.a.posted % rig.a.units()) as u16;
            let right = Packets::of(rig.a.psn, 3000, Mtu::B1024, start);
            let mut bytes = [0; 1024];
            let len = rig.a.build(&write, &mut bytes);
            let wqes = rig.a.wqes;
            rig.a.put_bytes(&bytes[..len], 3000);
            (rig.a.wqes, rig.a.psn) = (wqes, right.first);
            rig.a.put_packets(wrong(right));
            rig.a.ring();
            rig.run();
            let status = Status::LocalQpOperation;
            assert_eq!(rig.a.poll_send(), Some(Reported::Sent { count: 21, status }));
            assert_eq!(fields(&rig), [*field], "{format:?}");
        }
    }
}

/// Memory that goes away under WRITEs and READs.
#[test]
fn deregistered_memory_is_not_touched() {
    for ((a, b), apart) in pairs().flat_map(|pair| [(pair, false), (pair, true)]) {
        for own in [false, true] {
            let mut rig = Rig::new(a, b, apart, Config::default());
            let (sges, to): ([Sge; 1], Remote) = ([rig.sge(0, 4096)], rig.there(0));
            for round in 0..20 {
                let op = if round % 2 == 0 { Op::Write(to) } else { Op::Read(to) };
                rig.a.put(&request(op, Data::Sges(&sges), SendFlags::SIGNALED));
            }
            rig.a.ring();
            for nic in rig.nics.iter().cycle().take(6) {
                nic.step();
            }
            // Its memory is another's from now on.
            let nic = if own { &rig.nics[0] } else { &rig.nics[1] };
            let mr = if own { &rig.mr_a } else { &rig.mr_b };
            nic.faults().revoke(mr.lkey(), true).unwrap();
            mr.region().fill(0, LEN, 0x77).unwrap();
            rig.run_for(Duration::from_secs(5));
            let region = mr.region();
            assert!(warpverbs_dev::bytes(region, 0, LEN).iter().all(|byte| *byte == 0x77));
            let found: Vec<_> = std::iter::from_fn(|| rig.a.poll_send()).collect();
            let all_done = found.len() == 20
                && found
                    .iter()
                    .all(|f| matches!(f, Reported::Sent { status: Status::Success, .. }));
            assert!(all_done || rig.a.qp.state() == QpState::Err, "{a:?} {b:?} {found:?}");
            rig.restart();
            rig.a.post(&request(Op::Write(to), Data::Sges(&sges), SendFlags::SIGNALED));
            rig.run_for(Duration::from_secs(5));
            let bad = if own { Status::LocalProtection } else { Status::RemoteAccess };
            let first = std::iter::from_fn(|| rig.a.poll_send()).next();
            assert!(
                matches!(first, Some(Reported::Sent { status, .. }) if status == bad),
                "{first:?}"
            );
        }
    }
}

/// CQEs that nobody consumes.
#[test]
fn a_cq_without_room_ends_its_queue_pairs() {
    for format in QueueFormat::ALL {
        let port = PortConfig { log_cq: 3, ..PortConfig::default() };
        let mut rig = Rig::with(format, format, false, Config::default(), &port);
        let (sges, to) = ([rig.sge(0, 8)], rig.there(0));
        for _ in 0..9 {
            rig.a.put(&request(Op::Write(to), Data::Sges(&sges), SendFlags::SIGNALED));
        }
        rig.a.ring();
        rig.run();
        let overran = std::iter::from_fn(|| rig.nics[0].poll_event())
            .any(|event| matches!(event, AsyncEvent::CqError { .. }));
        assert!(overran && rig.a.qp.state() == QpState::Err, "{format:?}");
        // The CQEs that were written are there.
        let found = std::iter::from_fn(|| rig.a.poll_send()).count();
        let by_place = !matches!(
            format,
            QueueFormat::Mlx5 | QueueFormat::BnxtStatic | QueueFormat::BnxtVariable
        );
        assert_eq!(found, 8 - usize::from(by_place), "{format:?}");
    }
}

/// A peer whose queue pair is destroyed while packets, or work of one NIC, are on their way to it.
#[test]
fn a_peer_that_is_destroyed_is_given_up() {
    for ((a, b), apart) in pairs().flat_map(|pair| [(pair, false), (pair, true)]) {
        let mut rig = Rig::new(a, b, apart, Config::default());
        let (sges, to): ([Sge; 1], Remote) = ([rig.sge(0, 4096)], rig.there(0));
        let write = request(Op::Write(to), Data::Sges(&sges), SendFlags::SIGNALED);
        rig.a.post(&write);
        rig.run();
        let done = rig.a.poll_send();
        assert!(matches!(done, Some(Reported::Sent { status: Status::Success, .. })), "{done:?}");
        (0..10).for_each(|_| rig.a.put(&write));
        rig.a.ring();
        for nic in rig.nics.iter().cycle().take(3) {
            nic.step();
        }
        let pd = rig.nics[1].alloc_pd();
        let other = Poster::new(&rig.nics[1], &pd, b, (CqMode::Ring, 7)).unwrap();
        drop(std::mem::replace(&mut rig.b, other));
        rig.run_for(Duration::from_secs(600));
        let found: Vec<_> = std::iter::from_fn(|| rig.a.poll_send()).collect();
        let ended = found
            .iter()
            .find(|found| !matches!(found, Reported::Sent { status: Status::Success, .. }));
        let given_up = matches!(
            ended,
            Some(Reported::Sent { status: Status::RetryExceeded | Status::ResponseTimeout, .. })
        );
        let all_done = ended.is_none() && found.len() == 10;
        assert!(given_up || all_done, "{a:?} {b:?} {apart}: {found:?}");
        assert_eq!(given_up, rig.a.qp.state() == QpState::Err, "{a:?} {b:?} {apart}");
        assert!(rig.is_intact());
        let stale: u64 = rig.nics.iter().map(|nic| nic.stats().stale_slots).sum();
        assert_eq!(stale, 0);
    }
}
