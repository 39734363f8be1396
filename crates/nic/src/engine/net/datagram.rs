//! QPs of unreliable datagrams: every SEND is one packet to the QP that its address vector names,
//! and complete when it is sent; a datagram that cannot be delivered is dropped at the receiver.

use super::envelope::GRH;
use super::{Connections, Network};
use crate::engine::access::{self, Spans, gather_mixed, gather_own};
use crate::engine::outcome::Refusal;
use crate::engine::outcome::{Started, Stop, local};
use crate::engine::report::Report;
use crate::engine::tables::Tables;
use crate::format::{
    DatagramSource, Destination, Op, Payload, Qpn as Mlx5Qpn, ReceivedKind, SendWith, Wqe,
};
use crate::objects::send::Executor;
use crate::slots::QpSlot;
use crate::violation::Rule;
use std::net::{Ipv6Addr, SocketAddr};
use warpverbs_link::{QpnPart, ROCE_PORT};
use warpverbs_mem::{Access, KeyTable, Kind, Span, scatter};
use warpverbs_rdma::Status;
use warpverbs_wire::{Bth, Deth, Extension, ImmDt, Opcode, Psn, Qpn, Transport, icrc};

/// Datagrams to QPs of the same NIC that wait at most; later ones are lost.
const OWN: usize = 256;
/// A queue key with this bit in a WQE stands for the sender's own (IBTA 10.2.5).
const OWN_QKEY: u32 = 1 << 31;

/// The datagram that one WQE sends.
struct Datagram<'a> {
    bth: Bth,
    ext: Extension,
    payload: Payload<'a>,
}

impl Network {
    /// Sends `wqe`, the next of the datagram QP in `slot`. `None`: nothing of it leaves this NIC.
    pub(crate) fn submit_datagram(
        &mut self,
        tables: &mut Tables,
        slot: QpSlot,
        wqe: &Wqe<'_>,
        now: u64,
    ) -> Option<Result<Started, Stop>> {
        let Op::SendTo { to, with, payload } = wqe.op else { return None };
        let sent = self.datagram_from(tables, slot, wqe, &to, (with, payload));
        let sent =
            sent.and_then(|(datagram, to)| self.post_datagram(tables, slot, &datagram, to, now));
        Some(sent.map(|()| Started { away: false, brought: 0, delivery: None }))
    }

    fn datagram_from<'a>(
        &self,
        tables: &mut Tables,
        slot: QpSlot,
        wqe: &Wqe<'_>,
        to: &Destination,
        (with, payload): (SendWith, Payload<'a>),
    ) -> Result<(Datagram<'a>, SocketAddr), Stop> {
        // A path without a link was refused.
        let link = self.link.as_ref().ok_or(Stop::NoAnswer)?;
        let q = tables.sends.live_mut(slot).ok_or(Stop::NoAnswer)?;
        let (len, max) = (payload.byte_len(), link.max_mtu().bytes() as u64);
        if len > max {
            return Err(local(Rule::MessageLength { len, max }));
        }
        let peer = SocketAddr::new(Ipv6Addr::from(to.gid).to_canonical(), ROCE_PORT);
        let reached = peer.is_ipv4() == link.local().is_ipv4()
            && !peer.ip().is_unspecified()
            && !peer.ip().is_multicast();
        if !reached {
            return Err(local(Rule::DatagramAddress { gid: to.gid }));
        }
        let qkey = match to.qkey & OWN_QKEY {
            0 => to.qkey,
            _ => q.attrs.qkey.unwrap_or(0),
        };
        let deth = Deth { qkey, src_qpn: Qpn::from_low_bits(q.qpn.get()) };
        let (opcode, ext) = match with {
            SendWith::Imm(data) => {
                (Opcode::DatagramSendImm, Extension::DethImm(deth, ImmDt { data }))
            }
            _ => (Opcode::DatagramSend, Extension::Deth(deth)),
        };
        let (dest, psn) = (Qpn::from_low_bits(to.qpn.get()), Psn::from_low_bits(q.psn));
        let bth = Bth { solicited: wqe.flags.solicited, ..Bth::new(opcode, dest, psn) };
        Ok((Datagram { bth, ext, payload }, peer))
    }

    /// Puts a datagram into the train, or into the queue to this NIC itself.
    fn post_datagram(
        &mut self,
        tables: &mut Tables,
        slot: QpSlot,
        datagram: &Datagram<'_>,
        to: SocketAddr,
        now: u64,
    ) -> Result<(), Stop> {
        if !self.blocked.is_empty() {
            return Err(Stop::Drain);
        }
        let payload_len = datagram.payload.byte_len() as usize;
        let len = Transport::len_with(&datagram.ext, payload_len) + icrc::LEN;
        let mut result = Ok(());
        let part = QpnPart::of(datagram.bth.dest_qpn.get());
        let is_own = self.conns.envelopes.local.is_some_and(|local| local.ip() == to.ip());
        if is_own && part == tables.part {
            let mut bytes = vec![0; len];
            build(tables, slot, datagram, &mut bytes)?;
            if self.conns.datagrams.own.len() < OWN {
                self.conns.datagrams.own.push_back(bytes);
            }
        } else {
            self.open_train((to, part), None, len, now);
            self.append(len, |_, bytes| {
                result = build(tables, slot, datagram, bytes);
                result.is_ok()
            });
        }
        if result.is_ok()
            && let Some(q) = tables.sends.live_mut(slot)
        {
            q.psn = (q.psn + 1) & 0xff_ffff;
        }
        result
    }
}

/// Writes a datagram, and zeros in the place of its ICRC.
fn build(
    tables: &mut Tables,
    slot: QpSlot,
    datagram: &Datagram<'_>,
    bytes: &mut [u8],
) -> Result<(), Stop> {
    let Datagram { bth, ext, payload } = datagram;
    let ib = bytes.len() - icrc::LEN;
    let len = payload.byte_len() as usize;
    // Headers are those of the opcode, and the length was checked.
    let range =
        Transport::emit_around(bth, ext, len, &mut bytes[..ib]).map_err(|_| Stop::NoAnswer)?;
    let mut rest = &mut bytes[range];
    match payload {
        Payload::Inline(inline) => rest.copy_from_slice(inline),
        Payload::Mixed(mixed) => {
            let Tables { keys, sends, .. } = tables;
            let q = sends.live_mut(slot).ok_or(Stop::NoAnswer)?;
            rest.copy_from_slice(&gather_mixed(keys, q, mixed)?);
        }
        Payload::Sges(sges) => {
            let Tables { keys, sends, .. } = tables;
            let q = sends.live_mut(slot).ok_or(Stop::NoAnswer)?;
            let mut spans = Spans::new();
            gather_own(keys, q, sges, Access::empty(), &mut spans)?;
            on_host(&spans).map_err(local)?;
            for span in &spans {
                let (now, later) = rest.split_at_mut(span.len as usize);
                span.region.read(span.offset, now)?;
                rest = later;
            }
        }
    }
    Ok(())
}

/// Datagrams use memory that the CPU reaches.
fn on_host(spans: &[Span<'_>]) -> Result<(), Rule> {
    let other = spans.iter().map(|span| span.region.kind()).find(|kind| *kind != Kind::Host);
    other.map_or(Ok(()), |kind| Err(Rule::CopyFailed { kind }))
}

impl Connections {
    /// A packet from `from` to a QP that has no connection: `slot`, if there is such a QP.
    #[cold]
    pub(super) fn arrived_unconnected(
        &mut self,
        tables: &mut Tables,
        slot: Option<QpSlot>,
        from: SocketAddr,
        packet: Option<&Transport<'_>>,
    ) {
        let rq = slot.and_then(|slot| tables.receives.live(slot));
        let takes = rq.filter(|rq| rq.executor == Executor::Datagram && rq.state.responds());
        let (Some(rq), Some(packet)) = (takes, packet) else {
            self.stats.unknown_qp += 1;
            return;
        };
        let (deth, kind) = match packet.ext {
            Extension::Deth(deth) => (deth, ReceivedKind::Send),
            Extension::DethImm(deth, imm) => (deth, ReceivedKind::SendImm(imm.data)),
            _ => {
                self.stats.malformed += 1;
                return;
            }
        };
        if deth.qkey != rq.grants.qkey {
            self.stats.wrong_qkey += 1;
            return;
        }
        let (slot, grh) = (rq.slot, self.envelopes.route_header(from, packet));
        let Some((grh, ipv6)) = grh else {
            self.stats.malformed += 1;
            return;
        };
        let qpn = Mlx5Qpn::new(deth.src_qpn.get()).unwrap_or_default();
        let from = Some(DatagramSource { qpn, ipv6 });
        match self.place_datagram(tables, slot, &grh, packet.payload) {
            Ok((index, byte_cnt)) => {
                let solicited = packet.bth.solicited;
                self.reports.push(Report::Received {
                    slot,
                    index,
                    kind,
                    byte_cnt,
                    solicited,
                    from,
                });
            }
            Err(Refusal::NotReady { .. }) => self.stats.no_receive += 1,
            Err(Refusal::TooLong(_)) => {
                let index = self.datagrams.current;
                let status = Status::LocalLength;
                self.reports.push(Report::ReceiveFailed { slot, index, status, vendor: None });
                self.reports.push(Report::Ended { slot, status: None });
            }
            Err(refusal) => {
                self.reports.push(Report::Refused { slot, refusal: Some(refusal) });
            }
        }
    }

    /// Writes a datagram into the next receive: its index, and the bytes written.
    fn place_datagram(
        &mut self,
        tables: &mut Tables,
        slot: QpSlot,
        grh: &[u8; GRH],
        payload: &[u8],
    ) -> Result<(u64, u32), Refusal> {
        let Tables { keys, receives, srqs, scratch, .. } = tables;
        let keys: &KeyTable = keys;
        let rq = receives.live_mut(slot).ok_or(Refusal::NotReady { timer: 0 })?;
        let receive = match access::check_receive(rq, srqs, scratch) {
            Ok(receive) => receive,
            Err(refusal) => {
                rq.refuse = rq.refuse.saturating_sub(1);
                return Err(refusal);
            }
        };
        let (index, link) = receive.place();
        let (len, room) = ((GRH + payload.len()) as u64, receive.sges.byte_len());
        let sges = receive.sges.iter();
        let mut spans = Spans::new();
        let checked = match len > room {
            true => Err(Refusal::TooLong(Rule::ReceiveTooSmall { len, room })),
            false => access::check_scatter(keys, rq, srqs, index, sges, 0..len, &mut spans),
        };
        self.datagrams.current = index;
        let limit = access::take(rq, srqs, index, link);
        self.reports.extend(limit.map(Report::Event));
        checked?;
        let broken = |rule| Refusal::Operational { rule, receive: Some(index) };
        on_host(&spans).map_err(broken)?;
        self.datagrams.buffer.clear();
        self.datagrams.buffer.extend_from_slice(grh);
        self.datagrams.buffer.extend_from_slice(payload);
        match scatter(&spans, &self.datagrams.buffer) {
            Ok([]) => Ok((index, len as u32)),
            _ => Err(broken(Rule::CopyFailed { kind: Kind::Host })),
        }
    }
}
