//! Work that never leaves the NIC (NOP, LOCAL_INVAL) between requests that do.

use std::time::Duration;
use warpverbs_dev::{Net, PortConfig, bytes, remote, sge};
use warpverbs_mem::{Access, HostBuf};
use warpverbs_mlx5::num::Rkey;
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_mlx5::wqe::WqeBuilder;
use warpverbs_nic::link::FaultPlan;
use warpverbs_nic::{QpAttrs, QpState};

fn net() -> Net {
    Net::new(FaultPlan::default(), &PortConfig::default(), QpAttrs::default()).expect("two NICs")
}

/// Puts a WRITE of one byte into the ring, without announcing it.
fn put_write(net: &mut Net, byte: u8) {
    let to = remote(&net.b.mr, u64::from(byte));
    let wqe = |buf: &mut [u8], at| {
        WqeBuilder::write(buf, at, to).inline(&[byte]).signaled().finish().map(<[u8]>::len)
    };
    net.a.port.put(wqe).expect("a WRITE");
}

fn put_nop(net: &mut Net) {
    let wqe = |buf: &mut [u8], at| WqeBuilder::nop(buf, at).signaled().finish().map(<[u8]>::len);
    net.a.port.put(wqe).expect("a NOP");
}

fn ring(net: &mut Net) {
    net.a.port.record();
    net.a.port.ring();
}

#[test]
fn nops_between_writes_complete_in_their_place() {
    for (name, order) in [
        ("WRITE NOP WRITE", &[true, false, true][..]),
        ("NOP first", &[false, true, false, false, true]),
        ("NOP last", &[true, true, false]),
        ("two NOPs", &[true, false, false, true, true]),
    ] {
        let mut net = net();
        for (at, writes) in order.iter().enumerate() {
            if *writes { put_write(&mut net, at as u8) } else { put_nop(&mut net) }
        }
        ring(&mut net);
        net.run();
        let expected: Vec<_> = (0..order.len() as u16).map(|index| (index, None)).collect();
        assert_eq!(net.a.port.sent(), expected, "{name}");
        assert_eq!(net.a.port.qp.state(), QpState::Rts, "{name}");
    }
}

#[test]
fn the_error_of_a_request_behind_a_nop_is_that_request_s() {
    let mut net = net();
    put_write(&mut net, 1);
    put_nop(&mut net);
    let wrong = Rkey(net.b.mr.rkey() ^ 1);
    let to = warpverbs_mlx5::wqe::Remote { rkey: wrong, ..remote(&net.b.mr, 0) };
    let wqe = |buf: &mut [u8], at| {
        WqeBuilder::write(buf, at, to).inline(b"x").signaled().finish().map(<[u8]>::len)
    };
    net.a.port.put(wqe).expect("a WRITE");
    put_nop(&mut net);
    ring(&mut net);
    net.run_for(Duration::from_millis(20));
    let flushed = Some(Syndrome::WrFlush);
    let expected = [(0, None), (1, None), (2, Some(Syndrome::RemoteAccess)), (3, flushed)];
    assert_eq!(net.a.port.sent(), expected);
}

#[test]
fn an_invalidation_waits_for_requests_before_it() {
    let mut net = net();
    let region = HostBuf::region(64).expect("memory");
    region.write(0, b"once").expect("inside");
    let rights = Access::LOCAL_WRITE | Access::INVALIDATE;
    let mr = net.a.nic.reg_mr(&net.a.pd, &region, rights).expect("a key");
    let (from, to) = (sge(&mr, 0, 4), remote(&net.b.mr, 0));
    let write = |buf: &mut [u8], at| {
        WqeBuilder::write(buf, at, to).sge(from).signaled().finish().map(<[u8]>::len)
    };
    let inval = |buf: &mut [u8], at| {
        let key = Rkey(mr.rkey());
        WqeBuilder::local_inval(buf, at, key).signaled().finish().map(<[u8]>::len)
    };
    net.a.port.put(write).expect("a WRITE");
    net.a.port.put(inval).expect("a LOCAL_INVAL");
    put_nop(&mut net);
    put_write(&mut net, 9);
    net.a.port.put(write).expect("a WRITE");
    ring(&mut net);
    net.run_for(Duration::from_millis(20));
    let gone = Some(Syndrome::LocalProt);
    assert_eq!(net.a.port.sent(), [(0, None), (1, None), (2, None), (3, None), (4, gone)]);
    assert_eq!(bytes(net.b.mr.region(), 0, 4), b"once");
}
