//! The device without a C++ compiler: kernels in Rust that call the hooks. C++ kernels are tested
//! by `simt.rs` and `selftest.rs` of `crates/test-kernels/tests/it`.

use super::abi::tls;
use super::hooks::{wv_simt_active, wv_simt_block_sync, wv_simt_now_ns, wv_simt_pause};
use super::{SimtConfig, SimtDevice};
use crate::{
    Buffer, Dim, Entry, Gpu, GpuError, Image, Kernel, KernelArgs, KernelPtr, LaunchError, Place,
};
use core::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

static ENTRIES: [Entry; 2] = [
    Entry { name: "meet", params: &[8], host: meet },
    Entry { name: "wait", params: &[8], host: wait },
];
static IMAGE: Image = Image { name: "tests", source: "", entries: &ENTRIES, others: &[] };

fn cell<'a>(args: *const *const c_void) -> &'a AtomicU64 {
    // SAFETY: both kernels have one parameter, a pointer.
    let first = unsafe { *args };
    // SAFETY: as above.
    let cell = unsafe { *first.cast::<*mut u64>() };
    // SAFETY: of an 8-byte aligned buffer that the launch keeps alive.
    unsafe { AtomicU64::from_ptr(cell) }
}

/// Adds the size of each group that met to the cell, by its lowest lane, after a barrier.
unsafe extern "C" fn meet(args: *const *const c_void) {
    let here = c"tests.rs".as_ptr();
    wv_simt_block_sync(here, 1);
    let mask = wv_simt_active(here, 2);
    // SAFETY: a lane runs, so there is one.
    let lane = unsafe { (*tls().current.get()).lane };
    assert!(mask & 1 << lane != 0);
    if mask.trailing_zeros() == lane {
        cell(args).fetch_add(mask.count_ones().into(), Ordering::Relaxed);
    }
}

/// Waits until the cell is not 0.
unsafe extern "C" fn wait(args: *const *const c_void) {
    let begin = wv_simt_now_ns();
    while cell(args).load(Ordering::Acquire) == 0 {
        wv_simt_pause(1000, c"tests.rs".as_ptr(), 3);
    }
    assert!(wv_simt_now_ns() >= begin);
}

struct Test {
    entry: &'static Entry,
    args: Vec<KernelPtr<u64>>,
}

// SAFETY: the tests give one pointer, as both entries want.
unsafe impl Kernel for Test {
    fn image(&self) -> &'static Image {
        &IMAGE
    }

    fn entry(&self) -> &'static Entry {
        self.entry
    }

    fn args(&self) -> KernelArgs {
        let mut args = KernelArgs::new();
        self.args.iter().for_each(|p| args.push(p));
        args
    }
}

fn launch(
    gpu: &SimtDevice,
    kernel: &Test,
    dim: Dim,
    deadline: Duration,
) -> Result<crate::Launch, GpuError> {
    // SAFETY: both kernels touch the one word behind their pointer.
    unsafe { gpu.launch_unchecked(kernel, dim, deadline) }
}

fn word(gpu: &SimtDevice) -> Buffer {
    gpu.alloc(8, Place::Device).unwrap()
}

fn value(buffer: &Buffer) -> u64 {
    buffer.region().atomic_u64(0).unwrap().load(Ordering::Acquire)
}

#[test]
fn every_lane_meets_exactly_once() {
    let configs = (0..20).map(SimtConfig::seeded).chain([SimtConfig::default()]);
    for config in configs {
        let gpu = SimtDevice::new(config).unwrap();
        let count = word(&gpu);
        let kernel = Test { entry: &ENTRIES[0], args: vec![(&count).into()] };
        launch(&gpu, &kernel, Dim::new(5, 100), Duration::from_secs(20)).unwrap().wait().unwrap();
        assert_eq!(value(&count), 500, "{:?}", gpu.config().mode);
    }
}

#[test]
fn a_launch_keeps_its_memory_and_gives_it_back() {
    let gpu = SimtDevice::new(SimtConfig::default()).unwrap();
    let flag = word(&gpu);
    let witness = Arc::new(());
    let pointer = KernelPtr::new(&flag).keeping(witness.clone());
    let kernel = Test { entry: &ENTRIES[1], args: vec![pointer] };
    let launch = launch(&gpu, &kernel, Dim::new(1, 33), Duration::from_secs(20)).unwrap();
    drop(kernel);
    assert_eq!(Arc::strong_count(&witness), 2);
    gpu.write(&flag, 0, &1u64.to_le_bytes()).unwrap();
    launch.wait().unwrap();
    assert_eq!(Arc::strong_count(&witness), 1);
}

#[test]
fn a_stopped_launch_gives_its_memory_back_too() {
    let gpu = SimtDevice::new(SimtConfig::default()).unwrap();
    let witness = Arc::new(());
    let pointer = KernelPtr::new(&word(&gpu)).keeping(witness.clone());
    let kernel = Test { entry: &ENTRIES[1], args: vec![pointer] };
    let launch = launch(&gpu, &kernel, Dim::new(1, 33), Duration::from_millis(30)).unwrap();
    drop(kernel);
    let Err(LaunchError::Deadline { report, .. }) = launch.wait() else { panic!("it ended") };
    assert!(report.contains("waiting at tests.rs:3"), "{report}");
    assert_eq!(Arc::strong_count(&witness), 1);
}

#[test]
fn a_stepper_that_the_kernel_waits_for_is_stepped() {
    let cell = Arc::new(AtomicU64::new(0));
    for seed in 0..10 {
        let flag = word(&SimtDevice::new(SimtConfig::default()).unwrap());
        let (raise, steps) = (flag.clone(), cell.clone());
        let stepper = Arc::new(move || {
            if steps.fetch_add(1, Ordering::Relaxed) % 50 == 49 {
                raise.region().atomic_u64(0).unwrap().store(1, Ordering::Release);
            }
            true
        });
        let gpu = SimtDevice::with_stepper(SimtConfig::seeded(seed), stepper).unwrap();
        let kernel = Test { entry: &ENTRIES[1], args: vec![(&flag).into()] };
        launch(&gpu, &kernel, Dim::new(2, 40), Duration::from_secs(20)).unwrap().wait().unwrap();
        assert!(gpu.finished()[0].counts.steps > 0);
    }
}

#[test]
fn parameters_are_counted() {
    let gpu = SimtDevice::new(SimtConfig::default()).unwrap();
    let kernel = Test { entry: &ENTRIES[1], args: Vec::new() };
    let refused = launch(&gpu, &kernel, Dim::new(1, 1), Duration::from_secs(1)).map(|_| ());
    assert!(matches!(refused, Err(GpuError::BadLaunch { field: "parameters", .. })));
}
