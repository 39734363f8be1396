//! The same, posted by kernels.

use crate::Setup;
use crate::outcome::{Stop, check};
use crate::rig::{End, Pair, all_access, bytes, pattern, same, word};
use warpverbs::gpu::{Dim, KernelPtr};
use warpverbs::kernels::loopback as k;
use warpverbs::transport::MemoryRegion;

/// Lanes of a launch.
pub(super) const DIM: Dim = Dim::new(2, 48);
pub(super) const THREADS: usize = 96;

/// A zeroed word in which a kernel leaves its first bad status.
pub(super) fn status(setup: &Setup) -> Result<MemoryRegion, Stop> {
    setup.region(&setup.a.device, 64, all_access())
}

pub(super) fn pointer(region: &MemoryRegion) -> KernelPtr {
    KernelPtr::new(region.buffer())
}

pub(super) fn code(status: &MemoryRegion) -> Result<u32, Stop> {
    Ok(word(status, 0)? as u32)
}

pub(super) fn went_well(pair: &Pair, status: &MemoryRegion) -> End {
    let code = code(status)?;
    check!(code == 0, "the kernel ended with status {code:#x}");
    pair.is_well()
}

pub(super) fn write(pair: &Pair, bytes: u32, status: &MemoryRegion) -> k::Write {
    k::Write {
        qp: pair.a.device_qp(),
        laddr: pair.src.addr(),
        lkey: pair.src.lkey(),
        raddr: pair.dst.addr(),
        rkey: pair.dst.rkey(),
        bytes,
        status: pointer(status),
    }
}

pub(super) fn kernel_write(setup: &Setup) -> End {
    let pair = setup.kernel_pair()?;
    for len in [1, 8, 100, pair.mtu() + 1] {
        let status = status(setup)?;
        setup.launch(&write(&pair, len as u32, &status), DIM)?;
        went_well(&pair, &status)?;
        let all = THREADS * len;
        same(&bytes(&pair.dst, 0, all)?, &pattern(all, 1), "WRITEs of a kernel")?;
        pair.dst.write(0, &vec![0; all])?;
    }
    Ok(())
}

pub(super) fn kernel_write_inline(setup: &Setup) -> End {
    let pair = setup.kernel_pair()?;
    for len in [1, 12, 13, 28, 29, 92, 93, 220] {
        let status = status(setup)?;
        let kernel = k::WriteInline {
            qp: pair.a.device_qp(),
            source: pointer(&pair.src),
            raddr: pair.dst.addr(),
            rkey: pair.dst.rkey(),
            bytes: len as u32,
            status: pointer(&status),
        };
        setup.launch(&kernel, DIM)?;
        went_well(&pair, &status)?;
        let all = THREADS * len;
        same(&bytes(&pair.dst, 0, all)?, &pattern(all, 1), "inline WRITEs of a kernel")?;
        pair.dst.write(0, &vec![0; all])?;
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
            laddr: pair.src.addr(),
            lkey: pair.src.lkey(),
            raddr: pair.dst.addr(),
            rkey: pair.dst.rkey(),
            bytes: len as u32,
            status: pointer(&status),
        };
        setup.launch(&kernel, DIM)?;
        went_well(&pair, &status)?;
        same(&bytes(&pair.src, 0, all)?, &pattern(all, len as u64), "READs of a kernel")?;
    }
    Ok(())
}

pub(super) fn kernel_atomics(setup: &Setup) -> End {
    let (pair, status) = (setup.kernel_pair()?, status(setup)?);
    let olds = setup.region(&setup.a.device, (THREADS + 1) * 8, all_access())?;
    pair.dst.write(0, &[100u64.to_le_bytes(), 5u64.to_le_bytes()].concat())?;
    let kernel = k::Atomic {
        qp: pair.a.device_qp(),
        raddr: pair.dst.addr(),
        rkey: pair.dst.rkey(),
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

pub(super) fn kernel_write_imm(setup: &Setup) -> End {
    let (pair, status) = (setup.kernel_pair()?, status(setup)?);
    let received = setup.region(&setup.a.device, 64, all_access())?;
    let len = pair.mtu() as u32 + 100;
    let kernel = k::WriteImm {
        from: pair.a.device_qp(),
        to: pair.b.device_qp(),
        laddr: pair.src.addr(),
        lkey: pair.src.lkey(),
        raddr: pair.dst.addr(),
        rkey: pair.dst.rkey(),
        bytes: len,
        imm: 0xfeed_0001,
        received: pointer(&received),
        status: pointer(&status),
    };
    setup.launch(&kernel, Dim::new(1, 32))?;
    went_well(&pair, &status)?;
    same(&bytes(&pair.dst, 0, len as usize)?, &pattern(len as usize, 1), "WRITE with immediate")?;
    // The CQE's opcode is RESP_WR_IMM, 1.
    let expected: Vec<u8> = [len, 0xfeed_0001, 1].into_iter().flat_map(u32::to_le_bytes).collect();
    same(&bytes(&received, 0, 12)?, &expected, "length, immediate and opcode of the receive")
}

pub(super) fn kernel_messages(setup: &Setup) -> End {
    for (len, piece) in [(10_000usize, 999u32), (200_000, 5000), (64, 1)] {
        let (pair, status) = (setup.kernel_pair()?, status(setup)?);
        let counts = setup.region(&setup.a.device, 64, all_access())?;
        let kernel = k::SendRecv {
            from: pair.a.device_qp(),
            to: pair.b.device_qp(),
            laddr: pair.src.addr(),
            lkey: pair.src.lkey(),
            raddr: pair.dst.addr(),
            rlkey: pair.dst.lkey(),
            bytes: len as u64,
            piece,
            window: 8,
            counts: pointer(&counts),
            status: pointer(&status),
        };
        setup.launch(&kernel, Dim::new(1, 64))?;
        went_well(&pair, &status)?;
        same(&bytes(&pair.dst, 0, len)?, &pattern(len, 1), "messages of a kernel")?;
        let pieces = len.div_ceil(piece as usize) as u64;
        let found = (word(&counts, 0)?, word(&counts, 8)?, word(&counts, 16)?);
        let expected = (pieces, pieces, 0);
        check!(found == expected, "(sent, received, wrong) is {found:?}, expected {expected:?}");
    }
    Ok(())
}
