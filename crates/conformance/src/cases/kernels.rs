//! The same, posted by kernels.

use crate::Setup;
use crate::outcome::{Stop, check};
use crate::rig::{End, Pair, all_access, bytes, pattern, same, word};
use warpverbs::gpu::{DeviceStatus, Dim, Element, KernelPtr, Remote};
use warpverbs::kernels::loopback as k;
use warpverbs::transport::{MemoryRegion, Outcome};
use warpverbs_test_kernels::conform as c;

/// One warp, of which one lane posts.
pub(super) const ONE: Dim = Dim::new(1, 32);
/// Lanes of a launch.
pub(super) const DIM: Dim = Dim::new(2, 48);
pub(super) const THREADS: usize = 96;

/// A zeroed word in which a kernel leaves its first bad status.
pub(super) fn status(setup: &Setup) -> Result<MemoryRegion, Stop> {
    Ok(setup.memory(64, all_access())?)
}

pub(super) fn pointer<T: Element>(region: &MemoryRegion) -> KernelPtr<T> {
    KernelPtr::new(region.buffer())
}

pub(super) fn code(status: &MemoryRegion) -> Result<u32, Stop> {
    Ok(word(status, 0)? as u32)
}

pub(super) fn went_well(pair: &Pair, status: &MemoryRegion) -> End {
    let code = code(status)?;
    let outcome = Outcome::of(DeviceStatus(code));
    if let Err(outcome @ Outcome::Unsupported) = outcome {
        return Err(Stop::NotSupported(outcome.to_string()));
    }
    check!(code == 0, "the kernel ended with status {code:#x}");
    pair.is_well()
}

pub(super) fn write(pair: &Pair, bytes: u32, status: &MemoryRegion) -> k::Write {
    k::Write {
        qp: pair.a.device_qp(),
        from: pair.src.local().into(),
        to: pair.dst.remote().into(),
        bytes,
        status: pointer(status),
    }
}

/// The operation by which a kernel carries bytes.
#[derive(Clone, Copy)]
pub(super) enum Carried {
    Message = 0,
    MessageImm = 1,
    WriteImm = 2,
}

/// The first immediate of `carry`.
pub(super) const IMM: u32 = 0xfeed_0001;

/// A kernel that carries `count` pieces of `len` bytes each.
pub(super) fn carry(
    pair: &Pair,
    what: Carried,
    (len, count): (u32, u32),
    status: &MemoryRegion,
) -> c::Carry {
    c::Carry {
        qp: pair.a.device_qp(),
        kind: what as u32,
        from: pair.src.local().into(),
        to: pair.dst.remote().into(),
        bytes: len,
        count,
        imm: IMM,
        status: pointer(status),
    }
}

/// All lanes wrote `len` bytes each, and nothing went wrong; clears them for the next length.
fn arrived(pair: &Pair, status: &MemoryRegion, len: usize, what: &str) -> End {
    went_well(pair, status)?;
    let all = THREADS * len;
    same(&bytes(&pair.dst, 0, all)?, &pattern(all, 1), what)?;
    Ok(pair.dst.write(0, &vec![0; all])?)
}

pub(super) fn kernel_write(setup: &Setup) -> End {
    let pair = setup.kernel_pair()?;
    for len in [1, 8, 100, pair.mtu() + 1] {
        let status = status(setup)?;
        setup.launch(&write(&pair, len as u32, &status), DIM)?;
        arrived(&pair, &status, len, "WRITEs of a kernel")?;
    }
    Ok(())
}

pub(super) fn kernel_write_inline(setup: &Setup) -> End {
    let pair = setup.kernel_pair()?;
    let most = pair.a.inline_bytes();
    for len in [1, 12, 13, 28, 29, 92, 93, 220, most].into_iter().filter(|len| *len <= most) {
        let status = status(setup)?;
        let kernel = k::WriteInline {
            qp: pair.a.device_qp(),
            source: pointer(&pair.src),
            to: pair.dst.remote().into(),
            bytes: len as u32,
            status: pointer(&status),
        };
        setup.launch(&kernel, DIM)?;
        arrived(&pair, &status, len, "inline WRITEs of a kernel")?;
    }
    Ok(())
}

pub(super) fn kernel_read(setup: &Setup) -> End {
    let pair = setup.kernel_pair()?;
    for len in [1, 8, 100, pair.mtu() + 1] {
        let (status, all) = (status(setup)?, THREADS * len);
        pair.dst.write(0, &pattern(all, len as u64))?;
        let kernel = k::Read {
            qp: pair.a.device_qp(),
            to: pair.src.local().into(),
            from: pair.dst.remote().into(),
            bytes: len as u32,
            status: pointer(&status),
        };
        setup.launch(&kernel, DIM)?;
        went_well(&pair, &status)?;
        same(&bytes(&pair.src, 0, all)?, &pattern(all, len as u64), "READs of a kernel")?;
    }
    Ok(())
}

/// READs, each followed by a fenced WRITE of the bytes that were read.
pub(super) fn kernel_fenced(setup: &Setup) -> End {
    const HALF: usize = 500_000;
    let pair = setup.kernel_pair()?;
    for len in [8, pair.mtu() + 1] {
        let (status, all) = (status(setup)?, THREADS * len);
        pair.dst.write(0, &pattern(all, len as u64))?;
        let kernel = c::Bounce {
            qp: pair.a.device_qp(),
            here: pair.src.local().into(),
            from: pair.dst.remote().into(),
            to: Remote::from(pair.dst.remote()).offset(HALF as u64),
            bytes: len as u32,
            status: pointer(&status),
        };
        setup.launch(&kernel, DIM)?;
        went_well(&pair, &status)?;
        same(&bytes(&pair.dst, HALF, all)?, &pattern(all, len as u64), "the bytes that came back")?;
    }
    Ok(())
}

pub(super) fn kernel_atomics(setup: &Setup) -> End {
    let (pair, status) = (setup.kernel_pair()?, status(setup)?);
    let olds = setup.memory((THREADS + 1) * 8, all_access())?;
    pair.dst.write(0, &[100u64.to_le_bytes(), 5u64.to_le_bytes()].concat())?;
    let kernel = k::Atomic {
        qp: pair.a.device_qp(),
        at: pair.dst.remote().into(),
        expected: 5,
        desired: 0x0123_4567_89ab_cdef,
        olds: pointer(&olds),
        status: pointer(&status),
    };
    setup.launch(&kernel, DIM)?;
    went_well(&pair, &status)?;
    let found = (word(&pair.dst, 0)?, word(&pair.dst, 8)?, word(&olds, THREADS * 8)?);
    let expected = (100 + THREADS as u64, 0x0123_4567_89ab_cdef, 5);
    check!(found == expected, "(sum, swapped, old) is {found:x?}, expected {expected:x?}");
    let mut seen = (0..THREADS).map(|n| word(&olds, n * 8)).collect::<Result<Vec<_>, _>>()?;
    seen.sort_unstable();
    let right = seen.iter().copied().eq(100..100 + THREADS as u64);
    check!(right, "the old values are {seen:?}, expected each from 100 on once");
    Ok(())
}

pub(super) fn kernel_masked_atomics(setup: &Setup) -> End {
    let (pair, status) = (setup.kernel_pair()?, status(setup)?);
    let olds = setup.memory(THREADS * 16, all_access())?;
    // The lower half goes round its end, and the word of 4 bytes has a neighbour.
    let (lower, narrow) = (u64::from(u32::MAX) - 9, 0xab_0000_0005);
    pair.dst.write(0, &[(7 << 32 | lower).to_le_bytes(), u64::to_le_bytes(narrow)].concat())?;
    let kernel = c::Masked {
        qp: pair.a.device_qp(),
        at: pair.dst.remote().into(),
        olds: pointer(&olds),
        status: pointer(&status),
    };
    setup.launch(&kernel, DIM)?;
    went_well(&pair, &status)?;
    let all = THREADS as u64;
    let halves = |n: u64| (7 + n) << 32 | (lower + n) & u64::from(u32::MAX);
    let found = (word(&pair.dst, 0)?, word(&pair.dst, 8)?);
    let expected = (halves(all), narrow + all);
    check!(found == expected, "the words are {found:x?}, expected {expected:x?}");
    let olds = &olds;
    let old = |at: usize| (0..THREADS).map(move |n| word(olds, 16 * n + at));
    let mut wide = old(0).collect::<Result<Vec<_>, _>>()?;
    let mut thin = old(8).collect::<Result<Vec<_>, _>>()?;
    wide.sort_unstable();
    thin.sort_unstable();
    let right = wide.iter().copied().eq((0..all).map(halves)) && thin.into_iter().eq(5..5 + all);
    check!(right, "the old values are {wide:x?}, expected each from {:x} on once", halves(0));
    Ok(())
}
