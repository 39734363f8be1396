//! scapy's RoCE layer takes our packets apart, builds them again with an ICRC of its own, and gets
//! the same bytes.

use std::fs;
use std::process::Command;

use crate::common::{Generator, Version, sample_of, skip};
use warpverbs_wire::Opcode;

/// One packet a line, in hexadecimal, on the command line's file; one rebuilt packet a line comes
/// back. Lengths, checksums and the ICRC are scapy's own.
const REBUILD: &str = r#"
import sys
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.contrib.roce import BTH
for line in open(sys.argv[1]):
    data = bytes.fromhex(line)
    packet = (IP if data[0] >> 4 == 4 else IPv6)(data)
    if packet.version == 4:
        packet.len = packet.chksum = None
    else:
        packet.plen = None
    packet[UDP].len = None
    packet[UDP].chksum = 0
    packet[BTH].icrc = None
    print(bytes(packet).hex())
"#;

#[test]
fn scapy_builds_the_same_bytes() {
    let python = std::env::var("WARPVERBS_PYTHON").unwrap_or_else(|_| "python3".into());
    match Command::new(&python).args(["-c", "import scapy.contrib.roce"]).output() {
        Err(error) => return skip("scapy", &format!("{python}: {error}")),
        Ok(output) if !output.status.success() => {
            let reason = format!("{python} cannot import scapy.contrib.roce (pip install scapy)");
            return skip("scapy", &reason);
        }
        Ok(_) => {}
    }

    let mut generator = Generator::new();
    let mut lines = Vec::new();
    for version in [Version::V4, Version::V6] {
        // Extended atomics are this project's own.
        for &opcode in Opcode::ALL.iter().filter(|opcode| !opcode.is_extended()) {
            lines.extend((0..8).map(|_| hex(&generator.next(sample_of(version, opcode)).bytes())));
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("packets.hex");
    fs::write(&file, lines.join("\n")).unwrap();
    let output = Command::new(&python).args(["-c", REBUILD]).arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rebuilt = String::from_utf8(output.stdout).unwrap();
    assert_eq!(rebuilt.lines().count(), lines.len());
    for (ours, theirs) in lines.iter().zip(rebuilt.lines()) {
        assert_eq!(ours, theirs);
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
