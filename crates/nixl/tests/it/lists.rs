//! Registrations: found, added, taken back.

use crate::bed::{Bed, config, done, seeded};
use std::sync::Arc;
use std::time::Duration;
use warpverbs_mem::HostBuf;
use warpverbs_nixl::{Agent, Kind, Op, Params, RegList, Status};

#[test]
fn registrations_are_those_of_the_program() {
    let mut rng = seeded();
    let a = Bed::new("a", config(), 16384, &mut rng);
    let first = a.reg(&[(0, 4096), (4096, 4096)]);
    a.register(&first);
    // The same twice, and one over both.
    a.register(&a.reg(&[(0, 4096)]));
    a.register(&a.reg(&[(0, 16384)]));
    assert!(a.agent.prepare("", &a.list(&[(4090, 12)])).is_ok());
    let unknown = a.agent.deregister(&a.reg(&[(0, 4096), (0, 4096), (0, 4096)])).unwrap_err();
    assert_eq!(unknown.status, Status::NotFound);
    assert!(unknown.why.starts_with("descriptor 2: 4096 bytes at"), "{unknown}");
    a.agent.deregister(&a.reg(&[(0, 16384)])).unwrap();
    // No descriptor spans two registrations.
    let spans = a.agent.prepare("", &a.list(&[(4090, 12)])).unwrap_err();
    assert_eq!(spans.status, Status::NotFound);
    // But rows do, block by block.
    assert!(a.agent.prepare_strided("", Kind::Dram, &[a.row(0, 1024, 1024, 8)]).is_ok());
    a.agent.deregister(&first).unwrap();
    assert!(a.agent.prepare("", &a.list(&[(0, 4096)])).is_ok(), "registered once more");
    a.agent.deregister(&a.reg(&[(0, 4096)])).unwrap();
    assert!(a.agent.prepare("", &a.list(&[(0, 1)])).is_err());
}

#[test]
fn rows_of_too_many_blocks_are_refused_at_once() {
    let mut rng = seeded();
    let a = Bed::registered("a", 4096, &mut rng);
    for count in [u64::MAX, u64::MAX / 2, 1 << 40, (1 << 26) + 1] {
        // On one another: all of them are in the memory.
        let refused =
            a.agent.prepare_strided("", Kind::Dram, &[a.row(0, 64, 0, count)]).unwrap_err();
        assert_eq!(refused.status, Status::InvalidParam);
        let why = format!("descriptor 0 of 1: {count} blocks, expected at most 67108864");
        assert!(refused.why.starts_with(&why), "{refused}");
    }
}

#[test]
fn what_cannot_be_registered_is_refused_whole() {
    let mut rng = seeded();
    let a = Bed::new("a", config(), 4096, &mut rng);
    let refused = |list: &RegList| a.try_register(list).unwrap_err();
    let empty = refused(&a.reg(&[(0, 64), (64, 0)]));
    assert_eq!(empty.status, Status::InvalidParam);
    assert!(empty.why.starts_with("descriptor 1: 0 bytes at"), "{empty}");
    // The border refuses: beyond what it has.
    let beyond = refused(&a.reg(&[(0, 64), (4000, 97)]));
    assert_eq!(beyond.status, Status::InvalidParam);
    assert!(a.agent.prepare("", &a.list(&[(0, 64)])).is_err(), "all or nothing");
    let mut objects = a.reg(&[(0, 64)]);
    objects.kind = Kind::Object;
    assert_eq!(refused(&objects).status, Status::NotFound, "no backend takes it");
    let bare = Agent::new("bare", config()).unwrap();
    let none = bare.register(&a.reg(&[(0, 64)]), &mut |_, _| Err("not asked".into())).unwrap_err();
    assert!(none.why.contains("no backend was created"), "{none}");
    assert_eq!(bare.create_backend("UVX", &Params::new()).unwrap_err().status, Status::NotFound);
    bare.create_backend("UCX", &Params::new()).unwrap();
    let twice = bare.create_backend("UCX", &Params::new()).unwrap_err();
    assert_eq!(twice.status, Status::InvalidParam);
}

#[test]
fn metadata_may_have_a_part_of_the_memory() {
    let mut rng = seeded();
    let a = Bed::registered("a", 4096, &mut rng);
    let b = Bed::new("b", config(), 8192, &mut rng);
    let (first, second) = (b.reg(&[(0, 4096)]), b.reg(&[(4096, 4096)]));
    b.register(&first);
    b.register(&second);
    a.agent.load(&b.agent.partial_metadata(&RegList::new(Kind::Dram)).unwrap()).unwrap();
    assert!(a.agent.knows("b", None));
    assert!(!a.agent.knows("b", Some(&first.trim())));
    a.agent.load(&b.agent.partial_metadata(&first).unwrap()).unwrap();
    assert!(a.agent.knows("b", Some(&first.trim())));
    assert!(!a.agent.knows("b", Some(&second.trim())));
    let mine = a.list(&[(0, 4096)]);
    let early = a.agent.create(Op::Read, &mine, &second.trim(), "b", None);
    assert_eq!(early.map(drop).unwrap_err().status, Status::NotFound);
    a.agent.load(&b.agent.partial_metadata(&second).unwrap()).unwrap();
    done(&a.agent.create(Op::Read, &mine, &second.trim(), "b", None).unwrap());
    assert_eq!(a.bytes(), b.bytes()[4096..]);
    let unknown = b.agent.partial_metadata(&b.reg(&[(1, 1)])).unwrap_err();
    assert_eq!(unknown.status, Status::NotFound);
}

#[test]
fn memory_is_free_once_it_is_deregistered() {
    let mut rng = seeded();
    let a = Bed::registered("a", 4096, &mut rng);
    let b = Bed::registered("b", 4096, &mut rng);
    a.agent.load(&b.agent.metadata().unwrap()).unwrap();
    let all = [(0, 4096)];
    let write = a.agent.create(Op::Write, &a.list(&all), &b.list(&all), "b", None).unwrap();
    done(&write);
    assert_eq!(a.bytes(), b.bytes());
    b.agent.deregister(&b.reg(&all)).unwrap();
    // The program's next bytes stay: a transfer that was made before fails.
    b.memory.fill(0, 4096, 0x5a).unwrap();
    let refused = write.post(None).unwrap_err();
    assert_eq!(refused.status, Status::NotFound, "{refused}");
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(b.bytes(), [0x5a; 4096]);
}

#[test]
fn all_registrations_end_together() {
    let mut rng = seeded();
    let mut bed = Bed::new("ends", config(), 16384, &mut rng);
    bed.agent.deregister_all().unwrap();
    let lists = [[(0, 4096), (4096, 4096)], [(0, 16384), (8, 8)]].map(|ranges| bed.reg(&ranges));
    let owner = Arc::new(());
    let held = Arc::downgrade(&owner);
    bed.memory = bed.memory.clone().kept_with(owner);
    for list in &lists {
        bed.register(list);
    }
    bed.agent.deregister_all().unwrap();
    for list in &lists {
        assert_eq!(bed.agent.deregister(list).unwrap_err().status, Status::NotFound);
    }
    assert!(bed.agent.prepare("", &bed.list(&[(0, 1)])).is_err());
    // Nothing of the agent's keeps the memory.
    bed.memory = HostBuf::region(64).unwrap();
    assert_eq!(held.strong_count(), 0);
}
