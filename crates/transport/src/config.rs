//! How an endpoint is made.

use crate::limits::MAX_INLINE;
use crate::{SharedReceiveQueue, UsageError};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use warpverbs_gpu::{Gpu, GpuKind};
use warpverbs_mem::Access;
use warpverbs_mlx5::export::{CqMode, NicFormat};
use warpverbs_nic::Mtu;

/// Where an endpoint's queues live, and so who can post to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueuePlacement {
    /// Host memory, posted to by the host.
    Host,
    /// Rings in pinned host memory that GPU and NIC share; posting state in GPU memory.
    PinnedHost,
    /// As `PinnedHost`, with the send queue in GPU memory too: for a NIC that can read there, or
    /// that reads nothing ([`EndpointConfig::consume_only`]).
    Device,
    /// Memory of the host SIMT device, posted to by its kernels and by the host alike.
    Simt,
}

/// How an [`Endpoint`](crate::Endpoint) is made. Depths are powers of two.
#[derive(Clone)]
#[doc(alias = "RdmaEndpointConfig")]
pub struct EndpointConfig {
    pub(crate) gpu: Option<Arc<dyn Gpu>>,
    pub(crate) placement: QueuePlacement,
    pub(crate) send_depth: u32,
    pub(crate) recv_depth: u32,
    pub(crate) recv_sges: u32,
    pub(crate) inline_bytes: u32,
    pub(crate) send_cq: CqMode,
    pub(crate) srq: Option<Arc<SharedReceiveQueue>>,
    pub(crate) access: Access,
    pub(crate) mtu: Mtu,
    pub(crate) rd_atomic: u8,
    pub(crate) ack_timeout: u8,
    pub(crate) retry: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) timeout: Duration,
    pub(crate) consume_only: bool,
}

impl EndpointConfig {
    /// An endpoint the host posts to.
    pub fn host() -> Self {
        Self {
            gpu: None,
            placement: QueuePlacement::Host,
            send_depth: 256,
            recv_depth: 256,
            recv_sges: 1,
            inline_bytes: 28,
            send_cq: CqMode::Collapsed,
            srq: None,
            access: Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
            mtu: Mtu::B4096,
            rd_atomic: 16,
            // 268 ms: a thread of the peer may not run for that long on a machine that is shared.
            ack_timeout: 16,
            retry: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            timeout: Duration::from_secs(5),
            consume_only: false,
        }
    }

    /// An endpoint that kernels of `gpu` post to.
    pub fn for_gpu(gpu: &Arc<dyn Gpu>) -> Self {
        let placement = match gpu.info().kind {
            GpuKind::Simt => QueuePlacement::Simt,
            _ => QueuePlacement::PinnedHost,
        };
        Self { gpu: Some(gpu.clone()), placement, send_depth: 1024, ..Self::host() }
    }

    /// Where the queues live; [`EndpointConfig::host`] and [`EndpointConfig::for_gpu`] choose well.
    pub fn placement(self, placement: QueuePlacement) -> Self {
        Self { placement, ..self }
    }

    /// Send queue in WQEBBs of 64 bytes: a power of two, 128 to 32768. Of bnxt_re's format, WQEs up to 16384.
    #[doc(alias = "maxMsgsNum")]
    pub fn send_depth(self, wqebbs: u32) -> Self {
        Self { send_depth: wqebbs, ..self }
    }

    /// Receive queue in work requests: a power of two up to 32768, or 0 for none.
    #[doc(alias = "maxRecvWr")]
    pub fn recv_depth(self, receives: u32) -> Self {
        Self { recv_depth: receives, ..self }
    }

    /// Pieces of memory one receive may scatter to: a power of two up to 64.
    #[doc(alias = "maxMsgSge")]
    pub fn recv_sges(self, sges: u32) -> Self {
        Self { recv_sges: sges, ..self }
    }

    /// The largest inline payload in bytes: a multiple of 4, 4 to 220. Queues of bnxt_re's format take 16 at
    /// most, ionic's 32.
    #[doc(alias = "maxInlineData")]
    pub fn inline_bytes(self, bytes: u32) -> Self {
        Self { inline_bytes: bytes, ..self }
    }

    /// How the send CQ reports. One that a device of hardware writes by itself ([`Way::Direct`])
    /// is a ring in any case: in a collapsed one, the flush that follows an error would cover its
    /// cause, which the device does not remember.
    ///
    /// [`Way::Direct`]: crate::Way::Direct
    pub fn send_cq(self, mode: CqMode) -> Self {
        Self { send_cq: mode, ..self }
    }

    /// Takes receives from `srq` instead of an own queue. The CQ that reports what arrived then has
    /// room for as many receives as the queue has, or for `recv_depth` if that is more.
    pub fn srq(self, srq: &Arc<SharedReceiveQueue>) -> Self {
        Self { srq: Some(srq.clone()), ..self }
    }

    /// Rights of the peer through this endpoint, besides those of its keys.
    pub fn access(self, access: Access) -> Self {
        Self { access, ..self }
    }

    /// The largest path MTU; a connection takes the smaller one of both ends.
    pub fn mtu(self, mtu: Mtu) -> Self {
        Self { mtu, ..self }
    }

    /// READs and atomics in flight each way, 1 to 16.
    pub fn rd_atomic(self, count: u8) -> Self {
        Self { rd_atomic: count, ..self }
    }

    /// How often a request is sent again when no answer comes (`retry`, 0 to 7) and when the peer
    /// has no receive posted (`rnr_retry`, 0 to 7; 7 is for ever).
    pub fn retries(self, retry: u8, rnr_retry: u8) -> Self {
        Self { retry, rnr_retry, ..self }
    }

    /// `ack_timeout` (0 to 31): an answer is missed after 4.096 µs × 2^n, by default 268 ms; what is
    /// lost is sent again much earlier, so this only says when a peer counts as gone. `min_rnr_timer` (0 to
    /// 31): code of the time a sender waits when this endpoint has no receive posted.
    pub fn timers(self, ack_timeout: u8, min_rnr_timer: u8) -> Self {
        Self { ack_timeout, min_rnr_timer, ..self }
    }

    /// The NIC reads no work request: it takes every announced WQEBB for one that succeeded, so
    /// that posters can be measured by themselves.
    pub fn consume_only(self, consume_only: bool) -> Self {
        Self { consume_only, ..self }
    }

    /// The deadline of every wait that is not given its own, on host and device.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    pub(crate) fn check(&self, format: NicFormat) -> Result<(), UsageError> {
        let (send, recv, sges) = (self.send_depth, self.recv_depth, self.recv_sges);
        let (inline, srq) = (self.inline_bytes, self.srq.is_some());
        let has_gpu = self.gpu.is_some();
        let power = |n: u32, min, max| n.is_power_of_two() && (min..=max).contains(&n);
        let recv_ok = power(recv, 1, 32768) || recv == 0 && !srq;
        // Packet numbers of bnxt_re name a place in slots by 16 bits.
        let (deepest, expected) = match format {
            NicFormat::Bnxt => (16384, "a power of two from 128 to 16384 (bnxt_re)"),
            NicFormat::Mlx5 | NicFormat::Ionic => (32768, "a power of two from 128 to 32768"),
        };
        field("send_depth", send, power(send, 128, deepest), expected)?;
        field("recv_depth", recv, recv_ok, "a power of two up to 32768, or 0 without an SRQ")?;
        field("recv_sges", sges, power(sges, 1, 64), "a power of two from 1 to 64")?;
        let inline_ok = inline.is_multiple_of(4) && (4..=MAX_INLINE).contains(&inline);
        field("inline_bytes", inline, inline_ok, "a multiple of 4 from 4 to 220")?;
        field("rd_atomic", self.rd_atomic.into(), (1..=16).contains(&self.rd_atomic), "1 to 16")?;
        let is_mlx5 = format == NicFormat::Mlx5;
        let only_mlx5 = [
            (srq, "a shared receive queue of this library"),
            (self.consume_only, "a queue pair that only consumes"),
        ];
        if let Some((_, what)) = only_mlx5.into_iter().find(|(asked, _)| *asked && !is_mlx5) {
            return Err(UsageError::NotOfFormat { what, format });
        }
        let needs_gpu = self.placement != QueuePlacement::Host;
        field("placement", 0, has_gpu || !needs_gpu, "Host, or a config made by for_gpu()")
    }

    pub(crate) fn log_send(&self) -> u8 {
        self.send_depth.ilog2() as u8
    }

    /// log2 of the receive queue's depth, or, with an SRQ, of its CQ's: all receives of the SRQ may
    /// complete here before one is polled. 0 if there is none.
    pub(crate) fn log_recv(&self) -> u8 {
        let shared = self.srq.as_ref().map_or(1, |srq| srq.depth());
        self.recv_depth.max(shared).ilog2() as u8
    }

    pub(crate) fn has_own_recv(&self) -> bool {
        self.recv_depth > 0 && self.srq.is_none()
    }
}

fn field(
    field: &'static str,
    value: u32,
    right: bool,
    expected: &'static str,
) -> Result<(), UsageError> {
    if right { Ok(()) } else { Err(UsageError::Config { field, value: value.into(), expected }) }
}

impl fmt::Debug for EndpointConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointConfig")
            .field("placement", &self.placement)
            .field("send_depth", &self.send_depth)
            .field("recv_depth", &self.recv_depth)
            .field("recv_sges", &self.recv_sges)
            .field("inline_bytes", &self.inline_bytes)
            .field("send_cq", &self.send_cq)
            .field("srq", &self.srq.is_some())
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
