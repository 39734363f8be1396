//! Receive queues that are bound to memory of a device, and the payload sockets steered to them.

use crate::causes;
use crate::kernel::{Binding, HostDmabuf, Interface, Netdev, Steering};
use crate::queues::Queues;
use crate::receive::abi::DmabufToken;
use crate::receive::{DeviceReceiver, DeviceSocket, Got, Limits, ReceiveError, Span};
use crate::unpack::UnpackConfig;
use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use warpverbs_gpu::{Buffer, Gpu, GpuKind, Place};
use warpverbs_mem::Region;

/// Opens the receiving side of payload sockets. [`BoundQueues`] does it with the kernel, tests with a
/// model of it.
pub trait PayloadSockets: Send + Sync {
    /// The receiver of a socket that was just connected, before anything was read from it.
    ///
    /// # Errors
    /// The connection cannot begin.
    fn receiver(&self, socket: &TcpStream) -> Result<DeviceReceiver, ReceiveError>;

    /// The receiver, in a few words.
    fn describe(&self) -> String;
}

/// How the links of a domain receive into device memory.
#[derive(Clone)]
pub struct DeviceMemory {
    /// Opens payload sockets.
    pub sockets: Arc<dyn PayloadSockets>,
    /// The device that unpacks, and whose memory it is.
    pub gpu: Arc<dyn Gpu>,
    /// How it unpacks.
    pub unpack: UnpackConfig,
}

/// Pinned host memory for one payload socket, which bounds what one system call receives.
const LANDING: usize = 1 << 20;

/// Receive queues that are bound to memory of a device, until this value and the receivers that
/// use it are dropped.
pub struct BoundQueues {
    queues: Queues,
    interface: Interface,
    gpu: Arc<dyn Gpu>,
    memory: Buffer,
    binding: Binding,
    next: AtomicUsize,
    /// Why a flow is not steered.
    refusal: Mutex<Option<String>>,
}

/// A socket, and the rule that steers its packets.
struct Steered {
    socket: TcpStream,
    _rule: Option<Steering>,
}

impl DeviceSocket for Steered {
    fn receive(&mut self, memory: &Region, span: Span, control: &mut [u64]) -> io::Result<Got> {
        self.socket.receive(memory, span, control)
    }

    fn return_tokens(&mut self, ranges: &[DmabufToken]) -> io::Result<u32> {
        DeviceSocket::return_tokens(&mut self.socket, ranges)
    }
}

impl BoundQueues {
    /// Binds `bytes` of device memory, or of host memory if the device is the host, to the queues:
    /// received bytes stay there until they are unpacked. Needs `CAP_NET_ADMIN`.
    ///
    /// # Errors
    /// One line with the cause and advice.
    pub fn bind(queues: &Queues, gpu: &Arc<dyn Gpu>, bytes: u64) -> Result<Self, String> {
        let name = &queues.interface;
        let interface = Interface::named(name).map_err(|e| format!("no interface {name}: {e}"))?;
        let netdev = Netdev::open().map_err(|error| causes(&error))?;
        let bind = |dmabuf| netdev.bind_receive(&interface, &queues.numbers, dmabuf);
        let (memory, bound) = if gpu.info().kind == GpuKind::Simt {
            let memory = HostDmabuf::new(bytes)
                .map_err(|e| format!("/dev/udmabuf makes no dmabuf of host memory: {e}"))?;
            (memory.memory().clone(), bind(memory.as_fd()))
        } else {
            let memory = gpu.alloc(bytes as usize, Place::Device).map_err(|e| causes(&e))?;
            let dmabuf = memory.region().export_dmabuf().map_err(|error| error.to_string())?;
            if dmabuf.offset != 0 {
                return Err(format!("the memory begins {} bytes into its dmabuf", dmabuf.offset));
            }
            (memory, bind(dmabuf.fd.as_fd()))
        };
        let binding = bound.map_err(|refusal| refusal.to_string())?;
        let (queues, gpu, next) = (queues.clone(), gpu.clone(), AtomicUsize::new(0));
        Ok(Self { queues, interface, gpu, memory, binding, next, refusal: Mutex::default() })
    }

    /// Bytes of bound memory that suffice for a few connections.
    pub const BYTES: u64 = 64 << 20;

    /// The queues that are bound.
    pub fn queues(&self) -> &Queues {
        &self.queues
    }
}

impl PayloadSockets for BoundQueues {
    fn receiver(&self, socket: &TcpStream) -> Result<DeviceReceiver, ReceiveError> {
        let failed = |cause| ReceiveError::Socket { call: "dup", cause };
        let socket = socket.try_clone().map_err(failed)?;
        let at = self.next.fetch_add(1, Ordering::Relaxed) % self.queues.numbers.len();
        let rule = Steering::of(&socket, &self.interface, self.queues.numbers[at]);
        let mut refusal = self.refusal.lock().unwrap_or_else(PoisonError::into_inner);
        // Not steered, its packets come through other queues, into host memory.
        let _rule = rule.map_err(|error| *refusal = Some(error.to_string())).ok();
        let socket = Steered { socket, _rule };
        let landing = self.gpu.alloc(LANDING, Place::Shared).map_err(ReceiveError::NoLanding)?;
        let mut receiver = DeviceReceiver::new(socket, landing, Limits::default());
        receiver.bind(self.binding.id(), self.memory.clone());
        Ok(receiver)
    }

    fn describe(&self) -> String {
        let (kind, bytes) = (self.memory.region().kind(), self.memory.len());
        let refusal = self.refusal.lock().unwrap_or_else(PoisonError::into_inner);
        let but = refusal.as_ref().map(|refusal| format!(", but {refusal}")).unwrap_or_default();
        format!("{} is bound to {bytes} bytes of {kind} memory{but}", self.queues)
    }
}
