//! Payload sockets whose bytes go through the model of the kernel: real sockets carry them, the model
//! makes packets of them in a dmabuf, and the transport receives those.

use super::kernel::{DMABUF_ID, EAGAIN, Kernel};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use std::io;
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use warpverbs_devmem::receive::abi::DmabufToken;
use warpverbs_devmem::receive::{DeviceSocket, Got, Limits, ReceiveError, Span};
use warpverbs_devmem::{DeviceMemory, PayloadSockets};
use warpverbs_devmem::{DeviceReceiver, UnpackConfig, UnpackWay, stream};
use warpverbs_gpu::Buffer;
use warpverbs_gpu::simt::{SimtConfig, SimtDevice};
use warpverbs_mem::{HostBuf, Region};
use zerocopy::IntoBytes as _;

/// Of all tests: two links share a device as they do in a program.
static SIMT: LazyLock<Arc<SimtDevice>> =
    LazyLock::new(|| Arc::new(SimtDevice::new(SimtConfig::seeded(5)).unwrap()));

pub(crate) fn simt() -> Arc<SimtDevice> {
    SIMT.clone()
}

/// Opens modelled sockets. Clones share what they know.
#[derive(Clone)]
pub(crate) struct Model {
    kernels: Arc<Mutex<Vec<Arc<Mutex<Kernel>>>>>,
    seed: Arc<AtomicU64>,
    /// One of so many calls announces nonsense; 0 is none.
    spoilt: u32,
}

impl Model {
    pub(crate) fn new(seed: u64) -> Self {
        Self { kernels: Arc::default(), seed: Arc::new(AtomicU64::new(seed)), spoilt: 0 }
    }

    /// A kernel that now and then says what cannot be.
    pub(crate) fn spoilt(self, one_of: u32) -> Self {
        Self { spoilt: one_of, ..self }
    }

    pub(crate) fn device(&self, way: UnpackWay) -> DeviceMemory {
        // Few descriptors, so that the ring wraps and is full now and then.
        let unpack = UnpackConfig { way, entries: 4096, ..UnpackConfig::default() };
        DeviceMemory { sockets: Arc::new(self.clone()), gpu: SIMT.clone(), unpack }
    }

    /// Whether all sockets have got all their pages back.
    pub(crate) fn all_free(&self) -> bool {
        let kernels = self.kernels.lock().unwrap();
        kernels.iter().all(|kernel| lock(kernel).all_free())
    }

    /// Fragments that were in the dmabuf, of all sockets.
    pub(crate) fn fragments(&self) -> u64 {
        self.kernels.lock().unwrap().iter().map(|kernel| lock(kernel).announced).sum()
    }

    /// Tokens that nobody held were never returned.
    pub(crate) fn check(&self) {
        for kernel in self.kernels.lock().unwrap().iter() {
            assert_eq!(lock(kernel).unknown, 0, "tokens returned twice");
        }
    }
}

fn lock(kernel: &Mutex<Kernel>) -> std::sync::MutexGuard<'_, Kernel> {
    kernel.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PayloadSockets for Model {
    fn receiver(&self, socket: &TcpStream) -> Result<DeviceReceiver, ReceiveError> {
        let seed = self.seed.fetch_add(1, Ordering::Relaxed);
        let mut rng = StdRng::seed_from_u64(seed);
        let pages = rng.random_range(20..200);
        let mut kernel = Kernel::new(rng.random(), pages);
        kernel.partial = seed.is_multiple_of(3);
        let dmabuf = Buffer::of_region(kernel.dmabuf.clone());
        let kernel = Arc::new(Mutex::new(kernel));
        self.kernels.lock().unwrap().push(kernel.clone());
        let limits =
            Limits { watermark: rng.random_range(1..pages as u32 / 4 + 2), ..Limits::default() };
        let landing = Buffer::of_region(HostBuf::region(64 << 10).unwrap());
        let socket = socket.try_clone().unwrap();
        let modelled = Modelled { socket, kernel, rng, spoilt: self.spoilt };
        let mut receiver = DeviceReceiver::new(modelled, landing, limits);
        receiver.bind(DMABUF_ID, dmabuf);
        Ok(receiver)
    }

    fn describe(&self) -> String {
        "a model of the kernel".to_owned()
    }
}

struct Modelled {
    socket: TcpStream,
    kernel: Arc<Mutex<Kernel>>,
    rng: StdRng,
    spoilt: u32,
}

impl DeviceSocket for Modelled {
    fn receive(&mut self, memory: &Region, span: Span, control: &mut [u64]) -> io::Result<Got> {
        let kernel = &mut *lock(&self.kernel);
        if kernel.wire.len() < 128 << 10 && !kernel.ended {
            let mut bytes = vec![0; 64 << 10];
            match stream::receive(&self.socket, None, &mut bytes) {
                Ok(0) => kernel.ended = true,
                Ok(count) => kernel.send(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        for _ in 0..self.rng.random_range(0..4) {
            kernel.arrive();
        }
        let mut iov = vec![0; span.len as usize];
        let most = size_of_val(control);
        let room = if self.rng.random() { most } else { self.rng.random_range(80..most) };
        let mut got = kernel.recvmsg(&mut iov, room);
        // Nobody can wait for packets of the model: they come when they are asked for.
        for _ in 0..8 {
            if !matches!(got, Err(EAGAIN)) {
                break;
            }
            kernel.arrive();
            got = kernel.recvmsg(&mut iov, room);
        }
        let mut got = got.map_err(io::Error::from_raw_os_error)?;
        let words = got.control.len() / 4;
        if self.spoilt != 0 && words != 0 && self.rng.random_range(0..self.spoilt) == 0 {
            let at = self.rng.random_range(0..words) * 4;
            let word: u32 = if self.rng.random() { self.rng.random() } else { u32::MAX - 3 };
            got.control[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        }
        memory.write(span.offset, &iov).unwrap();
        control.as_mut_bytes()[..got.control.len()].copy_from_slice(&got.control);
        Ok(Got { bytes: got.bytes, control: got.control.len(), truncated: false })
    }

    fn return_tokens(&mut self, ranges: &[DmabufToken]) -> io::Result<u32> {
        lock(&self.kernel).dontneed(ranges.as_bytes()).map_err(io::Error::from_raw_os_error)
    }
}
