//! The running kernel's netlink interface. Operations that a kernel lacks are named; those that it
//! has must answer as documented.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use warpverbs_devmem::kernel::{Ethtool, Interface, Netdev, NetlinkError, Operation, Steering};

/// The family, or a line that says why the test ends here.
fn netdev() -> Option<Netdev> {
    match Netdev::open() {
        Ok(netdev) => Some(netdev),
        Err(error) => {
            println!("SKIPPED: {error}");
            None
        }
    }
}

#[test]
fn interfaces_without_device_memory_refuse_with_advice() {
    let Some(netdev) = netdev() else { return };
    let has = [Operation::Receive, Operation::Send].map(|operation| netdev.has(operation));
    println!("bind for receiving: {}, for sending: {}", has[0], has[1]);
    let file = File::open("/dev/null").expect("a descriptor that is no dmabuf");
    let loopback = Interface::named("lo").expect("loopback");
    let none = Interface { index: u32::MAX - 1, name: "none".to_owned() };
    for interface in [&loopback, &none] {
        if has[0] {
            let refused = netdev_again().bind_receive(interface, &[0], file.as_fd());
            let line = refused.err().expect("refused").to_string();
            println!("{line}");
            let known = ["cannot receive", "CAP_NET_ADMIN", "no such interface", "not a dmabuf"];
            assert!(known.iter().any(|part| line.contains(part)), "{line}");
            assert!(line.contains(&interface.name) && !line.contains('\n'), "{line}");
        }
    }
}

fn netdev_again() -> Netdev {
    Netdev::open().expect("as before")
}

#[test]
fn loopback_steers_no_flows_and_says_what_would_help() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a listener");
    let socket = TcpStream::connect(listener.local_addr().expect("its address")).expect("TCP");
    let loopback = Interface::named("lo").expect("loopback");
    let line = Steering::of(&socket, &loopback, 1).expect_err("it has no rules").to_string();
    println!("{line}");
    let known = ["CAP_NET_ADMIN", "ethtool -K lo ntuple on"];
    assert!(known.iter().any(|part| line.contains(part)) && !line.contains('\n'), "{line}");
}

#[test]
fn rings_of_loopback_are_not_there() {
    let Ok(mut ethtool) = Ethtool::open() else {
        println!("SKIPPED: no ethtool family");
        return;
    };
    let loopback = Interface::named("lo").expect("loopback");
    let error = ethtool.rings(&loopback).expect_err("it has none");
    println!("{error}");
    assert!(matches!(error, NetlinkError::Refused { errno: libc::EOPNOTSUPP, .. }), "{error}");
    for interface in Interface::all().expect("sysfs") {
        println!("{}: {:?}", interface.name, ethtool.rings(&interface));
    }
}
