//! The transport of device-memory TCP between two guests, over virtio-net: no loopback, segments of an
//! Ethernet, and a kernel that binds no queue, so payload is received into host memory.

use super::bed::{FIRST, FIRST_V6, Nic};
use super::build;
use super::case::{Case, Part, Shown};
use anyhow::{Result, ensure};

/// Servers in guest 1, their clients in guest 2, and what both have to print.
const CASES: [[&str; 4]; 4] = [
    [
        "tcpx_connection server",
        "tcpx_connection client HOST --sockets 4",
        FIRST,
        "passed: both ends said goodbye",
    ],
    [
        "tcpx_transfer server",
        "tcpx_transfer client HOST --bytes 1000001",
        FIRST,
        "passed: every byte compared",
    ],
    // virtio-net binds no queue; the kernel's reason is printed, and the transfer goes on.
    [
        "tcpx_transfer server --queues eth0:0",
        "tcpx_transfer client HOST --bytes 8M",
        FIRST,
        "passed: every byte compared",
    ],
    [
        "tcpx_transfer server --bind ::",
        "tcpx_transfer client HOST --bytes 8M --sockets 5",
        FIRST_V6,
        "passed: every byte compared",
    ],
];

pub(super) fn part() -> Result<Part> {
    let programs = build::examples("warpverbs", &["tcpx_connection", "tcpx_transfer"])?;
    let case = |[server, client, host, expected]: [&str; 4]| {
        let both = [server.to_owned(), client.replace("HOST", host)];
        let name = both.join(", ");
        let both = both.map(|command| format!("{command} --gpu simt"));
        let case = Case::pair(name, [Nic::Soft; 2], both).shown(Shown::Both).words(&[expected]);
        match server.contains("--queues") {
            true => case.check(|_, [said, _]| {
                // Which depends on the kernel: before 6.12 it has no such request at all.
                let why = said.split_once("the fallback: ").map_or("", |(_, why)| why);
                let says = !why.is_empty() && !why.starts_with("no receive queue was named");
                ensure!(says, "the server does not say why eth0 binds nothing: {said}");
                Ok(String::new())
            }),
            false => case,
        }
    };
    Ok(Part { name: "tcp", programs, cases: CASES.into_iter().map(case).collect() })
}
