//! Receiving into device memory: which queues of which NIC, and what is used in their place.

use super::error::{TransportError, causes};
use crate::kernel::{Binding, HostDmabuf, Interface, Netdev, Steering};
use crate::receive::abi::DmabufToken;
use crate::receive::{DeviceReceiver, DeviceSocket, Fragment, Got, Limits, Source, Span};
use crate::unpack::UnpackConfig;
use std::fmt;
use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use thiserror::Error;
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

/// Receive queues of an interface, written `eth0:7` or `eth0:6,7`. Binding takes them from all other
/// sockets: only flows that are steered there may use them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queues {
    /// Name of the interface.
    pub interface: String,
    /// Numbers of the queues, at least one.
    pub numbers: Vec<u32>,
}

/// The environment variable that names [`Queues`].
pub const QUEUES_ENV: &str = "WARPVERBS_TCP_QUEUES";

/// A text that names no queues.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{given:?} names no receive queues; expected INTERFACE:QUEUE[,QUEUE…], as in eth0:7")]
pub struct UnknownQueues {
    given: String,
}

impl FromStr for Queues {
    type Err = UnknownQueues;

    fn from_str(given: &str) -> Result<Self, UnknownQueues> {
        let unknown = || UnknownQueues { given: given.to_owned() };
        // Names of interfaces may have colons.
        let (interface, list) = given.rsplit_once(':').ok_or_else(unknown)?;
        let numbers: Result<Vec<u32>, _> = list.split(',').map(str::parse).collect();
        let numbers = numbers.map_err(|_| unknown())?;
        let valid = !interface.is_empty() && !interface.contains('/');
        valid.then(|| Self { interface: interface.to_owned(), numbers }).ok_or_else(unknown)
    }
}

impl fmt::Display for Queues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.numbers.iter().map(u32::to_string).collect();
        write!(f, "{}:{}", self.interface, numbers.join(","))
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_an_interface_and_numbers() {
        let queues: Queues = "eth0.5:1:6,7".parse().unwrap();
        assert_eq!(queues, Queues { interface: "eth0.5:1".to_owned(), numbers: vec![6, 7] });
        assert_eq!(queues.to_string(), "eth0.5:1:6,7");
        for bad in ["", "eth0", "eth0:", ":1", "eth0:1,", "eth0:x", "eth0:-1", "../x:1"] {
            let error = bad.parse::<Queues>().unwrap_err().to_string();
            assert!(error.contains("eth0:7"), "{bad}: {error}");
        }
    }
}
