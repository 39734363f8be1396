//! Answers to libionic beside the common ones, and refusals.

use crate::common::call::{Call, Program};
use crate::common::device::DOORBELLS;
use crate::queues::{address, longs, words};
use warpverbs_rdma::Service;
use warpverbs_uverbs::abi::{IonicCqReq, IonicCtxResp, IonicQdesc, IonicQpReq};
use warpverbs_uverbs::schema::{UHW_IN, UHW_OUT};
use warpverbs_uverbs::{CqRequest, Driver, Errno, Queues};
use zerocopy::{FromBytes, IntoBytes};

/// A ring of 2^`depth` entries of 2^`stride` bytes.
fn ring(addr: u64, depth: u8, stride: u8) -> IonicQdesc {
    let (size, mask) = (1 << (depth + stride), ((1u32 << depth) - 1) as u16);
    IonicQdesc { addr, size, mask, depth_log2: depth, stride_log2: stride }
}

fn cq_request() -> IonicCqReq {
    IonicCqReq { cq: [ring(0xa000, 8, 5), IonicQdesc::default()], udma_mask: 1, rsvd: [0; 7] }
}

fn cq_call(program: &Program, request: &IonicCqReq) -> Call {
    let mut call = Call::new(3, 0);
    call.handle(0, 0).number(1, 100, 4).number(2, 77, 8).number(4, 0, 4).output(6, 4);
    call.input(&program.memory, UHW_IN, request.as_bytes()).output(UHW_OUT, 16);
    call
}

fn qp_request() -> IonicQpReq {
    let (sq, rq) = (ring(0xc000, 7, 6), ring(0xe000, 9, 7));
    // The library asks for queues in the device's memory.
    IonicQpReq { sq, rq, sq_cmb: 1, rq_cmb: 1, udma_mask: 1, ..IonicQpReq::default() }
}

/// Of this type.
fn qp_call(program: &Program, (pd, cq): (u32, u32), kind: u64, request: &IonicQpReq) -> Call {
    let mut call = Call::new(4, 0);
    call.handle(0, 0).handle(2, pd.into()).handle(4, cq.into()).handle(5, cq.into());
    call.number(7, 5, 8).input(&program.memory, 8, &words(&[100, 500, 2, 2, 32]));
    call.number(9, kind, 8).number(10, 0, 4).output(13, 20).output(14, 4);
    call.input(&program.memory, UHW_IN, request.as_bytes()).output(UHW_OUT, 24);
    call
}

/// A domain and a CQ.
fn objects(program: &mut Program) -> (u32, u32) {
    let pd = program.pd();
    let call = cq_call(program, &cq_request());
    program.make(&call).unwrap();
    (pd, program.data(0) as u32)
}

#[test]
fn a_context_says_where_and_how_to_ring() {
    let mut program = Program::ionic();
    let mut again = Call::new(0, 3);
    again.input(&program.memory, UHW_IN, &[0; 8]).output(UHW_OUT, 32);
    assert_eq!(program.errno(&again), Errno::EINVAL, "open already");
    // The answer to the first call lies where that of this one would.
    let bytes: [u8; 32] = program.memory.get(again.last());
    let said = IonicCtxResp::read_from_bytes(&bytes).unwrap();
    assert_eq!((said.page_shift, said.dbell_offset, said.version), (12, DOORBELLS, 2));
    assert_eq!((said.sq_qtype, said.rq_qtype, said.cq_qtype), (1, 2, 3));
    // One pipeline; no lists of lengths, no doorbells in WQEs.
    assert_eq!((said.max_stride, said.udma_count, said.max_spec, said.expdb_mask), (9, 1, 0, 0));
}

#[test]
fn queues_have_the_sizes_that_the_library_gives_them() {
    let mut program = Program::ionic();
    let call = cq_call(&program, &cq_request());
    program.make(&call).unwrap();
    let expected = CqRequest {
        driver: Driver::Ionic { doorbells: DOORBELLS },
        log_size: 8,
        cqe_size: 32,
        buf: 0xa000,
        dbr: 0,
        ignore_overrun: false,
        collapsed: false,
        user_handle: 77,
        reported: false,
    };
    assert_eq!(program.model.seen.borrow().cq, Some(expected));
    let pipeline = program.memory.word(call.last() + 8);
    assert_eq!(pipeline, 1, "the pipeline that was asked for");
    let cq = program.data(0) as u32;
    let pd = program.pd();
    let call = qp_call(&program, (pd, cq), 2, &qp_request());
    program.make(&call).unwrap();
    let qp = program.model.seen.borrow().qp.unwrap();
    assert_eq!((qp.log_sq, qp.rq, qp.buf, qp.dbr), (Some(7), Some((9, 7)), 0xe000, 0));
    assert_eq!((qp.sq(), qp.queues), (0xc000, Queues::Ionic { sq: 0xc000, log_wqe: 6 }));
    // Its number, and no queue in the device's memory.
    let answer = [0, 4].map(|at| program.memory.word(call.last() + at));
    assert_eq!(answer, [program.memory.word(call.attrs[9].data), 0]);
}

#[test]
fn rings_whose_parts_disagree_are_refused() {
    let mut program = Program::ionic();
    let (pd, cq) = objects(&mut program);
    let good = cq_request();
    for bad in [
        IonicQdesc { size: 1 << 12, ..good.cq[0] },
        IonicQdesc { mask: 0x1ff, ..good.cq[0] },
        ring(0xa000, 8, 6),
        ring(0xa000, 17, 5),
        IonicQdesc { depth_log2: 255, stride_log2: 255, ..good.cq[0] },
    ] {
        let call = cq_call(&program, &IonicCqReq { cq: [bad; 2], ..good });
        assert_eq!(program.errno(&call), Errno::EINVAL, "{bad:?}");
    }
    for udma_mask in [0, 2, 3] {
        let call = cq_call(&program, &IonicCqReq { udma_mask, ..good });
        assert_eq!(program.errno(&call), Errno::EINVAL, "pipelines {udma_mask:#b}");
    }
    let good = qp_request();
    for bad in [ring(0xc000, 8, 5), ring(0xc000, 8, 10), ring(0xc000, 16, 6)] {
        for request in [IonicQpReq { sq: bad, ..good }, IonicQpReq { rq: bad, ..good }] {
            let call = qp_call(&program, (pd, cq), 2, &request);
            assert_eq!(program.errno(&call), Errno::EINVAL, "{bad:?}");
        }
    }
    let call = qp_call(&program, (pd, cq), 2, &IonicQpReq { udma_mask: 2, ..good });
    assert_eq!(program.errno(&call), Errno::EINVAL);
    let call = qp_call(&program, (pd, cq), 2, &IonicQpReq { sq_spec: 8, ..good });
    assert_eq!(program.errno(&call), Errno::EOPNOTSUPP);
}

#[test]
fn a_qp_of_datagrams_names_addresses_by_numbers() {
    let mut program = Program::ionic();
    let (pd, cq) = objects(&mut program);
    program.make(&qp_call(&program, (pd, cq), 4, &qp_request())).unwrap();
    assert_eq!(program.model.seen.borrow().qp.unwrap().service, Service::Datagram);
    let gid = [9; 16];
    let (_, uhw) = program.write_command(5, &address(pd, gid), 4, 8).unwrap();
    assert_eq!(program.model.seen.borrow().gid, Some(gid));
    assert_eq!(program.memory.word(uhw), program.model.newest());
}

#[test]
fn what_it_has_not_is_refused() {
    let mut program = Program::ionic();
    let (pd, cq) = objects(&mut program);
    for kind in [3, 8, 0xff] {
        let call = qp_call(&program, (pd, cq), kind, &qp_request());
        assert_eq!(program.errno(&call), Errno::EOPNOTSUPP, "type {kind}");
    }
    let mut call = Call::new(5, 0);
    call.handle(0, 0).handle(1, pd.into()).number(4, 0, 8).number(5, 100, 4).number(6, 2, 4);
    call.number(7, 0, 4).number(9, 0, 8).output(11, 4).output(12, 4).output(13, 4);
    assert_eq!(program.errno(&call), Errno::EOPNOTSUPP, "an SRQ");
    let resize = [longs(&[0]), words(&[cq, 127])].concat();
    assert_eq!(program.write_command(19, &resize, 8, 0).unwrap_err().errno, Errno::EOPNOTSUPP);
}
