//! Anything may be dropped at any time, with work in flight.

use crate::common::Pair;
use warpverbs_transport::{Context, EndpointConfig, SendFlags};

/// Posts much, drops the parts in the order that `order` names, and lets the engine find out.
fn drop_in_order(order: [usize; 5]) {
    let Pair { a, b, src, dst, device } = Pair::new(&EndpointConfig::host());
    let host = a.host().unwrap();
    for _ in 0..100 {
        let _ = host.post_write(src.local(), dst.remote(), SendFlags::UNSIGNALED).unwrap();
        let _ = host.post_read(src.local(), dst.remote(), SendFlags::SIGNALED).unwrap();
    }
    let _ = b.host().unwrap().post_recv(dst.local()).unwrap();
    let mut parts: [Option<Box<dyn std::any::Any>>; 5] = [
        Some(Box::new(a)),
        Some(Box::new(b)),
        Some(Box::new(src)),
        Some(Box::new(dst)),
        Some(Box::new(device)),
    ];
    for part in order {
        parts[part] = None;
        std::thread::yield_now();
    }
}

#[test]
fn every_order_of_dropping_is_safe() {
    let mut orders = vec![vec![]];
    for _ in 0..5 {
        orders = orders
            .into_iter()
            .flat_map(|order: Vec<usize>| {
                let rest = (0..5).filter(|n| !order.contains(n)).collect::<Vec<_>>();
                rest.into_iter().map(move |n| [order.clone(), vec![n]].concat())
            })
            .collect();
    }
    assert_eq!(orders.len(), 120);
    for order in orders {
        drop_in_order(order.try_into().unwrap());
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
