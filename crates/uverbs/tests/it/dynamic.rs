//! Ends of dynamic connections, and memory that comes as a dmabuf.

use crate::common::call::{Call, Program};
use crate::common::device::DMABUF;
use crate::devx::{create, modify, ready, transition};
use crate::queues::{self, cq, longs, srq_call, words};
use warpverbs_mlx5::prm::{AddressPath, Command, QpContext, Transition, UmemBuffer};
use warpverbs_rdma::{Mtu, QpState, Service};
use warpverbs_uverbs::schema::{UHW_IN, UHW_OUT};
use warpverbs_uverbs::{Attributes, Errno, MrRequest};

/// Change of a mailbox.
type Change<'a> = &'a dyn Fn(&mut QpContext, &mut AddressPath);

#[test]
fn an_initiator_is_made_by_a_mailbox_and_has_no_peer() {
    let mut r = ready();
    let (_, cqn) = r.create_cq();
    let (context, buffer) = r.qp(cqn);
    let path = AddressPath::default();
    let context = QpContext { service: 5, ..context };
    let command = Command::CreateQp { context, path, buffer };
    let (qp, qpn) = create(&mut r.program, &command).unwrap();
    assert_eq!(r.program.model.seen.borrow().qp.unwrap().service, Service::DcInitiator);
    let step = |step, change: Change<'_>| {
        let Command::ModifyQp { mut context, mut path, options, .. } = transition(step, qpn) else {
            panic!("no transition")
        };
        (context.remote_qpn, context.remote_write, context.remote_read) = (0, 0, 0);
        (path.rgid_high, path.rgid_low) = (0, 0);
        change(&mut context, &mut path);
        Command::ModifyQp { transition: step, qpn, options, context, path }
    };
    let wrong: [Change<'_>; 3] = [
        &|context, _| context.remote_qpn = 9,
        &|context, _| context.remote_atomic = 1,
        &|_, path| path.rgid_low = 1,
    ];
    for change in wrong {
        let command = step(Transition::ResetToInit, change);
        assert_eq!(modify(&mut r.program, qp, &command), Err(3));
    }
    let with_key = step(Transition::ResetToInit, &|context, _| context.dc_access_key = 0x5623_ceaf);
    modify(&mut r.program, qp, &with_key).unwrap();
    for transition in [Transition::InitToRtr, Transition::RtrToRts] {
        modify(&mut r.program, qp, &step(transition, &|_, _| {})).unwrap();
    }
    let rts = Attributes {
        sq_psn: Some(6),
        timeout: Some(14),
        retry: Some(7),
        rnr_retry: Some(6),
        max_rd_atomic: Some(8),
        ..Attributes::default()
    };
    let expected = [
        (QpState::Init, Attributes::default()),
        (QpState::Rtr, Attributes { mtu: Some(Mtu::B1024), ..Attributes::default() }),
        (QpState::Rts, rts),
    ];
    assert_eq!(r.program.model.seen.borrow().attrs, expected);
    // A connection has no key.
    let (qp, qpn) = r.create_qp(cqn);
    let Command::ModifyQp { mut context, path, options, .. } =
        transition(Transition::ResetToInit, qpn)
    else {
        panic!("no transition")
    };
    context.dc_access_key = 1;
    let transition = Transition::ResetToInit;
    let command = Command::ModifyQp { transition, qpn, options, context, path };
    assert_eq!(modify(&mut r.program, qp, &command), Err(3));
}

/// Makes a QP of the driver's own type, with these flags and that buffer; the number that is said.
fn target(
    program: &mut Program,
    (pd, cq, srq): (u32, u32, Option<u32>),
    flags: u32,
    buf: u64,
) -> Result<u32, Errno> {
    let mut call = Call::new(4, 0);
    call.handle(0, 0).handle(2, pd.into()).handle(4, cq.into()).handle(5, cq.into());
    call.number(7, 5, 8).input(&program.memory, 8, &words(&[16, 16, 1, 1, 0]));
    call.number(9, 0xff, 8).output(13, 20);
    let number = call.output(14, 4).last();
    if let Some(srq) = srq {
        call.handle(3, srq.into());
    }
    // The key is where other QPs have the address of a second buffer.
    let driver = [longs(&[buf, 0]), words(&[0, 0, 0, flags, 9, 0]), longs(&[0x5623_ceaf, 0])];
    call.input(&program.memory, UHW_IN, &driver.concat()).output(UHW_OUT, 40);
    program.make(&call).map_err(|refusal| refusal.errno)?;
    Ok(program.memory.word(number))
}

#[test]
fn a_target_is_made_by_verbs_and_has_its_number_from_rtr_on() {
    const DCT: u32 = 1 << 4;
    let mut program = Program::open();
    let (pd, cq) = (program.pd(), cq(&mut program));
    program.make(&srq_call(&program, pd, 255, 1)).unwrap();
    let srq = program.data(0) as u32;
    let with = (pd, cq, Some(srq));
    assert_eq!(target(&mut program, (pd, cq, None), DCT, 0), Err(Errno::EINVAL));
    assert_eq!(target(&mut program, with, DCT, 0xc000), Err(Errno::EINVAL));
    // Initiators of verbs, and nothing at all.
    for flags in [1 << 5, 0] {
        assert_eq!(target(&mut program, with, flags, 0), Err(Errno::EOPNOTSUPP));
    }
    assert_eq!(target(&mut program, with, DCT, 0), Ok(0));
    let qp = program.data(0) as u32;
    let seen = program.model.seen.borrow().qp.unwrap();
    assert_eq!((seen.service, seen.buf, seen.log_sq), (Service::DcTarget, 0, None));
    assert_eq!(program.model.seen.borrow().uar, None);
    let mut numbers = [0; 2];
    // INIT with rights; RTR with a path, an MTU and a timer.
    for (number, (mask, state)) in numbers.iter_mut().zip([(0x39, 1), (0x8181, 2)]) {
        let (_, uhw) =
            program.write_command(1 << 31 | 26, &queues::modify(qp, mask, state).1, 8, 16).unwrap();
        *number = program.memory.word(uhw + 4);
    }
    assert!(numbers[0] == 0 && numbers[1] != 0, "{numbers:x?}");
    // It does not send.
    let rts = program.write_command(26, &queues::modify(qp, 0x1_0001, 3).1, 0, 16);
    assert_eq!(rts.unwrap_err().errno, Errno::EINVAL);
    // Connections have no such number.
    program.make(&Call::destroy(4, 1, qp)).unwrap();
}

#[test]
fn a_dmabuf_is_registered_by_its_descriptor() {
    let mut program = Program::open();
    let pd = program.pd();
    let mut reg = |offset: u64, length: u64, iova: u64, access: u64| {
        let mut call = Call::new(7, 4);
        call.handle(0, 0).handle(1, pd.into()).number(2, offset, 8).number(3, length, 8);
        call.number(4, iova, 8).number(5, 33, 4).number(6, access, 4);
        let lkey = call.output(7, 4).last();
        let rkey = call.output(8, 4).last();
        let done = program.make(&call).map_err(|refusal| refusal.errno);
        done.map(|()| {
            assert_eq!(program.memory.word(lkey), program.memory.word(rkey));
            program.model.seen.borrow().mr.unwrap()
        })
    };
    let expected =
        MrRequest { start: 0x1000, length: 64, iova: 0x7f00_0000, access: 7, dmabuf: Some(33) };
    // The order of writes may be relaxed.
    assert_eq!(reg(0x1000, 64, 0x7f00_0000, 7 | 1 << 20), Ok(expected));
    assert_eq!(reg(0x1008, 64, 0x7f00_0000, 7), Err(Errno::EINVAL));
    assert_eq!(reg(0x1000, u64::MAX, 0x7f00_0000, 7), Err(Errno::EINVAL));
    assert_eq!(reg(0x1000, 64, 0x7f00_0000, 2), Err(Errno::EINVAL));
    assert_eq!(reg(0x1000, 64, 0x7f00_0000, 1 << 6), Err(Errno::EOPNOTSUPP));
}

/// Registers a umem: what a program says of pages, and of a dmabuf, in the form of rdma-core.
fn umem(
    program: &mut Program,
    (offset, len): (u64, u64),
    pages: u64,
    dmabuf: impl FnOnce(&mut Call),
) -> Result<u32, Errno> {
    let mut call = Call::new(0x1002, 0x1000);
    call.handle(0x1000, 0).number(0x1001, offset, 8).number(0x1002, len, 8).number(0x1003, 1, 4);
    let id = call.output(0x1004, 4).last();
    call.number(0x1005, pages, 8);
    dmabuf(&mut call);
    program.make(&call).map_err(|refusal| refusal.errno)?;
    Ok(program.memory.word(id))
}

#[test]
fn queues_lie_where_a_dmabuf_does() {
    let mut r = ready();
    let pages = !0xfff;
    let fd = |fd: i32| {
        move |call: &mut Call| {
            call.handle(0x1006, fd as u64);
        }
    };
    let id = umem(&mut r.program, (0x1000, 0x1000), pages, fd(33)).unwrap();
    let (_, cqn) = r.create_cq();
    let (context, buffer) = r.qp(cqn);
    // 32 receives of 32 bytes and 16 WQEBBs are half of it.
    let buffer = UmemBuffer { umem: id, offset: 0x100, ..buffer };
    let context = QpContext { dbr_umem_id: id, dbr_addr: 0xff8, ..context };
    let path = AddressPath::default();
    create(&mut r.program, &Command::CreateQp { context, path, buffer }).unwrap();
    let made = r.program.model.seen.borrow().qp.unwrap();
    assert_eq!((made.buf, made.dbr), (DMABUF + 0x1100, DMABUF + 0x1ff8));
    // A record that crosses the end of the umem is refused, although the dmabuf is longer.
    let context = QpContext { dbr_addr: 0xffc, ..context };
    assert_eq!(create(&mut r.program, &Command::CreateQp { context, path, buffer }), Err(3));
    let before = r.program.context.objects();
    for (span, sizes, dmabuf, errno) in [
        ((0x1000, 0x1001), pages, 33, Errno::EINVAL),
        ((u64::MAX, 2), pages, 33, Errno::EINVAL),
        ((0, 0), pages, 33, Errno::EINVAL),
        ((0, 0x1000), 0, 33, Errno::EINVAL),
        ((0, 0x1000), 0xfff, 33, Errno::EINVAL),
        ((0, 0x1000), pages, 34, Errno::EBADF),
        ((0, 0x1000), pages, -1, Errno::EBADF),
    ] {
        let made = umem(&mut r.program, span, sizes, fd(dmabuf));
        assert_eq!(made, Err(errno), "{span:x?} {sizes:#x} {dmabuf}");
    }
    // A descriptor stands in the attribute itself, and has 32 bits.
    let long = |call: &mut Call| {
        call.number(0x1006, 33, 4);
    };
    assert_eq!(umem(&mut r.program, (0, 0x1000), pages, long), Err(Errno::EINVAL));
    let wide = |call: &mut Call| {
        call.handle(0x1006, 33 | 1 << 32);
    };
    assert_eq!(umem(&mut r.program, (0, 0x1000), pages, wide), Err(Errno::EINVAL));
    assert_eq!(r.program.context.objects(), before);
    // Programs may name page sizes of their own memory.
    umem(&mut r.program, (0x7000_0000, 0x1000), pages, |_| ()).unwrap();
}
