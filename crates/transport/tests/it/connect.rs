//! Opening, configuring and connecting.

use crate::common::{Pair, connect};
use warpverbs_nic::{Config, SoftNic};
use warpverbs_transport::{
    Context, EndpointConfig, EndpointHandle, ErrorKind, NicChoice, QpState, SendFlags,
    TransportError, UsageError,
};

#[test]
fn a_nic_is_chosen_by_name_and_says_why() {
    let context = Context::new().unwrap();
    let names: Vec<_> = context.devices().unwrap().into_iter().map(|info| info.name).collect();
    assert_eq!(names, ["soft0"]);
    for choice in ["auto", "soft", "soft0"] {
        let device = context.open(choice).unwrap();
        assert_eq!(device.info().name, "soft0");
        assert!(device.why().starts_with("soft0: ") && !device.why().contains('\n'));
    }
    let choice = NicChoice::Named("mlx5_7".into());
    let error = context.open(&choice).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no NIC is called \"mlx5_7\"; expected auto, soft, soft-bnxt, soft-ionic or one of: soft0"
    );
    assert_eq!(error.kind(), ErrorKind::BadCaller);
}

#[test]
fn devices_of_one_context_reach_each_other_and_others_do_not() {
    let context = Context::new().unwrap();
    let (one, two) = (context.open("soft").unwrap(), context.open("soft").unwrap());
    let elsewhere = Context::new().unwrap().open("soft").unwrap();
    assert_eq!(one.id(), two.id());
    let a = one.endpoint(&EndpointConfig::host()).unwrap();
    let b = two.endpoint(&EndpointConfig::host()).unwrap();
    let far = elsewhere.endpoint(&EndpointConfig::host()).unwrap();
    let error = a.connect(&far.handle()).unwrap_err();
    assert!(matches!(error, TransportError::Usage(UsageError::NoWay { .. })), "{error}");
    assert_eq!((a.peer(), a.state()), (None, QpState::Init));
    connect(&a, &b);
    assert_eq!((a.peer(), a.state()), (Some(b.qpn()), QpState::Rts));
    let host = a.host().unwrap();
    host.wait(host.post_nop(SendFlags::SIGNALED).unwrap()).unwrap();
}

#[test]
fn an_endpoint_connects_once_and_not_to_itself() {
    let device = Context::new().unwrap().open("soft").unwrap();
    let a = device.endpoint(&EndpointConfig::host()).unwrap();
    let b = device.endpoint(&EndpointConfig::host()).unwrap();
    let early = a.host().unwrap().post_nop(SendFlags::SIGNALED).unwrap_err();
    assert!(matches!(early, TransportError::Usage(UsageError::NotConnected { .. })), "{early}");
    let own = EndpointHandle::from_bytes(&a.handle().to_bytes()).unwrap();
    assert!(matches!(
        a.connect(&own),
        Err(TransportError::Usage(UsageError::ConnectToSelf { .. }))
    ));
    a.connect(&b.handle()).unwrap();
    let again = a.connect(&b.handle()).unwrap_err();
    let TransportError::Usage(UsageError::AlreadyConnected { qpn, peer }) = again else {
        panic!("{again}")
    };
    assert_eq!((qpn, peer), (a.qpn(), b.qpn()));
}

#[test]
fn sizes_that_will_not_do_are_named() {
    let device = Context::new().unwrap().open("soft").unwrap();
    let host = EndpointConfig::host;
    for (config, field) in [
        (host().send_depth(100), "send_depth"),
        (host().send_depth(64), "send_depth"),
        (host().send_depth(65536), "send_depth"),
        (host().recv_depth(3), "recv_depth"),
        (host().recv_depth(65536), "recv_depth"),
        (host().recv_sges(3), "recv_sges"),
        (host().recv_sges(0), "recv_sges"),
        (host().inline_bytes(30), "inline_bytes"),
        (host().inline_bytes(224), "inline_bytes"),
        (host().rd_atomic(0), "rd_atomic"),
        (host().placement(warpverbs_transport::QueuePlacement::PinnedHost), "placement"),
    ] {
        match device.endpoint(&config) {
            Err(TransportError::Usage(UsageError::Config { field: named, .. })) => {
                assert_eq!(named, field)
            }
            other => panic!("{field}: {other:?}"),
        }
    }
    for (depth, sges) in [(1, 1), (12, 1), (65536, 1), (8, 3), (8, 64)] {
        assert!(matches!(
            device.srq(depth, sges),
            Err(TransportError::Usage(UsageError::Config { .. }))
        ));
    }
    let largest = host().send_depth(32768).recv_depth(32768).recv_sges(64).inline_bytes(220);
    let pair = Pair::on(device, &largest);
    let a = pair.a.host().unwrap();
    let posted = a.post_write_inline(&[7; 220], pair.dst.remote(), SendFlags::SIGNALED).unwrap();
    a.wait(posted).unwrap();
    assert_eq!(crate::common::bytes(&pair.dst, 0, 220), [7; 220]);
}

#[test]
fn retries_out_of_range_leave_the_endpoint_unconnected() {
    let device = Context::new().unwrap().open("soft").unwrap();
    let a = device.endpoint(&EndpointConfig::host().retries(8, 7)).unwrap();
    let b = device.endpoint(&EndpointConfig::host()).unwrap();
    let error = a.connect(&b.handle()).unwrap_err();
    assert_eq!((error.kind(), a.peer(), a.state()), (ErrorKind::BadCaller, None, QpState::Init));
}

#[test]
fn a_test_may_step_its_own_nic() {
    let nic = SoftNic::new(Config { seed: Some(1), ..Config::default() }).unwrap();
    let pair = Pair::stepped(&nic, &EndpointConfig::host());
    let host = pair.a.host().unwrap();
    let posted = host.post_nop(SendFlags::SIGNALED).unwrap();
    assert!(!host.is_done(posted).unwrap());
    crate::common::settle(&nic);
    assert!(host.is_done(posted).unwrap());
}
