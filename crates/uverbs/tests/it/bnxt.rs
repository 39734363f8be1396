//! Answers to libbnxt_re beside the common ones, and refusals.

use crate::common::call::{Call, Program};
use crate::common::device::DOORBELLS;
use crate::queues::{address, longs, words};
use warpverbs_rdma::Service;
use warpverbs_uverbs::schema::{UHW_IN, UHW_OUT};
use warpverbs_uverbs::{
    BnxtFixed, BnxtLibrary, CqRequest, Driver, Errno, Queues, ResizeRequest, SrqRequest,
};

const LIBRARY: BnxtLibrary = BnxtLibrary::Early;
const DRIVER: Driver = Driver::Bnxt { doorbells: DOORBELLS, library: LIBRARY };

fn cq_call(program: &Program, cqe: u32) -> Call {
    let mut call = Call::new(3, 0);
    call.handle(0, 0).number(1, cqe.into(), 4).number(2, 77, 8).number(4, 0, 4).output(6, 4);
    call.input(&program.memory, UHW_IN, &longs(&[0xa000, 0xb000])).output(UHW_OUT, 16);
    call
}

fn cq(program: &mut Program) -> u32 {
    let call = cq_call(program, 63);
    program.make(&call).unwrap();
    program.data(0) as u32
}

/// Of this type, with these limits: sends, receives, entries of each, bytes in a WQE.
fn qp_call(program: &Program, (pd, cq): (u32, u32), kind: u64, cap: [u32; 5]) -> Call {
    let mut call = Call::new(4, 0);
    call.handle(0, 0).handle(2, pd.into()).handle(4, cq.into()).handle(5, cq.into());
    call.number(7, 5, 8).input(&program.memory, 8, &words(&cap)).number(9, kind, 8);
    call.number(10, 0, 4).output(13, 20).output(14, 4);
    call.input(&program.memory, UHW_IN, &longs(&[0xc000, 0xe000, 0x1234_5678_9abc]));
    call.output(UHW_OUT, 8);
    call
}

#[test]
fn a_context_says_which_chip_it_is() {
    let mut program = Program::bnxt();
    let mut again = Call::new(0, 3);
    again.output(UHW_OUT, 48);
    assert_eq!(program.errno(&again), Errno::EINVAL, "open already");
    // The answer to the first call lies where that of this one would.
    let at = again.last();
    let words: Vec<u32> = (0..12).map(|i| program.memory.word(at + 4 * i)).collect();
    // Page, CQE, CQEs but one; chip and mode are valid; 57508; static WQEs.
    assert_eq!(words[2..5], [4096, 32, (1 << 22) - 1]);
    assert_eq!((words[6], words[8], words[10]), (3, 0x1750, 0));
}

#[test]
fn a_later_library_is_known_by_its_request() {
    let mut program = Program::closed_bnxt();
    let mut call = Call::new(0, 3);
    call.input(&program.memory, UHW_IN, &longs(&[3])).output(UHW_OUT, 48);
    program.make(&call).unwrap();
    let (pd, cq) = (program.pd(), cq(&mut program));
    let library = BnxtLibrary::Current;
    let driver = Driver::Bnxt { doorbells: DOORBELLS, library };
    assert_eq!(program.model.seen.borrow().cq.unwrap().driver, driver);
    // Its request is longer.
    let mut call = qp_call(&program, (pd, cq), 2, [1, 1, 1, 1, 0]);
    call.attrs.retain(|attr| attr.id != UHW_IN);
    call.input(&program.memory, UHW_IN, &longs(&[0xc000, 0xe000, 9, 0, 0]));
    program.make(&call).unwrap();
    let expected = Queues::Bnxt { sq: 0xc000, handle: 9, library, fixed: None };
    assert_eq!(program.model.seen.borrow().qp.unwrap().queues, expected);
}

#[test]
fn a_domain_says_where_the_doorbell_page_is() {
    let mut program = Program::bnxt();
    let (_, driver) = program.write_command(3, &[0; 8], 4, 16).unwrap();
    let dbr = [driver + 8, driver + 12].map(|at| u64::from(program.memory.word(at)));
    assert_eq!(dbr[0] | dbr[1] << 32, DOORBELLS);
}

#[test]
fn queues_have_the_sizes_that_the_library_gives_them() {
    let mut program = Program::bnxt();
    let call = cq_call(&program, 100);
    program.make(&call).unwrap();
    let expected = CqRequest {
        driver: DRIVER,
        log_size: 7,
        cqe_size: 32,
        buf: 0xa000,
        dbr: 0,
        ignore_overrun: false,
        collapsed: false,
        user_handle: 77,
        reported: false,
    };
    assert_eq!(program.model.seen.borrow().cq, Some(expected));
    assert_eq!(program.memory.word(call.last() + 8), 1, "the phase of the first lap");
    let cq = program.data(0) as u32;
    let pd = program.pd();
    let sge = 6;
    for (cap, sends, receives) in [
        ([1, 1, 1, 1, 0], 8, 1),
        ([127, 0, sge, sge, 96], 8, 0),
        ([128, 500, 1, 1, 0], 9, 9),
        ([32639, 32639, 1, 1, 0], 15, 15),
    ] {
        let call = qp_call(&program, (pd, cq), 2, cap);
        program.make(&call).unwrap();
        let qp = program.model.seen.borrow().qp.unwrap();
        assert_eq!((qp.log_sq, qp.rq), (Some(sends), Some((receives, 7))), "{cap:?}");
        let (sq, handle, library) = (0xc000, 0x1234_5678_9abc, LIBRARY);
        let queues = Queues::Bnxt { sq, handle, library, fixed: None };
        assert_eq!((qp.buf, qp.sq(), qp.queues), (0xe000, 0xc000, queues));
        assert_eq!(program.memory.word(call.last()), program.memory.word(call.attrs[9].data));
    }
    for cap in [
        [32640, 1, 1, 1, 0],
        [1, 32640, 1, 1, 0],
        [1, 1, 7, 1, 0],
        [1, 1, 1, 7, 0],
        [1, 1, 1, 1, 97],
    ] {
        let call = qp_call(&program, (pd, cq), 2, cap);
        assert_eq!(program.errno(&call), Errno::EINVAL, "{cap:?}");
    }
    let mut call = Call::new(5, 0);
    call.handle(0, 0).handle(1, pd.into()).number(4, 0, 8).number(5, 100, 4).number(6, 2, 4);
    call.number(7, 0, 4).number(9, 0, 8).output(11, 4).output(12, 4).output(13, 4);
    call.input(&program.memory, UHW_IN, &longs(&[0xf000, 0])).output(UHW_OUT, 4);
    program.make(&call).unwrap();
    let (log_size, log_stride, buf) = (7, 7, 0xf000);
    let expected = SrqRequest { driver: DRIVER, ring: true, log_size, log_stride, buf, dbr: 0 };
    assert_eq!(program.model.seen.borrow().srq, Some(expected));
    // A QP on it has no receive queue of its own.
    let srq = program.data(0);
    let mut call = qp_call(&program, (pd, cq), 2, [1, 0, 1, 0, 0]);
    call.handle(3, srq);
    program.make(&call).unwrap();
    assert_eq!(program.model.seen.borrow().qp.unwrap().rq, None);
}

#[test]
fn a_cq_goes_on_in_another_ring() {
    let mut program = Program::bnxt();
    let cq = cq(&mut program);
    let mut call = Call::new(0, 0);
    call.input(&program.memory, 0, &[longs(&[0]), words(&[cq, 255])].concat()).output(1, 8);
    call.number(2, 19, 8).input(&program.memory, UHW_IN, &longs(&[0xe000]));
    program.make(&call).unwrap();
    let expected = ResizeRequest { log_size: 8, cqe_size: 32, buf: 0xe000 };
    assert_eq!(program.model.seen.borrow().resize, Some(expected));
    // Without where the ring lies.
    let input = [longs(&[0]), words(&[cq, 255])].concat();
    assert_eq!(program.write_command(19, &input, 8, 0).unwrap_err().errno, Errno::EINVAL);
}

#[test]
fn a_qp_of_datagrams_names_addresses_by_numbers() {
    let mut program = Program::bnxt();
    let (pd, cq) = (program.pd(), cq(&mut program));
    program.make(&qp_call(&program, (pd, cq), 4, [1, 1, 1, 1, 0])).unwrap();
    assert_eq!(program.model.seen.borrow().qp.unwrap().service, Service::Datagram);
    // The device tells the number in the page that the library has mapped: it asks for no answer.
    assert_eq!(DRIVER.address_handle_at(), Some(0x10));
    let gid = [7; 16];
    let (core, _) = program.write_command(5, &address(pd, gid), 4, 0).unwrap();
    assert_eq!(program.model.seen.borrow().gid, Some(gid));
    let live = program.model.live.get();
    program.make(&Call::destroy(6, 0, program.memory.word(core))).unwrap();
    assert_eq!(program.model.live.get(), live - 1);
}

#[test]
fn what_it_has_not_is_refused() {
    let mut program = Program::bnxt();
    let (pd, cq) = (program.pd(), cq(&mut program));
    for kind in [3, 8, 0xff] {
        let call = qp_call(&program, (pd, cq), kind, [1, 1, 1, 1, 0]);
        assert_eq!(program.errno(&call), Errno::EOPNOTSUPP, "type {kind}");
    }
    for input in [&[][..], &[0; 15]] {
        let mut call = cq_call(&program, 63);
        let at = call.attrs.iter().position(|attr| attr.id == UHW_IN).unwrap();
        call.attrs[at].len = input.len() as u16;
        assert_eq!(program.errno(&call), Errno::EINVAL, "{} bytes", input.len());
    }
    // Objects and methods of mlx5's driver.
    for (object, method) in [(0x1008, 0x1000), (0x1002, 0x1000), (0x1000, 0x1001), (0x1001, 0x1000)]
    {
        let call = Call::minimal(&program.memory, object, method);
        assert_eq!(program.errno(&call), Errno::EPROTONOSUPPORT, "{object:#x} {method:#x}");
    }
    // A library that takes the device for mlx5's.
    let refusal = program.make_as(&Call::destroy(3, 1, cq), 1).unwrap_err();
    assert_eq!(refusal.errno, Errno::EINVAL);
    assert!(refusal.why.contains("bnxt_re"), "{refusal}");
}

/// A QP whose program says what its queues are: slots and entries of packet numbers; slots of the receive queue
/// and of a receive.
fn fixed_qp(
    program: &Program,
    (pd, cq): (u32, u32),
    [slots, entries]: [u32; 2],
    receives: Option<[u32; 2]>,
) -> Call {
    let mut call = qp_call(program, (pd, cq), 2, [64, 16, 1, 2, 16]);
    call.attrs.retain(|attr| attr.id != UHW_IN);
    let fixed = [longs(&[0xc000, 0xe000, 9, 1]), words(&[slots, entries])].concat();
    let input = [fixed, words(&receives.unwrap_or_default())].concat();
    call.input(&program.memory, UHW_IN, &input);
    call
}

#[test]
fn a_program_may_say_what_its_queues_are() {
    let mut program = Program::bnxt();
    let pd = program.pd();
    let cq_of = |program: &Program, entries: u32, fixed: u64| {
        let mut call = cq_call(program, entries);
        call.attrs.retain(|attr| attr.id != UHW_IN);
        call.input(&program.memory, UHW_IN, &longs(&[0xa000, 0, fixed]));
        call
    };
    let library = BnxtLibrary::Current;
    let driver = Driver::Bnxt { doorbells: DOORBELLS, library };
    for (entries, log_size) in [(1, 0), (64, 6), (4096, 12)] {
        let call = cq_of(&program, entries, 1);
        program.make(&call).unwrap();
        let seen = program.model.seen.borrow().cq.unwrap();
        assert_eq!((seen.driver, seen.log_size), (driver, log_size));
        // One entry is written over and over.
        assert_eq!((seen.collapsed, seen.ignore_overrun), (entries == 1, entries == 1));
    }
    for (entries, fixed) in [(63, 1), (0, 1)] {
        let call = cq_of(&program, entries, fixed);
        assert_eq!(program.errno(&call), Errno::EINVAL, "{entries}");
    }
    let cq = cq(&mut program);
    for (receives, rq, receive_slots) in [
        (None, None, None),
        (Some([64, 4]), Some((4, 6)), Some(4)),
        (Some([48, 3]), Some((4, 6)), Some(3)),
    ] {
        let call = fixed_qp(&program, (pd, cq), [192, 128], receives);
        program.make(&call).unwrap();
        let seen = program.model.seen.borrow().qp.unwrap();
        let fixed = Some(BnxtFixed { slots: 192, log_packets: 7, receive_slots });
        assert_eq!(seen.queues, Queues::Bnxt { sq: 0xc000, handle: 9, library, fixed });
        assert_eq!((seen.log_sq, seen.rq, seen.buf), (Some(6), rq, 0xe000));
        assert_eq!(seen.receive_bytes(), receive_slots.map(|slots| 16 * u64::from(slots)));
    }
    // A library's request is shorter, and its mask may be any.
    let mut call = fixed_qp(&program, (pd, cq), [u32::MAX, 7], None);
    call.attrs.retain(|attr| attr.id != UHW_IN);
    let input = [longs(&[0xc000, 0xe000, 9, u64::MAX]), words(&[u32::MAX, 7])].concat();
    call.input(&program.memory, UHW_IN, &input);
    program.make(&call).unwrap();
    let seen = program.model.seen.borrow().qp.unwrap();
    assert!(matches!(seen.queues, Queues::Bnxt { fixed: None, .. }), "{seen:?}");
    for (sends, receives) in [
        ([2, 1], None),
        ([0x1_0001, 0x1_0000], None),
        ([192, 64], None),
        ([192, 256], None),
        ([192, 128], Some([64, 0])),
        ([192, 128], Some([64, 2])),
        ([192, 128], Some([63, 4])),
        ([192, 128], Some([12, 4])),
        ([192, 128], Some([u32::MAX, 5])),
    ] {
        let call = fixed_qp(&program, (pd, cq), sends, receives);
        assert_eq!(program.errno(&call), Errno::EINVAL, "{sends:?} {receives:?}");
    }
}
