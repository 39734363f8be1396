//! How an agent is made.

use crate::AgentError;
use crate::metrics::MetricsTo;
use crate::names::PathKind;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use warpverbs_devmem::{DeviceMemory, QueueChoice};
use warpverbs_gpu::Gpu;
use warpverbs_transport::Device;

/// The engine for copies on this machine: CPU, copy engine or kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyBy {
    /// The CPU from host memory to host memory. Between memories of GPUs one launch for the whole
    /// list, or a copy engine for a single small block. Between the two the launch for small blocks, a
    /// copy engine for large ones.
    #[default]
    Auto,
    /// Kernels of the agent's device, one launch for a list. They must reach both memories. Where the
    /// peer's has no address here, kernels copy between the local memory and a bounce buffer.
    Kernel,
    /// The CPU, or a copy engine.
    Engine,
}

/// Where connections over TCP receive.
#[derive(Clone)]
pub(crate) enum TcpReceive {
    Host,
    Queues(QueueChoice),
    Device(DeviceMemory),
}

/// How an [`Agent`](crate::Agent) is made.
#[derive(Clone)]
pub struct AgentConfig {
    pub(crate) listen: SocketAddr,
    pub(crate) advertise: Vec<SocketAddr>,
    pub(crate) token: Vec<u8>,
    pub(crate) serves_metadata: bool,
    pub(crate) deadline: Duration,
    pub(crate) gpu: Option<Arc<dyn Gpu>>,
    pub(crate) nics: Vec<Device>,
    pub(crate) queue_pairs: usize,
    pub(crate) tcp_sockets: u16,
    pub(crate) tcp_port: u16,
    pub(crate) tcp_receive: TcpReceive,
    pub(crate) silence: Duration,
    pub(crate) window: u32,
    pub(crate) require: Option<PathKind>,
    pub(crate) without: Vec<PathKind>,
    pub(crate) copy_by: CopyBy,
    pub(crate) kernel_blocks: Option<u32>,
    pub(crate) metrics: Option<MetricsTo>,
    pub(crate) announces_paths: bool,
}

impl Default for AgentConfig {
    fn default() -> Self {
        Self {
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            advertise: Vec::new(),
            token: Vec::new(),
            serves_metadata: true,
            deadline: Duration::from_secs(30),
            gpu: None,
            nics: Vec::new(),
            queue_pairs: 2,
            tcp_sockets: 2,
            tcp_port: 0,
            tcp_receive: TcpReceive::Host,
            silence: Duration::from_secs(30),
            window: 64,
            require: None,
            without: Vec::new(),
            copy_by: CopyBy::Auto,
            kernel_blocks: None,
            metrics: None,
            announces_paths: false,
        }
    }
}

impl AgentConfig {
    /// The longest notification, bytes.
    pub const MAX_NOTIFICATION: usize = 64 << 10;

    /// The [`AgentConfig::notification_window`] of a program that may take notifications late.
    pub const NO_WINDOW: u32 = 1 << 30;

    /// The longest deadline. A longer one is cut to it.
    pub(crate) const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

    /// The address at which this agent serves metadata and takes notifications; by default a free
    /// port of the loopback interface, so peers of other hosts need another.
    #[must_use]
    pub fn listen(self, listen: impl Into<SocketAddr>) -> Self {
        Self { listen: listen.into(), ..self }
    }

    /// The addresses that peers are told to connect to, in place of those of all interfaces (or of
    /// the one listened on).
    #[must_use]
    pub fn advertise(self, addresses: impl IntoIterator<Item = SocketAddr>) -> Self {
        Self { advertise: addresses.into_iter().collect(), ..self }
    }

    /// A secret that all agents of the job share. Metadata of agents with another one is refused. Agents
    /// fetch and send metadata by address only where a token is set:
    /// [`Agent::fetch_metadata`](crate::Agent::fetch_metadata) and
    /// [`Agent::send_metadata`](crate::Agent::send_metadata) know nothing of the other end but this.
    ///
    /// Everything else is asked for by connections that must show a random secret of the agent they lead
    /// to. It travels with that agent's metadata, token or not, so metadata is to be kept from strangers.
    #[must_use]
    pub fn token(self, token: impl Into<Vec<u8>>) -> Self {
        Self { token: token.into(), ..self }
    }

    /// Whether agents that show the token, and know no more of this one than its address, get its metadata
    /// and bring theirs ([`Agent::fetch_metadata`](crate::Agent::fetch_metadata),
    /// [`Agent::send_metadata`](crate::Agent::send_metadata)); yes by default. It matters only where a token
    /// is set. If not, their calls fail with [`AgentError::Refused`], which names this setting. This agent's
    /// own calls to others are not affected.
    #[must_use]
    pub fn serve_metadata(self, serves: bool) -> Self {
        Self { serves_metadata: serves, ..self }
    }

    /// How long a transfer, and everything else that waits for a peer, may take unless it is given
    /// its own time; 30 s by default. One of more than a year, `Duration::MAX` for example, is a year.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        Self { deadline: deadline.min(Self::LONGEST), ..self }
    }

    /// The device whose kernels use registered memory, and whose arenas back
    /// [`Agent::alloc`](crate::Agent::alloc); by default the host SIMT device.
    #[must_use]
    pub fn gpu(self, gpu: &Arc<dyn Gpu>) -> Self {
        Self { gpu: Some(gpu.clone()), ..self }
    }

    /// A NIC that reaches peers of other hosts; without one they are reached by TCP. Each call adds
    /// one, up to 16. Queue pairs take them in turns, at both ends: the first of one agent reaches
    /// the first of the other, and so on. Kernels use the first alone.
    #[must_use]
    pub fn nic(mut self, nic: &Device) -> Self {
        self.nics.push(nic.clone());
        self
    }

    /// Queue pairs to each peer, 1 to 16, and at least one for each NIC; blocks are spread over them.
    #[must_use]
    pub fn queue_pairs(self, count: usize) -> Self {
        Self { queue_pairs: count, ..self }
    }

    /// TCP sockets to each peer that no better path reaches, 1 to 64; the smaller number of both
    /// ends counts.
    #[must_use]
    pub fn tcp_sockets(self, count: u16) -> Self {
        Self { tcp_sockets: count, ..self }
    }

    /// The port at which peers without a better path connect, by default a free one. It is opened,
    /// at the address of [`AgentConfig::listen`], when the first of them asks for it.
    #[must_use]
    pub fn tcp_port(self, port: u16) -> Self {
        Self { tcp_port: port, ..self }
    }

    /// Bytes that arrive over TCP land in memory of the agent's device, to which these receive queues of
    /// a NIC are bound when the first peer connects; by default in host memory. If the queues cannot
    /// be bound it is host memory too, and [`Agent::explain`](crate::Agent::explain) says why.
    #[must_use]
    pub fn tcp_queues(self, queues: QueueChoice) -> Self {
        Self { tcp_receive: TcpReceive::Queues(queues), ..self }
    }

    /// As [`AgentConfig::tcp_queues`], with queues that the program has bound itself.
    #[must_use]
    pub fn tcp_device_memory(self, device: DeviceMemory) -> Self {
        Self { tcp_receive: TcpReceive::Device(device), ..self }
    }

    /// A connected peer whose agent gives no sign of life for so long is lost; 30 s by default. It
    /// is asked for one after a quarter of that, so agents that have nothing to say need not.
    #[must_use]
    pub fn silence(self, longest: Duration) -> Self {
        Self { silence: longest, ..self }
    }

    /// Notifications of one peer that wait to be taken by this side, 1 to 2^30; 64 by default. A sender that
    /// has reached it waits until one is taken.
    ///
    /// With [`AgentConfig::NO_WINDOW`] a sender never waits for this program to take any. Then memory is
    /// the only bound: 512 MiB for those of all peers, each of which counts as its bytes and 512 more, and
    /// half of it for a peer that has others waiting, so about 500,000 short ones. Anything beyond is
    /// declined: its transfer fails with [`AgentError::Notification`].
    #[must_use]
    pub fn notification_window(self, count: u32) -> Self {
        Self { window: count, ..self }
    }

    /// Only this path may be taken: where it cannot be, transfers fail with every reason.
    #[must_use]
    pub fn require(self, path: PathKind) -> Self {
        Self { require: Some(path), ..self }
    }

    /// This path is not to be taken.
    #[must_use]
    pub fn without(mut self, path: PathKind) -> Self {
        self.without.push(path);
        self
    }

    /// The engine for copies on this machine: CPU, copy engine or kernel.
    #[must_use]
    pub fn copy_by(self, copy_by: CopyBy) -> Self {
        Self { copy_by, ..self }
    }

    /// Blocks of threads of one copy by a kernel at most, so that it leaves the device to others; by
    /// default as many as fill an NVLink.
    #[must_use]
    pub fn kernel_blocks(self, most: u32) -> Self {
        Self { kernel_blocks: Some(most), ..self }
    }

    /// Where [`Agent::counters`](crate::Agent::counters) are to be had as text that Prometheus reads; by default
    /// nowhere.
    #[must_use]
    pub fn metrics(self, to: MetricsTo) -> Self {
        Self { metrics: Some(to), ..self }
    }

    /// Whether the first choice of each path to a peer is logged as a warning, with its reasons, so that it
    /// shows where a program has set up no logging; by default as information.
    #[must_use]
    pub fn announce_paths(self, announces: bool) -> Self {
        Self { announces_paths: announces, ..self }
    }

    pub(crate) fn allows(&self, path: PathKind) -> bool {
        !self.without.contains(&path) && self.require.is_none_or(|required| required == path)
    }

    pub(crate) fn check(&self) -> Result<(), AgentError> {
        let field = |field, value: u64, right, expected| match right {
            true => Ok(()),
            false => Err(AgentError::Config { field, value: value.to_string(), expected }),
        };
        let pairs = self.queue_pairs;
        let blocks = self.kernel_blocks.unwrap_or(1);
        field("kernel_blocks", blocks.into(), blocks > 0, "at least 1")?;
        field("queue_pairs", pairs as u64, (1..=16).contains(&pairs), "1 to 16")?;
        let nics = self.nics.len();
        field("NICs", nics as u64, nics <= crate::metadata::MOST_NICS, "at most 16")?;
        let addresses = self.advertise.len();
        let few = addresses <= crate::metadata::MAX_ADDRESSES;
        field("advertise", addresses as u64, few, "at most 64 addresses")?;
        let sockets = self.tcp_sockets;
        field("tcp_sockets", sockets.into(), (1..=64).contains(&sockets), "1 to 64")?;
        let window = self.window;
        field(
            "notification_window",
            window.into(),
            (1..=Self::NO_WINDOW).contains(&window),
            "1 to 2^30",
        )?;
        let millis = u64::try_from(self.deadline.as_millis()).unwrap_or(u64::MAX);
        field("deadline", millis, !self.deadline.is_zero(), "more than 0 ms")?;
        let silence = u64::try_from(self.silence.as_millis()).unwrap_or(u64::MAX);
        let day = 24 * 3600 * 1000;
        field("silence", silence, (1..=day).contains(&silence), "1 ms to 24 hours")?;
        self.metrics.as_ref().map_or(Ok(()), MetricsTo::check)
    }
}

impl fmt::Debug for AgentConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentConfig")
            .field("listen", &self.listen)
            .field("advertise", &self.advertise)
            .field("token", &!self.token.is_empty())
            .field("serves_metadata", &self.serves_metadata)
            .field("deadline", &self.deadline)
            .field("nics", &self.nics)
            .field("queue_pairs", &self.queue_pairs)
            .field("window", &self.window)
            .field("require", &self.require)
            .field("without", &self.without)
            .field("metrics", &self.metrics)
            .finish_non_exhaustive()
    }
}
