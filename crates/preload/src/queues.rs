//! Queues of the program, as the NIC is told of them.

use crate::dmabuf;
use crate::gpu::{self, Use};
use crate::memory::{refuse_region, region};
use warpverbs_mem::{HostBuf, Region};
use warpverbs_nic::{
    Announcement, BnxtMode, BnxtQueues, Cq, Dialect, DoorbellOnly, IonicProtocol, OnSendError,
    PacketTable, QpConfig, QpFormat, RqConfig, ScatterToCqe, Service, Srq, UarPage,
};
use warpverbs_uverbs::{Driver, MrRequest, QpRequest, Queues, Refusal};

/// The format of a driver's CQs and SRQs.
pub(crate) fn dialect(driver: Driver) -> Dialect {
    match driver {
        Driver::Mlx5 => Dialect::Mlx5,
        Driver::Bnxt { library, .. } => Dialect::Bnxt(library),
        Driver::Ionic { .. } => Dialect::Ionic,
    }
}

/// Memory of the program in which a queue lies: 2^`log_size` entries of 2^`log_stride` bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring {
    pub(crate) address: u64,
    pub(crate) log_size: u8,
    pub(crate) log_stride: u8,
}

impl Ring {
    /// The send queue and the receive queue of a new QP of ionic's.
    pub(crate) fn of(request: &QpRequest) -> Option<[Self; 2]> {
        let (Queues::Ionic { sq, log_wqe }, Some(sends), Some((receives, stride))) =
            (request.queues, request.log_sq, request.rq)
        else {
            return None;
        };
        let ring = |address, log_size, log_stride| Self { address, log_size, log_stride };
        Some([ring(sq, sends, log_wqe), ring(request.buf, receives, stride)])
    }
}

/// Objects that a new QP works with.
pub(crate) struct With<'a> {
    pub(crate) send_cq: &'a Cq,
    pub(crate) recv_cq: &'a Cq,
    pub(crate) srq: Option<&'a Srq>,
    /// The page whose registers it rings by.
    pub(crate) page: Option<&'a UarPage>,
    /// The place of its doorbells, if it has no record.
    pub(crate) place: Option<&'a Region>,
}

/// The format of the queues, where their sends lie, and how these are announced.
fn format(
    request: &QpRequest,
    page: Option<&UarPage>,
) -> Result<(QpFormat, Region, Announcement), Refusal> {
    let log = request.log_sq.unwrap_or(0);
    let at = request.sq();
    let (format, log_wqe) = match request.queues {
        Queues::Mlx5 => (QpFormat::Mlx5, 6),
        Queues::Bnxt { sq, handle, library, fixed: Some(fixed) } => {
            let bytes = 16 * u64::from(fixed.slots);
            let table = sq.wrapping_add(bytes);
            let queues = BnxtQueues {
                library,
                mode: BnxtMode::Variable,
                slots: fixed.slots,
                receive_slots: fixed.receive_slots,
                counts_receive_slots: false,
                table: PacketTable::Msn,
                packets: queue("packet numbers", table, 8 << fixed.log_packets)?,
                log_packets: fixed.log_packets,
                handle,
            };
            return Ok((
                QpFormat::Bnxt(queues),
                queue("SQ buffer", at, bytes)?,
                Announcement::Doorbell,
            ));
        }
        Queues::Bnxt { sq, handle, library, fixed: None } => {
            let queues = BnxtQueues {
                library,
                mode: BnxtMode::Static,
                slots: 0,
                receive_slots: None,
                counts_receive_slots: false,
                table: PacketTable::PsnExt,
                packets: queue("packet numbers", sq.wrapping_add(128 << log), 16 << log)?,
                log_packets: log,
                handle,
            };
            (QpFormat::Bnxt(queues), 7)
        }
        Queues::Ionic { log_wqe, .. } => {
            (QpFormat::Ionic { protocol: IonicProtocol::V2, log_wqe }, log_wqe)
        }
    };
    let sq = match request.log_sq {
        Some(log) => queue("SQ buffer", at, 1 << (log + log_wqe))?,
        None => own("SQ")?,
    };
    let announcement = match page {
        Some(page) => {
            let (page, doorbell_only) = (page.clone(), DoorbellOnly::Detect);
            Announcement::Uar { page, doorbell_only }
        }
        None => Announcement::Doorbell,
    };
    Ok((format, sq, announcement))
}

/// The NIC wants a ring and a record in any case.
fn own(what: &str) -> Result<Region, Refusal> {
    HostBuf::region(64).map_err(|error| refuse_region(what, &error))
}

/// A QP.
pub(crate) fn qp(request: &QpRequest, with: With<'_>) -> Result<QpConfig, Refusal> {
    let rq = match (with.srq, request.rq) {
        (Some(srq), _) => RqConfig::Srq(srq.clone()),
        (None, Some((log_rq, log_stride))) => {
            let bytes = request.receive_bytes().unwrap_or(1 << log_stride);
            let buf = queue("RQ buffer", request.buf, bytes << log_rq)?;
            RqConfig::Own { buf, log_rq, log_stride }
        }
        (None, None) => RqConfig::None,
    };
    let (format, sq, announcement) = format(request, with.page)?;
    let dbr = match (with.place, request.service) {
        (Some(place), _) => place.slice(0, 8),
        (None, Service::DcTarget) => own("record")?.slice(0, 8),
        (None, _) => Ok(queue("QP doorbell record", request.dbr, 8)?),
    };
    Ok(QpConfig {
        format,
        send_cq: with.send_cq.clone(),
        recv_cq: with.recv_cq.clone(),
        sq,
        log_sq: request.log_sq.unwrap_or(0),
        rq,
        dbr: dbr.map_err(|error| refuse_region("record", &error))?,
        announcement,
        on_send_error: OnSendError::StopAll,
        consume_only: false,
        user_index: request.user_index,
        scatter_to_cqe: ScatterToCqe {
            requests: request.scatter_requests,
            receives: request.scatter_receives,
        },
        service: request.service,
    })
}

/// Memory by its address: of the host, or of a GPU, as with a peer memory module.
fn memory(
    what: &str,
    usage: Use,
    (start, length): (u64, u64),
    writable: bool,
) -> Result<Region, Refusal> {
    region(what, start, length, writable).or_else(|refusal| {
        gpu::region(what, usage, start, length).and_then(Result::ok).ok_or(refusal)
    })
}

/// Memory of a queue, a CQ or a record.
pub(crate) fn queue(what: &str, start: u64, length: u64) -> Result<Region, Refusal> {
    memory(what, Use::Queues, (start, length), true)
}

/// Memory to register by its address.
pub(crate) fn payload(request: &MrRequest, writable: bool) -> Result<Region, Refusal> {
    memory("memory to register", Use::Payload, (request.start, request.length), writable)
}

/// Memory of a GPU to register by a dmabuf. If it is not known where that lies, its I/O address is that
/// of the memory.
pub(crate) fn exported(fd: i32, request: &MrRequest) -> Result<Region, Refusal> {
    let known = dmabuf::find(fd, request.start, request.length)?;
    if request.length == 0 {
        return Err(Refusal::invalid("a dmabuf of no bytes"));
    }
    let none = || Refusal::unsupported("dmabufs are those of NVIDIA GPUs, and there is no driver");
    let address = known.unwrap_or(request.iova);
    gpu::region("dmabuf", Use::Payload, address, request.length).ok_or_else(none)?
}

/// 2^`log_size` CQEs of so many bytes.
pub(crate) fn cq_buffer(buf: u64, cqe_size: u32, log_size: u8) -> Result<Region, Refusal> {
    queue("CQ buffer", buf, u64::from(cqe_size) << log_size)
}
