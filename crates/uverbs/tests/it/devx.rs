//! Objects that firmware commands make, and what they share with verbs.

use crate::common::call::{Call, Program};
use warpverbs_mlx5::prm::{
    AddressPath, Command, CqContext, MAX_COMMAND, QpContext, RmpChange, RmpContext, Status,
    Transition, UmemBuffer, opcode,
};
use warpverbs_rdma::{Mtu, QpState, Service};
use warpverbs_uverbs::{CqRequest, Driver, Errno, Fault, QpRequest, Queues, Refusal, SrqRequest};

const DRIVER: u16 = 0x1000;
/// Answers have room for the longest, that of QUERY_QP.
const ROOM: u16 = 0x100;

fn mailbox(command: &Command) -> Vec<u8> {
    let mut bytes = [0; MAX_COMMAND];
    let len = command.emit(&mut bytes);
    bytes[..len].to_vec()
}

/// Registers a umem; its handle and number.
fn umem(program: &mut Program, start: u64, len: u64) -> Result<(u32, u32), Refusal> {
    let mut call = Call::new(0x1002, DRIVER);
    call.handle(DRIVER, 0).number(DRIVER + 1, start, 8).number(DRIVER + 2, len, 8);
    let id = call.number(DRIVER + 3, 1, 4).output(DRIVER + 4, 4).last();
    program.make(&call)?;
    Ok((program.data(0) as u32, program.memory.word(id)))
}

/// Makes a call of method `method` of DEVX_OBJ; where its answer is.
fn object_call(
    program: &mut Program,
    method: u16,
    handle: u32,
    command: &Command,
) -> (Result<(), Refusal>, u64) {
    let mut call = Call::new(0x1001, DRIVER + method);
    call.handle(DRIVER, handle.into()).input(&program.memory, DRIVER + 1, &mailbox(command));
    let answer = call.output(DRIVER + 2, ROOM).last();
    (program.make(&call), answer)
}

/// Makes an object; its handle and number, or the status in the answer.
pub(super) fn create(program: &mut Program, command: &Command) -> Result<(u32, u32), u8> {
    let (made, answer) = object_call(program, 0, 0, command);
    let bytes: [u8; 12] = program.memory.get(answer);
    match made {
        Ok(()) => {
            let number = u32::from_be_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
            Ok((program.data(0) as u32, number))
        }
        Err(refusal) => {
            assert_eq!(refusal.errno, Errno::EREMOTEIO, "{refusal}");
            Err(bytes[0])
        }
    }
}

pub(super) fn modify(program: &mut Program, handle: u32, command: &Command) -> Result<(), u8> {
    let (done, answer) = object_call(program, 2, handle, command);
    let [status] = program.memory.get(answer);
    done.map_err(|_| status)
}

fn destroy(program: &mut Program, object: u16, method: u16, handle: u32) -> Result<(), Errno> {
    program.make(&Call::destroy(object, method, handle)).map_err(|refusal| refusal.errno)
}

/// A program with a protection domain, a doorbell page, and a umem of 0x10000 bytes.
pub(super) struct Ready {
    pub(super) program: Program,
    pd: u32,
    pdn: u32,
    page: u32,
    umem: (u32, u32),
}

pub(super) fn ready() -> Ready {
    let mut program = Program::open();
    let (core, uhw) = program.write_command(3, &[0; 8], 4, 4).unwrap();
    let (pd, pdn) = (program.memory.word(core), program.memory.word(uhw));
    let (_, page) = program.uar();
    let umem = umem(&mut program, 0x7000_0000, 0x10000).unwrap();
    Ready { program, pd, pdn, page, umem }
}

impl Ready {
    fn cq(&self) -> (CqContext, UmemBuffer) {
        let (dbr_umem_id, umem) = (self.umem.1, self.umem.1);
        let context = CqContext {
            dbr_umem_valid: 1,
            dbr_umem_id,
            dbr_addr: 0x40,
            log_cq_size: 6,
            uar_page: self.page,
            c_eqn: 1,
            ..Default::default()
        };
        (context, UmemBuffer { offset: 0x1000, umem, valid: 1 })
    }

    pub(super) fn qp(&self, cqn: u32) -> (QpContext, UmemBuffer) {
        let context = QpContext {
            pd: self.pdn,
            path_migration: 3,
            log_rq_size: 5,
            log_rq_stride: 1,
            log_sq_size: 4,
            uar_page: self.page,
            user_index: 77,
            cs_req: 0x22,
            cqn_send: cqn,
            cqn_receive: cqn,
            dbr_umem_valid: 1,
            dbr_umem_id: self.umem.1,
            dbr_addr: 0x80,
            ts_format: 1,
            ..Default::default()
        };
        (context, UmemBuffer { offset: 0x4000, umem: self.umem.1, valid: 1 })
    }

    pub(super) fn create_cq(&mut self) -> (u32, u32) {
        let (context, buffer) = self.cq();
        create(&mut self.program, &Command::CreateCq { context, buffer }).unwrap()
    }

    pub(super) fn create_qp(&mut self, cqn: u32) -> (u32, u32) {
        let (context, buffer) = self.qp(cqn);
        let path = AddressPath::default();
        create(&mut self.program, &Command::CreateQp { context, path, buffer }).unwrap()
    }
}

pub(super) fn transition(transition: Transition, qpn: u32) -> Command {
    let gid = u128::from_be_bytes(std::array::from_fn(|i| i as u8 + 1));
    let (rgid_high, rgid_low) = ((gid >> 64) as u64, gid as u64);
    let path = AddressPath {
        vhca_port_num: 1,
        rgid_high,
        rgid_low,
        hop_limit: 64,
        ack_timeout: 14,
        ..Default::default()
    };
    let context = QpContext {
        remote_write: 1,
        remote_read: 1,
        mtu: 3,
        log_msg_max: 30,
        remote_qpn: 0x1234,
        next_receive_psn: 5,
        next_send_psn: 6,
        min_rnr_nak: 12,
        log_rra_max: 2,
        log_sra_max: 3,
        retry_count: 7,
        rnr_retry: 6,
        ..Default::default()
    };
    Command::ModifyQp { transition, qpn, options: 0, context, path }
}

#[test]
fn queues_lie_in_umems() {
    let mut r = ready();
    let (_, cqn) = r.create_cq();
    let expected = CqRequest {
        driver: Driver::Mlx5,
        log_size: 6,
        cqe_size: 64,
        buf: 0x7000_1000,
        dbr: 0x7000_0040,
        ignore_overrun: false,
        collapsed: false,
        user_handle: 0,
        reported: true,
    };
    assert_eq!(r.program.model.seen.borrow().cq, Some(expected));
    // The kernel says itself that umems are used; UCX leaves it to it.
    let (context, buffer) = r.qp(cqn);
    let context = QpContext { dbr_umem_valid: 0, ..context };
    let (buffer, path) = (UmemBuffer { valid: 0, ..buffer }, AddressPath::default());
    create(&mut r.program, &Command::CreateQp { context, path, buffer }).unwrap();
    let expected = QpRequest {
        service: Service::Connected,
        buf: 0x7000_4000,
        dbr: 0x7000_0080,
        log_sq: Some(4),
        rq: Some((5, 5)),
        user_index: Some(77),
        scatter_requests: true,
        scatter_receives: false,
        cap: Default::default(),
        queues: Queues::Mlx5,
    };
    assert_eq!(r.program.model.seen.borrow().qp, Some(expected));
    assert_eq!(r.program.model.seen.borrow().uar, Some(r.page));
}

#[test]
fn a_half_without_a_queue_needs_no_cq() {
    let mut r = ready();
    let (_, cqn) = r.create_cq();
    let (context, buffer) = r.qp(cqn);
    let path = AddressPath::default();
    let sends = QpContext { rq_type: 3, cqn_receive: 0, ..context };
    let receives = QpContext { no_sq: 1, cqn_send: 0, ..context };
    for context in [sends, receives] {
        create(&mut r.program, &Command::CreateQp { context, path, buffer }).unwrap();
    }
    let made = |context| Command::CreateQp { context, path, buffer };
    for context in [
        QpContext { cqn_receive: 0, ..context },
        QpContext { cqn_send: 0, ..context },
        QpContext { cqn_receive: 0xff_ffff, ..sends },
        QpContext { no_sq: 1, cqn_send: 0, ..sends },
    ] {
        assert_eq!(create(&mut r.program, &made(context)), Err(5), "{context:x?}");
    }
}

/// The limit of a pool of 256 receives, and nothing else of it, is changed.
fn limits_change(program: &mut Program, pool: u32, number: u32) {
    let change = RmpChange { state: 1, number, limit: 1 };
    let context = RmpContext { state: 1, limit: 7, ..RmpContext::default() };
    for (change, context, status) in [
        (RmpChange { number: number + 1, ..change }, context, 5),
        (RmpChange { state: 0, ..change }, context, 3),
        (RmpChange { limit: 0, ..change }, context, 3),
        (change, RmpContext { state: 0, ..context }, 3),
        (change, RmpContext { log_size: 1, ..context }, 3),
        (change, RmpContext { limit: 256, ..context }, 3),
    ] {
        let done = modify(program, pool, &Command::ModifyRmp { change, context });
        assert_eq!(done, Err(status), "{change:?} {context:x?}");
    }
    let done = modify(program, pool, &Command::ModifyRmp { change, context });
    assert_eq!((done, program.model.seen.borrow().limit), (Ok(()), 7));
}

/// Calls that are to fail do, once each, and leave nothing; those that destroy are not counted.
#[test]
fn the_nth_call_fails_on_purpose() {
    let mut r = ready();
    let fault = |call, status| Fault { call, status };
    r.program.context.fail(fault(2, Status::NoResources));
    let before = r.program.context.objects();
    let (context, buffer) = r.cq();
    let command = Command::CreateCq { context, buffer };
    let (cq, _) = create(&mut r.program, &command).unwrap();
    assert_eq!(destroy(&mut r.program, 0x1001, 0x1001, cq), Ok(()));
    assert_eq!(create(&mut r.program, &command), Err(Status::NoResources as u8));
    assert_eq!(r.program.context.objects(), before);
    let (cq, _) = create(&mut r.program, &command).unwrap();
    assert_eq!(destroy(&mut r.program, 0x1001, 0x1001, cq), Ok(()));
    // Where there is no mailbox, the kernel's number for the status is all there is.
    for (status, errno) in [
        (Status::Limit, Errno::ENOMEM),
        (Status::NoResources, Errno::EAGAIN),
        (Status::BadParameter, Errno::EINVAL),
        (Status::Internal, Errno::EIO),
        (Status::Busy, Errno::EBUSY),
    ] {
        r.program.context.fail(fault(1, status));
        let refusal = umem(&mut r.program, 0x7000_0000, 0x1000).unwrap_err();
        assert_eq!(refusal.errno, errno, "{refusal}");
        assert!(refusal.to_string().contains("on purpose"), "{refusal}");
    }
    assert_eq!(r.program.context.objects(), before);
}

#[test]
fn a_receive_memory_pool_is_an_srq() {
    let mut r = ready();
    let (_, cqn) = r.create_cq();
    let good = RmpContext {
        state: 1,
        wq_type: 1,
        pd: r.pdn,
        dbr_addr: 0xc0,
        log_stride: 5,
        log_size: 8,
        dbr_umem_id: r.umem.1,
        wq_umem_id: r.umem.1,
        wq_umem_offset: 0x2000,
        ..RmpContext::default()
    };
    for (wrong, status) in [
        (RmpContext { state: 0, ..good }, 3),
        (RmpContext { limit: 1, ..good }, 3),
        (RmpContext { wq_type: 2, ..good }, 3),
        (RmpContext { log_stride: 4, ..good }, 3),
        (RmpContext { log_stride: 11, ..good }, 3),
        (RmpContext { log_size: 16, ..good }, 3),
        (RmpContext { wq_umem_offset: 0xe001, ..good }, 3),
        (RmpContext { dbr_addr: u64::MAX, ..good }, 3),
        (RmpContext { wq_umem_id: 0, ..good }, 5),
        (RmpContext { pd: 0xff_ffff, ..good }, 5),
    ] {
        let made = create(&mut r.program, &Command::CreateRmp { context: wrong });
        assert_eq!(made, Err(status), "{wrong:x?}");
    }
    for wq_type in [0, 1] {
        let context = RmpContext { wq_type, ..good };
        let (pool, number) = create(&mut r.program, &Command::CreateRmp { context }).unwrap();
        let expected = SrqRequest {
            driver: Driver::Mlx5,
            ring: wq_type == 1,
            log_size: 8,
            log_stride: 5,
            buf: 0x7000_2000,
            dbr: 0x7000_00c0,
        };
        assert_eq!(r.program.model.seen.borrow().srq, Some(expected));
        limits_change(&mut r.program, pool, number);
        // A QP takes its receives there, and keeps it.
        let (context, buffer) = r.qp(cqn);
        let context = QpContext { rq_type: 1, srqn: number, ..context };
        let path = AddressPath::default();
        let command = Command::CreateQp { context, path, buffer };
        let (qp, _) = create(&mut r.program, &command).unwrap();
        assert_eq!(destroy(&mut r.program, 0x1001, 0x1001, pool), Err(Errno::EBUSY));
        for handle in [qp, pool] {
            assert_eq!(destroy(&mut r.program, 0x1001, 0x1001, handle), Ok(()));
        }
    }
}

#[test]
fn transitions_carry_what_verbs_carry() {
    let mut r = ready();
    let (cq, cqn) = r.create_cq();
    let (qp, qpn) = r.create_qp(cqn);
    let steps = [Transition::ResetToInit, Transition::InitToRtr, Transition::RtrToRts];
    // Not in another order.
    let early = transition(Transition::RtrToRts, qpn);
    assert_eq!(modify(&mut r.program, qp, &early), Err(3));
    for step in steps {
        assert_eq!(modify(&mut r.program, qp, &transition(step, qpn)), Ok(()), "{step:?}");
    }
    // Rights that options name change, the others stay: atomics are given, READs taken away.
    let Command::ModifyQp { mut context, path, .. } = transition(Transition::RtsToRts, qpn) else {
        panic!("no transition")
    };
    (context.remote_write, context.remote_read, context.remote_atomic) = (0, 0, 1);
    let with = |options| {
        let transition = Transition::RtsToRts;
        Command::ModifyQp { transition, qpn, options, context, path }
    };
    assert_eq!(modify(&mut r.program, qp, &with(1 << 5)), Err(3));
    assert_eq!(modify(&mut r.program, qp, &with(0)), Ok(()));
    assert_eq!(r.program.model.seen.borrow_mut().attrs.pop().unwrap().1.access, None);
    assert_eq!(modify(&mut r.program, qp, &with(0b0110)), Ok(()));
    let changed = r.program.model.seen.borrow_mut().attrs.pop().unwrap();
    assert_eq!(changed.1.access, Some(2 | 8));
    let seen = r.program.model.seen.borrow().attrs.clone();
    let states: Vec<QpState> = seen.iter().map(|(state, _)| *state).collect();
    assert_eq!(states, [QpState::Init, QpState::Rtr, QpState::Rts]);
    assert_eq!(seen[0].1.access, Some(6));
    let rtr = seen[1].1;
    assert_eq!((rtr.mtu, rtr.dest_qpn, rtr.rq_psn), (Some(Mtu::B1024), Some(0x1234), Some(5)));
    assert_eq!((rtr.min_rnr_timer, rtr.max_dest_rd_atomic), (Some(12), Some(4)));
    assert_eq!(rtr.dgid, Some(std::array::from_fn(|i| i as u8 + 1)));
    let rts = seen[2].1;
    assert_eq!((rts.timeout, rts.retry, rts.rnr_retry), (Some(14), Some(7), Some(6)));
    assert_eq!((rts.sq_psn, rts.max_rd_atomic), (Some(6), Some(8)));
    // QUERY_QP says the same again.
    let (done, answer) = object_call(&mut r.program, 3, qp, &Command::QueryQp { qpn });
    done.unwrap();
    let bytes: [u8; 0x100] = r.program.memory.get(answer);
    let rest = |at: usize, len: usize| bytes[0x18 + at..0x18 + at + len].to_vec();
    // QpContext: state in the upper bits of word 0, remote QPN in word 0x14.
    assert_eq!((rest(0, 1), rest(0x15, 3)), (vec![0x30], vec![0, 0x12, 0x34]));
    // PSNs of the next packets, from the device.
    r.program.model.seen.borrow_mut().psns = (Some(0x55), Some(0x66));
    let (done, answer) = object_call(&mut r.program, 3, qp, &Command::QueryQp { qpn });
    done.unwrap();
    let bytes: [u8; 0x100] = r.program.memory.get(answer);
    let context = QpContext::parse(&bytes[0x18..]).unwrap();
    assert_eq!((context.next_send_psn, context.next_receive_psn), (0x55, 0x66));
    assert_eq!(modify(&mut r.program, qp, &Command::QpToErr { qpn }), Ok(()));
    assert_eq!(modify(&mut r.program, qp, &Command::QpToReset { qpn }), Ok(()));
    // The CQ and the umem are in use until the QP is gone.
    let umem = r.umem.0;
    assert_eq!(destroy(&mut r.program, 0x1002, 0x1001, umem), Err(Errno::EBUSY));
    assert_eq!(destroy(&mut r.program, 0x1001, 0x1001, cq), Err(Errno::EBUSY));
    for handle in [qp, cq] {
        assert_eq!(destroy(&mut r.program, 0x1001, 0x1001, handle), Ok(()));
    }
    assert_eq!(destroy(&mut r.program, 0x1002, 0x1001, umem), Ok(()));
}

#[test]
fn what_does_not_fit_is_refused_with_a_status() {
    let mut r = ready();
    let (context, buffer) = r.cq();
    let bad = |status: u8, context: CqContext, buffer: UmemBuffer, r: &mut Ready| {
        let made = create(&mut r.program, &Command::CreateCq { context, buffer });
        assert_eq!(made, Err(status), "{context:x?} {buffer:x?}");
    };
    bad(5, context, UmemBuffer { umem: 0, ..buffer }, &mut r);
    bad(5, context, UmemBuffer { umem: u32::MAX, ..buffer }, &mut r);
    // The handle of the protection domain, and not of a umem.
    bad(5, context, UmemBuffer { umem: r.pd + 1, ..buffer }, &mut r);
    bad(3, context, UmemBuffer { offset: 0xf001, ..buffer }, &mut r);
    bad(3, context, UmemBuffer { offset: u64::MAX, ..buffer }, &mut r);
    bad(3, CqContext { dbr_addr: 0xfffc, ..context }, buffer, &mut r);
    bad(3, CqContext { log_cq_size: 31, ..context }, buffer, &mut r);
    bad(3, CqContext { cqe_size: 2, ..context }, buffer, &mut r);
    bad(3, CqContext { uar_page: 99, ..context }, buffer, &mut r);
    bad(5, CqContext { c_eqn: 9, ..context }, buffer, &mut r);
    let (cq, cqn) = r.create_cq();
    let (context, buffer) = r.qp(cqn);
    let bad = |status: u8, context: QpContext, r: &mut Ready| {
        let path = AddressPath::default();
        let made = create(&mut r.program, &Command::CreateQp { context, path, buffer });
        assert_eq!(made, Err(status), "{context:x?}");
    };
    bad(5, QpContext { pd: 0xff_ffff, ..context }, &mut r);
    bad(5, QpContext { cqn_send: 0xff_ffff, ..context }, &mut r);
    bad(5, QpContext { rq_type: 1, srqn: 1, ..context }, &mut r);
    bad(3, QpContext { rq_type: 2, ..context }, &mut r);
    bad(3, QpContext { service: 3, ..context }, &mut r);
    bad(3, QpContext { cs_req: 1, ..context }, &mut r);
    bad(3, QpContext { cs_res: 3, ..context }, &mut r);
    bad(3, QpContext { log_sq_size: 15, log_rq_size: 15, ..context }, &mut r);
    let (qp, qpn) = r.create_qp(cqn);
    // Commands about another object than the handle's.
    assert_eq!(modify(&mut r.program, cq, &Command::QpToErr { qpn }), Err(5));
    assert_eq!(modify(&mut r.program, qp, &Command::QpToErr { qpn: cqn }), Err(5));
    assert_eq!(modify(&mut r.program, qp, &Command::QueryQp { qpn }), Err(2));
    let ends = Command::Destroy { opcode: opcode::DESTROY_QP, number: qpn };
    assert_eq!(create(&mut r.program, &ends), Err(2));
    assert_eq!(umem(&mut r.program, 8, 0).unwrap_err().errno, Errno::EINVAL);
    assert_eq!(umem(&mut r.program, u64::MAX, 2).unwrap_err().errno, Errno::EINVAL);
}

#[test]
fn verbs_do_not_take_objects_of_mailboxes() {
    let mut r = ready();
    let (cq, cqn) = r.create_cq();
    let (qp, _) = r.create_qp(cqn);
    assert_eq!(destroy(&mut r.program, 4, 1, qp), Err(Errno::EINVAL));
    assert_eq!(destroy(&mut r.program, 3, 1, cq), Err(Errno::EINVAL));
    assert_eq!(destroy(&mut r.program, 0x1001, 0x1001, r.pd), Err(Errno::EINVAL));
    let query = [[0; 8].as_slice(), &qp.to_ne_bytes(), &[0; 4]].concat();
    assert_eq!(r.program.write_command(25, &query, 128, 0).unwrap_err().errno, Errno::EINVAL);
}

#[test]
fn event_queues_and_pages_have_numbers() {
    let mut r = ready();
    let number = |method: u16, value: u32, r: &mut Ready| {
        let mut call = Call::new(0x1000, DRIVER + method);
        let at = call.number(DRIVER, value.into(), 4).output(DRIVER + 1, 4).last();
        r.program.make(&call).map(|()| r.program.memory.word(at)).map_err(|refusal| refusal.errno)
    };
    assert_eq!(number(2, 0, &mut r), Ok(1));
    assert_eq!(number(2, 1, &mut r), Err(Errno::EINVAL));
    let page = r.page;
    assert_eq!(number(1, page, &mut r), Ok(page));
    assert_eq!(number(1, 77, &mut r), Err(Errno::EINVAL));
}
