//! A run's packets, read by other programs: Wireshark decodes it, scapy finds the same ICRC.

use crate::common::{example, passed, skip};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Opcodes of reliable connection, as they are on the wire.
const WRITES: [u8; 4] = [6, 7, 8, 10];
const WRITE_BEGINS: [u8; 2] = [6, 10];
const WRITE_ENDS: [u8; 2] = [8, 10];
const ACKNOWLEDGE: u8 = 17;

/// Lengths and numbers of the WRITEs of one rank, warm-up included.
const SIZES: [u32; 3] = [8, 512, 32768];
const ITERS: u32 = 5;

/// The captures of both ranks of a run.
fn run(folder: &TempDir, faults: &str) -> [PathBuf; 2] {
    let mut command = example("ranks dist_write");
    command.args(["--gpu", "simt", "--procs", "2", "-b", "8", "-e", "32K", "-f", "64"]);
    command.args(["-n", "4", "-w", "1"]).env("WARPVERBS_FAULT", faults);
    passed(command.env("WARPVERBS_PCAP", folder.path().join("wire.pcap")));
    [0, 1].map(|rank| folder.path().join(format!("wire.{rank}.pcap")))
}

/// Source port, destination QP, PSN, opcode and announced length (0 if none is) of every packet.
type Packet = (u16, u32, u32, u8, u32);

fn tshark(file: &Path) -> Vec<Packet> {
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "-T", "fields", "-E", "separator=|", "-E", "occurrence=f"]);
    let fields = [
        "_ws.malformed",
        "udp.dstport",
        "udp.srcport",
        "infiniband.bth.destqp",
        "infiniband.bth.psn",
        "infiniband.bth.opcode",
        "infiniband.reth.dmalen",
        "infiniband.invariant.crc",
    ];
    for field in fields {
        tshark.args(["-e", field]);
    }
    let output = tshark.arg("-r").arg(file).output().expect("tshark");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).expect("text");
    let packet = |line: &str| {
        let [malformed, to, from, qp, psn, opcode, length, icrc] =
            line.split('|').collect::<Vec<_>>()[..]
        else {
            panic!("{line:?}")
        };
        let number = |text: &str| match text.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16).expect(line),
            None if text.is_empty() => 0,
            None => text.parse().expect(line),
        };
        assert_eq!((malformed, to), ("", "4791"), "{line}");
        assert!(!icrc.is_empty(), "{line}");
        (number(from) as u16, number(qp), number(psn), number(opcode) as u8, number(length))
    };
    lines.lines().map(packet).collect()
}

#[test]
fn wireshark_sees_the_writes_and_their_acknowledgements() {
    if let Err(error) = Command::new("tshark").arg("--version").output() {
        return skip("tshark", &format!("tshark: {error} (Debian package tshark)"));
    }
    let folder = tempfile::tempdir().expect("a folder");
    for file in run(&folder, "") {
        let packets = tshark(&file);
        let opcodes: BTreeSet<u8> = packets.iter().map(|packet| packet.3).collect();
        assert!(opcodes.contains(&ACKNOWLEDGE) && opcodes.contains(&10), "{opcodes:?}");
        let known = |opcode: &u8| WRITES.contains(opcode) || *opcode == ACKNOWLEDGE;
        assert!(opcodes.iter().all(known), "{opcodes:?}");
        // A packet that a slow machine sent twice counts once. One WRITE may be several messages.
        let packets: BTreeSet<_> = packets.into_iter().collect();
        let some = |opcodes: [u8; 2]| packets.iter().filter(move |p| opcodes.contains(&p.3));
        assert_eq!(some(WRITE_BEGINS).count(), some(WRITE_ENDS).count(), "messages, whole");
        let announced: u32 = some(WRITE_BEGINS).map(|packet| packet.4).sum();
        assert_eq!(announced, 2 * ITERS * SIZES.iter().sum::<u32>(), "bytes of both ranks");
    }
}

/// The number of packets on the command line's file whose ICRC is not the one that scapy computes,
/// and of all.
const ICRC: &str = r#"
import sys
from scapy.layers.inet import IP, UDP
from scapy.contrib.roce import BTH
from scapy.utils import RawPcapReader
wrong = count = 0
for data, _ in RawPcapReader(sys.argv[1]):
    packet = IP(data)
    packet[BTH].icrc = None
    wrong += bytes(packet)[-4:] != data[-4:]
    count += 1
print(wrong, count)
"#;

fn scapy(python: &str, file: &Path) -> [usize; 2] {
    let output = Command::new(python).args(["-c", ICRC]).arg(file).output().expect("python");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    let numbers: Vec<_> = text.split_whitespace().map(|n| n.parse().expect("a number")).collect();
    numbers.try_into().expect("two numbers")
}

#[test]
fn scapy_finds_the_same_icrc() {
    let python = std::env::var("WARPVERBS_PYTHON").unwrap_or_else(|_| "python3".into());
    match Command::new(&python).args(["-c", "import scapy.contrib.roce"]).output() {
        Ok(output) if output.status.success() => {}
        _ => return skip("scapy", &format!("{python} cannot import scapy.contrib.roce")),
    }
    let folder = tempfile::tempdir().expect("a folder");
    for file in run(&folder, "") {
        let [wrong, count] = scapy(&python, &file);
        assert_eq!(wrong, 0, "of {count}");
        assert!(count > 2 * SIZES.len() * ITERS as usize, "{count}");
    }
    // Packets that a fault has changed are seen as such.
    for file in run(&folder, "corrupt=20%,seed=2") {
        let [wrong, count] = scapy(&python, &file);
        assert!(wrong > 0 && wrong < count, "{wrong} of {count}");
    }
}
