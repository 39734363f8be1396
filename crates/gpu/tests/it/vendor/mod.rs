//! Tests that need a real NVIDIA GPU; or an AMD GPU, or its emulator, where `WARPVERBS_TEST_GPU` is `hip`.
//! `docs/gpu-testing.md` and `docs/hip.md` say how to run them.

mod arena;
#[path = "../../common/mod.rs"]
mod common;
mod copies;
mod withdraw;

use common::{Arg, Call, Spin, within};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use std::ffi::c_void;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use warpverbs_gpu::driver::{Cache, DriverGpu};
use warpverbs_gpu::{
    Buffer, Dim, Entry, Gpu, GpuChoice, GpuError, Image, KernelPtr, Launch, LaunchError, Place,
};
use warpverbs_mem::{Dmabuf, HostBuf, MemError, Region};

/// Ends a hang: nothing that comes at all takes this long, however slow the machine is.
const HANG: Duration = Duration::from_secs(240);
/// How long a kernel spins that nobody stops: what waits for its end has not ended after `HANG`.
const SPIN: Duration = Duration::from_secs(300);

/// One test at a time: some fill the device.
fn device() -> (MutexGuard<'static, ()>, Arc<DriverGpu>) {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    (turn, Arc::new(common::open(0).unwrap()))
}

fn random_bytes(len: usize) -> Vec<u8> {
    let seed = rand::random::<u64>();
    println!("seed {seed}");
    let mut bytes = vec![0; len];
    SmallRng::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}

fn read_all(gpu: &dyn Gpu, buffer: &Buffer) -> Vec<u8> {
    let mut out = vec![0xa5; buffer.len()];
    gpu.read(buffer, 0, &mut out).unwrap();
    out
}

fn add_one(gpu: &dyn Gpu, words: &Buffer, count: u32) {
    let args = vec![Arg::Ptr(words.into()), Arg::U32(count)];
    let dim = Dim::new(count.div_ceil(256), 256);
    Call { name: "add_one", args }.launch(gpu, dim, HANG).unwrap().wait().unwrap();
}

#[test]
#[ignore = "needs NVRTC"]
fn the_kernels_of_these_tests_compile_for_every_architecture() {
    for arch in ["sm_80", "sm_90", "sm_100"] {
        let compiled = warpverbs_gpu::cuda::cubin(&common::IMAGE, arch, &Cache::Off);
        assert!(compiled.is_ok(), "{arch}: {compiled:?}");
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn memory_is_zeroed_and_reads_back() {
    let (_turn, gpu) = device();
    for place in [Place::Device, Place::Shared] {
        for len in [1, 896, 4096, (1 << 20) + 1, (3 << 20) + 5] {
            let buffer = gpu.alloc(len, place).unwrap();
            assert_eq!(buffer.len(), len);
            assert_eq!(buffer.kernel_addr() % 256, 0);
            assert!(read_all(&*gpu, &buffer).iter().all(|&b| b == 0), "{place:?} {len}");
            let data = random_bytes(len);
            gpu.write(&buffer, 0, &data).unwrap();
            assert!(read_all(&*gpu, &buffer) == data, "{place:?} {len}");
            let refused = gpu.write(&buffer, 1, &data);
            assert!(
                matches!(refused, Err(GpuError::Memory(MemError::OutOfBounds { .. }))),
                "{refused:?}"
            );
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn reused_memory_is_zeroed_and_neighbours_are_left_alone() {
    let (_turn, gpu) = device();
    let held: Vec<(Buffer, Vec<u8>)> = (0..64)
        .map(|i| {
            let buffer = gpu.alloc(300 + i * 7, Place::Device).unwrap();
            let data = vec![i as u8 + 1; buffer.len()];
            gpu.write(&buffer, 0, &data).unwrap();
            (buffer, data)
        })
        .collect();
    let mut kept = Vec::new();
    for (i, pair) in held.into_iter().enumerate() {
        if i % 2 == 0 {
            kept.push(pair);
        }
    }
    for _ in 0..64 {
        let fresh = gpu.alloc(300, Place::Device).unwrap();
        assert!(read_all(&*gpu, &fresh).iter().all(|&b| b == 0));
        gpu.write(&fresh, 0, &[0xff; 300]).unwrap();
    }
    for (buffer, data) in &kept {
        assert!(read_all(&*gpu, buffer) == *data);
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_kernel_changes_device_and_shared_memory() {
    let (_turn, gpu) = device();
    for place in [Place::Device, Place::Shared] {
        let words = gpu.alloc(4 * 1000, place).unwrap();
        for _ in 0..3 {
            add_one(&*gpu, &words, 999);
        }
        let out = read_all(&*gpu, &words);
        let values: Vec<u32> =
            out.chunks_exact(4).map(|w| u32::from_le_bytes(w.try_into().unwrap())).collect();
        assert!(values[..999].iter().all(|&v| v == 3), "{place:?}");
        assert_eq!(values[999], 0, "{place:?}: past the count");
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn host_memory_is_mapped_once_and_shared() {
    let (_turn, gpu) = device();
    let region = HostBuf::region(4 * 4096).unwrap();
    let whole = gpu.map(&region).unwrap();
    let again = gpu.map(&region).unwrap();
    let part = gpu.map(&region.slice(4096, 4096).unwrap()).unwrap();
    assert_eq!(part.kernel_addr(), whole.kernel_addr() + 4096);
    drop(whole);
    add_one(&*gpu, &part, 1024);
    drop(again);
    add_one(&*gpu, &part, 1024);
    assert_eq!(region.atomic_u32(4096).unwrap().load(std::sync::atomic::Ordering::Acquire), 2);
    drop(part);
    let half = gpu.map(&region.slice(0, 8192).unwrap()).unwrap();
    let refused = gpu.map(&region);
    assert!(matches!(refused, Err(GpuError::PartlyMapped { .. })), "{refused:?}");
    drop(half);
    gpu.map(&region).unwrap();
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn dropping_anything_while_a_kernel_runs_returns_at_once() {
    let (_turn, gpu) = device();
    let large = gpu.alloc(8 << 20, Place::Device).unwrap();
    let small = gpu.alloc(100, Place::Device).unwrap();
    let shared = gpu.alloc(1 << 20, Place::Shared).unwrap();
    let region = HostBuf::region(8192).unwrap();
    let mapped = gpu.map(&region).unwrap();
    let mut spin = Spin::fill(&*gpu, SPIN);
    let ended = within(HANG, move || {
        drop((large, small, shared, mapped));
        drop(region);
    });
    let was_running = spin.is_running();
    spin.end().unwrap();
    assert!(ended.is_some(), "a drop waits for the kernel");
    assert!(was_running, "the kernel ended too early to show anything");
    let fresh = gpu.alloc(8 << 20, Place::Device).unwrap();
    add_one(&*gpu, &fresh, 1000);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_loaded_kernel_runs_beside_a_spinning_one() {
    let (_turn, gpu) = device();
    let words = gpu.alloc(4096, Place::Device).unwrap();
    let spin = Spin::start(&*gpu, Dim::new(1, 32), SPIN, SPIN).expect("one block starts");
    for _ in 0..40 {
        add_one(&*gpu, &words, 1024);
    }
    spin.end().unwrap();
    assert_eq!(read_all(&*gpu, &words)[..4], 40u32.to_le_bytes());
}

/// A spinning kernel's flags: device memory that it writes, shared memory that stops it.
fn flags(gpu: &dyn Gpu) -> (Buffer, Buffer) {
    (gpu.alloc(8, Place::Device).unwrap(), gpu.alloc(8, Place::Shared).unwrap())
}

/// Starts a kernel that alone keeps its flags, and something else beside them.
fn lonely_spin(
    gpu: &dyn Gpu,
    (started, stop): (Buffer, Buffer),
    deadline: Duration,
) -> (Launch, Region, Weak<()>) {
    let beside = Arc::new(());
    let kept = Arc::downgrade(&beside);
    let args = vec![
        Arg::Ptr(KernelPtr::new(&started).keeping(beside)),
        Arg::Ptr((&stop).into()),
        Arg::U64(SPIN.as_nanos() as u64),
    ];
    let call = Call { name: "spin", args };
    let launch = call.launch(gpu, Dim::new(1, 32), deadline).unwrap();
    (launch, stop.region().clone(), kept)
}

fn stop(region: &Region) {
    region.atomic_u64(0).unwrap().store(1, Ordering::Release);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_launch_keeps_what_its_arguments_need_until_the_kernel_has_ended() {
    let (_turn, gpu) = device();
    let flags = flags(&*gpu);
    let addr = flags.0.kernel_addr();
    let (launch, stop_word, kept) = lonely_spin(&*gpu, flags, HANG);
    // First fit would give the same place if it were free.
    assert_ne!(gpu.alloc(8, Place::Device).unwrap().kernel_addr(), addr);
    assert!(kept.strong_count() > 0);
    stop(&stop_word);
    launch.wait().unwrap();
    assert_eq!(kept.strong_count(), 0);
    assert_eq!(gpu.alloc(8, Place::Device).unwrap().kernel_addr(), addr);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_deadline_names_the_kernel_and_its_memory_stays() {
    let (_turn, gpu) = device();
    let flags = flags(&*gpu);
    let addr = flags.0.kernel_addr();
    let (launch, stop_word, kept) = lonely_spin(&*gpu, flags, Duration::from_millis(100));
    let late = launch.wait().unwrap_err();
    let LaunchError::Deadline { report, .. } = &late else { panic!("{late}") };
    assert!(report.contains("kernel spin"), "{report}");
    let words = gpu.alloc(4096, Place::Device).unwrap();
    add_one(&*gpu, &words, 1024);
    assert_eq!(read_all(&*gpu, &words)[..4], 1u32.to_le_bytes());
    assert_ne!(gpu.alloc(8, Place::Device).unwrap().kernel_addr(), addr);
    assert!(kept.strong_count() > 0);
    stop(&stop_word);
    let asked = Instant::now();
    while kept.strong_count() > 0 {
        assert!(asked.elapsed() < HANG, "memory of an ended kernel is never let go");
        // The end of a launch is when those given up are looked at.
        add_one(&*gpu, &words, 1);
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn wrong_launches_are_refused_and_named() {
    let (_turn, gpu) = device();
    let words = gpu.alloc(4096, Place::Device).unwrap();
    let call = |count: usize| Call {
        name: "add_one",
        args: vec![Arg::Ptr(KernelPtr::new(&words)), Arg::U32(1)].split_off(count),
    };
    for (dim, omit, wrong) in [
        (Dim::new(1, 1025), 0, "threads per block"),
        (Dim::new(0, 1), 0, "grid.x"),
        (Dim::new(1, 1), 1, "arguments"),
    ] {
        let refused = call(omit).launch(&*gpu, dim, HANG).map(drop);
        assert!(
            matches!(refused, Err(GpuError::BadLaunch { kernel: "add_one", field, .. }) if field == wrong),
            "{refused:?}"
        );
    }
}

unsafe extern "C" fn never_called(_: *const *const c_void) {
    std::process::abort();
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_launcher_that_disagrees_with_its_kernel_is_refused() {
    static WRONG: [Image; 3] = {
        const SOURCE: &str = "#include \"warpverbs/arch/arch.h\"\n\
            WV_KERNEL(k)(unsigned long long, unsigned) {}\n";
        const fn image(entries: &'static [Entry]) -> Image {
            Image { name: "wrong", source: SOURCE, entries, others: &[] }
        }
        [
            image(&[Entry { name: "k", params: &[8, 8], host: never_called }]),
            image(&[Entry { name: "k", params: &[8], host: never_called }]),
            image(&[Entry { name: "k", params: &[8, 4, 4], host: never_called }]),
        ]
    };
    let (_turn, gpu) = device();
    for image in &WRONG {
        let refused = gpu.load(image);
        assert!(matches!(refused, Err(GpuError::BadEntry { kernel: "k", .. })), "{refused:?}");
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_dmabuf_is_exported_or_refused_with_a_reason() {
    let (_turn, gpu) = device();
    let small = gpu.alloc(5000, Place::Device).unwrap();
    let large = gpu.alloc(5 << 20, Place::Device).unwrap();
    for buffer in [&small, &large] {
        let region = buffer.region();
        match region.export_dmabuf() {
            Ok(Dmabuf { fd, offset }) => {
                println!("{} bytes: dmabuf, offset {offset}", buffer.len());
                assert!(gpu.info().dmabuf && offset < 2 << 20);
                assert_eq!(offset % 4096, region.addr() % 4096, "the same place in a page");
                assert!(std::fs::File::from(fd).metadata().is_ok());
                // A part lies further on in the same dmabuf.
                let part = region.slice(4096, 100).unwrap().export_dmabuf().unwrap();
                assert_eq!(part.offset, offset + 4096);
            }
            Err(error) => {
                assert!(!gpu.info().dmabuf, "{error}");
                println!("{error}");
            }
        }
    }
    let shared = gpu.alloc(4096, Place::Shared).unwrap();
    assert!(shared.region().export_dmabuf().is_err());
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn auto_takes_the_gpu() {
    let (_turn, gpu) = device();
    let opened = warpverbs_gpu::open_explained(GpuChoice::Auto).unwrap();
    let name = common::choice(0).to_string();
    // An emulator is for those who ask for it.
    if gpu.info().name.starts_with("emulated ") {
        assert!(
            !opened.why.starts_with(&name) && opened.why.contains("emulator"),
            "{}",
            opened.why
        );
    } else {
        assert!(opened.why.starts_with(&format!("{name}: ")), "{}", opened.why);
    }
    let found = warpverbs_gpu::list();
    let found = found.iter().find(|f| f.name == name).expect("the GPU is listed");
    assert!(found.unusable.is_none(), "{found:?}");
}
