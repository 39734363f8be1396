//! Transfers between two agents, of lists by address.

use crate::bed::{Bed, config, done, notified, seeded};
use rand::RngExt;
use std::time::{Duration, Instant};
use warpverbs_nixl::{Kind, List, Op, Status};

#[test]
fn lists_by_address_move_the_blocks_they_name() {
    let mut rng = seeded();
    let a = Bed::registered("a", 64 << 10, &mut rng);
    let b = Bed::registered("b", 64 << 10, &mut rng);
    assert_eq!(a.agent.load(&b.agent.metadata().unwrap()).unwrap(), "b");
    let (before_a, before_b) = (a.bytes(), b.bytes());

    // READ 40 blocks of any place into places that do not overlap.
    let here: Vec<(u64, u64)> = (0..40).map(|i| (i * 1600, rng.random_range(1..=1600))).collect();
    let there: Vec<(u64, u64)> =
        here.iter().map(|&(_, len)| (rng.random_range(0..=(64 << 10) - len), len)).collect();
    let read = a.agent.create(Op::Read, &a.list(&here), &b.list(&there), "b", None).unwrap();
    assert_eq!(read.status().unwrap_err().status, Status::NotPosted);
    done(&read);
    let mut expected = before_a;
    for (&(to, len), &(from, _)) in here.iter().zip(&there) {
        let (to, from, len) = (to as usize, from as usize, len as usize);
        expected[to..to + len].copy_from_slice(&before_b[from..from + len]);
    }
    assert_eq!(a.bytes(), expected);
    assert_eq!(b.bytes(), before_b);

    // WRITE by index, with a notification that bytes of any value are part of.
    let rows = [a.row(0, 512, 1024, 32)];
    let local = a.agent.prepare_strided("", Kind::Dram, &rows).unwrap();
    let blocks: Vec<(u64, u64)> = (0..32).map(|i| (i * 512, 512)).collect();
    let remote = a.agent.prepare("b", &b.list(&blocks)).unwrap();
    assert_eq!((local.len(), remote.len()), (32, 32));
    let note = Some(b"n\0te".to_vec());
    let (from, to) = ([31, 0, 7], [5, 6, 1]);
    let write = a.agent.make(Op::Write, (&local, &from), (&remote, &to), note).unwrap();
    done(&write);
    let mut expected = before_b;
    for (from, to) in from.into_iter().zip(to) {
        let (from, to) = (from as usize * 1024, to as usize * 512);
        expected[to..to + 512].copy_from_slice(&a.bytes()[from..from + 512]);
    }
    assert_eq!(b.bytes(), expected);
    assert_eq!(notified(&b.agent, "a", 1), [b"n\0te"]);
    // Posted again, with another.
    assert!(write.post(Some(b"second".to_vec())).is_ok());
    assert_eq!(notified(&b.agent, "a", 1), [b"second"]);
}

#[test]
fn an_agent_is_its_own_peer() {
    let mut rng = seeded();
    let a = Bed::registered("self", 8192, &mut rng);
    let before = a.bytes();
    let (from, to) = (a.list(&[(0, 4096)]), a.list(&[(4096, 4096)]));
    let copy = a.agent.create(Op::Write, &from, &to, "self", Some(b"over".to_vec())).unwrap();
    done(&copy);
    assert_eq!(a.bytes(), [&before[..4096], &before[..4096]].concat());
    assert_eq!(notified(&a.agent, "self", 1), [b"over"]);
    a.agent.notify("self", b"by hand").unwrap();
    assert_eq!(notified(&a.agent, "self", 1), [b"by hand"]);
    let (begin, short) = (Instant::now(), Duration::from_millis(5));
    assert!(a.agent.notifications_within(short).is_empty() && begin.elapsed() >= short);
    let (local, remote) = (a.agent.prepare("", &to), a.agent.prepare("self", &from));
    let (local, remote) = (local.unwrap(), remote.unwrap());
    done(&a.agent.make(Op::Read, (&local, &[0]), (&remote, &[0]), None).unwrap());
    assert!(a.agent.knows("self", Some(&from)));
    assert_eq!(a.agent.load(&a.agent.metadata().unwrap()).unwrap(), "self");
}

#[test]
fn a_refusal_has_the_status_and_the_cause() {
    let mut rng = seeded();
    let a = Bed::registered("a", 4096, &mut rng);
    let b = Bed::registered("b", 4096, &mut rng);
    let create = |local: &List, remote: &List, peer: &str| {
        let made = a.agent.create(Op::Read, local, remote, peer, None);
        let error = made.map(drop).unwrap_err();
        (error.status, error.to_string())
    };
    let (one, two) = (a.list(&[(0, 64)]), a.list(&[(0, 64), (64, 64)]));
    let theirs = b.list(&[(0, 64)]);

    let (status, text) = create(&one, &theirs, "b");
    assert_eq!(status, Status::NotFound);
    assert_eq!(text, "NIXL_ERR_NOT_FOUND: no metadata of an agent \"b\" is loaded");
    a.agent.load(&b.agent.metadata().unwrap()).unwrap();
    let (status, text) = create(&two, &theirs, "b");
    assert_eq!(status, Status::InvalidParam);
    assert!(text.contains("2 descriptors here, 1 at b"), "{text}");
    let (status, text) = create(&a.list(&[(4000, 97)]), &b.list(&[(0, 97)]), "b");
    assert_eq!(status, Status::NotFound);
    assert!(text.contains("descriptor 0 of 1: 97 bytes at"), "{text}");
    let (status, _) = create(&one, &b.list(&[(0, 65)]), "b");
    assert_eq!(status, Status::InvalidParam);
    let wraps = List { kind: Kind::Dram, descs: vec![one.descs[0]; 1] };
    let mut wraps_round = wraps.clone();
    wraps_round.descs[0].addr = u64::MAX - 3;
    let (status, text) = create(&wraps_round, &theirs, "b");
    assert_eq!(status, Status::InvalidParam);
    assert!(text.contains("beyond the address space"), "{text}");
    let (status, _) = create(&List { kind: Kind::Object, ..wraps }, &theirs, "b");
    assert_eq!(status, Status::NotSupported);
    assert_eq!(a.agent.load(b"no metadata").unwrap_err().status, Status::Mismatch);
    assert_eq!(a.agent.forget("nobody").unwrap_err().status, Status::NotFound);
    assert_eq!(a.agent.notify("nobody", b"x").unwrap_err().status, Status::NotFound);
}

#[test]
fn telemetry_is_counted_where_it_is_asked_for() {
    let mut rng = seeded();
    let b = Bed::registered("b", 4096, &mut rng);
    for telemetry in [true, false] {
        let name = format!("a{telemetry}");
        let config = warpverbs_nixl::Config { telemetry, ..config() };
        let a = Bed::new(&name, config, 4096, &mut rng);
        a.register(&a.reg(&[(0, 4096)]));
        a.agent.load(&b.agent.metadata().unwrap()).unwrap();
        let (here, there) = (a.list(&[(0, 64), (64, 64)]), b.list(&[(0, 64), (64, 64)]));
        let transfer = a.agent.create(Op::Write, &here, &there, "b", None).unwrap();
        done(&transfer);
        match transfer.telemetry() {
            Ok(cost) => {
                assert!(telemetry);
                assert_eq!((cost.descriptors, cost.bytes), (2, 128));
                assert!(cost.start_us > 0 && cost.post_us > 0, "{cost:?}");
                assert!(cost.transfer_us >= cost.post_us, "{cost:?}");
            }
            Err(error) => {
                assert!(!telemetry, "{error}");
                assert_eq!(error.status, Status::NoTelemetry);
            }
        }
    }
}
