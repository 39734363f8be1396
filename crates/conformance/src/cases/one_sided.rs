//! WRITE and READ.

use crate::Setup;
use crate::outcome::{Stop, check};
use crate::peer::Shape;
use crate::rig::{End, ROOM, SIGNALED, UNSIGNALED, bytes, pattern, same, word};
use warpverbs::raw::nic::Rule;
use warpverbs::transport::{LocalRegion, Mtu, ReceivedKind, RemoteRegion};

/// Where in the destination, so that what lies before is seen as well.
const AT: usize = 13;

pub(super) fn write_sizes(setup: &Setup) -> End {
    let pair = setup.host_pair()?;
    let (a, _) = pair.posters()?;
    for len in pair.lengths() {
        let old = pattern(len + 64, len as u64 + 9);
        pair.dst.write(0, &old)?;
        let from = pair.src.local().slice(3, len as u64)?;
        let to = pair.dst.remote().slice(AT as u64, len as u64)?;
        a.wait(a.post_write(from, to, SIGNALED)?)?;
        let mut expected = old;
        expected[AT..AT + len].copy_from_slice(&pattern(len + 3, 1)[3..]);
        same(&bytes(&pair.dst, 0, expected.len())?, &expected, "memory after WRITE")?;
    }
    pair.is_well()
}

pub(super) fn write_gather(setup: &Setup) -> End {
    let pair = setup.host_pair()?;
    let (a, _) = pair.posters()?;
    let mtu = pair.mtu() as u64;
    let src = |at, len| pair.src.local().slice(at, len);
    let pieces = [src(5, 3)?, src(0, 0)?, src(900, mtu)?, src(90, 10)?, src(0, 1)?];
    let len = mtu + 14;
    a.wait(a.post_write(pieces, pair.dst.remote().slice(1, len)?, SIGNALED)?)?;
    let source = pattern(ROOM, 1);
    let at = |at: usize, len: usize| &source[at..at + len];
    let expected = [at(5, 3), at(900, mtu as usize), at(90, 10), at(0, 1)].concat();
    same(&bytes(&pair.dst, 1, len as usize)?, &expected, "gathered WRITE")?;
    // As many pieces as a work request of the host's can have.
    let pieces: Vec<_> = (0..14).map(|n| src(n * 100, 7)).collect::<Result<_, _>>()?;
    let posted = a.post_write(pieces, pair.dst.remote().slice(0, 98)?, SIGNALED)?;
    if let Err(failed) = a.wait(posted) {
        let first = pair.a.health()?.first_error.and_then(|first| first.rule);
        return Err(match first {
            Some(limit @ Rule::DeviceLimit { .. }) => Stop::NotSupported(limit.to_string()),
            _ => failed.into(),
        });
    }
    let expected: Vec<u8> = (0..14).flat_map(|n| at(n * 100, 7)).copied().collect();
    same(&bytes(&pair.dst, 0, 98)?, &expected, "WRITE of 14 pieces")?;
    pair.is_well()
}

pub(super) fn write_inline(setup: &Setup) -> End {
    let pair = setup.pair(Shape::host().inline_bytes(220))?;
    let (a, _) = pair.posters()?;
    let most = pair.a.inline_bytes();
    for len in (1..=most).rev().step_by(most.div_ceil(setup.times(220) as usize)) {
        let data = pattern(len, len as u64);
        pair.dst.write(0, &[0; 256])?;
        a.wait(a.post_write_inline(&data, pair.dst.remote(), SIGNALED)?)?;
        let expected = [&data[..], &[0; 8]].concat();
        same(&bytes(&pair.dst, 0, len + 8)?, &expected, "memory after inline WRITE")?;
    }
    pair.is_well()
}

pub(super) fn write_imm(setup: &Setup) -> End {
    let pair = setup.host_pair()?;
    let (a, b) = pair.posters()?;
    let lengths = [0, 1, pair.mtu(), pair.mtu() + 1, 3 * pair.mtu() - 1];
    for (imm, len) in (0xfeed_0000u32..).zip(lengths) {
        let _ = b.post_recv([])?;
        let (from, to) = (pair.src.local().slice(0, len as u64)?, pair.dst.remote());
        let to = to.slice(64, len as u64)?;
        a.wait(a.post_write_imm(from, to, imm, SIGNALED)?)?;
        let got = b.wait_recv()?;
        let expected = (len as u32, ReceivedKind::WriteImm(imm));
        check!((got.byte_len, got.kind) == expected, "{got:?}, expected {expected:?}");
        same(&bytes(&pair.dst, 64, len)?, &pattern(len, 1), "WRITE with immediate")?;
    }
    pair.is_well()
}

pub(super) fn read_sizes(setup: &Setup) -> End {
    let pair = setup.host_pair()?;
    let (a, _) = pair.posters()?;
    pair.dst.write(0, &pattern(ROOM, 3))?;
    for len in pair.lengths() {
        let old = pattern(len + 64, len as u64 + 9);
        pair.src.write(0, &old)?;
        let from = pair.dst.remote().slice(5, len as u64)?;
        let to = pair.src.local().slice(AT as u64, len as u64)?;
        a.wait(a.post_read(to, from, SIGNALED)?)?;
        let mut expected = old;
        expected[AT..AT + len].copy_from_slice(&pattern(len + 5, 3)[5..]);
        same(&bytes(&pair.src, 0, expected.len())?, &expected, "memory after READ")?;
    }
    pair.is_well()
}

pub(super) fn read_scatter(setup: &Setup) -> End {
    let pair = setup.host_pair()?;
    let (a, _) = pair.posters()?;
    pair.dst.write(0, &pattern(ROOM, 3))?;
    let (mtu, local) = (pair.mtu(), pair.src.local());
    let to = [local.slice(0, 3)?, local.slice(100, mtu as u64)?, local.slice(60_000, 9)?];
    a.wait(a.post_read(to, pair.dst.remote().slice(0, mtu as u64 + 12)?, SIGNALED)?)?;
    let pieces =
        [bytes(&pair.src, 0, 3)?, bytes(&pair.src, 100, mtu)?, bytes(&pair.src, 60_000, 9)?];
    same(&pieces.concat(), &pattern(mtu + 12, 3), "scattered READ")?;
    pair.is_well()
}

pub(super) fn many_reads(setup: &Setup) -> End {
    let pair = setup.pair(Shape::host().rd_atomic(2))?;
    let (a, _) = pair.posters()?;
    pair.dst.write(0, &pattern(ROOM, 3))?;
    let len = pair.mtu() + 1;
    for n in 0..100 {
        let at = n * len as u64;
        let (to, from) = (pair.src.local(), pair.dst.remote());
        let _ = a.post_read(to.slice(at, len as u64)?, from.slice(at, len as u64)?, UNSIGNALED)?;
    }
    a.quiet()?;
    same(&bytes(&pair.src, 0, 100 * len)?, &pattern(100 * len, 3), "100 READs")?;
    pair.is_well()
}

pub(super) fn no_bytes(setup: &Setup) -> End {
    let pair = setup.host_pair()?;
    let (a, _) = pair.posters()?;
    let (none, nowhere) = (LocalRegion::new(0, 0, 0), RemoteRegion::new(0, 0, 0));
    a.wait(a.post_write(none, nowhere, SIGNALED)?)?;
    a.wait(a.post_read(none, nowhere, SIGNALED)?)?;
    same(&bytes(&pair.dst, 0, 64)?, &[0; 64], "memory after a WRITE of no bytes")?;
    pair.works()
}

pub(super) fn large(setup: &Setup) -> End {
    let pair = setup.host_pair()?;
    let (a, _) = pair.posters()?;
    let len = (1 << 20) + 1;
    let (here, there) = (pair.src.local().slice(0, len)?, pair.dst.remote().slice(7, len)?);
    a.wait(a.post_write(here, there, SIGNALED)?)?;
    same(&bytes(&pair.dst, 7, len as usize)?, &pattern(len as usize, 1), "WRITE")?;
    pair.src.write(0, &vec![0; ROOM])?;
    a.wait(a.post_read(here, there, SIGNALED)?)?;
    same(&bytes(&pair.src, 0, len as usize)?, &pattern(len as usize, 1), "READ")?;
    pair.is_well()
}

pub(super) fn small_mtu(setup: &Setup) -> End {
    let pair = setup.pair(Shape::host().mtu(Mtu::B256))?;
    check!(pair.mtu() == 256, "the path MTU is {}, expected 256", pair.mtu());
    let (a, _) = pair.posters()?;
    for len in [255, 256, 257, 511, 513, 10_000] {
        let (here, there) = (pair.src.local().slice(0, len)?, pair.dst.remote().slice(0, len)?);
        a.wait(a.post_write(here, there, SIGNALED)?)?;
        same(&bytes(&pair.dst, 0, len as usize)?, &pattern(len as usize, 1), "WRITE")?;
        let back = pair.src.local().slice(200_000, len)?;
        a.wait(a.post_read(back, there, SIGNALED)?)?;
        same(&bytes(&pair.src, 200_000, len as usize)?, &pattern(len as usize, 1), "READ")?;
    }
    pair.is_well()
}

pub(super) fn unsignalled(setup: &Setup) -> End {
    let pair = setup.pair(Shape::host().send_depth(128))?;
    let (a, _) = pair.posters()?;
    for value in 0..1000u64 {
        let at = pair.dst.remote().slice(value % 64 * 8, 8)?;
        let _ = a.post_write_inline(&value.to_le_bytes(), at, UNSIGNALED)?;
    }
    a.quiet()?;
    for slot in 0..64 {
        let (found, expected) = (word(&pair.dst, slot * 8)?, (999 - (999 - slot as u64) % 64));
        check!(found == expected, "slot {slot} holds {found}, expected {expected}");
    }
    let lone = a.post_write_inline(&[1], pair.dst.remote(), UNSIGNALED)?;
    a.wait(lone)?;
    same(&bytes(&pair.dst, 0, 1)?, &[1], "a lone unsignalled WRITE that was waited for")?;
    pair.is_well()
}

pub(super) fn both_ways(setup: &Setup) -> End {
    let pair = setup.host_pair()?;
    let (a, b) = pair.posters()?;
    pair.dst.write(0, &pattern(ROOM, 3))?;
    let (half, len) = (300_000, 3000);
    for n in 0..50 {
        let at = n * len;
        let part = |from: LocalRegion, to: RemoteRegion| {
            Ok::<_, crate::outcome::Stop>((from.slice(at, len)?, to.slice(half + at, len)?))
        };
        let (from, to) = part(pair.src.local(), pair.dst.remote())?;
        let _ = a.post_write(from, to, UNSIGNALED)?;
        let (from, to) = part(pair.dst.local(), pair.src.remote())?;
        let _ = b.post_write(from, to)?;
    }
    a.quiet()?;
    b.quiet()?;
    let (half, all) = (half as usize, 50 * len as usize);
    same(&bytes(&pair.dst, half, all)?, &pattern(all, 1), "bytes that a wrote")?;
    same(&bytes(&pair.src, half, all)?, &pattern(all, 3), "bytes that b wrote")?;
    pair.is_well()
}
