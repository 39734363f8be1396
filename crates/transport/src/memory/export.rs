//! The QP as kernels see it: where its parts lie, and what else they need to know.

use super::Memory;
use super::plan::Part;
use crate::TransportError;
use crate::post::first_reserved;
use std::mem::offset_of;
use warpverbs_gpu::Buffer;
use warpverbs_mlx5::export::{Cq, CqMode, FENCED_RECORD, PostState, Qp, QueueState};
use warpverbs_rdma::Mtu;
use zerocopy::IntoBytes;

/// Fields of the exported QP that are not in its memory's layout.
pub(crate) struct ExportedQp {
    pub(crate) qpn: u32,
    pub(crate) cqns: [u32; 2],
    /// The record is stored with release.
    pub(crate) fenced_record: bool,
    /// Kernel address of the doorbell register.
    pub(crate) doorbell: u64,
    /// Kernel addresses of the registers by which receives and consumed CQEs are told, if they have no records.
    pub(crate) told_at: Option<[u64; 2]>,
    pub(crate) scratch_lkey: u32,
    pub(crate) timeout_ns: u64,
}

impl Memory {
    /// Writes the exported QP and gives the buffer it is in.
    pub(crate) fn export(&self, qp: &ExportedQp) -> Result<Buffer, TransportError> {
        let (rings, state) = (self.ring_buf.kernel_addr(), self.state_buf.kernel_addr());
        let (shape, r, s) = (&self.shape, &self.rings, &self.state);
        let told = |which: usize, record: Part| {
            qp.told_at.map_or(rings + record.at, |registers| registers[which])
        };
        let cq = |part: Part, record: Part, cqn, log_size, mode: CqMode| Cq {
            buf: rings + part.at,
            dbr: told(1, record),
            cqn,
            log_size,
            mode: mode as u8,
            reserved: [0; 2],
        };
        let [send_cqn, recv_cqn] = qp.cqns;
        let if_own = |addr: u64| if shape.own_recv { addr } else { 0 };
        let image = Qp {
            sq: self.sq_buf.kernel_addr(),
            rq: if_own(rings + r.rq.at),
            dbr: told(0, r.record),
            doorbell: qp.doorbell,
            send_cq: cq(
                r.send_cq,
                r.send_cq_record,
                send_cqn,
                shape.log_send_cq,
                shape.send_cq_mode,
            ),
            recv_cq: cq(r.recv_cq, r.recv_cq_record, recv_cqn, shape.log_recv_cq, CqMode::Ring),
            state: state + s.state.at,
            sq_ready: state + s.sq_ready.at,
            rq_ready: if_own(state + s.rq_ready.at),
            sq_span: state + s.span.at,
            abort: rings + r.abort.at,
            scratch: rings + r.scratch.at,
            timeout_ns: qp.timeout_ns,
            scratch_lkey: qp.scratch_lkey,
            qpn: qp.qpn,
            log_sq: shape.log_send,
            log_rq: shape.log_recv,
            log_rq_stride: shape.recv_bytes.ilog2() as u8,
            inline_words: (shape.inline_bytes / 4) as u8,
            send_tag: qp.qpn | if qp.fenced_record { FENCED_RECORD } else { 0 },
            packets: shape.packets().map_or(0, |(at, _)| self.sq_buf.kernel_addr() + at),
            format: shape.format as u8,
            log_packets: shape.packets().map_or(0, |(_, log)| log),
            log_mtu: 0,
            rq_slots: (shape.recv_bytes / 16) as u8,
            reserved: [0; 28],
        };
        self.write(&self.state_buf, s.qp.at, image.as_bytes())?;
        Ok(self.state_buf.slice(s.qp.at, s.qp.len)?)
    }

    /// Before anything is posted on a connection: its MTU and the packet number of the first WQE, where
    /// posters count packets.
    pub(crate) fn start(&self, psn: u32, mtu: Mtu) -> Result<(), TransportError> {
        let Some((at, log)) = self.shape.packets() else { return Ok(()) };
        let log_mtu = [mtu.bytes().ilog2() as u8];
        self.write(&self.state_buf, self.state.qp.at + offset_of!(Qp, log_mtu) as u64, &log_mtu)?;
        self.write_state(RESERVED, &first_reserved(psn).to_le_bytes())?;
        // In the entry of the WQE before it, for a poster who counts by himself.
        let last = at + (8 << log) - 8;
        self.write(&self.sq_buf, last, &(u64::from(psn) << 24).to_le_bytes())
    }
}

/// Of a send queue.
const RESERVED: usize = offset_of!(PostState, sq) + offset_of!(QueueState, reserved);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EndpointConfig;
    use crate::memory::plan::ALIGN;
    use warpverbs_mlx5::export::{NicFormat, SCRATCH_SLOTS};
    use zerocopy::FromBytes;

    fn exported(config: &EndpointConfig) -> (Memory, Qp) {
        let memory = Memory::new(config, config.send_cq, NicFormat::Mlx5).unwrap();
        let qp = ExportedQp {
            qpn: 5,
            cqns: [6, 7],
            fenced_record: config.recv_depth == 0,
            doorbell: 0x1000,
            told_at: None,
            scratch_lkey: 8,
            timeout_ns: 9,
        };
        let buffer = memory.export(&qp).unwrap();
        let mut raw = [0; size_of::<Qp>()];
        buffer.region().read(0, &mut raw).unwrap();
        (memory, Qp::read_from_bytes(&raw).unwrap())
    }

    #[test]
    fn the_exported_qp_points_at_parts_that_do_not_overlap() {
        for config in [
            EndpointConfig::host(),
            EndpointConfig::host().send_cq(CqMode::Ring).recv_sges(4).send_depth(128),
            EndpointConfig::host().recv_depth(1).send_depth(32768),
        ] {
            let (_memory, qp) = exported(&config);
            let (sq, rq) = (64u64 << qp.log_sq, 1u64 << (qp.log_rq + qp.log_rq_stride));
            let bitmap = |log: u8| (1u64 << log).div_ceil(64) * 8;
            let mut parts = [
                (qp.sq, sq),
                (qp.rq, rq),
                (qp.dbr, 8),
                (qp.send_cq.buf, 64 << qp.send_cq.log_size),
                (qp.send_cq.dbr, 8),
                (qp.recv_cq.buf, 64 << qp.recv_cq.log_size),
                (qp.recv_cq.dbr, 8),
                (qp.state, size_of::<PostState>() as u64),
                (qp.sq_ready, bitmap(qp.log_sq)),
                (qp.rq_ready, bitmap(qp.log_rq)),
                (qp.sq_span, 1 << qp.log_sq),
                (qp.abort, 4),
                (qp.scratch, 8 * (SCRATCH_SLOTS as u64 + 1)),
            ];
            parts.sort_unstable();
            for pair in parts.windows(2) {
                assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:x?} overlap");
            }
            // One piece, for devices that know no other place of a send queue.
            assert_eq!(qp.rq + rq, qp.sq);
            let aligned = |addr: u64| addr.is_multiple_of(ALIGN) || addr == qp.rq;
            assert!(parts.iter().all(|(addr, _)| aligned(*addr)));
            let depths = (1u32 << qp.log_sq, 1u32 << qp.log_rq);
            assert_eq!(depths, (config.send_depth, config.recv_depth));
            assert_eq!(qp.send_tag, 5);
            assert_eq!((qp.qpn, qp.send_cq.cqn, qp.recv_cq.cqn), (5, 6, 7));
            assert_eq!((qp.doorbell, qp.scratch_lkey, qp.timeout_ns), (0x1000, 8, 9));
        }
    }

    #[test]
    fn an_endpoint_without_receives_exports_none() {
        let (_memory, qp) = exported(&EndpointConfig::host().recv_depth(0));
        assert_eq!((qp.rq, qp.rq_ready, qp.send_tag), (0, 0, 0x8000_0005));
    }
}
