//! Objects that use each other: protection domains, memory, CQs, SRQs and QPs.

use crate::common::call::{Call, Program};
use warpverbs_rdma::{Mtu, QpState};
use warpverbs_uverbs::abi::{CORE_LAYOUTS, Layout};
use warpverbs_uverbs::schema::{UHW_IN, UHW_OUT};
use warpverbs_uverbs::{
    Attributes, CqRequest, Driver, Errno, MrRequest, QpRequest, ResizeRequest, SrqRequest,
};

pub(super) fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// An address handle's request.
pub(super) fn address(pd: u32, gid: [u8; 16]) -> Vec<u8> {
    // Flow label, own GID, hop limit, traffic class; LID, level, bits, rate, "is global", port.
    let (route, rest) = ([0, 0, 0, 0, 0, 64, 0, 0], [0, 0, 0, 0, 0, 1, 1, 0]);
    [&longs(&[0, 0]), &words(&[pd, 0]), &gid[..], &route, &rest].concat()
}

pub(super) fn longs(longs: &[u64]) -> Vec<u8> {
    longs.iter().flat_map(|long| long.to_ne_bytes()).collect()
}

fn reg_mr(pd: u32, start: u64, len: u64, iova: u64, access: u32) -> Vec<u8> {
    [longs(&[0, start, len, iova]), words(&[pd, access])].concat()
}

pub(super) fn cq_call(program: &Program, cqe: u32, size: u32) -> Call {
    let mut call = Call::new(3, 0);
    call.handle(0, 0).number(1, cqe.into(), 4).number(2, 77, 8).number(4, 0, 4).output(6, 4);
    let driver = [longs(&[0xa000, 0xb000]), words(&[size, 0, 0, 0])].concat();
    call.input(&program.memory, UHW_IN, &driver).output(UHW_OUT, 8);
    call
}

pub(super) fn cq(program: &mut Program) -> u32 {
    let call = cq_call(program, 63, 64);
    program.make(&call).unwrap();
    program.data(0) as u32
}

/// Makes an SRQ of so many receives and entries of each.
pub(super) fn srq_call(program: &Program, pd: u32, wr: u64, sge: u64) -> Call {
    let mut call = Call::new(5, 0);
    call.handle(0, 0).handle(1, pd.into()).number(4, 0, 8).number(5, wr, 4).number(6, sge, 4);
    call.number(7, 0, 4).number(9, 0, 8).output(11, 4).output(12, 4).output(13, 4);
    let driver = [longs(&[0xe000, 0xf000]), words(&[0, 0, 3, 0])].concat();
    call.input(&program.memory, UHW_IN, &driver).output(UHW_OUT, 8);
    call
}

fn qp_call(program: &Program, pd: u32, cq: u32, uar: u32, counts: [u32; 3], flags: u32) -> Call {
    let mut call = Call::new(4, 0);
    call.handle(0, 0).handle(2, pd.into()).handle(4, cq.into()).handle(5, cq.into());
    call.number(7, 5, 8).input(&program.memory, 8, &words(&[16, 16, 1, 1, 0])).number(9, 2, 8);
    call.number(10, 1 << 12, 4);
    // The limits go in and come out at the same place.
    let at = call.attrs[5].data;
    call.attr(13, 20, at).output(14, 4);
    let [sq, rq, shift] = counts;
    let driver = [longs(&[0xc000, 0xd000]), words(&[sq, rq, shift, flags, 9, uar]), vec![0; 16]];
    call.input(&program.memory, UHW_IN, &driver.concat()).output(UHW_OUT, 40);
    call
}

/// A program with a QP of everything; the handles of PD, CQ and QP.
fn with_qp() -> (Program, u32, u32, u32) {
    let mut program = Program::open();
    let (pd, cq, (_, uar)) = (program.pd(), cq(&mut program), program.uar());
    let call = qp_call(&program, pd, cq, uar, [64, 16, 4], 0x400);
    program.make(&call).unwrap();
    let qp = program.data(0) as u32;
    (program, pd, cq, qp)
}

#[test]
fn objects_in_use_are_kept() {
    let (mut program, pd, cq, qp) = with_qp();
    assert_eq!(program.model.seen.borrow().uar, Some(0));
    let (core, _) = program.write_command(9, &reg_mr(pd, 0x5008, 64, 0x5008, 7), 12, 0).unwrap();
    let mr = program.memory.word(core);
    let seen = program.model.seen.borrow().mr;
    assert_eq!(
        seen,
        Some(MrRequest { start: 0x5008, length: 64, iova: 0x5008, access: 7, dmabuf: None })
    );
    for (object, method, handle) in [(1, 0, pd), (3, 1, cq)] {
        assert_eq!(program.errno(&Call::destroy(object, method, handle)), Errno::EBUSY);
    }
    // A handle of another class, and one that nobody has.
    assert_eq!(program.errno(&Call::destroy(4, 1, pd)), Errno::EINVAL);
    assert_eq!(program.errno(&Call::destroy(4, 1, 999)), Errno::ENOENT);
    for (object, method, handle) in [(4, 1, qp), (3, 1, cq)] {
        program.make(&Call::destroy(object, method, handle)).unwrap();
        assert_eq!(program.errno(&Call::destroy(object, method, handle)), Errno::ENOENT);
    }
    assert_eq!(program.errno(&Call::destroy(1, 0, pd)), Errno::EBUSY);
    program.make(&Call::destroy(7, 1, mr)).unwrap();
    program.make(&Call::destroy(1, 0, pd)).unwrap();
    // The doorbell page is left.
    assert_eq!(program.model.live.get(), 1);
}

#[test]
fn memory_is_registered_with_possible_rights_only() {
    let mut program = Program::open();
    let pd = program.pd();
    let rows = [
        (reg_mr(pd + 9, 0x5000, 64, 0x5000, 1), Errno::EINVAL),
        (reg_mr(pd, 0x5000, 64, 0x5001, 1), Errno::EINVAL),
        (reg_mr(pd, u64::MAX - 8, 64, u64::MAX - 8, 1), Errno::EINVAL),
        (reg_mr(pd, 0x5000, 64, 0x5000, 2), Errno::EINVAL),
        (reg_mr(pd, 0x5000, 64, 0x5000, 1 << 30), Errno::EINVAL),
        (reg_mr(pd, 0x5000, 64, 0x5000, 1 << 6), Errno::EOPNOTSUPP),
    ];
    for (i, (input, errno)) in rows.into_iter().enumerate() {
        let refusal = program.write_command(9, &input, 12, 0).unwrap_err();
        assert_eq!(refusal.errno, errno, "row {i}");
    }
    // Relaxed ordering is a hint.
    program.write_command(9, &reg_mr(pd, 0x5000, 64, 0x5000, 1 << 20 | 1), 12, 0).unwrap();
}

#[test]
fn a_cq_has_a_power_of_two_of_entries() {
    let mut program = Program::open();
    let call = cq_call(&program, 100, 128);
    program.make(&call).unwrap();
    let expected = CqRequest {
        driver: Driver::Mlx5,
        log_size: 7,
        cqe_size: 128,
        buf: 0xa000,
        dbr: 0xb000,
        ignore_overrun: false,
        collapsed: false,
        user_handle: 77,
        reported: false,
    };
    assert_eq!(program.model.seen.borrow().cq, Some(expected));
    assert_eq!(program.memory.word(call.attrs[4].data), 127);
    let cq = program.data(0) as u32;
    let gone = Call::destroy(3, 1, cq);
    program.make(&gone).unwrap();
    assert_eq!(program.memory.word(gone.attrs[1].data), 3, "events that were read");
    let bad = [(0, 64, Errno::EINVAL), (u32::MAX, 64, Errno::EINVAL), (1 << 22, 64, Errno::EINVAL)];
    for (cqe, size, errno) in bad.into_iter().chain([(63, 32, Errno::EINVAL)]) {
        let call = cq_call(&program, cqe, size);
        assert_eq!(program.errno(&call), errno, "{cqe} {size}");
    }
    let mut call = cq_call(&program, 63, 64);
    call.number(5, 1, 4);
    assert_eq!(program.errno(&call), Errno::EOPNOTSUPP);
    call.attrs.last_mut().unwrap().data = 4;
    assert_eq!(program.errno(&call), Errno::EINVAL);
    call.attrs.last_mut().unwrap().data = 2;
    program.make(&call).unwrap();
    assert!(program.model.seen.borrow().cq.unwrap().ignore_overrun);
}

#[test]
fn channels_are_descriptors() {
    let mut program = Program::open();
    let (core, _) = program.write_command(17, &[0; 8], 4, 0).unwrap();
    let fd = program.memory.word(core);
    let mut call = cq_call(&program, 63, 64);
    call.handle(3, fd.into());
    program.make(&call).unwrap();
    let pd = program.pd();
    for wrong in [u64::from(pd), u64::MAX] {
        call.attrs.last_mut().unwrap().data = wrong;
        assert_eq!(program.errno(&call), Errno::EBADF);
    }
    // Any of its descriptors names it, until the last is closed.
    let copy = program.model.dup(fd);
    program.model.close(fd);
    call.attrs.last_mut().unwrap().data = copy.into();
    program.make(&call).unwrap();
    call.attrs.last_mut().unwrap().data = fd.into();
    assert_eq!(program.errno(&call), Errno::EBADF);
    program.model.close(copy);
    call.attrs.last_mut().unwrap().data = copy.into();
    assert_eq!(program.errno(&call), Errno::EBADF);
    call.attrs.last_mut().unwrap().data = fd.into();
    assert_eq!(program.errno(&call), Errno::EBADF);
    // A channel of the other kind.
    let mut events = Call::new(16, 0);
    events.handle(0, 0);
    program.make(&events).unwrap();
    let fd = program.data(0);
    call.attrs.last_mut().unwrap().data = fd;
    assert_eq!(program.errno(&call), Errno::EBADF);
}

#[test]
fn a_cq_goes_on_in_another_ring() {
    let mut program = Program::open();
    let cq = cq(&mut program);
    let resize = |program: &mut Program, cq: u32, cqe: u32| {
        let driver = [longs(&[0xe000]), words(&[128, 0])].concat();
        let mut call = Call::new(0, 0);
        call.input(&program.memory, 0, &[longs(&[0]), words(&[cq, cqe])].concat());
        let core = call.output(1, 8).last();
        call.number(2, 19, 8).input(&program.memory, UHW_IN, &driver);
        let done = program.make(&call).map_err(|refusal| refusal.errno);
        done.map(|()| program.memory.word(core))
    };
    assert_eq!(resize(&mut program, cq, 255), Ok(255));
    let expected = ResizeRequest { log_size: 8, cqe_size: 128, buf: 0xe000 };
    assert_eq!(program.model.seen.borrow().resize, Some(expected));
    assert_eq!(resize(&mut program, cq, 1 << 22), Err(Errno::EINVAL));
    assert_eq!(resize(&mut program, cq + 9, 255), Err(Errno::EINVAL));
    // Without where the ring lies.
    let input = [longs(&[0]), words(&[cq, 255])].concat();
    assert_eq!(program.write_command(19, &input, 8, 0).unwrap_err().errno, Errno::EINVAL);
    program.model.fails.set(Some(Errno::ENOMEM));
    assert_eq!(resize(&mut program, cq, 255), Err(Errno::ENOMEM));
}

#[test]
fn an_srq_is_a_list_of_one_more() {
    let mut program = Program::open();
    let pd = program.pd();
    let call = srq_call(&program, pd, 99, 2);
    program.make(&call).unwrap();
    let srq = program.data(0) as u32;
    let expected = SrqRequest {
        driver: Driver::Mlx5,
        ring: false,
        log_size: 7,
        log_stride: 6,
        buf: 0xe000,
        dbr: 0xf000,
    };
    assert_eq!(program.model.seen.borrow().srq, Some(expected));
    for (i, value, errno) in [(3, 1 << 20, Errno::EINVAL), (5, 127, Errno::EINVAL)] {
        let mut wrong = Call::new(5, 0);
        wrong.attrs = call.attrs.clone();
        wrong.attrs[i].data = value;
        assert_eq!(program.errno(&wrong), errno);
    }
    let (core, _) =
        program.write_command(34, &[longs(&[0]), words(&[srq, 0])].concat(), 16, 0).unwrap();
    assert_eq!((program.memory.word(core), program.memory.word(core + 4)), (127, 2));
    // The limit is below the number of receives, and is told again.
    let modify = |program: &mut Program, mask, max_wr, limit| {
        let done = program.write_command(33, &words(&[srq, mask, max_wr, limit]), 0, 0);
        done.map(drop).map_err(|refusal| refusal.errno)
    };
    assert_eq!(modify(&mut program, 2, 0, 126), Ok(()));
    let (core, _) =
        program.write_command(34, &[longs(&[0]), words(&[srq, 0])].concat(), 16, 0).unwrap();
    assert_eq!(program.memory.word(core + 8), 126);
    assert_eq!(modify(&mut program, 2, 0, 127), Err(Errno::EINVAL));
    assert_eq!(modify(&mut program, 2, 0, 1 << 16), Err(Errno::EINVAL));
    assert_eq!(modify(&mut program, 1, 500, 0), Err(Errno::EINVAL));
    assert_eq!(modify(&mut program, 0, 500, 0), Ok(()));
    // A QP on it has no receive queue of its own.
    let (cq, (_, uar)) = (cq(&mut program), program.uar());
    let mut qp = qp_call(&program, pd, cq, uar, [64, 0, 0], 0x402);
    qp.handle(3, srq.into());
    program.make(&qp).unwrap();
    assert_eq!(program.errno(&Call::destroy(5, 1, srq)), Errno::EBUSY);
}

#[test]
fn a_qp_is_made_as_asked() {
    let (mut program, pd, cq, _) = with_qp();
    let seen = program.model.seen.borrow().qp.unwrap();
    let expected = (Some(6), Some((4, 4)), 0xc000, 0xd000, Some(9));
    let QpRequest { log_sq, rq, buf, dbr, user_index, .. } = seen;
    assert_eq!((log_sq, rq, buf, dbr, user_index), expected);
    // Neither was asked for.
    assert!(!seen.scatter_receives && !seen.scatter_requests);
    for (flags, all, receives, requests) in
        [(0x402, true, true, true), (0x402, false, true, false), (0x502, false, true, true)]
    {
        let (_, uar) = program.uar();
        let mut call = qp_call(&program, pd, cq, uar, [64, 16, 4], flags);
        call.attrs.iter_mut().find(|attr| attr.id == 10).unwrap().data = u64::from(all) << 12;
        program.make(&call).unwrap();
        let seen = program.model.seen.borrow().qp.unwrap();
        assert_eq!((seen.scatter_receives, seen.scatter_requests), (receives, requests));
    }
    assert_eq!(seen.sq(), 0xc000 + 16 * 16);
    assert_eq!(seen.cap.max_send_wr, 16);
    let (_, uar) = program.uar();
    let rows = [
        (uar + 9, [64, 16, 4], 0x402, Errno::EINVAL), // no such page
        (uar, [64, 16, 4], 0x2, Errno::EINVAL),       // no page at all
        (uar, [63, 16, 4], 0x400, Errno::EINVAL),
        (uar, [65536, 16, 4], 0x400, Errno::EINVAL),
        (uar, [64, 17, 4], 0x400, Errno::EINVAL),
        (uar, [64, 16, 3], 0x400, Errno::EINVAL),
        (uar, [64, 16, 11], 0x400, Errno::EINVAL),
        (uar, [64, 16, 4], 0x410, Errno::EOPNOTSUPP), // DCT
    ];
    for (i, (uar, counts, flags, errno)) in rows.into_iter().enumerate() {
        let call = qp_call(&program, pd, cq, uar, counts, flags);
        assert_eq!(program.errno(&call), errno, "row {i}");
    }
    // Multicast that comes back may be switched off, of datagrams alone.
    let mut call = qp_call(&program, pd, cq, uar, [64, 16, 4], 0x400);
    call.attrs.iter_mut().find(|given| given.id == 10).unwrap().data = 2;
    assert_eq!(program.errno(&call), Errno::EOPNOTSUPP);
    call.attrs.iter_mut().find(|given| given.id == 9).unwrap().data = 4;
    program.make(&call).unwrap();
    for (attr, value, errno) in [(9, 3, Errno::EOPNOTSUPP), (10, 1, Errno::EOPNOTSUPP)] {
        let mut call = qp_call(&program, pd, cq, uar, [64, 16, 4], 0x400);
        call.attrs.iter_mut().find(|given| given.id == attr).unwrap().data = value;
        assert_eq!(program.errno(&call), errno);
    }
    for missing in [2, 4, 5] {
        let mut call = qp_call(&program, pd, cq, uar, [64, 16, 4], 0x400);
        call.attrs.retain(|given| given.id != missing);
        assert_eq!(program.errno(&call), Errno::EINVAL);
    }
}

#[test]
fn an_object_whose_answer_cannot_be_written_is_not_left() {
    let (mut program, pd, cq, _) = with_qp();
    let (_, uar) = program.uar();
    let before = program.model.live.get();
    let mut call = qp_call(&program, pd, cq, uar, [64, 16, 4], 0x400);
    call.attrs.iter_mut().find(|given| given.id == 14).unwrap().data = 16;
    assert_eq!(program.errno(&call), Errno::EFAULT);
    assert_eq!(program.model.live.get(), before);
}

/// A structure's bytes, members set by name as the kernel's headers have them.
pub(super) struct Fields(&'static Layout, pub(super) Vec<u8>);

impl Fields {
    fn of(name: &str) -> Self {
        let layout = CORE_LAYOUTS.iter().find(|layout| layout.name == name).unwrap();
        Self(layout, vec![0; layout.size])
    }

    fn set(mut self, member: &str, bytes: &[u8]) -> Self {
        let (_, at) = self.0.members.iter().find(|(name, _)| *name == member).unwrap();
        self.1[*at..*at + bytes.len()].copy_from_slice(bytes);
        self
    }
}

/// MODIFY_QP as ibv_rc_pingpong sends it.
pub(super) fn modify(qp: u32, mask: u32, state: u8) -> Fields {
    let mut dest = [0; 32];
    dest[10..12].fill(0xff);
    dest[12..16].copy_from_slice(&[127, 0, 0, 9]);
    (dest[30], dest[31]) = (1, 1);
    Fields::of("ib_uverbs_modify_qp")
        .set("dest", &dest)
        .set("qp_handle", &qp.to_ne_bytes())
        .set("attr_mask", &mask.to_ne_bytes())
        .set("qp_access_flags", &7u32.to_ne_bytes())
        .set("dest_qp_num", &0x123456u32.to_ne_bytes())
        .set("rq_psn", &0xff00_0001u32.to_ne_bytes())
        .set("sq_psn", &2u32.to_ne_bytes())
        .set("qp_state", &[state])
        .set("path_mtu", &[3])
        .set("max_rd_atomic", &[1, 2, 12, 1, 14, 7, 6])
}

const INIT: u32 = 0x39;
const RTR: u32 = 0x12_9181;
const RTS: u32 = 0x1_2e01;

#[test]
fn a_qp_goes_to_ready_as_pingpong_brings_it_there() {
    let (mut program, _, _, qp) = with_qp();
    program.write_command(26, &modify(qp, INIT, 1).1, 0, 16).unwrap();
    program.write_command(26, &modify(qp, RTR, 2).1, 0, 16).unwrap();
    let (core, uhw) = program.write_command(1 << 31 | 26, &modify(qp, RTS, 3).1, 8, 16).unwrap();
    assert_eq!((program.memory.word(core + 4), program.memory.word(uhw)), (8, 16));
    let mut dgid = [0; 16];
    dgid[10..12].fill(0xff);
    dgid[12..16].copy_from_slice(&[127, 0, 0, 9]);
    let rtr = Attributes {
        dgid: Some(dgid),
        mtu: Some(Mtu::B1024),
        dest_qpn: Some(0x123456),
        rq_psn: Some(1),
        min_rnr_timer: Some(12),
        max_dest_rd_atomic: Some(2),
        ..Attributes::default()
    };
    let rts = Attributes {
        sq_psn: Some(2),
        timeout: Some(14),
        retry: Some(7),
        rnr_retry: Some(6),
        max_rd_atomic: Some(1),
        ..Attributes::default()
    };
    let init = Attributes { access: Some(7), ..Attributes::default() };
    let expected = [(QpState::Init, init), (QpState::Rtr, rtr), (QpState::Rts, rts)];
    assert_eq!(program.model.seen.borrow().attrs, expected);

    let query = [longs(&[0]), words(&[qp, u32::MAX])].concat();
    let (core, _) = program.write_command(25, &query, 128, 0).unwrap();
    let answer = program.memory.get::<128>(core);
    assert_eq!(&answer[10..16], &dgid[10..]);
    let layout = CORE_LAYOUTS.iter().find(|l| l.name == "ib_uverbs_query_qp_resp").unwrap();
    let at = |name| layout.members.iter().find(|(member, _)| *member == name).unwrap().1;
    assert_eq!(answer[at("qp_state")], 3);
    assert_eq!((answer[at("timeout")], answer[at("sq_sig_all")]), (14, 1));
    assert_eq!(answer[at("max_send_wr")], 16);
    assert_eq!((answer[at("rq_psn")], answer[at("sq_psn")], answer[at("sq_draining")]), (1, 2, 0));
    // PSNs that the device knows go before those given, and it says whether the queue drains.
    program.model.seen.borrow_mut().psns = (Some(0x55), Some(0x66));
    program.model.seen.borrow_mut().draining = true;
    let (core, _) = program.write_command(25, &query, 128, 0).unwrap();
    let answer = program.memory.get::<128>(core);
    assert_eq!((answer[at("rq_psn")], answer[at("sq_psn")]), (0x66, 0x55));
    assert_eq!(answer[at("sq_draining")], 1);
}

#[test]
fn wrong_transitions_are_refused() {
    let (mut program, pd, _, qp) = with_qp();
    let mut errno =
        |bytes: Vec<u8>| program.write_command(26, &bytes, 0, 0).err().map(|refusal| refusal.errno);
    let invalid = Some(Errno::EINVAL);
    let unsupported = Some(Errno::EOPNOTSUPP);
    assert_eq!(errno(modify(qp, RTR, 2).1), invalid, "RESET to RTR");
    assert_eq!(errno(modify(qp, INIT & !8, 1).1), invalid, "no access");
    assert_eq!(errno(modify(qp, INIT | 1 << 8, 1).1), invalid, "an MTU at INIT");
    assert_eq!(errno(modify(qp, INIT | 1 << 6, 1).1), invalid, "a Q_Key");
    assert_eq!(errno(modify(qp, INIT | 1 << 24, 1).1), unsupported, "an unknown attribute");
    assert_eq!(errno(modify(qp, INIT | 1 << 25, 1).1), unsupported, "a rate");
    assert_eq!(errno(modify(qp, INIT, 7).1), invalid, "an unknown state");
    assert_eq!(errno(modify(pd, INIT, 1).1), invalid, "a handle of another class");
    assert_eq!(errno(modify(qp, INIT, 1).set("port_num", &[2]).1), invalid);
    assert_eq!(errno(modify(qp, INIT, 1).set("pkey_index", &[1]).1), invalid);
    assert_eq!(errno(modify(qp, INIT, 1).set("qp_access_flags", &[0x80]).1), invalid);
    assert_eq!(errno(modify(qp, INIT, 1).1), None);
    assert_eq!(errno(modify(qp, RTR, 2).set("path_mtu", &[6]).1), invalid);
    // Without a GID; with a GID that is not there; another port.
    for (at, value) in [(30, 0), (24, 1), (31, 2)] {
        let mut bytes = modify(qp, RTR, 2).1;
        bytes[at] = value;
        assert_eq!(errno(bytes), invalid);
    }
    let alternate = modify(qp, RTR | 1 << 14, 2).1;
    assert_eq!(errno(alternate), unsupported);
    assert_eq!(errno(modify(qp, RTR, 2).1), None);
    // A device that refuses leaves everything as it was.
    program.model.fails.set(Some(Errno::ENOMEM));
    let refusal = program.write_command(26, &modify(qp, RTS, 3).1, 0, 0).unwrap_err();
    assert_eq!(
        (refusal.errno, refusal.call.as_str()),
        (Errno::ENOMEM, "DEVICE.INVOKE_WRITE(MODIFY_QP)")
    );
    program.model.fails.set(None);
    // ERR and RESET take whatever is given along.
    for state in [6, 0] {
        program.write_command(26, &modify(qp, RTR, state).1, 0, 0).unwrap();
    }
}

#[test]
fn an_address_handle_has_a_route_and_an_ethernet_address() {
    let mut program = Program::open();
    let pd = program.pd();
    let create = |program: &mut Program, pd: u32, global: u8, port: u8, gid: u8| {
        let mut attr = [0; 32];
        attr[..16].copy_from_slice(&std::array::from_fn::<u8, 16, _>(|i| i as u8));
        (attr[20], attr[29], attr[30]) = (gid, global, port);
        let input = [longs(&[0, 0]), words(&[pd, 0]), attr.to_vec()].concat();
        program.write_command(5, &input, 4, 16)
    };
    let (core, uhw) = create(&mut program, pd, 1, 1, 0).unwrap();
    let ah = program.memory.word(core);
    let driver: [u8; 16] = program.memory.get(uhw);
    assert_eq!(driver[..10], [16, 0, 0, 0, 2, 0, 12, 13, 14, 15]);
    for (pd, global, port, gid) in [(pd, 0, 1, 0), (pd, 1, 2, 0), (pd, 1, 1, 9), (99, 1, 1, 0)] {
        let refusal = create(&mut program, pd, global, port, gid).unwrap_err();
        assert_eq!(refusal.errno, Errno::EINVAL, "{refusal}");
    }
    assert_eq!(program.errno(&Call::destroy(1, 0, pd)), Errno::EBUSY);
    program.make(&Call::destroy(6, 0, ah)).unwrap();
    assert_eq!(program.errno(&Call::destroy(6, 0, ah)), Errno::ENOENT);
    program.make(&Call::destroy(1, 0, pd)).unwrap();
}
