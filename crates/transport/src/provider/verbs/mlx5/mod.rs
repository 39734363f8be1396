//! QPs of an mlx5 device whose rings the device reads itself: kernels and host post to it with
//! nobody between. They are made by firmware commands in the memory that posters use.
//!
//! ```text
//! mod      what the device must be able to do; a QP with its two CQs
//! ├─ command  the mailboxes: which fields are set, and why
//! ├─ events   events of single objects
//! ├─ qp       states of a QP
//! └─ srq      shared receive queues
//! ```

mod command;
mod events;
mod qp;
mod srq;
#[cfg(test)]
mod tests;

use super::direct_queues::DirectQueues;
use super::events::device_number;
use super::opened::Opened;
use crate::TransportError;
use crate::provider::events::Objects;
use crate::provider::{CqSpec, QpSpec, QueuePair, RecvSpec, SharedQueue, SrqSpec};
use command::{CqPlace, PoolPlace, QpPlace, Receives};
use events::{OF_CQ, OF_POOL, OF_QP, ObjectEvents};
use qp::Mlx5Qp;
use srq::Mlx5Srq;
use std::sync::Arc;
use warpverbs_mem::Region;
use warpverbs_mlx5::export::NicFormat;
use warpverbs_mlx5::prm::Command;
use warpverbs_verbs as verbs;
use warpverbs_verbs::mlx5dv::{Devx, Mlx5Error, Object, Uar, UarKind, Umem, pd_number};

/// A queue begins at a multiple of this in its umem, and the send queue behind the receive queue.
const SMALLEST_RQ: usize = 64;
/// Bytes of the longest WQE that posters write: control, address, and inline data.
const LONGEST_WQE: u32 = 256;

/// Device objects that the QPs of a protection domain are made from.
pub(super) struct Mlx5 {
    devx: Devx,
    pd: verbs::Pd,
    pdn: u32,
    eqn: u32,
    uar: Uar,
    register: Region,
    events: Option<Arc<ObjectEvents>>,
}

fn failed_call(error: Mlx5Error) -> verbs::VerbsError {
    Box::new(error).into()
}

fn failed(error: Mlx5Error) -> TransportError {
    failed_call(error).into()
}

fn unsupported(opened: &Opened, what: &'static str) -> TransportError {
    verbs::VerbsError::Unsupported { device: opened.name().to_owned(), what }.into()
}

impl Mlx5 {
    pub(super) fn new(opened: &Opened, pd: &verbs::Pd) -> Result<Self, TransportError> {
        let no = |what| Err(unsupported(opened, what));
        let devx = Devx::of(&opened.context).map_err(failed)?;
        let general = devx.general_caps().map_err(failed)?;
        if general.rc == 0 {
            return no("the direct way needs the capability rc (reliable connections)");
        }
        if general.max_wqe_sz_sq < LONGEST_WQE {
            return no("the direct way needs WQEs of 256 bytes (capability max_wqe_sz_sq)");
        }
        // Kernels take what an 8-byte atomic returns as it is.
        let atomics = if general.atomic == 1 { Some(devx.atomic_caps()) } else { None };
        if let Some(caps) = atomics.transpose().map_err(failed)?
            && caps.req_8b_endianness_mode != 1
        {
            return no("the direct way needs results of atomics in the host's byte order \
                 (capability atomic_req_8B_endianness_mode)");
        }
        let pdn = pd_number(&devx, pd).map_err(failed)?;
        let eqn = devx.event_queue(0).map_err(failed)?;
        let uar = Uar::alloc(&devx).map_err(failed)?;
        let register = uar.register();
        let events = ObjectEvents::start(&devx, opened);
        Ok(Self { devx, pd: pd.clone(), pdn, eqn, uar, register, events })
    }

    /// An object that keeps `uses`, and whose events are listened to.
    fn create(
        &self,
        command: &Command,
        uses: impl Send + Sync + 'static,
        events: &[u8],
    ) -> Result<Object, TransportError> {
        let object = Object::create(&self.devx, command, uses).map_err(failed)?;
        if let Some(listener) = &self.events {
            listener.subscribe(&object, events);
        }
        Ok(object)
    }

    fn create_cq(
        &self,
        spec: &CqSpec<'_>,
        umem: &Arc<Umem>,
    ) -> Result<Arc<Object>, TransportError> {
        // The device finds every entry invalid.
        spec.buf.fill(0, spec.buf.len(), 0xff)?;
        let place = CqPlace {
            umem: umem.id(),
            buf: offset(umem, spec.buf)?,
            record: offset(umem, spec.record)?,
            uar: self.uar.page(),
            eqn: self.eqn,
            log_size: spec.log_size,
        };
        let uses = (umem.clone(), self.uar.clone());
        self.create(&command::create_cq(&place), uses, OF_CQ).map(Arc::new)
    }

    /// A register of the QP's own, for one to which kernels post, as long as the device has more: of what lanes of
    /// an AMD GPU store to one register in one instruction, only one store may reach the bus.
    fn own_uar(&self, spec: &QpSpec<'_>) -> Option<Uar> {
        if spec.host_only {
            return None;
        }
        Uar::of_kind(&self.devx, UarKind::Dedicated).ok()
    }
}

impl DirectQueues for Mlx5 {
    fn provider(&self) -> &'static str {
        "mlx5"
    }

    fn format(&self) -> NicFormat {
        NicFormat::Mlx5
    }

    /// Doorbells say which QP they are for.
    fn register(&self) -> &Region {
        &self.register
    }

    fn create_srq(
        &self,
        _opened: &Opened,
        spec: &SrqSpec<'_>,
    ) -> Result<Arc<dyn SharedQueue>, TransportError> {
        let umem = Umem::register(&self.devx, spec.memory).map_err(failed)?;
        let place = PoolPlace {
            umem: umem.id(),
            buf: offset(&umem, spec.buf)?,
            record: offset(&umem, spec.record)?,
            pd: self.pdn,
            log_size: spec.log_depth,
            log_stride: spec.log_stride,
        };
        let uses = (umem, self.pd.clone());
        let pool = self.create(&command::create_pool(&place), uses, OF_POOL)?;
        Ok(Arc::new(Mlx5Srq::new(pool, self.events.clone())))
    }

    fn create_qp(
        &self,
        opened: &Arc<Opened>,
        pd: &verbs::Pd,
        spec: &QpSpec<'_>,
    ) -> Result<Arc<dyn QueuePair>, TransportError> {
        let umem = Arc::new(Umem::register(&self.devx, spec.memory).map_err(failed)?);
        let srq = spec.recv.shared::<Mlx5Srq>()?.map(|shared| shared.object().clone());
        let (wq, receives) = work_queues(opened, spec, srq.as_deref())?;
        // A send queue that lies alone is in memory of a GPU.
        let wq_umem = match umem.offset_of(spec.sq) {
            Some(_) => umem.clone(),
            None => Arc::new(Umem::register(&self.devx, spec.sq).map_err(failed)?),
        };
        let send_cq = self.create_cq(&spec.send_cq, &umem)?;
        let recv_cq = self.create_cq(&spec.recv_cq, &umem)?;
        let own = self.own_uar(spec);
        let uar = own.as_ref().unwrap_or(&self.uar);
        let place = QpPlace {
            umem: umem.id(),
            record: offset(&umem, spec.record)?,
            wq: (wq_umem.id(), offset(&wq_umem, wq)?),
            uar: uar.page(),
            pd: self.pdn,
            cqs: [send_cq.number(), recv_cq.number()],
            log_sq: spec.log_sq,
            receives,
        };
        let cqns = place.cqs;
        let srqns = srq.iter().map(|srq: &Arc<Object>| device_number(srq.number())).collect();
        let uses = (send_cq, recv_cq, srq, umem, wq_umem, uar.clone(), pd.clone());
        let qp = self.create(&command::create_qp(&place), uses, OF_QP)?;
        let numbers = cqns.map(device_number).to_vec();
        let objects = Objects { qpn: qp.number(), cqns: numbers, srqns };
        let pair = Mlx5Qp {
            qp,
            cqns,
            register: own.map(|own| own.register()),
            devx: self.devx.clone(),
            pd: pd.clone(),
            events: opened.running.subscribe(objects),
            opened: opened.clone(),
            _events: self.events.clone(),
        };
        pair.init(spec.access)?;
        Ok(Arc::new(pair))
    }
}

/// Where the QP's queues begin, and its receives come from.
fn work_queues<'a>(
    opened: &Opened,
    spec: &QpSpec<'a>,
    srq: Option<&Object>,
) -> Result<(&'a Region, Receives), TransportError> {
    let no = |what| Err(unsupported(opened, what));
    let RecvSpec::Own { buf, log_depth, bytes } = spec.recv else {
        return Ok((spec.sq, srq.map_or(Receives::None, |pool| Receives::Shared(pool.number()))));
    };
    if buf.addr() + buf.len() as u64 != spec.sq.addr() {
        return no("the direct way has no own receive queue beside a send queue in GPU memory: \
             take a shared one, or none (recv_depth(0))");
    }
    if buf.len() < SMALLEST_RQ {
        return no("the direct way needs receive queues of at least 64 bytes");
    }
    Ok((buf, Receives::Own(log_depth, bytes.ilog2() as u8)))
}

fn offset(umem: &Umem, part: &Region) -> Result<u64, TransportError> {
    umem.offset_of(part).ok_or_else(|| {
        let (kind, why) = (part.kind().to_string(), format!("{part:?} lies apart"));
        failed(Mlx5Error::NotReached { kind, why })
    })
}
