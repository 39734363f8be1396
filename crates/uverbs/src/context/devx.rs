//! Memory and objects of firmware commands ("DevX"): umems, and CQs and QPs made by mailboxes.
//!
//! They are the objects that verbs make, reached by the numbers in mailboxes instead of handles.
//! Queues lie in umems whether the mailbox says so or not: the kernel sets those bits itself.

use super::modify::change_qp;
use super::{Context, handle_bytes};
use crate::abi::{ModifyQp, QpCap};
use crate::call::Call;
use crate::device::{CqRequest, Device, OpenQp, QpRequest, QpStatus, Queues, SrqRequest};
use crate::objects::{Made, Object, Objects, QpObject, SrqObject, Umem};
use crate::schema::{Class, DRIVER};
use crate::{Driver, Errno, Refusal};
use warpverbs_mlx5::prm::{
    ANSWER_NUMBER, ANSWER_QP_CONTEXT, AddressPath, Command, CqContext, QpContext, RmpChange,
    RmpContext, Status, Transition, UmemBuffer,
};
use warpverbs_rdma::{AttrMask, QpState, Service};

/// `IB_QP_STATE`.
const STATE: u32 = 1;
/// Services of a QP context: reliable connection, initiator of dynamic connections.
const RC: u32 = 0;
const DC_INITIATOR: u32 = 5;
/// `rq_type`: an own queue, an SRQ, none.
const RQ_OWN: u32 = 0;
const RQ_SRQ: u32 = 1;
const RQ_NONE: u32 = 3;
/// Options of a transition, and the right of peers (`IB_ACCESS_*`) that each gives: READs, atomics,
/// WRITEs.
const RIGHTS: [(u32, u32); 3] = [(1 << 1, 1 << 2), (1 << 2, 1 << 3), (1 << 3, 1 << 1)];
/// Of a receive memory pool: a list or a ring of WQEs, and its one state.
const WQ_RING: u32 = 1;
const RMP_READY: u32 = 1;
/// Code of the smallest MTU.
const MTU_256: u32 = 1;
/// State of a QP in SQD with work in flight.
const SQ_DRAINING: u32 = 7;
/// Attributes that say what there is to say of the one peer of a connection.
const OF_ONE_PEER: AttrMask = AttrMask::ACCESS
    .union(AttrMask::PATH)
    .union(AttrMask::DEST_QPN)
    .union(AttrMask::RQ_PSN)
    .union(AttrMask::MIN_RNR_TIMER)
    .union(AttrMask::MAX_DEST_RD_ATOMIC);
/// A receive has at most 2^10 bytes.
const MAX_LOG_STRIDE: u32 = 10;

/// A firmware command that fails: what its answer says, and why.
struct Failure {
    status: Status,
    why: Refusal,
}

fn failure(status: Status, why: impl Into<std::borrow::Cow<'static, str>>) -> Failure {
    Failure { status, why: Refusal::new(Errno::EREMOTEIO, why) }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let status = match refusal.errno {
            Errno::ENOMEM => Status::Limit,
            _ => Status::BadParameter,
        };
        failure(status, refusal.why)
    }
}

/// A number of log2, if the shift is possible.
fn entries(what: &str, log: u32, max: u32) -> Result<u8, Failure> {
    match 1u64.checked_shl(log) {
        Some(entries) if entries <= u64::from(max) => Ok(log as u8),
        _ => {
            Err(failure(Status::BadParameter, format!("2^{log} entries of {what}, at most {max}")))
        }
    }
}

impl<D: Device> Context<D> {
    pub(super) fn query_uar(&self, call: &mut Call) -> Result<(), Refusal> {
        let page = call.word(DRIVER);
        self.objects.uar(page)?;
        call.answer(DRIVER + 1, page.to_ne_bytes());
        Ok(())
    }

    fn firmware(&self) -> Firmware<'_, D> {
        let (device, objects) = (&self.device, &self.objects);
        Firmware { device, objects, has_user_indexes: self.has_user_indexes() }
    }

    pub(super) fn create_by_mailbox(&mut self, call: &mut Call) -> Result<(), Refusal> {
        let mailbox = call.bytes(DRIVER + 1).unwrap_or(&[]);
        let firmware = self.firmware();
        let made = match parse(mailbox) {
            Ok(Command::CreateCq { context, buffer }) => firmware.make_cq(&context, &buffer),
            Ok(Command::CreateQp { context, buffer, .. }) => firmware.make_qp(&context, &buffer),
            Ok(Command::CreateRmp { context }) => firmware.make_rmp(&context),
            Ok(other) => Err(failure(Status::BadOpcode, format!("not modelled: {other:x?}"))),
            Err(failed) => Err(failed),
        };
        let (object, number, uses) = answer_failure(call, DRIVER + 2, made)?;
        let handle = self.add_made(call, object, Made { number, by_mailbox: true }, &uses)?;
        call.answer(DRIVER, handle_bytes(handle));
        let mut answer = vec![0; call.room(DRIVER + 2).unwrap_or(0)];
        if let Some(place) = answer.get_mut(ANSWER_NUMBER..ANSWER_NUMBER + 4) {
            place.copy_from_slice(&number.to_be_bytes());
        }
        call.answer(DRIVER + 2, answer);
        Ok(())
    }

    pub(super) fn modify_by_mailbox(&mut self, call: &mut Call) -> Result<(), Refusal> {
        let handle = call.handle(DRIVER).unwrap_or(u32::MAX);
        let done = parse(call.bytes(DRIVER + 1).unwrap_or(&[])).and_then(|command| {
            if let Command::ModifyRmp { change, context } = command {
                return self.firmware().change_pool(handle, &change, &context);
            }
            let request = self.firmware().transition(handle, command)?;
            let request = ModifyQp { qp_handle: handle, ..request };
            Ok(change_qp(&self.device, &mut self.objects, &request, &[])?)
        });
        answer_failure(call, DRIVER + 2, done)?;
        let answer = vec![0; call.room(DRIVER + 2).unwrap_or(0)];
        call.answer(DRIVER + 2, answer);
        Ok(())
    }

    pub(super) fn query_by_mailbox(&mut self, call: &mut Call) -> Result<(), Refusal> {
        let handle = call.handle(DRIVER).unwrap_or(u32::MAX);
        let room = call.room(DRIVER + 2).unwrap_or(0);
        let done = parse(call.bytes(DRIVER + 1).unwrap_or(&[])).and_then(|command| {
            let Command::QueryQp { qpn } = command else {
                return Err(failure(Status::BadOpcode, format!("not modelled: {command:x?}")));
            };
            self.firmware().check_number(handle, qpn)?;
            let mut answer = vec![0; room];
            let Some(place) =
                answer.get_mut(ANSWER_QP_CONTEXT..ANSWER_QP_CONTEXT + QpContext::SIZE)
            else {
                return Err(failure(Status::BadOutputLength, format!("{room} bytes of answer")));
            };
            let qp = self.objects.any_qp(handle)?;
            context_of(&self.device.query_qp(&qp.qp), qp.service, &qp.attrs).emit(place);
            Ok(answer)
        });
        let answer = answer_failure(call, DRIVER + 2, done)?;
        call.answer(DRIVER + 2, answer);
        Ok(())
    }
}

/// The objects of a context as firmware knows them: mailboxes name them by numbers.
struct Firmware<'a, D: Device> {
    device: &'a D,
    objects: &'a Objects<D>,
    has_user_indexes: bool,
}

impl<D: Device> Firmware<'_, D> {
    /// The handle of a umem, and the address of `bytes` bytes at `offset` in it.
    fn umem(&self, id: u32, offset: u64, bytes: u64) -> Result<(u32, u64), Failure> {
        let handle = id.wrapping_sub(1);
        let Ok(Umem { start, len }) = self.objects.umem(handle) else {
            return Err(failure(Status::BadResource, format!("there is no umem {id:#x}")));
        };
        match offset.checked_add(bytes) {
            Some(end) if end <= *len => Ok((handle, start + offset)),
            _ => {
                let why = format!("{bytes:#x} bytes at {offset:#x} of a umem of {len:#x}");
                Err(failure(Status::BadParameter, why))
            }
        }
    }

    /// The handle of an object that a mailbox names by its number.
    fn numbered(&self, class: Class, number: u32) -> Result<u32, Failure> {
        let missing = || failure(Status::BadResource, format!("there is no {class:?} {number:#x}"));
        self.objects.numbered(class, number).ok_or_else(missing)
    }

    fn make_cq(
        &self,
        context: &CqContext,
        buffer: &UmemBuffer,
    ) -> Result<(Object<D>, u32, Vec<u32>), Failure> {
        let profile = self.device.profile();
        let log_size = entries("the CQ", context.log_cq_size, profile.max_cqe)?;
        let cqe_size = match context.cqe_size {
            0 => 64,
            1 => 128,
            size => return Err(failure(Status::BadParameter, format!("CQEs of size {size}"))),
        };
        if !(1..=profile.comp_vectors).contains(&context.c_eqn) {
            return Err(failure(Status::BadResource, format!("there is no EQ {}", context.c_eqn)));
        }
        self.objects.uar(context.uar_page)?;
        let bytes = u64::from(cqe_size) << log_size;
        let (buf_umem, buf) = self.umem(buffer.umem, buffer.offset, bytes)?;
        let (dbr_umem, dbr) = self.umem(context.dbr_umem_id, context.dbr_addr, 8)?;
        let request = CqRequest {
            driver: Driver::Mlx5,
            log_size,
            cqe_size,
            buf,
            dbr,
            ignore_overrun: context.ignore_overrun != 0,
            collapsed: context.collapsed != 0,
            user_handle: 0,
            reported: true,
        };
        let (cq, number) = self.device.create_cq(&request, None)?;
        Ok((Object::Cq(cq), number, vec![buf_umem, dbr_umem]))
    }

    /// A receive memory pool is an SRQ; its WQEs may also be a ring.
    fn make_rmp(&self, context: &RmpContext) -> Result<(Object<D>, u32, Vec<u32>), Failure> {
        if context.limit != 0 {
            return Err(failure(Status::BadParameter, "a limit of a pool that is new"));
        }
        if context.wq_type > WQ_RING || context.state != RMP_READY {
            let why = format!("a pool of type {} in state {}", context.wq_type, context.state);
            return Err(failure(Status::BadParameter, why));
        }
        let max = self.device.profile().max_srq_wr;
        let log_size = entries("the pool", context.log_size, max)?;
        if !(5..=MAX_LOG_STRIDE).contains(&context.log_stride) {
            let why = format!("receives of 2^{} bytes, expected 2^5 to 2^10", context.log_stride);
            return Err(failure(Status::BadParameter, why));
        }
        let log_stride = context.log_stride as u8;
        let bytes = 1u64 << (log_size + log_stride);
        let (buf_umem, buf) = self.umem(context.wq_umem_id, context.wq_umem_offset, bytes)?;
        let (dbr_umem, dbr) = self.umem(context.dbr_umem_id, context.dbr_addr, 4)?;
        let pd = self.numbered(Class::Pd, context.pd)?;
        let ring = context.wq_type == WQ_RING;
        let request = SrqRequest { driver: Driver::Mlx5, ring, log_size, log_stride, buf, dbr };
        let (srq, number) = self.device.create_srq(self.objects.pd(pd)?, &request)?;
        let (max_wr, max_sge) = (1 << log_size, (1 << log_stride) / 16 - 1);
        let object = Object::Srq(SrqObject { srq, max_wr, max_sge });
        Ok((object, number, vec![pd, buf_umem, dbr_umem]))
    }

    fn make_qp(
        &self,
        context: &QpContext,
        buffer: &UmemBuffer,
    ) -> Result<(Object<D>, u32, Vec<u32>), Failure> {
        let service = match context.service {
            RC => Service::Connected,
            DC_INITIATOR => Service::DcInitiator,
            other => {
                let why = format!("a QP of service {other}, only connections (0) and DCIs (5)");
                return Err(failure(Status::BadParameter, why));
            }
        };
        if !matches!(context.cs_req, 0 | 0x11 | 0x22) || context.cs_res > 2 {
            let why = format!("payload in CQEs as {:#x}, {:#x}", context.cs_req, context.cs_res);
            return Err(failure(Status::BadParameter, why));
        }
        let uar = self.objects.uar(context.uar_page)?;
        let max = self.device.profile().max_qp_wr;
        let log_sq = match context.no_sq {
            0 => Some(entries("the send queue", context.log_sq_size, max)?),
            _ => None,
        };
        let (mut rq, mut srq) = (None, None);
        match context.rq_type {
            // In units of 16 bytes.
            RQ_OWN => {
                let log = entries("the receive queue", context.log_rq_size, max)?;
                rq = Some((log, context.log_rq_stride as u8 + 4));
            }
            RQ_SRQ => srq = Some(self.numbered(Class::Srq, context.srqn)?),
            RQ_NONE => {}
            kind => return Err(failure(Status::BadParameter, format!("receives of kind {kind}"))),
        }
        let bytes = rq.map_or(0, |(log, stride)| 1u64 << (log + stride))
            + log_sq.map_or(0, |log| 64u64 << log);
        let (buf_umem, buf) = self.umem(buffer.umem, buffer.offset, bytes)?;
        let (dbr_umem, dbr) = self.umem(context.dbr_umem_id, context.dbr_addr, 8)?;
        let pd = self.numbered(Class::Pd, context.pd)?;
        // A half that has no queue needs no CQ either.
        let cqn = |number, other, queue: bool| if queue || number != 0 { number } else { other };
        let (cqn_send, cqn_receive) = (context.cqn_send, context.cqn_receive);
        let send_cq = self.numbered(Class::Cq, cqn(cqn_send, cqn_receive, log_sq.is_some()))?;
        let receives = context.rq_type != RQ_NONE;
        let recv_cq = self.numbered(Class::Cq, cqn(cqn_receive, cqn_send, receives))?;
        let cap = QpCap::default();
        let user_index = self.has_user_indexes.then_some(context.user_index);
        let request = QpRequest {
            service,
            buf,
            dbr,
            log_sq,
            rq,
            user_index,
            scatter_requests: context.cs_req != 0,
            scatter_receives: context.cs_res != 0,
            cap,
            queues: Queues::Mlx5,
        };
        let with = OpenQp {
            pd: self.objects.pd(pd)?,
            send_cq: self.objects.any_cq(send_cq)?,
            recv_cq: self.objects.any_cq(recv_cq)?,
            srq: srq.map(|srq| self.objects.any_srq(srq)).transpose()?,
            uar: Some(uar),
        };
        let (qp, number) = self.device.create_qp(&request, with)?;
        let attrs = ModifyQp::default();
        let object = Object::Qp(Box::new(QpObject { qp, cap, attrs, signals_all: false, service }));
        let uses = [Some(pd), Some(send_cq), Some(recv_cq), srq, Some(buf_umem), Some(dbr_umem)];
        Ok((object, number, uses.into_iter().flatten().collect()))
    }

    /// A transition of the QP with this handle, as verbs ask for it.
    fn transition(&self, handle: u32, command: Command) -> Result<ModifyQp, Failure> {
        Ok(match command {
            Command::ModifyQp { transition, qpn, options, context, path } => {
                self.check_number(handle, qpn)?;
                let qp = self.objects.any_qp(handle)?;
                check_service(qp.service, &context, &path)?;
                let mut request =
                    transition_request(transition, options, (&context, &path), &qp.attrs)?;
                if qp.service == Service::DcInitiator {
                    request.attr_mask &= !OF_ONE_PEER.bits();
                }
                request
            }
            Command::QpToErr { qpn } => {
                self.check_number(handle, qpn)?;
                to_state(QpState::Err)
            }
            Command::QpToReset { qpn } => {
                self.check_number(handle, qpn)?;
                to_state(QpState::Reset)
            }
            other => return Err(failure(Status::BadOpcode, format!("{other:x?}"))),
        })
    }

    /// Only the limit of a pool can be changed, and its state is one.
    fn change_pool(
        &self,
        handle: u32,
        change: &RmpChange,
        context: &RmpContext,
    ) -> Result<(), Failure> {
        if self.numbered(Class::Srq, change.number)? != handle {
            let why = format!("pool {:#x} has another handle", change.number);
            return Err(failure(Status::BadResource, why));
        }
        let only = RmpContext { state: RMP_READY, limit: context.limit, ..Default::default() };
        if (change.state, change.limit) != (RMP_READY, 1) || *context != only {
            let why = format!("a change of a pool to {context:x?}, only its limit can be");
            return Err(failure(Status::BadParameter, why));
        }
        Ok(self.objects.any_pool(handle)?.set_limit(self.device, context.limit)?)
    }

    /// The object with this handle is the QP with this number.
    fn check_number(&self, handle: u32, qpn: u32) -> Result<(), Failure> {
        match self.numbered(Class::Qp, qpn)? == handle {
            true => Ok(()),
            false => Err(failure(Status::BadResource, format!("QP {qpn:#x} has another handle"))),
        }
    }
}

fn parse(mailbox: &[u8]) -> Result<Command, Failure> {
    Command::parse(mailbox).map_err(|error| failure(error.status(), error.to_string()))
}

/// Puts the status of a command that failed into its answer.
fn answer_failure<T>(call: &mut Call, id: u16, done: Result<T, Failure>) -> Result<T, Refusal> {
    done.map_err(|Failure { status, why }| {
        let mut answer = vec![0; call.room(id).unwrap_or(0)];
        status.emit(0, &mut answer);
        call.answer(id, answer);
        why
    })
}

fn to_state(state: QpState) -> ModifyQp {
    ModifyQp { attr_mask: STATE, qp_state: state as u8, ..Default::default() }
}

/// An initiator of dynamic connections has no peer, and nothing else has a key of theirs.
fn check_service(service: Service, context: &QpContext, path: &AddressPath) -> Result<(), Failure> {
    let QpContext { remote_read, remote_write, remote_atomic, .. } = context;
    let alien = match service {
        Service::DcInitiator => {
            let peer = remote_read | remote_write | remote_atomic | context.remote_qpn;
            u64::from(peer) | path.rgid_high | path.rgid_low
        }
        _ => context.dc_access_key,
    };
    match alien {
        0 => Ok(()),
        _ => Err(failure(Status::BadParameter, format!("not of {service:?}: {context:x?}"))),
    }
}

/// A transition as verbs ask for it. Attributes for which the context has no field have the
/// value that a port has anyway.
fn transition_request(
    transition: Transition,
    options: u32,
    (context, path): (&QpContext, &AddressPath),
    kept: &ModifyQp,
) -> Result<ModifyQp, Failure> {
    let mut optional = AttrMask::empty();
    let mut access =
        context.remote_write << 1 | context.remote_read << 2 | context.remote_atomic << 3;
    if transition != Transition::ResetToInit && transition != Transition::InitToInit {
        // Rights that are not given stay as they were.
        let given = RIGHTS.iter().filter(|(option, _)| options & option != 0);
        let given = given.fold(0, |all, (_, right)| all | right);
        access = kept.qp_access_flags & !given | access & given;
        optional.set(AttrMask::ACCESS, given != 0);
    }
    // Which others are given is not looked at where a transition needs them anyway.
    let unknown = options & !RIGHTS.iter().fold(0, |all, (option, _)| all | option);
    if unknown != 0 && matches!(transition, Transition::InitToInit | Transition::RtsToRts) {
        return Err(failure(Status::BadParameter, format!("options {unknown:#x} of a transition")));
    }
    // A port that was given before need not be given again.
    let port = match path.vhca_port_num as u8 {
        0 => kept.port_num,
        port => port,
    };
    let mut request = ModifyQp { qp_access_flags: access, port_num: port, ..Default::default() };
    let (state, mask) = match transition {
        Transition::ResetToInit | Transition::InitToInit => {
            request.pkey_index = path.pkey_index as u16;
            (QpState::Init, AttrMask::ACCESS | AttrMask::PKEY_INDEX | AttrMask::PORT)
        }
        Transition::InitToRtr => {
            request.dest.dgid[..8].copy_from_slice(&path.rgid_high.to_be_bytes());
            request.dest.dgid[8..].copy_from_slice(&path.rgid_low.to_be_bytes());
            request.dest.sgid_index = path.src_addr_index as u8;
            request.dest.hop_limit = path.hop_limit as u8;
            request.dest.traffic_class = path.tclass as u8;
            (request.dest.is_global, request.dest.port_num) = (1, port);
            request.path_mtu = context.mtu as u8;
            request.dest_qp_num = context.remote_qpn;
            request.rq_psn = context.next_receive_psn;
            request.min_rnr_timer = context.min_rnr_nak as u8;
            request.max_dest_rd_atomic = 1 << context.log_rra_max;
            let peer = AttrMask::PATH | AttrMask::MTU | AttrMask::DEST_QPN | AttrMask::RQ_PSN;
            (QpState::Rtr, peer | AttrMask::MIN_RNR_TIMER | AttrMask::MAX_DEST_RD_ATOMIC)
        }
        Transition::RtrToRts => {
            request.timeout = path.ack_timeout as u8;
            request.retry_cnt = context.retry_count as u8;
            request.rnr_retry = context.rnr_retry as u8;
            request.sq_psn = context.next_send_psn;
            request.max_rd_atomic = 1 << context.log_sra_max;
            let retries = AttrMask::TIMEOUT | AttrMask::RETRY | AttrMask::RNR_RETRY;
            (QpState::Rts, retries | AttrMask::SQ_PSN | AttrMask::MAX_RD_ATOMIC)
        }
        Transition::RtsToRts => (QpState::Rts, AttrMask::empty()),
    };
    (request.qp_state, request.attr_mask) = (state as u8, (mask | optional).bits() | STATE);
    Ok(request)
}

/// The context that QUERY_QP answers.
fn context_of(now: &QpStatus, service: Service, attrs: &ModifyQp) -> QpContext {
    // Firmware numbers the two states of an unfinished send queue the other way round.
    let state = match now.state {
        QpState::Sqd if now.draining => SQ_DRAINING,
        QpState::Sqd => QpState::Sqe as u32,
        QpState::Sqe => QpState::Sqd as u32,
        state => state as u32,
    };
    let log = |count: u8| u32::from(count).max(1).ilog2();
    QpContext {
        state,
        service: if service == Service::DcInitiator { DC_INITIATOR } else { RC },
        // The code of 256 bytes before a path is known: DOCA takes no other than those of MTUs.
        mtu: u32::from(attrs.path_mtu).max(MTU_256),
        remote_qpn: attrs.dest_qp_num,
        log_sra_max: log(attrs.max_rd_atomic),
        log_rra_max: log(attrs.max_dest_rd_atomic),
        retry_count: attrs.retry_cnt.into(),
        rnr_retry: attrs.rnr_retry.into(),
        min_rnr_nak: attrs.min_rnr_timer.into(),
        next_send_psn: now.sq_psn.unwrap_or(attrs.sq_psn),
        next_receive_psn: now.rq_psn.unwrap_or(attrs.rq_psn),
        remote_write: attrs.qp_access_flags >> 1 & 1,
        remote_read: attrs.qp_access_flags >> 2 & 1,
        remote_atomic: attrs.qp_access_flags >> 3 & 1,
        ..Default::default()
    }
}
