//! A second driver, for tests: devices whose memory is the host's, and which begin kernels when the test says
//! so. Here, too, copies inside a device wait for kernels; these are run by the SIMT device.

use super::calls::{
    Copy, Driver, Function, Functions, Kernels, Memory, Prepared, Priority, Resource,
};
use super::{Cache, Context, CopyPath, CopyPolicy, DriverGpu, OpenOptions};
use crate::launch::Dim;
use crate::simt::{SimtConfig, SimtDevice};
use crate::{Entry, Gpu, GpuError, GpuInfo, GpuKind, Image, Kernel, KernelArgs};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use warpverbs_mem::{Dmabuf, HostBuf, Kind, Region, ShareHandle};

/// Ends a hang.
const HANG: Duration = Duration::from_secs(240);
/// Threads of a multiprocessor, and multiprocessors.
pub(super) const THREADS: u32 = 2048;
pub(super) const MULTIPROCESSORS: u32 = 4;

/// The part of a device that the test holds.
#[derive(Default)]
pub(super) struct Script(Mutex<State>);

#[derive(Default)]
struct State {
    memory: BTreeMap<u64, Region>,
    entries: Vec<(&'static Image, &'static Entry)>,
    streams: BTreeMap<u64, VecDeque<Work>>,
    made: u64,
    /// Kernels do not begin, nor do copies inside the device, which are kernels of the driver.
    full: bool,
    /// Copies do not land.
    slow: bool,
    /// A kernel has failed.
    lost: bool,
    begun: usize,
    freed: Vec<Resource>,
}

/// Work of a stream.
enum Work {
    Copy { dst: u64, src: u64, len: usize, inside: bool },
    Zero { addr: u64, len: usize },
    Word { addr: u64, value: u64 },
    Kernel { image: &'static Image, entry: &'static Entry, args: KernelArgs, dim: Dim },
}

impl Script {
    fn state(&self) -> MutexGuard<'_, State> {
        super::lock::lock(&self.0)
    }

    /// Other kernels take the device, or leave it.
    pub(super) fn fill(&self, full: bool) {
        let mut state = self.state();
        state.full = full;
        state.go_on();
    }

    /// The copy engines stand still, or go on.
    pub(super) fn slow(&self, slow: bool) {
        let mut state = self.state();
        state.slow = slow;
        state.go_on();
    }

    /// A kernel of the context fails: nothing of it runs any more.
    pub(super) fn lose(&self) {
        let mut state = self.state();
        state.lost = true;
        state.streams.values_mut().for_each(VecDeque::clear);
    }

    /// Kernels that have begun, and ended.
    pub(super) fn begun(&self) -> usize {
        self.state().begun
    }

    /// Streams that there are.
    pub(super) fn streams(&self) -> usize {
        self.state().streams.len()
    }

    /// Whether memory that began here has been given back.
    pub(super) fn is_freed(&self, addr: u64) -> bool {
        let is_it = |freed: &Resource| matches!(freed, Resource::Memory(at) if *at == addr);
        self.state().freed.iter().any(is_it)
    }
}

impl State {
    /// Does what can be done; work of one stream in its order.
    fn go_on(&mut self) {
        let mut streams = std::mem::take(&mut self.streams);
        for work in streams.values_mut() {
            while work.front().is_some_and(|next| self.may_begin(next)) {
                if let Some(next) = work.pop_front() {
                    self.run(next);
                }
            }
        }
        self.streams = streams;
    }

    fn may_begin(&self, work: &Work) -> bool {
        match work {
            Work::Copy { inside: false, .. } => !self.slow,
            Work::Copy { .. } | Work::Zero { .. } | Work::Kernel { .. } => !self.full,
            Work::Word { .. } => true,
        }
    }

    fn run(&mut self, work: Work) {
        match work {
            Work::Copy { dst, src, len, .. } => {
                // SAFETY: the caller of `copy` keeps both ranges valid until the copy has landed.
                unsafe { std::ptr::copy(src as *const u8, dst as *mut u8, len) };
            }
            Work::Zero { addr, len } => {
                // SAFETY: the caller of `zero` keeps the range valid until it is done.
                unsafe { std::ptr::write_bytes(addr as *mut u8, 0, len) };
            }
            Work::Word { addr, value } => {
                // SAFETY: the caller of `write_word` keeps the aligned word valid until it is written.
                unsafe { AtomicU64::from_ptr(addr as *mut u64) }.store(value, Ordering::Release);
            }
            Work::Kernel { image, entry, args, dim } => {
                let kernel = Raw { image, entry, args };
                let simt = SimtDevice::new(SimtConfig::default()).unwrap();
                // SAFETY: the caller of `launch` gave the parameters of this entry, and keeps what they
                // point to until the kernel has ended.
                let launch = unsafe { simt.launch_unchecked(&kernel, dim, HANG) };
                launch.unwrap().wait().unwrap();
                self.begun += 1;
            }
        }
    }
}

/// A kernel with parameters that were copied from a launch.
struct Raw {
    image: &'static Image,
    entry: &'static Entry,
    args: KernelArgs,
}

// SAFETY: `launch` copies as many parameters as the entry has, each in its size.
unsafe impl Kernel for Raw {
    fn image(&self) -> &'static Image {
        self.image
    }

    fn entry(&self) -> &'static Entry {
        self.entry
    }

    fn args(&self) -> KernelArgs {
        self.args.clone()
    }
}

struct Fake {
    info: GpuInfo,
    script: Arc<Script>,
}

static SCRIPTS: Mutex<Vec<Arc<Script>>> = Mutex::new(Vec::new());

fn context(ordinal: u32) -> Result<&'static Context, GpuError> {
    let info = GpuInfo {
        ordinal,
        sm_count: MULTIPROCESSORS,
        ..GpuInfo::new(GpuKind::Hip, ordinal, "a script of a test")
    };
    let script = super::lock::lock(&SCRIPTS)[ordinal as usize].clone();
    Context::get(GpuKind::Hip, ordinal, || Ok(Box::new(Fake { info, script })))
}

/// A device of its own, and what it does.
pub(super) fn device() -> (DriverGpu, Arc<Script>) {
    let mut scripts = super::lock::lock(&SCRIPTS);
    let (ordinal, script) = (scripts.len() as u32, Arc::<Script>::default());
    scripts.push(script.clone());
    drop(scripts);
    let options = OpenOptions { cache: Cache::Off, copy: Some(CopyPolicy::ByRoom) };
    let gpu = DriverGpu::open(context, ordinal, options).unwrap();
    (gpu, script)
}

thread_local! {
    /// Contexts that this thread has entered.
    static ENTERED: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
}

impl Fake {
    /// The state, for a call that wants the context current.
    fn current(&self) -> MutexGuard<'_, State> {
        let current = ENTERED.with_borrow(|entered| entered.last().copied());
        assert_eq!(current, Some(self.info.ordinal), "the context is not current");
        self.script.state()
    }

    fn give(&self, stream: u64, work: Work) -> Result<(), GpuError> {
        let mut state = self.current();
        self.check(&state)?;
        state.streams.get_mut(&stream).expect("a live stream").push_back(work);
        state.go_on();
        Ok(())
    }

    fn check(&self, state: &State) -> Result<(), GpuError> {
        let name = "the context is lost".to_owned();
        let lost = GpuError::Driver { call: "a call of the script", code: 700, name };
        if state.lost { Err(lost) } else { Ok(()) }
    }

    fn none<T>(&self) -> Result<T, GpuError> {
        Err((self as &dyn Driver).unsupported("this call, which no test needs"))
    }
}

impl Memory for Fake {
    fn is_out_of_memory(&self, _: &GpuError) -> bool {
        false
    }

    fn alloc(&self, len: u64) -> Result<u64, GpuError> {
        let region = HostBuf::region(len as usize)?;
        let addr = region.addr();
        self.current().memory.insert(addr, region);
        Ok(addr)
    }

    unsafe fn register(&self, _: u64, _: u64, _: bool) -> Result<bool, GpuError> {
        drop(self.current());
        Ok(true)
    }

    fn kernel_addr(&self, host: u64) -> Result<u64, GpuError> {
        drop(self.current());
        Ok(host)
    }

    fn allocation(&self, addr: u64) -> Result<(u64, u64), GpuError> {
        let state = self.current();
        let found = state.memory.range(..=addr).next_back();
        found.map_or_else(|| self.none(), |(base, region)| Ok((*base, region.len() as u64)))
    }

    fn owner(&self, addr: u64) -> Result<Option<u32>, GpuError> {
        Ok(self.current().is_device(addr).then_some(self.info.ordinal))
    }

    fn enable_peer(&self, _: &dyn Driver) -> Result<(), GpuError> {
        self.none()
    }

    fn granule(&self) -> Result<u64, GpuError> {
        self.none()
    }

    fn reserve(&self, _: u64, _: u64) -> Result<u64, GpuError> {
        self.none()
    }

    fn create(&self, _: u64) -> Result<u64, GpuError> {
        self.none()
    }

    fn export(&self, _: u64) -> Result<OwnedFd, GpuError> {
        self.none()
    }

    fn import(&self, _: BorrowedFd<'_>) -> Result<u64, GpuError> {
        self.none()
    }

    fn retain(&self, _: u64) -> Result<Option<u64>, GpuError> {
        Ok(None)
    }

    unsafe fn map(&self, _: u64, _: u64, _: u64) -> Result<(), GpuError> {
        self.none()
    }

    unsafe fn allow(&self, _: u64, _: u64) -> Result<(), GpuError> {
        self.none()
    }

    fn export_ipc(&self, _: u64) -> Result<ShareHandle, GpuError> {
        self.none()
    }

    fn open_ipc(&self, _: &ShareHandle) -> Result<u64, GpuError> {
        self.none()
    }

    unsafe fn export_dmabuf(&self, _: u64, _: u64) -> Result<Dmabuf, GpuError> {
        self.none()
    }
}

impl State {
    fn is_device(&self, addr: u64) -> bool {
        let found = self.memory.range(..=addr).next_back();
        found.is_some_and(|(base, region)| addr < base + region.len() as u64)
    }
}

impl Kernels for Fake {
    fn compile(&self, _: &Image, _: &Cache) -> Result<(Vec<u8>, bool), GpuError> {
        Ok((Vec::new(), false))
    }

    fn load(&self, image: &'static Image, _: &[u8]) -> Result<Functions, GpuError> {
        let mut state = self.current();
        let function = |entry| {
            state.entries.push((image, entry));
            Function { raw: state.entries.len() as u64 - 1, max_threads: 1024 }
        };
        Ok(image
            .entries
            .iter()
            .map(|entry| entry.name)
            .zip(image.entries.iter().map(function))
            .collect())
    }

    fn fitting(&self, _: Function, _: &'static str, dim: Dim) -> Result<u32, GpuError> {
        drop(self.current());
        Ok(THREADS / dim.threads())
    }

    unsafe fn launch(&self, kernel: &mut Prepared, stream: u64) -> Result<(), GpuError> {
        let &mut Prepared { function, dim, ref params } = kernel;
        let (image, entry) = self.current().entries[function.raw as usize];
        let mut args = KernelArgs::new();
        for (param, size) in params.iter().zip(entry.params) {
            // The parameters of the kernels that are run here are numbers of these sizes.
            match size {
                // SAFETY: the caller's pointer to a parameter of 4 bytes.
                4 => args.push(&unsafe { param.cast::<u32>().read() }),
                // SAFETY: the caller's pointer to a parameter of 8 bytes.
                8 => args.push(&unsafe { param.cast::<u64>().read() }),
                size => panic!("a parameter of {size} bytes"),
            }
        }
        self.give(stream, Work::Kernel { image, entry, args, dim })
    }
}

impl Driver for Fake {
    fn info(&self) -> &GpuInfo {
        &self.info
    }

    fn kind(&self) -> Kind {
        Kind::Hip(self.info.ordinal)
    }

    fn raw(&self) -> u64 {
        self.info.ordinal.into()
    }

    fn threads_per_multiprocessor(&self) -> u32 {
        THREADS
    }

    fn has_path(&self, path: CopyPath) -> bool {
        path != CopyPath::Batch
    }

    fn enter(&self) -> Result<(), GpuError> {
        ENTERED.with_borrow_mut(|entered| entered.push(self.info.ordinal));
        Ok(())
    }

    fn leave(&self) -> Result<(), GpuError> {
        let left = ENTERED.with_borrow_mut(Vec::pop);
        assert_eq!(left, Some(self.info.ordinal), "another context is current");
        Ok(())
    }

    unsafe fn free(&self, resource: Resource) -> Result<(), GpuError> {
        let mut state = self.current();
        let queued = state.streams.values().flatten();
        let kernels = queued.filter(|work| matches!(work, Work::Kernel { .. })).count();
        // On a GPU the call would wait for them.
        assert!(
            !resource.concerns_kernels() || kernels == 0,
            "{resource:?} is freed under kernels"
        );
        state.freed.push(resource);
        match resource {
            Resource::Memory(addr) => drop(state.memory.remove(&addr)),
            Resource::Stream(raw) => {
                let work = state.streams.remove(&raw);
                assert!(
                    work.is_some_and(|work| work.is_empty()),
                    "a stream is given back with work"
                );
            }
            _ => {}
        }
        Ok(())
    }

    fn stream(&self, _: Priority) -> Result<u64, GpuError> {
        let mut state = self.current();
        state.made += 1;
        let raw = state.made;
        state.streams.insert(raw, VecDeque::new());
        Ok(raw)
    }

    fn is_idle(&self, stream: u64) -> Result<bool, GpuError> {
        let state = self.current();
        self.check(&state)?;
        Ok(state.streams[&stream].is_empty())
    }

    fn can_write_words(&self) -> Result<bool, GpuError> {
        Ok(true)
    }

    unsafe fn write_word(&self, stream: u64, addr: u64, value: u64) -> Result<(), GpuError> {
        self.give(stream, Work::Word { addr, value })
    }

    unsafe fn copy(&self, copy: Copy<'_>) -> Result<(), GpuError> {
        let Copy { dst, src, len, stream, .. } = copy;
        let state = self.current();
        let inside = state.is_device(dst) && state.is_device(src);
        drop(state);
        self.give(stream, Work::Copy { dst, src, len, inside })
    }

    unsafe fn zero(&self, addr: u64, len: usize, stream: u64) -> Result<(), GpuError> {
        self.give(stream, Work::Zero { addr, len })
    }
}
