//! Work that never leaves the NIC (NOP, LOCAL_INVAL) between requests that do.

use std::time::Duration;
use warpverbs_dev::{Net, bytes, remote, sge};
use warpverbs_mem::{Access, HostBuf};
use warpverbs_mlx5::num::Rkey;
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_mlx5::wqe::WqeBuilder;
use warpverbs_nic::{QpAttrs, QpState};

/// Puts a WRITE of one byte into the ring, without announcing it.
fn put_write(net: &mut Net, byte: u8) {
    let to = remote(&net.b.mr, u64::from(byte));
    net.a.port.put_wqe(|buf, at| WqeBuilder::write(buf, at, to).inline(&[byte]).signaled());
}

fn put_nop(net: &mut Net) {
    net.a.port.put_wqe(|buf, at| WqeBuilder::nop(buf, at).signaled());
}

#[test]
fn nops_between_writes_complete_in_their_place() {
    for (name, order) in [
        ("WRITE NOP WRITE", &[true, false, true][..]),
        ("NOP first", &[false, true, false, false, true]),
        ("NOP last", &[true, true, false]),
        ("two NOPs", &[true, false, false, true, true]),
    ] {
        let mut net = Net::perfect(QpAttrs::default());
        for (at, writes) in order.iter().enumerate() {
            if *writes { put_write(&mut net, at as u8) } else { put_nop(&mut net) }
        }
        net.a.port.announce();
        net.run();
        let expected: Vec<_> = (0..order.len() as u16).map(|index| (index, None)).collect();
        assert_eq!(net.a.port.sent(), expected, "{name}");
        assert_eq!(net.a.port.qp.state(), QpState::Rts, "{name}");
    }
}

#[test]
fn the_error_of_a_request_behind_a_nop_is_that_request_s() {
    let mut net = Net::perfect(QpAttrs::default());
    put_write(&mut net, 1);
    put_nop(&mut net);
    let wrong = Rkey(net.b.mr.rkey() ^ 1);
    let to = warpverbs_mlx5::wqe::Remote { rkey: wrong, ..remote(&net.b.mr, 0) };
    net.a.port.put_wqe(|buf, at| WqeBuilder::write(buf, at, to).inline(b"x").signaled());
    put_nop(&mut net);
    net.a.port.announce();
    net.run_for(Duration::from_millis(20));
    let flushed = Some(Syndrome::WrFlush);
    let expected = [(0, None), (1, None), (2, Some(Syndrome::RemoteAccess)), (3, flushed)];
    assert_eq!(net.a.port.sent(), expected);
}

#[test]
fn an_invalidation_waits_for_requests_before_it() {
    let mut net = Net::perfect(QpAttrs::default());
    let region = HostBuf::region(64).expect("memory");
    region.write(0, b"once").expect("inside");
    let rights = Access::LOCAL_WRITE | Access::INVALIDATE;
    let mr = net.a.nic.reg_mr(&net.a.pd, &region, rights).expect("a key");
    let (from, to) = (sge(&mr, 0, 4), remote(&net.b.mr, 0));
    let write = |net: &mut Net| {
        net.a.port.put_wqe(|b, at| WqeBuilder::write(b, at, to).sge(from).signaled())
    };
    write(&mut net);
    let key = Rkey(mr.rkey());
    net.a.port.put_wqe(|buf, at| WqeBuilder::local_inval(buf, at, key).signaled());
    put_nop(&mut net);
    put_write(&mut net, 9);
    write(&mut net);
    net.a.port.announce();
    net.run_for(Duration::from_millis(20));
    let gone = Some(Syndrome::LocalProt);
    assert_eq!(net.a.port.sent(), [(0, None), (1, None), (2, None), (3, None), (4, gone)]);
    assert_eq!(bytes(net.b.mr.region(), 0, 4), b"once");
}
