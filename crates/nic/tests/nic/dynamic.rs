//! Ends of dynamic connections: objects with states, for which there are no packets.

use warpverbs_dev::{Pair, Port, PortConfig, bytes, connect, remote};
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_mlx5::wqe::WqeBuilder;
use warpverbs_nic::{ModifyError, Mtu, Path, QpAttrs, QpState, Rule, Service};

#[test]
fn what_is_posted_to_an_initiator_is_refused() {
    let pair = Pair::default();
    let ports = PortConfig { service: Service::DcInitiator, ..PortConfig::default() };
    let mut port = Port::new(&pair.nic, &pair.pd, &ports).unwrap();
    let qp = port.qp.clone();
    // A peer and its rights are not an initiator's.
    let rights =
        QpAttrs { access: Some(warpverbs_mem::Access::REMOTE_WRITE), ..QpAttrs::default() };
    assert!(matches!(qp.modify(QpState::Init, &rights), Err(ModifyError::Transition(_))));
    qp.modify(QpState::Init, &QpAttrs::default()).unwrap();
    let mtu = QpAttrs { mtu: Some(Mtu::B1024), ..QpAttrs::default() };
    let peer = QpAttrs { dest_qpn: Some(7), ..mtu };
    assert!(matches!(qp.modify(QpState::Rtr, &peer), Err(ModifyError::Transition(_))));
    qp.modify(QpState::Rtr, &mtu).unwrap();
    qp.modify(QpState::Rts, &QpAttrs::rts()).unwrap();
    let to = remote(&pair.mr_b, 0);
    port.post_wqe(|buf, at| WqeBuilder::write(buf, at, to).signaled().inline(b"data"));
    pair.run();
    assert_eq!(port.sent(), [(0, Some(Syndrome::LocalQpOp))]);
    let violations = pair.nic.take_violations();
    assert_eq!(violations.iter().map(|v| v.rule).collect::<Vec<_>>(), [Rule::DynamicConnection]);
    assert_eq!(qp.state(), QpState::Err);
    assert_eq!(bytes(pair.mr_b.region(), 0, 4), [0; 4]);
    // It can be used again, to the same end.
    qp.modify(QpState::Reset, &QpAttrs::default()).unwrap();
    qp.modify(QpState::Init, &QpAttrs::default()).unwrap();
}

#[test]
fn a_connection_does_not_reach_a_target() {
    let pair = Pair::default();
    let ports = PortConfig { service: Service::DcTarget, ..PortConfig::default() };
    let target = Port::new(&pair.nic, &pair.pd, &ports).unwrap();
    let all = warpverbs_mem::Access::all();
    let attrs = QpAttrs { access: Some(all), ..QpAttrs::default() };
    target.qp.modify(QpState::Init, &attrs).unwrap();
    let rtr = QpAttrs {
        mtu: Some(Mtu::B1024),
        path: Some(Path::Loopback),
        min_rnr_timer: Some(12),
        ..QpAttrs::default()
    };
    target.qp.modify(QpState::Rtr, &rtr).unwrap();
    let rts = target.qp.modify(QpState::Rts, &QpAttrs::rts());
    assert!(matches!(rts, Err(ModifyError::Transition(_))), "{rts:?}");
    let mut port = Port::new(&pair.nic, &pair.pd, &PortConfig::default()).unwrap();
    connect(&port, target.qp.qpn(), QpAttrs { retry: Some(0), ..QpAttrs::rts() });
    let to = remote(&pair.mr_b, 0);
    port.post_wqe(|buf, at| WqeBuilder::write(buf, at, to).signaled().inline(b"data"));
    pair.run();
    let sent = port.sent();
    assert!(sent.is_empty() || sent == [(0, Some(Syndrome::TransportRetryExc))], "{sent:?}");
    assert_eq!(bytes(pair.mr_b.region(), 0, 4), [0; 4]);
}
