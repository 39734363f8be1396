//! Kernels and helpers for what runs on a real GPU.

// Every program that includes this uses a part of it.
#![allow(dead_code)]

use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use warpverbs_gpu::driver::{Cache, DriverGpu, OpenOptions};
use warpverbs_gpu::{
    Buffer, Dim, Entry, Gpu, GpuChoice, GpuError, Image, Kernel, KernelArgs, KernelPtr, Launch,
    LaunchError, Place, open_with,
};

/// These kernels exist for GPUs alone.
unsafe extern "C" fn gpu_only(_: *const *const c_void) {
    std::process::abort();
}

const fn entry(name: &'static str, params: &'static [usize]) -> Entry {
    Entry { name, params, host: gpu_only }
}

/// The kernels of `kernels.cu`.
pub(crate) static IMAGE: Image = Image {
    name: "kernels",
    source: include_str!("kernels.cu"),
    entries: &[
        entry("spin", &[8, 8, 8]),
        entry("add_one", &[8, 4]),
        entry("echo", &[8, 8, 8, 8]),
        entry("fail", &[]),
    ],
    others: &[],
};

/// An argument.
#[derive(Clone)]
pub(crate) enum Arg {
    /// An address.
    Ptr(KernelPtr<u64>),
    /// A number.
    U64(u64),
    /// A number.
    U32(u32),
}

/// A kernel of [`IMAGE`] with its arguments.
pub(crate) struct Call {
    pub(crate) name: &'static str,
    pub(crate) args: Vec<Arg>,
}

// SAFETY: the tests and the probe give the arguments that `kernels.cu` wants (a wrong count or size
// is found when loading).
unsafe impl Kernel for Call {
    fn image(&self) -> &'static Image {
        &IMAGE
    }

    fn entry(&self) -> &'static Entry {
        IMAGE.entries.iter().find(|entry| entry.name == self.name).expect("a kernel of the image")
    }

    fn args(&self) -> KernelArgs {
        let mut args = KernelArgs::new();
        for arg in &self.args {
            match arg {
                Arg::Ptr(pointer) => args.push(pointer),
                Arg::U64(value) => args.push(value),
                Arg::U32(value) => args.push(value),
            }
        }
        args
    }
}

impl Call {
    /// Launches it.
    pub(crate) fn launch(
        &self,
        gpu: &dyn Gpu,
        dim: Dim,
        deadline: Duration,
    ) -> Result<Launch, GpuError> {
        // SAFETY: the tests and the probe give buffers that hold what the kernel touches.
        unsafe { gpu.launch_unchecked(self, dim, deadline) }
    }
}

/// The GPU with this ordinal: of AMD if `WARPVERBS_TEST_GPU` is `hip`, else of NVIDIA.
pub(crate) fn choice(ordinal: u32) -> GpuChoice {
    warpverbs_dev::gpu(ordinal).parse().expect("a device's name")
}

/// Device `ordinal`, with [`IMAGE`] loaded and no cache.
pub(crate) fn open(ordinal: u32) -> Result<DriverGpu, GpuError> {
    let device = open_with(choice(ordinal), OpenOptions { cache: Cache::Off, copy: None })?;
    device.load(&IMAGE)?;
    Ok(device)
}

/// Pinned words for spinning kernels, had once: having more may wait for kernels that spin already.
struct Flags {
    buffer: Buffer,
    next: AtomicU64,
}

impl Flags {
    /// Bytes of one kernel's flags: a word for each block, and the last to stop it.
    const SLOT: u64 = 4096;
    const SLOTS: u64 = 128;
    const STOP: u64 = Self::SLOT - 8;

    /// Offset of a zeroed slot; the kernel that had it 128 kernels ago has long ended.
    fn take(gpu: &dyn Gpu) -> (&'static Buffer, u64) {
        static FLAGS: OnceLock<Flags> = OnceLock::new();
        let flags = FLAGS.get_or_init(|| Flags {
            buffer: gpu.alloc((Self::SLOT * Self::SLOTS) as usize, Place::Shared).unwrap(),
            next: AtomicU64::new(0),
        });
        let slot = flags.next.fetch_add(1, Ordering::Relaxed) % Self::SLOTS * Self::SLOT;
        flags.buffer.region().fill(slot, Self::SLOT as usize, 0).unwrap();
        (&flags.buffer, slot)
    }
}

/// A kernel that holds multiprocessors until it is told to stop.
pub(crate) struct Spin {
    launch: Launch,
    stop: &'static AtomicU64,
}

impl Spin {
    /// Takes every thread slot of the device for at most `limit`; returns when it has them.
    pub(crate) fn fill(gpu: &dyn Gpu, limit: Duration) -> Self {
        let dim = Dim::new(gpu.info().sm_count * 2, 1024);
        Self::start(gpu, dim, limit, limit).expect("blocks start")
    }

    /// As [`Spin::fill`], with a launch whose deadline comes too soon: it is given up.
    pub(crate) fn fill_and_abandon(gpu: &dyn Gpu, limit: Duration) -> impl FnOnce() {
        let (dim, soon) = (Dim::new(gpu.info().sm_count * 2, 1024), Duration::from_millis(600));
        let Self { launch, stop } =
            Self::start_until(gpu, dim, (limit, soon), limit).expect("blocks start");
        let abandoned = launch.wait();
        assert!(matches!(abandoned, Err(LaunchError::Deadline { .. })), "{abandoned:?}");
        move || stop.store(1, Ordering::Release)
    }

    /// As [`Spin::fill`] with the given blocks; `None` if they have not all started after `patience`.
    pub(crate) fn start(
        gpu: &dyn Gpu,
        dim: Dim,
        limit: Duration,
        patience: Duration,
    ) -> Option<Self> {
        Self::start_until(gpu, dim, (limit, limit + Duration::from_secs(5)), patience)
    }

    fn start_until(
        gpu: &dyn Gpu,
        dim: Dim,
        (limit, deadline): (Duration, Duration),
        patience: Duration,
    ) -> Option<Self> {
        let (buffer, slot) = Flags::take(gpu);
        let bytes = 8 * u64::from(dim.blocks());
        assert!(bytes <= Flags::STOP, "{} blocks are too many to watch", dim.blocks());
        let args = vec![
            Arg::Ptr(KernelPtr::at(buffer, slot, bytes as usize).unwrap()),
            Arg::Ptr(KernelPtr::at(buffer, slot + Flags::STOP, 8).unwrap()),
            Arg::U64(limit.as_nanos() as u64),
        ];
        let launch = Call { name: "spin", args }.launch(gpu, dim, deadline).unwrap();
        let word = |offset| buffer.region().atomic_u64(slot + offset).unwrap();
        let spin = Self { launch, stop: word(Flags::STOP) };
        let asked = Instant::now();
        while !(0..bytes).step_by(8).all(|offset| word(offset).load(Ordering::Acquire) == 1) {
            if asked.elapsed() > patience {
                let _ = spin.end();
                return None;
            }
            std::thread::yield_now();
        }
        Some(spin)
    }

    /// Whether it still holds the device.
    pub(crate) fn is_running(&mut self) -> bool {
        !self.launch.is_done().unwrap()
    }

    /// Lets go.
    pub(crate) fn end(self) -> Result<(), LaunchError> {
        self.stop.store(1, Ordering::Release);
        self.launch.wait()
    }
}

/// Runs `work` on another thread for at most `limit`; `None` if it has not ended by then (it goes
/// on, and must end by itself).
pub(crate) fn within<R: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> R + Send + 'static,
) -> Option<R> {
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // Nobody listens any more if the limit has passed.
        let _ = send.send(work());
    });
    receive.recv_timeout(limit).ok()
}
