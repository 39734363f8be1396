//! Anything may be dropped at any time, with work in flight.

use crate::common::{Pair, drop_in_order};
use std::any::Any;
use warpverbs_transport::{Context, EndpointConfig, SendFlags};

#[test]
fn every_order_of_dropping_is_safe() {
    for order in 0..120 {
        let Pair { a, b, src, dst, device } = Pair::new(&EndpointConfig::host());
        let host = a.host().unwrap();
        for _ in 0..100 {
            let _ = host.post_write(src.local(), dst.remote(), SendFlags::UNSIGNALED).unwrap();
            let _ = host.post_read(src.local(), dst.remote(), SendFlags::SIGNALED).unwrap();
        }
        let _ = b.host().unwrap().post_recv(dst.local()).unwrap();
        // The engine finds out.
        let parts: [Box<dyn Any>; 5] =
            [Box::new(a), Box::new(b), Box::new(src), Box::new(dst), Box::new(device)];
        drop_in_order(parts, order);
    }
}

#[test]
fn a_nic_outlives_its_context_and_ends_with_its_last_user() {
    let context = Context::new().unwrap();
    let device = context.open("soft").unwrap();
    drop(context);
    let pair = Pair::on(device, &EndpointConfig::host());
    let Pair { a, b, src, dst, device } = pair;
    drop(device);
    let host = a.host().unwrap();
    let posted = host.post_write(src.local(), dst.remote(), SendFlags::SIGNALED).unwrap();
    host.wait(posted).unwrap();
    b.close();
    drop((src, dst));
    // The peer is gone: the work fails, it does not hang.
    let host = a.host().unwrap();
    let posted = host.post_nop(SendFlags::SIGNALED).unwrap();
    let _ = host.wait(posted);
}

#[test]
fn work_on_memory_that_was_deregistered_fails_and_touches_nothing() {
    let pair = Pair::new(&EndpointConfig::host());
    let (host, stale) = (pair.a.host().unwrap(), pair.src.local());
    drop(pair.src);
    let posted = host.post_write(stale, pair.dst.remote(), SendFlags::SIGNALED).unwrap();
    let error = host.wait(posted).unwrap_err();
    assert!(error.to_string().contains("local protection error"), "{error}");
}

#[test]
fn a_lent_endpoint_is_not_reset_under_its_kernel() {
    let mut pair = Pair::new(&EndpointConfig::host());
    let lent = pair.a.device_qp();
    let error = pair.a.reset().unwrap_err();
    assert!(error.to_string().contains("still lent"), "{error}");
    drop(lent);
    pair.a.reset().unwrap();
}
