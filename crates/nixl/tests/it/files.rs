//! Files as the far side of transfers, by NIXL's descriptors.

use crate::bed::{Bed, config, done, seeded};
use rand::Rng;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use warpverbs_nixl::{Config, Desc, Kind, List, Op, Params, RegDesc, RegList, Status};

fn file(len: usize, rng: &mut rand::rngs::StdRng) -> (File, Vec<u8>) {
    let mut bytes = vec![0; len];
    rng.fill_bytes(&mut bytes);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&bytes).unwrap();
    (file, bytes)
}

fn part(file: &File, ranges: &[(u64, u64)]) -> List {
    let dev = file.as_raw_fd() as u64;
    let desc = |&(addr, len): &(u64, u64)| Desc { addr, len, dev };
    List { kind: Kind::File, descs: ranges.iter().map(desc).collect() }
}

fn registered(list: &List, meta: &[u8]) -> RegList {
    let one = |desc: &Desc| RegDesc { desc: *desc, meta: meta.to_vec() };
    RegList { kind: list.kind, descs: list.descs.iter().map(one).collect() }
}

#[test]
fn blocks_go_to_files_and_come_back() {
    let mut rng = seeded();
    let a = Bed::new("a", Config { telemetry: true, ..config() }, 16384, &mut rng);
    a.agent.create_backend("POSIX", &Params::new()).unwrap();
    a.register(&a.reg(&[(0, 16384)]));
    let (one, before) = file(8192, &mut rng);
    let whole = part(&one, &[(0, 8192)]);
    a.agent.register(&registered(&whole, b""), &mut |_, _| Err("no memory".into())).unwrap();

    // By lists: two blocks out, crossed.
    let (mine, files) = (a.list(&[(0, 1000), (5000, 24)]), part(&one, &[(4096, 1000), (0, 24)]));
    let write = a.agent.create(Op::Write, &mine, &files, "a", None).unwrap();
    done(&write);
    let mut expected = before.clone();
    expected[4096..5096].copy_from_slice(&a.bytes()[..1000]);
    expected[..24].copy_from_slice(&a.bytes()[5000..5024]);
    let mut found = vec![0; 8192];
    one.read_exact_at(&mut found, 0).unwrap();
    assert_eq!(found, expected);
    let cost = write.telemetry().unwrap();
    assert_eq!((cost.bytes, cost.descriptors), (1024, 2));
    assert!(cost.transfer_us >= cost.post_us && cost.post_us > 0, "{cost:?}");
    assert_eq!(write.plugin().name(), "POSIX");

    // By prepared lists, blocks of rows by index; posted twice.
    let rows = [a.row(8192, 512, 512, 16)];
    let local = a.agent.prepare_strided("", Kind::Dram, &rows).unwrap();
    let blocks: Vec<_> = (0..16).map(|i| (i * 512, 512)).collect();
    let remote = a.agent.prepare("a", &part(&one, &blocks)).unwrap();
    let (here, there) = ([3, 0, 15], [1, 8, 9]);
    let read = a.agent.make(Op::Read, (&local, &here), (&remote, &there), None).unwrap();
    done(&read);
    done(&read);
    for (here, there) in here.into_iter().zip(there) {
        let (here, there) = (8192 + here as usize * 512, there as usize * 512);
        assert_eq!(a.bytes()[here..here + 512], expected[there..there + 512]);
    }
    let beyond = a.agent.make(Op::Read, (&local, &[16]), (&remote, &[0]), None);
    assert_eq!(beyond.map(drop).unwrap_err().status, Status::InvalidParam);
    a.agent.deregister(&registered(&whole, b"")).unwrap();
    let gone = a.agent.create(Op::Write, &mine, &files, "a", None).map(drop).unwrap_err();
    assert_eq!(gone.status, Status::NotFound);
    a.agent.deregister(&a.reg(&[(0, 16384)])).unwrap();
    assert_eq!(read.post(None).unwrap_err().status, Status::NotFound, "memory that was taken back");
}

#[test]
fn files_are_registered_by_path() {
    let mut rng = seeded();
    let a = Bed::registered("a", 4096, &mut rng);
    a.agent.create_backend("POSIX", &Params::new()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made");
    // The device tells files apart, the bytes name one and how to open it.
    let desc = Desc { addr: 0, len: 4096, dev: 77 };
    let list = List { kind: Kind::File, descs: vec![desc] };
    let meta = format!("rw,create:{}", path.display()).into_bytes();
    let mut adopt = |_: Option<&_>, _: &Desc| Err("no memory".into());
    a.agent.register(&registered(&list, &meta), &mut adopt).unwrap();
    done(&a.agent.create(Op::Write, &a.list(&[(0, 4096)]), &list, "a", None).unwrap());
    assert_eq!(std::fs::read(&path).unwrap(), a.bytes());

    let posix = 2;
    let asked = |meta: &[u8]| {
        let list = registered(&List { kind: Kind::File, descs: vec![desc] }, meta);
        a.agent.query(&list, posix).unwrap().remove(0)
    };
    let found = asked(path.as_os_str().as_encoded_bytes()).unwrap();
    assert_eq!(found["size"], "4096");
    assert!(found.contains_key("mode") && found.contains_key("mtime"));
    assert_eq!(asked(b"/nowhere/at/all"), None);
    assert_eq!(
        a.agent.query(&RegList::new(Kind::File), 1).unwrap_err().status,
        Status::NotSupported
    );
    assert_eq!(
        a.agent.query(&RegList::new(Kind::File), 9).unwrap_err().status,
        Status::InvalidParam
    );

    let missing = registered(&list, b"ro:/nowhere/at/all");
    assert_eq!(a.agent.register(&missing, &mut adopt).unwrap_err().status, Status::NotFound);
    let closed =
        registered(&List { kind: Kind::File, descs: vec![Desc { dev: 1 << 20, ..desc }] }, b"");
    let refused = a.agent.register(&closed, &mut adopt).unwrap_err();
    assert!(refused.why.contains("is not open"), "{refused}");
}

#[test]
fn wrong_files_are_refused() {
    let mut rng = seeded();
    let a = Bed::registered("a", 4096, &mut rng);
    let mut adopt = |_: Option<&_>, _: &Desc| Err("no memory".into());
    let (one, _) = file(100, &mut rng);
    let whole = part(&one, &[(0, 200)]);
    let early = a.agent.register(&registered(&whole, b""), &mut adopt).unwrap_err();
    assert_eq!(early.status, Status::NotFound, "no backend takes files");
    a.agent.create_backend("POSIX", &Params::new()).unwrap();
    a.agent.register(&registered(&whole, b""), &mut adopt).unwrap();
    let create = |op, mine: &[(u64, u64)], theirs: &[(u64, u64)], peer: &str, note| {
        a.agent.create(op, &a.list(mine), &part(&one, theirs), peer, note)
    };
    // Beyond the end of the file: an error, and no bytes that were never there.
    let short = create(Op::Read, &[(0, 150)], &[(0, 150)], "a", None).unwrap();
    short.post(None).unwrap();
    let failed = loop {
        match short.status() {
            Ok(Status::InProgress) => {}
            Ok(other) => panic!("{other:?}"),
            Err(error) => break error,
        }
    };
    assert_eq!(failed.status, Status::Backend, "{failed}");
    assert!(failed.why.contains("100"), "{failed}");
    let status = |made: Result<warpverbs_nixl::Transfer, warpverbs_nixl::Error>| {
        made.map(drop).unwrap_err().status
    };
    assert_eq!(status(create(Op::Read, &[(0, 9)], &[(195, 9)], "a", None)), Status::NotFound);
    assert_eq!(status(create(Op::Read, &[(0, 9)], &[(0, 8)], "a", None)), Status::InvalidParam);
    assert_eq!(status(create(Op::Read, &[(0, 9)], &[(0, 9)], "b", None)), Status::NotSupported);
    let noted = create(Op::Read, &[(0, 9)], &[(0, 9)], "a", Some(b"x".to_vec())).unwrap();
    assert_eq!(noted.post(None).unwrap_err().status, Status::NotSupported);
}
