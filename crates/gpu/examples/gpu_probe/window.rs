//! Device memory mapped into the CPU's address space by way of a dmabuf.

use crate::raw::{enter, raw};
use crate::roundtrip::{play, word};
use crate::{micros, percentiles};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Instant;
use warpverbs_gpu::driver::DriverGpu;
use warpverbs_gpu::{Buffer, Gpu, GpuError, Place};

/// One granule of device memory, so that the buffer is an allocation of its own.
const LEN: usize = 2 << 20;

/// A mapping; unmapped on drop.
struct Window(NonNull<c_void>);

impl Window {
    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < LEN / 8);
        let base: *mut u64 = self.0.as_ptr().cast();
        // SAFETY: inside the mapping, aligned, and it lives as long as `self`; others change the
        // bytes at any time, which an atomic allows.
        unsafe { AtomicU64::from_ptr(base.wrapping_add(index)) }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no borrow of it is left.
        let _ = unsafe { munmap(self.0, LEN) };
    }
}

fn export(gpu: &DriverGpu, buffer: &Buffer, flags: u64) -> Result<OwnedFd, GpuError> {
    enter(gpu.info().ordinal)?;
    let kind = cudarc::driver::sys::CUmemRangeHandleType::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
    let (addr, mut fd) = (buffer.kernel_addr(), -1i32);
    let to = (&raw mut fd).cast();
    // A whole live allocation (`LEN` has one of its own); the handle is an `int`.
    raw!(cuMemGetHandleForAddressRange(to, addr, LEN, kind, flags))?;
    // SAFETY: a new descriptor, which the driver leaves to its caller.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn map(fd: &OwnedFd) -> Result<Window, nix::errno::Errno> {
    let len = NonZeroUsize::new(LEN).unwrap_or(NonZeroUsize::MIN);
    let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice aliases nothing of Rust's.
    unsafe { mmap(None, len, access, MapFlags::MAP_SHARED, fd, 0) }.map(Window)
}

pub(crate) fn print(gpu: &DriverGpu) -> Result<(), GpuError> {
    println!("## dmabuf export of 2 MiB of device memory, and the CPU's view of it\n");
    let buffer = gpu.alloc(LEN, Place::Device)?;
    println!("address {:#x}\n", buffer.kernel_addr());
    println!("| export flags | export | mmap |\n|---|---|---|");
    let mut window = None;
    for (name, flags) in [("0", 0), ("DMA_BUF_MAPPING_TYPE_PCIE", 1)] {
        match export(gpu, &buffer, flags) {
            Err(error) => println!("| {name} | {error} | |"),
            Ok(fd) => match map(&fd) {
                Err(errno) => println!("| {name} | fd {} | {errno} |", fd.as_raw_fd()),
                Ok(mapped) => {
                    println!("| {name} | fd {} | works |", fd.as_raw_fd());
                    window = Some(mapped);
                }
            },
        }
    }
    println!();
    match window {
        Some(window) => measure(gpu, &buffer, &window),
        None => Ok(()),
    }
}

fn measure(gpu: &DriverGpu, buffer: &Buffer, window: &Window) -> Result<(), GpuError> {
    const ROUNDS: u64 = 5000;
    println!("| through the window | p50 µs | p99 µs |\n|---|---|---|");
    let stores = times(1000, |i| {
        window.word(8).store(i, Ordering::Release);
        fence(Ordering::SeqCst);
    });
    let (median, high) = percentiles(stores);
    println!("| 8-byte store and fence | {median} | {high} |");
    let loads = times(1000, |_| {
        std::hint::black_box(window.word(8).load(Ordering::Acquire));
    });
    let (median, high) = percentiles(loads);
    println!("| 8-byte load | {median} | {high} |");
    let mut seen = [0; 8];
    gpu.read(buffer, 64, &mut seen)?;
    println!("| last stored 999, the copy engine reads | {} | |", u64::from_le_bytes(seen));
    gpu.write(buffer, 128, &77u64.to_le_bytes())?;
    println!(
        "| copy engine wrote 77, a load gives | {} | |",
        window.word(16).load(Ordering::Acquire)
    );

    gpu.write(buffer, 0, &[0; 16])?;
    let pong = gpu.alloc(8, Place::Shared)?;
    let send = |round| {
        window.word(0).store(round, Ordering::Release);
        // Flushes the CPU's write-combining buffer.
        fence(Ordering::SeqCst);
    };
    let receive = || word(&pong).load(Ordering::Acquire);
    let rounds = play(gpu, (buffer, &pong), ROUNDS, send, receive)?;
    let count = rounds.len();
    let (median, high) = percentiles(rounds);
    println!(
        "| {count} of {ROUNDS} flag round trips, ping by the window, pong pinned | {median} | {high} |"
    );
    let begun = Instant::now();
    for i in 0..(LEN / 8) {
        window.word(i).store(i as u64, Ordering::Relaxed);
    }
    fence(Ordering::SeqCst);
    println!("| 2 MiB of 8-byte stores | {} | |\n", micros(begun.elapsed()));
    Ok(())
}

fn times(rounds: u64, mut work: impl FnMut(u64)) -> Vec<std::time::Duration> {
    (0..rounds)
        .map(|i| {
            let begun = Instant::now();
            work(i);
            begun.elapsed()
        })
        .collect()
}
