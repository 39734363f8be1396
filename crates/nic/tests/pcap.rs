//! What a capture of a conversation holds: read back packet by packet, strictly.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use warpverbs_mlx5::wqe::WqeBuilder;
use warpverbs_nic::QpAttrs;
use warpverbs_nic::link::{Pcap, cable};
use warpverbs_nic::testing::{Net, PortConfig, addresses, remote, sge};
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
    let (head, mut rest) = bytes.split_at(24);
    assert_eq!((word(head), word(&head[20..])), (0xa1b2_3c4d, 101));
    let mut opcodes = vec![];
    while !rest.is_empty() {
        let len = word(&rest[8..]) as usize;
        assert_eq!(word(&rest[12..]) as usize, len);
        let packet = Packet::parse(&rest[16..16 + len], &Checks::STRICT).unwrap();
        let opcode = packet.transport.bth.opcode;
        let source = if opcode.is_response() { at_b } else { at_a };
        assert_eq!(packet.envelope.ip.src(), source.ip());
        opcodes.push(opcode);
        rest = &rest[16 + len..];
    }
    assert_eq!(
        opcodes,
        [Opcode::WriteFirst, Opcode::WriteMiddle, Opcode::WriteLast, Opcode::Acknowledge]
    );
}
