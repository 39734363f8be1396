//! The transport of device-memory TCP between two guests, over virtio-net: no loopback, segments of an
//! Ethernet, and a kernel that binds no queue, so payload is received into host memory.

use super::bed::{Bed, FIRST, FIRST_V6};
use super::{Options, build};
use anyhow::{Result, ensure};
use std::time::{Duration, Instant};

/// For one step on emulated machines that others keep busy, with room.
const LIMIT: Duration = Duration::from_secs(120);

/// A server in guest 1, its client in guest 2, and what both have to print.
struct Step {
    server: &'static str,
    host: &'static str,
    client: &'static str,
    expected: &'static str,
}

const STEPS: [Step; 4] = [
    Step {
        server: "tcpx_connection server",
        host: FIRST,
        client: "tcpx_connection client HOST --sockets 4",
        expected: "passed: both ends said goodbye",
    },
    Step {
        server: "tcpx_transfer server --unpack kernel",
        host: FIRST,
        client: "tcpx_transfer client HOST --bytes 1000001",
        expected: "passed: every byte compared",
    },
    // virtio-net binds no queue; the kernel's reason is printed, and the transfer goes on.
    Step {
        server: "tcpx_transfer server --queues eth0:0",
        host: FIRST,
        client: "tcpx_transfer client HOST --bytes 8M",
        expected: "passed: every byte compared",
    },
    Step {
        server: "tcpx_transfer server --bind ::",
        host: FIRST_V6,
        client: "tcpx_transfer client HOST --bytes 8M --sockets 5",
        expected: "passed: every byte compared",
    },
];

pub(crate) fn run(options: &Options) -> Result<()> {
    let programs = build::examples("warpverbs", &["tcpx_connection", "tcpx_transfer"])?;
    let mut bed = Bed::boot(options, &programs)?;
    for Step { server, host, client, expected } in STEPS {
        let began = Instant::now();
        let client = client.replace("HOST", host);
        let said =
            bed.pair(&format!("{server} --gpu simt"), &format!("{client} --gpu simt"), LIMIT)?;
        for text in &said {
            ensure!(text.contains(expected), "'{client}' without '{expected}': {text}");
        }
        if server.contains("--queues") {
            // Which depends on the kernel: before 6.12 it has no such request at all.
            let why = said[0].split_once("the fallback: ").map_or("", |(_, why)| why);
            let says = !why.is_empty() && !why.starts_with("no receive queue was named");
            ensure!(says, "the server does not say why eth0 binds nothing: {}", said[0]);
        }
        println!("ok      {server}, {client} ({:.0} s)", began.elapsed().as_secs_f64());
        said[0].lines().for_each(|line| println!("        {line}"));
    }
    Ok(())
}
