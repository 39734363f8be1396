//! Devices, ports, GIDs, events.

use nix::errno::Errno;
use std::time::Duration;
use warpverbs_verbs::testing::fake;
use warpverbs_verbs::{
    AsyncEvent, CallError, GidKind, LinkLayer, Mtu, PortState, Transport, VerbsError, sys,
};

#[test]
fn devices_are_listed_and_opened_by_name() {
    let Some(fake) = fake() else { return };
    let devices = fake.verbs().all_devices().unwrap();
    let names: Vec<_> = devices.iter().map(|d| d.name()).collect();
    assert_eq!(names, ["fake0", "fake1"]);
    assert_eq!(devices[1].guid(), 0x0200_0000_0000_0001);
    assert_eq!(devices[1].transport(), Transport::Infiniband);
    assert_eq!(
        (devices[1].node(), devices[0].sysfs().ends_with("fake0")),
        ("uverbs1".into(), true)
    );
    let refused = fake.verbs().device("mlx5_0").unwrap_err();
    assert_eq!(refused.to_string(), "no RDMA device \"mlx5_0\"; there are fake0, fake1");
    // The list goes before the device is opened.
    let device = devices.into_iter().next().unwrap();
    let context = device.open().unwrap();
    drop(device);
    assert_eq!((context.device().name(), context.comp_vectors()), ("fake0", 2));
}

#[test]
fn a_device_tells_of_itself_and_its_port() {
    let Some(fake) = fake() else { return };
    for name in ["fake0", "fake1"] {
        // The second is of before extensions: other functions are called, with the same answers.
        let context = fake.verbs().device(name).unwrap().open().unwrap();
        let attr = context.attr().unwrap();
        assert_eq!((attr.firmware.as_str(), attr.ports, attr.max_qp_wr), ("1.2.3", 1, 1024));
        let port = context.port(1).unwrap();
        assert_eq!((port.state, port.active_mtu), (PortState::Active, Some(Mtu::B1024)));
        assert_eq!(port.mbps, Some(100_000));
        let (link, lid) =
            if name == "fake0" { (LinkLayer::Ethernet, 0) } else { (LinkLayer::InfiniBand, 5) };
        assert_eq!((port.link_layer, port.lid), (link, lid));
        assert_eq!(context.pkey(1, 0).unwrap(), 0xffff);
        assert!(context.pkey(1, 9).is_err() && context.port(2).is_err());
    }
}

#[test]
fn the_gid_is_chosen_from_the_table() {
    let Some(fake) = fake() else { return };
    let context = fake.verbs().device("fake0").unwrap().open().unwrap();
    assert_eq!(context.gids(1).unwrap().len(), 4);
    let choice = context.choose_gid(1).unwrap();
    assert_eq!((choice.entry.index, choice.entry.kind), (3, GidKind::RoceV2));
    assert_eq!(choice.entry.gid.ipv4(), Some("127.0.0.1".parse().unwrap()));
    // A library that cannot tell the table is asked entry by entry; the kinds then come from
    // sysfs, which tells nothing of this device.
    fake.fail_next("ibv_query_gid_table", libc::EOPNOTSUPP);
    let table = context.gids(1).unwrap();
    assert_eq!(table.len(), 4);
    assert!(table.iter().all(|entry| entry.kind == GidKind::Unknown), "{table:?}");
    let other = fake.verbs().device("fake1").unwrap().open().unwrap();
    assert_eq!(other.choose_gid(1).unwrap().entry.kind, GidKind::Ib);
}

#[test]
fn events_are_waited_for_with_an_end() {
    let Some(fake) = fake() else { return };
    let context = fake.verbs().device("fake0").unwrap().open().unwrap();
    assert_eq!(context.next_event(Duration::from_millis(1)).unwrap(), None);
    fake.port_event(&context, sys::IBV_EVENT_PORT_ERR);
    fake.port_event(&context, 99);
    let port = AsyncEvent::Port { port: 1, active: false };
    assert_eq!(context.next_event(Duration::from_secs(30)).unwrap(), Some(port));
    let unknown = AsyncEvent::Unknown(99);
    assert_eq!(context.next_event(Duration::ZERO).unwrap(), Some(unknown));
    assert_eq!(context.next_event(Duration::ZERO).unwrap(), None);
}

#[test]
fn a_failed_call_names_itself() {
    let Some(fake) = fake() else { return };
    let before = fake.live();
    fake.fail_next("ibv_get_device_list", libc::ENOSYS);
    let error = fake.verbs().all_devices().unwrap_err();
    assert!(error.to_string().contains("ibv_get_device_list failed: ENOSYS"), "{error}");
    fake.fail_next("ibv_open_device", libc::EACCES);
    let error = fake.verbs().device("fake0").unwrap().open().unwrap_err();
    let source = CallError { call: "ibv_open_device", errno: Errno::EACCES };
    let VerbsError::Advised { call: found, advice } = error else { panic!("{error}") };
    assert_eq!(found, source);
    // Machines that run this test have a node uverbs0 or not.
    assert!(advice.contains("/dev/infiniband"), "{advice}");
    assert_eq!(fake.live(), before);
}
