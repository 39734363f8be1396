//! One end of a connection.

use crate::error::decode_error;
use crate::memory::{Abort, AbortWord, ExportedQp, Memory};
use crate::post::HostQueues;
use crate::provider::{CqSpec, Events, MemoryKey, PathSpec, QpSpec, QueuePair, RecvSpec};
use crate::shared::DeviceShared;
use crate::{
    EndpointConfig, EndpointHandle, FaultReport, FirstError, Health, Poster, Progress,
    QueuePlacement, TransportError, UsageError,
};
use std::fmt;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use warpverbs_gpu::{Buffer, GpuError, GpuInfo, KernelPtr, Qp};
use warpverbs_mem::Access;
use warpverbs_mlx5::export::{CqMode, ErrorWord, PostState};
use warpverbs_mlx5::num::Qpn;
use warpverbs_nic::QpState;
use zerocopy::{FromZeros, IntoBytes};

/// A reliable connection's end: a QP, its completion queues, and the state that posters share.
///
/// It is connected to one peer by that peer's [`EndpointHandle`], both ways round. The host posts
/// through [`Endpoint::host`], kernels through [`Endpoint::device_qp`].
///
/// A [`Poster`] borrows its endpoint, so the endpoint is closed or reset only after the last use of
/// the poster:
///
/// ```
/// use warpverbs_transport::{Endpoint, TransportError, SendFlags};
///
/// fn restart(endpoint: &mut Endpoint) -> Result<(), TransportError> {
///     let host = endpoint.host()?;
///     host.post_nop(SendFlags::SIGNALED)?;
///     endpoint.reset()
/// }
/// fn finish(endpoint: Endpoint) -> Result<(), TransportError> {
///     let host = endpoint.host()?;
///     host.quiet()?;
///     endpoint.close();
///     Ok(())
/// }
/// ```
///
/// Not while it is still in use:
///
/// ```compile_fail,E0502
/// use warpverbs_transport::{Endpoint, TransportError, SendFlags};
///
/// fn restart(endpoint: &mut Endpoint) -> Result<(), TransportError> {
///     let host = endpoint.host()?;
///     endpoint.reset()?;
///     host.post_nop(SendFlags::SIGNALED).map(drop)
/// }
/// ```
///
/// ```compile_fail,E0505
/// use warpverbs_transport::{Endpoint, TransportError};
///
/// fn finish(endpoint: Endpoint) -> Result<(), TransportError> {
///     let host = endpoint.host()?;
///     endpoint.close();
///     host.quiet()
/// }
/// ```
#[doc(alias = "RdmaEndpoint")]
pub struct Endpoint {
    core: Arc<Core>,
}

struct Core {
    // In this order: the QP dies first, then its keys, then its memory.
    qp: Arc<dyn QueuePair>,
    /// None if only kernels can post.
    queues: Option<HostQueues>,
    _scratch_key: MemoryKey,
    /// Also set by the NIC when it stops.
    abort: Arc<AbortWord>,
    memory: Memory,
    config: EndpointConfig,
    handle: EndpointHandle,
    /// QP number of the peer, 0 while there is none. Posters go by it, so it is set when the QP is
    /// ready to send, and only by the holder of `connecting`.
    peer: AtomicU32,
    connecting: Mutex<()>,
    /// The exported QP.
    exported: Buffer,
    _doorbells: Option<Buffer>,
    device: Arc<DeviceShared>,
}

impl Endpoint {
    pub(crate) fn new(
        device: Arc<DeviceShared>,
        config: &EndpointConfig,
    ) -> Result<Self, TransportError> {
        let format = device.nic.format();
        config.check(format)?;
        if let Some(gpu) = config.gpu.as_ref().filter(|_| device.nic.way().is_some()) {
            check_order(gpu.info())?;
        }
        let mut memory = Memory::new(config, device.nic.send_cq(config.send_cq), format)?;
        let qp = create_qp(&device, config, &memory)?;
        let scratch_key = device.nic.register(&memory.scratch()?, &Access::LOCAL_WRITE.into())?;
        let registers = qp.own_doorbells().unwrap_or(device.nic.doorbells());
        let others = qp.other_doorbells();
        memory.tell_at(match others {
            Some([receives, cqs]) => {
                Some([registers.slice(receives, 8)?, registers.slice(cqs, 8)?])
            }
            None => None,
        });
        let register = match qp.doorbell_offset() {
            Some(offset) => registers.slice(offset, 8)?,
            // Work is posted by calls, so a poster's doorbell goes to a word that nothing reads.
            None => memory.record()?,
        };
        let qpn = Qpn::new(qp.qpn()).unwrap_or_default();
        let lkey = scratch_key.lkey;
        let queues = match memory.host_can_post() {
            true => Some(HostQueues::new(&memory, qp.clone(), &register, lkey)?),
            false => None,
        };
        let doorbells = match &config.gpu {
            Some(gpu) => Some(device.doorbells_in(&**gpu, &*qp)?),
            None => None,
        };
        let doorbell = match (&doorbells, qp.doorbell_offset()) {
            (Some(page), Some(offset)) => page.kernel_addr() + offset,
            _ => register.addr(),
        };
        let page = doorbells.as_ref().map_or(registers.addr(), Buffer::kernel_addr);
        let exported = memory.export(&ExportedQp {
            qpn: qpn.get(),
            cqns: qp.cqns(),
            fenced_record: qp.reads_record(),
            doorbell,
            told_at: others.map(|offsets| offsets.map(|offset| page + offset)),
            scratch_lkey: lkey,
            timeout_ns: config.timeout.as_nanos().try_into().unwrap_or(u64::MAX),
        })?;
        let handle = EndpointHandle {
            nic: device.nic.id(),
            qpn: qpn.get(),
            psn: random_psn()?,
            mtu: device.nic.max_mtu().map_or(config.mtu, |max| config.mtu.min(max)),
            max_rd_atomic: config.rd_atomic.min(device.nic.max_rd_atomic()[0]),
            reach: device.nic.reach(),
        };
        let (config, peer) = (config.clone(), AtomicU32::new(0));
        let core = Core {
            qp,
            _scratch_key: scratch_key,
            queues,
            abort: Arc::new(memory.abort_word()),
            memory,
            config,
            handle,
            peer,
            connecting: Mutex::new(()),
            exported,
            _doorbells: doorbells,
            device,
        };
        let watcher: Weak<AbortWord> = Arc::downgrade(&core.abort);
        core.device.nic.watch(watcher);
        Ok(Self { core: Arc::new(core) })
    }

    /// QP number, 24 bits.
    pub fn qpn(&self) -> u32 {
        self.core.handle.qpn
    }

    /// Handle that the peer needs to connect to this endpoint.
    pub fn handle(&self) -> EndpointHandle {
        self.core.handle
    }

    /// Bytes that one work request may carry inline: what was asked for, as far as the format of the NIC's
    /// queues has room.
    pub fn inline_bytes(&self) -> usize {
        self.core.memory.shape.inline_bytes
    }

    /// QP number of the peer, if connected.
    pub fn peer(&self) -> Option<u32> {
        Some(self.core.peer.load(Acquire)).filter(|&qpn| qpn != 0)
    }

    /// State of the QP.
    pub fn state(&self) -> QpState {
        self.core.qp.state()
    }

    /// Connects to a peer, which must connect to this endpoint in turn.
    #[doc(alias = "ConnectEndpoint")]
    pub fn connect(&self, peer: &EndpointHandle) -> Result<(), TransportError> {
        let (core, qpn) = (&*self.core, self.qpn());
        if *peer == core.handle {
            return Err(UsageError::ConnectToSelf { qpn }.into());
        }
        let _connecting = core.connecting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(peer) = self.peer() {
            return Err(UsageError::AlreadyConnected { qpn, peer }.into());
        }
        let config = &core.config;
        let own_reads = config.rd_atomic.min(core.device.nic.max_rd_atomic()[1]);
        let mtu = core.handle.mtu.min(peer.mtu);
        let path = PathSpec {
            dest_qpn: peer.qpn,
            dest_nic: peer.nic,
            dest: peer.reach,
            mtu,
            rq_psn: peer.psn,
            sq_psn: core.handle.psn,
            max_dest_rd_atomic: core.handle.max_rd_atomic,
            max_rd_atomic: own_reads.min(peer.max_rd_atomic),
            ack_timeout: config.ack_timeout,
            retry: config.retry,
            rnr_retry: config.rnr_retry,
            min_rnr_timer: config.min_rnr_timer,
        };
        core.memory.start(core.handle.psn, mtu)?;
        if let Some(queues) = &core.queues {
            queues.start(mtu);
        }
        core.qp.connect(&path)?;
        // Release, pairs with the posters' acquire: no doorbell comes before the QP listens.
        core.peer.store(peer.qpn, Release);
        Ok(())
    }

    /// The host's way to post. Fails if the posting state is in GPU memory.
    ///
    /// The poster lives no longer than the endpoint. This is good:
    ///
    /// ```
    /// use warpverbs_transport::{Endpoint, TransportError, Poster};
    ///
    /// fn poster(endpoint: &Endpoint) -> Result<Poster<'_>, TransportError> {
    ///     Ok(endpoint.host()?)
    /// }
    /// ```
    ///
    /// This is not:
    ///
    /// ```compile_fail,E0515
    /// use warpverbs_transport::{Device, EndpointConfig, TransportError, Poster};
    ///
    /// fn poster<'e>(device: &Device) -> Result<Poster<'e>, TransportError> {
    ///     let endpoint = device.endpoint(&EndpointConfig::host())?;
    ///     Ok(endpoint.host()?)
    /// }
    /// ```
    pub fn host(&self) -> Result<Poster<'_>, UsageError> {
        let core = &*self.core;
        let queues = core.queues.as_ref().ok_or(UsageError::KernelPosted { qpn: self.qpn() })?;
        let srq = core.config.srq.as_deref();
        Ok(Poster::new(queues, &core.peer, srq, core.config.timeout))
    }

    /// A kernel's way to post: where the exported QP is, `const wv::Qp*` in device code. The
    /// endpoint lives on as long as the pointer, or a launch that was given it, does. Not for
    /// [`QueuePlacement::Host`]: where the NIC takes the host's work by calls, nobody reads what a
    /// kernel writes there, and its waits end at their deadlines.
    #[allow(unsafe_code)]
    pub fn device_qp(&self) -> KernelPtr<Qp> {
        // SAFETY: `exported` holds a QP, which nobody writes after the endpoint was connected; its
        // addresses are those of the core's memory, named below, and of the doorbells on the host.
        let pointer = unsafe { KernelPtr::from_buffer(&self.core.exported, self.core.clone()) };
        let pointer = pointer.with_queues_of(self.core.device.nic.format());
        self.core.memory.buffers().into_iter().fold(pointer, KernelPtr::reaching)
    }

    /// Its QP's state, its queues, and its first failure.
    pub fn health(&self) -> Result<Health, TransportError> {
        let core = &*self.core;
        let mut state = PostState::new_zeroed();
        core.memory.read_state(0, state.as_mut_bytes())?;
        let format = core.memory.shape.format;
        let error = ErrorWord(state.error);
        let error = (error.0 != 0).then(|| decode_error(self.qpn(), format, error));
        let Events { new, failure } = core.qp.events();
        Ok(Health {
            qpn: self.qpn(),
            nic_stopped: core.qp.stopped(),
            state: core.qp.state(),
            send: Progress::of(&state.sq, core.memory.shape.counts_packets()),
            receive: Progress::of(&state.rq, false),
            error,
            first_error: core.first_error(),
            fault: FaultReport::of(&state.fault),
            failure,
            events: new,
            aborted: core.abort.read()? == Abort::ByHost as u32,
        })
    }

    /// Makes every wait on this endpoint, on host and device, return `aborted`.
    pub fn abort(&self) -> Result<(), TransportError> {
        self.core.abort.set(Abort::ByHost)
    }

    /// Moves the QP to ERR, so that everything posted completes with a flush error.
    pub fn fail(&self) -> Result<(), TransportError> {
        self.core.fail()
    }

    /// Back to what a new endpoint is, under the same QP number: nothing posted, no error, no
    /// peer. The peer must be reset as well, and both connected again. Receives of an own queue
    /// are gone; those of a shared queue stay.
    pub fn reset(&mut self) -> Result<(), TransportError> {
        let qpn = self.qpn();
        let core = Arc::get_mut(&mut self.core).ok_or(UsageError::StillLent { qpn })?;
        core.give_receives_back();
        core.qp.reset()?;
        if let Some(queues) = &core.queues {
            queues.reset();
        }
        core.memory.reset(core.qp.cqns())?;
        core.peer.store(0, Release);
        core.qp.init(core.config.access)
    }

    /// Destroys the QP now. Dropping does the same, once no kernel holds what
    /// [`Endpoint::device_qp`] gave.
    pub fn close(self) {
        drop(self);
    }
}

impl Core {
    fn fail(&self) -> Result<(), TransportError> {
        self.qp.fail()?;
        if let Some(queues) = &self.queues {
            queues.has_failed();
        }
        Ok(())
    }

    /// The first error of the send queue, as far as anybody but posters remembers it.
    fn first_error(&self) -> Option<FirstError> {
        self.queues.as_ref().map_or_else(|| self.qp.first_error(), HostQueues::first_error)
    }

    /// Returns to the shared queue the receives of completions that were never polled.
    fn give_receives_back(&self) {
        let (Some(queues), Some(srq)) = (&self.queues, &self.config.srq) else { return };
        // Requests that are on their way are flushed.
        if let Err(error) = self.fail() {
            tracing::warn!(%error, "receives of a shared queue are lost");
        }
        while let Some(taken) = queues.take_recv() {
            srq.give_back(taken.number);
        }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.give_receives_back();
    }
}

fn create_qp(
    device: &DeviceShared,
    config: &EndpointConfig,
    memory: &Memory,
) -> Result<Arc<dyn QueuePair>, TransportError> {
    let shape = &memory.shape;
    let (sq, rq, record) = (memory.sq(), memory.rq()?, memory.record()?);
    let (send_cq, recv_cq) = (memory.send_cq()?, memory.recv_cq()?);
    let [send_record, recv_record] = memory.cq_records()?;
    let recv = match &config.srq {
        Some(srq) => RecvSpec::Shared(srq.object()),
        None if !shape.own_recv => RecvSpec::None,
        None => RecvSpec::Own { buf: &rq, log_depth: shape.log_recv, bytes: shape.recv_bytes },
    };
    let packets = memory.packets()?;
    let cq = |mode, log_size, buf, record| CqSpec { mode, log_size, buf, record };
    device.nic.create_qp(&QpSpec {
        format: shape.format,
        memory: memory.shared(),
        packets: packets.as_ref(),
        sq: &sq,
        log_sq: shape.log_send,
        recv,
        record: &record,
        send_cq: cq(shape.send_cq_mode, shape.log_send_cq, &send_cq, &send_record),
        recv_cq: cq(CqMode::Ring, shape.log_recv_cq, &recv_cq, &recv_record),
        access: config.access,
        inline_bytes: shape.inline_bytes,
        host_only: config.placement == QueuePlacement::Host,
        consume_only: config.consume_only,
    })
}

/// Kernels take a completion of an RDMA device for the arrival of what it stands for.
pub(crate) fn check_order(gpu: &GpuInfo) -> Result<(), GpuError> {
    match gpu.ordered_nic_writes {
        true => Ok(()),
        false => Err(GpuError::Unsupported {
            device: format!("{} ({:?} device {})", gpu.name, gpu.kind, gpu.ordinal),
            what: "kernels that see writes of RDMA devices in order \
                   (GPU_DIRECT_RDMA_WRITES_ORDERING is NONE; the software NIC does without)",
        }),
    }
}

/// A first packet sequence number that late packets of an older connection will not hit.
fn random_psn() -> Result<u32, TransportError> {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes).map_err(|_| crate::error::no_entropy())?;
    Ok(u32::from_le_bytes(bytes) & 0xff_ffff)
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (qpn, state, peer) = (self.qpn(), self.state(), self.peer());
        write!(f, "Endpoint({qpn:#x}, {state}, peer {peer:x?})")
    }
}

#[cfg(test)]
mod tests {
    use super::{EndpointConfig, check_order};
    use crate::Context;
    use warpverbs_gpu::{GpuInfo, GpuKind};
    use warpverbs_mlx5::export::{FENCED_RECORD, Qp};
    use zerocopy::FromBytes as _;

    #[test]
    fn a_gpu_that_does_not_order_writes_of_devices_is_refused() {
        let mut gpu = GpuInfo::new(GpuKind::Cuda, 1, "an old one");
        assert!(check_order(&gpu).is_ok(), "as far as is known");
        gpu.ordered_nic_writes = false;
        let error = check_order(&gpu).unwrap_err().to_string();
        let named = ["an old one", "device 1", "GPU_DIRECT_RDMA_WRITES_ORDERING", "software NIC"];
        assert!(named.iter().all(|part| error.contains(part)), "{error}");
    }

    /// A kernel orders its WQEs before the record where the NIC may read the next doorbell's.
    #[test]
    fn a_kernels_record_is_fenced_where_the_nic_believes_it() {
        use warpverbs_nic::DoorbellPolicy::{DoorbellFirst, DropThenRecover, Random, RecordFirst};
        let policies = [DoorbellFirst, RecordFirst, Random, DropThenRecover { polls: 3 }];
        let policies = policies.map(|policy| (policy, false)).into_iter();
        for (policy, loses_doorbells) in policies.chain([(DoorbellFirst, true)]) {
            let nic = warpverbs_nic::Config { policy, loses_doorbells, ..Default::default() };
            let device = Context::builder().soft_config(nic).build().unwrap().open("soft").unwrap();
            let endpoint = device.endpoint(&EndpointConfig::host()).unwrap();
            let mut raw = [0; size_of::<Qp>()];
            endpoint.core.exported.region().read(0, &mut raw).unwrap();
            let tag = Qp::read_from_bytes(&raw).unwrap().send_tag;
            let believes = policy != DoorbellFirst || loses_doorbells;
            let fence = if believes { FENCED_RECORD } else { 0 };
            assert_eq!(tag, endpoint.qpn() | fence, "{policy:?}, {loses_doorbells}");
        }
    }
}
