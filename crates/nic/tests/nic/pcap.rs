//! The capture of a conversation, read back packet by packet, strictly.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use warpverbs_dev::{Host, Net, PortConfig, addresses, bytes, remote, sge};
use warpverbs_mlx5::wqe::WqeBuilder;
use warpverbs_nic::link::{Pcap, cable};
use warpverbs_nic::{Config, LinkConfig, NicError, QpAttrs, SoftNic, UdpConfig};
use warpverbs_wire::{Checks, Opcode, Packet};

/// A file that can be read while it is written.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_ne_bytes(bytes[..4].try_into().unwrap())
}

/// The packets of a capture, which must all be right, with the seconds of their stamps.
fn packets(bytes: &[u8]) -> Vec<(u32, Packet<'_>)> {
    let (head, mut rest) = bytes.split_at(24);
    assert_eq!((word(head), word(&head[20..])), (0xa1b2_3c4d, 101));
    let mut packets = vec![];
    while !rest.is_empty() {
        let len = word(&rest[8..]) as usize;
        assert_eq!(word(&rest[12..]) as usize, len);
        let packet = Packet::parse(&rest[16..16 + len], &Checks::STRICT).unwrap();
        packets.push((word(rest), packet));
        rest = &rest[16 + len..];
    }
    packets
}

#[test]
fn both_directions_are_captured_as_they_were_sent() {
    let (at_a, at_b) = addresses();
    let (a, b) = cable(at_a, at_b);
    let file = Shared::default();
    let a = Pcap::new(a, file.clone()).unwrap();
    let ports = PortConfig::default();
    let mut net = Net::over(Box::new(a), Box::new(b), &ports, QpAttrs::default()).unwrap();
    let (from, to) = (sge(&net.a.mr, 0, 3000), remote(&net.b.mr, 0));
    net.a.port.post_wqe(|b, at| WqeBuilder::write(b, at, to).sge(from).signaled());
    net.run_for(Duration::from_millis(1));
    assert!(net.a.port.poll_send().is_some());

    let bytes = file.0.lock().unwrap().clone();
    let packets = packets(&bytes);
    let mut opcodes = vec![];
    for (_, packet) in &packets {
        let opcode = packet.transport.bth.opcode;
        let source = if opcode.is_response() { at_b } else { at_a };
        assert_eq!(packet.envelope.ip.src(), source.ip());
        opcodes.push(opcode);
    }
    assert_eq!(
        opcodes,
        [Opcode::WriteFirst, Opcode::WriteMiddle, Opcode::WriteLast, Opcode::Acknowledge]
    );
}

#[test]
fn a_configured_capture_shows_what_the_faults_left() {
    let folder = tempfile::tempdir().unwrap();
    let udp = UdpConfig::at(([127, 0, 0, 1], 0).into());
    let host = |faults: &str, process: u32| {
        let faults = faults.parse().unwrap();
        let capture = Some(folder.path().join("wire.pcap"));
        let config = Config { link: LinkConfig::Udp(udp), faults, capture, ..Config::default() };
        Host::new(config.for_process(process))
    };
    let before = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let (mut a, b) = (host("loss=20%,seed=5", 0), host("dup=100%", 1));
    let attrs = QpAttrs { timeout: Some(8), retry: Some(7), ..QpAttrs::default() };
    a.join(&b, attrs);
    a.mr.region().write(0, &[7; 3000]).unwrap();
    let (from, to) = (sge(&a.mr, 0, 3000), remote(&b.mr, 0));
    for _ in 0..16 {
        a.port.post_wqe(|b, at| WqeBuilder::write(b, at, to).sge(from).signaled());
        assert_eq!(a.outcome(&b), None);
    }
    assert_eq!(bytes(b.mr.region(), 0, 3000), [7; 3000]);

    let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    let (at_a, at_b) = (read("wire.0.pcap"), read("wire.1.pcap"));
    let (at_a, at_b) = (packets(&at_a), packets(&at_b));
    let requests = |packets: &[(u32, Packet<'_>)]| {
        packets.iter().filter(|(_, p)| !p.transport.bth.opcode.is_response()).count()
    };
    let lost = a.nic.stats().net.sent - requests(&at_a) as u64;
    assert!(lost > 0, "the losses are in the capture");
    // Nothing is lost between the two sockets, so both have seen the same requests.
    assert_eq!(requests(&at_a), requests(&at_b));
    let acknowledged = at_b.len() - requests(&at_b);
    assert_eq!(acknowledged % 2, 0, "every answer is there twice");
    assert!(at_a.iter().all(|(second, _)| u64::from(*second) >= before.as_secs()));
}

/// Datagrams through shared memory have no ICRC; a capture shows them with one, whichever end has
/// it.
#[test]
fn a_capture_at_one_end_of_shared_memory_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wire.pcap");
    let udp = UdpConfig::at(([127, 0, 0, 1], 0).into());
    let host = |capture| {
        let config = Config { link: LinkConfig::Shm(udp), capture, ..Config::default() };
        Host::new(config)
    };
    let (mut a, b) = (host(Some(file.clone())), host(None));
    a.join(&b, QpAttrs::default());
    let (from, to) = (sge(&a.mr, 0, 9000), remote(&b.mr, 0));
    for _ in 0..3 {
        a.port.post_wqe(|b, at| WqeBuilder::write(b, at, to).sge(from));
        a.port.post_wqe(|b, at| WqeBuilder::read(b, at, to).sge(from).signaled());
        assert_eq!(a.outcome(&b), None);
    }
    let bytes = std::fs::read(file).unwrap();
    // Parsing checks the ICRC.
    let packets = packets(&bytes);
    let stats = a.nic.stats().net;
    assert_eq!(packets.len() as u64, stats.sent + stats.received);
    assert!(stats.sent > 3 && stats.received > 3, "{stats:?}");
    assert_eq!(b.nic.stats().net.bad_icrc, 0);
}

#[test]
fn a_capture_that_cannot_be_written_is_named() {
    let udp = UdpConfig::at(([127, 0, 0, 1], 0).into());
    let capture = Some("/no/such/folder/wire.pcap".into());
    let config = Config { link: LinkConfig::Udp(udp), capture, ..Config::default() };
    let error = SoftNic::new(config).unwrap_err();
    assert!(matches!(error, NicError::Capture { .. }), "{error}");
    assert!(error.to_string().contains("/no/such/folder/wire.pcap: entity not found"), "{error}");
}
