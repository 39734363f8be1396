//! Receiving into device memory: which queues of which NIC, and what is used in their place.

use super::error::{TransportError, causes};
use super::queues::{QueueChoice, Queues};
use crate::kernel::{Binding, HostDmabuf, Interface, Netdev, Steering};
use crate::receive::abi::DmabufToken;
use crate::receive::{DeviceReceiver, DeviceSocket, Fragment, Got, Limits, Source, Span};
use crate::unpack::UnpackConfig;
use std::fmt;
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
    /// What receives on a socket that was just connected, before anything was read from it.
    ///
    /// # Errors
    /// The connection cannot begin.
    fn receiver(&self, socket: &TcpStream) -> Result<DeviceReceiver, TransportError>;

    /// What receives, in a few words.
    fn describe(&self) -> String;
}

/// Where the connections of endpoints receive. Endpoints of a process share it, since a queue can be
/// bound only once.
#[derive(Clone)]
pub enum Receive {
    /// Into host memory, for this reason.
    Host(Arc<str>),
    /// Into device memory.
    Device(DeviceMemory),
}

/// Why connections receive into host memory unless something else was asked for.
const NOT_ASKED: &str = "the fallback: no receive queue was named";

impl Default for Receive {
    /// Into host memory.
    fn default() -> Self {
        Self::Host(NOT_ASKED.into())
    }
}

impl Receive {
    /// Binds `bytes` of `gpu`'s memory to `queues`, if there are any. What keeps them from being bound
    /// is the reason for host memory.
    pub fn choose(
        queues: Option<&QueueChoice>,
        bytes: u64,
        gpu: &Arc<dyn Gpu>,
        unpack: UnpackConfig,
    ) -> Self {
        let Some(queues) = queues else { return Self::default() };
        match queues.bind(gpu, bytes) {
            Ok(bound) => {
                Self::Device(DeviceMemory { sockets: Arc::new(bound), gpu: gpu.clone(), unpack })
            }
            Err(why) => Self::Host(format!("the fallback: {why}").into()),
        }
    }
}

/// How the connections of an endpoint receive into device memory.
#[derive(Clone)]
pub struct DeviceMemory {
    /// Opens payload sockets.
    pub sockets: Arc<dyn PayloadSockets>,
    /// The device that unpacks, and whose memory it is.
    pub gpu: Arc<dyn Gpu>,
    /// How it unpacks.
    pub unpack: UnpackConfig,
}

/// Where the kernel put the payload that a connection has received, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Payload {
    /// In device memory.
    pub device: u64,
    /// In host memory, beside headers: small packets, headers split badly, retransmissions.
    pub linear: u64,
    /// In host memory, from a queue without a binding.
    pub plain: u64,
}

impl Payload {
    pub(super) fn count(&mut self, fragment: &Fragment) {
        *match fragment.source {
            Source::Dmabuf(_) => &mut self.device,
            Source::Linear => &mut self.linear,
            Source::Plain => &mut self.plain,
        } += fragment.len;
    }
}

impl fmt::Display for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, linear, plain } = self;
        write!(
            f,
            "{device} bytes in device memory, {linear} beside headers, {plain} in host memory"
        )
    }
}

/// Pinned host memory for one payload socket, which bounds what one system call receives.
const LANDING: usize = 1 << 20;

/// Receive queues that are bound to memory of a device, until this value and the connections that
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
    /// Binds `bytes` of device memory, or of host memory if the device is the host: what arrives and
    /// is not yet unpacked. Needs `CAP_NET_ADMIN`.
    ///
    /// # Errors
    /// One line that says what is missing, and what to do about it.
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
}

impl BoundQueues {
    /// Bytes that suffice for a few connections: what arrives and is not yet unpacked.
    pub const BYTES: u64 = 64 << 20;

    /// The queues that are bound.
    pub fn queues(&self) -> &Queues {
        &self.queues
    }
}

impl PayloadSockets for BoundQueues {
    fn receiver(&self, socket: &TcpStream) -> Result<DeviceReceiver, TransportError> {
        let socket = socket.try_clone().map_err(TransportError::socket("a second descriptor"))?;
        let at = self.next.fetch_add(1, Ordering::Relaxed) % self.queues.numbers.len();
        let rule = Steering::of(&socket, &self.interface, self.queues.numbers[at]);
        let mut refusal = self.refusal.lock().unwrap_or_else(PoisonError::into_inner);
        // Not steered, its packets come through other queues, into host memory.
        let _rule = rule.map_err(|error| *refusal = Some(error.to_string())).ok();
        let socket = Steered { socket, _rule };
        let landing = self.gpu.alloc(LANDING, Place::Shared);
        let landing = landing.map_err(|error| TransportError::Device(causes(&error)))?;
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
