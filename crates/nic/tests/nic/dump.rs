//! DUMP: memory is checked, nothing leaves the NIC, and it completes in its place.

use crate::device_network::{DONE, rig};
use warpverbs_dev::{Device, Pair, bytes, remote, sge};
use warpverbs_mem::{Access, AccessError};
use warpverbs_mlx5::flags::Fence;
use warpverbs_mlx5::num::Lkey;
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_mlx5::wqe::{Sge, WqeBuilder};
use warpverbs_nic::{KeySide, Rule};

#[test]
fn memory_is_left_as_it_is() {
    let mut pair = Pair::default();
    pair.mr_a.region().write(0, b"as it is").unwrap();
    for memory in [sge(&pair.mr_a, 0, 1), sge(&pair.mr_a, 0, 1 << 16)] {
        pair.a.post_wqe(|b, at| WqeBuilder::dump(b, at, memory).signaled());
    }
    // No right is needed to read one's own memory.
    let region = warpverbs_mem::HostBuf::region(64).unwrap();
    let mr = pair.nic.reg_mr(&pair.pd, &region, Access::empty()).unwrap();
    pair.a.post_wqe(|b, at| WqeBuilder::dump(b, at, sge(&mr, 63, 1)).signaled());
    pair.run();
    assert_eq!(pair.a.sent(), [(0, None), (1, None), (2, None)]);
    assert_eq!(bytes(pair.mr_a.region(), 0, 8), b"as it is");
    assert_eq!(pair.nic.take_violations(), []);
}

#[test]
fn memory_that_may_not_be_read_is_an_error() {
    type Case = fn(&Pair) -> Sge;
    let cases: [Case; 4] = [
        |pair| Sge { lkey: Lkey(pair.mr_a.lkey() ^ 0x100), ..sge(&pair.mr_a, 0, 1) },
        |pair| sge(&pair.mr_a, (1 << 16) - 4, 5),
        |pair| Sge { addr: pair.mr_a.addr() - 1, ..sge(&pair.mr_a, 0, 1) },
        |pair| sge(&pair.mr_a, 0, i32::MAX as u32),
    ];
    for (number, case) in cases.into_iter().enumerate() {
        let mut pair = Pair::default();
        let memory = case(&pair);
        pair.a.post_wqe(|b, at| WqeBuilder::dump(b, at, memory));
        pair.run();
        assert_eq!(pair.a.sent(), [(0, Some(Syndrome::LocalProt))], "case {number}");
        let rules: Vec<_> = pair.nic.take_violations().iter().map(|v| v.rule).collect();
        let side = KeySide::Local;
        assert!(matches!(rules[..], [Rule::Key { side: s, segment: 0, .. }] if s == side));
    }
    // Of another protection domain.
    let mut pair = Pair::default();
    let region = warpverbs_mem::HostBuf::region(64).unwrap();
    let foreign = pair.nic.reg_mr(&pair.nic.alloc_pd(), &region, Access::all()).unwrap();
    pair.a.post_wqe(|b, at| WqeBuilder::dump(b, at, sge(&foreign, 0, 1)));
    pair.run();
    assert_eq!(pair.a.sent(), [(0, Some(Syndrome::LocalProt))]);
    let rule = pair.nic.take_violations()[0].rule;
    assert!(matches!(rule, Rule::Key { error: AccessError::WrongPd { .. }, .. }), "{rule:?}");
}

/// A READ into memory that a copy engine reaches, and the flush behind it: with its fence and without,
/// it completes behind the READ, whose bytes are in place then.
#[test]
fn a_flush_completes_behind_the_read_before_it() {
    for fence in [Fence::Fence, Fence::None] {
        let mut pair = Pair::default();
        let Device { mr, view, copier } = Device::new(&pair.nic, &pair.pd, 4096, 0);
        pair.mr_b.region().write(0, b"bytes to read").unwrap();
        let (from, to) = (remote(&pair.mr_b, 0), sge(&mr, 0, 13));
        pair.a.post_wqe(|b, at| WqeBuilder::read(b, at, from).sge(to).signaled());
        let memory = sge(&mr, 0, 1);
        pair.a.post_wqe(|b, at| WqeBuilder::dump(b, at, memory).fence(fence).signaled());
        for _ in 0..20 {
            pair.nic.step();
        }
        assert_eq!(pair.a.sent(), [], "the READ is under way");
        copier.allow(u64::MAX);
        pair.run();
        assert_eq!(pair.a.sent(), [(0, None), (1, None)]);
        assert_eq!(bytes(&view, 0, 13), b"bytes to read");
    }
}

#[test]
fn a_flush_completes_behind_a_read_from_the_network() {
    for fence in [Fence::Fence, Fence::None] {
        let mut rig = rig();
        rig.far.view.write(0, b"bytes to read").unwrap();
        let (from, to) = (remote(&rig.far.mr, 0), sge(&rig.near.mr, 0, 13));
        rig.post(|b, at| WqeBuilder::read(b, at, from).sge(to).signaled());
        rig.post(|b, at| WqeBuilder::dump(b, at, Sge { len: 1, ..to }).fence(fence).signaled());
        rig.steps();
        assert_eq!(rig.sent(), None, "the READ is under way");
        rig.go();
        rig.net.run();
        assert_eq!([rig.sent(), rig.sent(), rig.sent()], [DONE, DONE, None]);
        assert_eq!(bytes(&rig.near.view, 0, 13), b"bytes to read");
        // A wrong key is found in its place, too.
        let wrong = Sge { lkey: Lkey(0x77), ..to };
        rig.post(|b, at| WqeBuilder::read(b, at, from).sge(to).signaled());
        rig.post(|b, at| WqeBuilder::dump(b, at, wrong).fence(fence).signaled());
        rig.net.run();
        assert_eq!([rig.sent(), rig.sent()], [DONE, Some(Err(Syndrome::LocalProt))]);
    }
}
