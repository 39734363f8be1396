//! Wireshark's dissectors read captures of our packets and find the same fields.

use std::fs;
use std::process::Command;

use crate::common::{Generator, Sample, Version, pcap, sample_of, skip};
use warpverbs_wire::{Extension, Ip, Opcode};

#[test]
fn tshark_finds_the_same_fields_for_every_opcode() {
    if let Err(error) = Command::new("tshark").arg("--version").output() {
        return skip("tshark", &format!("tshark: {error} (Debian package tshark)"));
    }
    let mut generator = Generator::new();
    let mut samples = Vec::new();
    for version in [Version::V4, Version::V6] {
        // Extended atomics are this project's own.
        for &opcode in Opcode::ALL.iter().filter(|opcode| !opcode.is_extended()) {
            samples.extend((0..4).map(|_| generator.next(sample_of(version, opcode))));
        }
    }
    // With its pad, such a payload looks like an EtherType and two reserved bytes, which begin an
    // Ethernet frame over InfiniBand; below 0x600 there are no EtherTypes.
    for sample in samples.iter_mut().filter(|sample| sample.payload.len() < 3) {
        sample.payload.iter_mut().for_each(|byte| *byte &= 3);
    }
    let packets: Vec<_> = samples.iter().map(Sample::bytes).collect();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("wire.pcap");
    fs::write(&file, pcap(&packets)).unwrap();

    let names: Vec<_> = expected(&samples[0]).into_iter().map(|(name, _)| name).collect();
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "-T", "fields", "-E", "separator=|", "-E", "occurrence=f"]);
    tshark.args(["-o", "ip.check_checksum:TRUE"]);
    for name in &names {
        tshark.args(["-e", name]);
    }
    for guess in payload_guessers() {
        tshark.args(["--disable-protocol", &guess]);
    }
    let output = tshark.arg("-r").arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    assert_eq!(lines.lines().count(), samples.len());
    for (line, sample) in lines.lines().zip(&samples) {
        let found: Vec<_> = names.iter().copied().zip(line.split('|').map(plain)).collect();
        assert_eq!(found, expected(sample), "{}", sample.packet());
    }
}

/// Dissectors that try their luck on any payload; random bytes please some of them.
fn payload_guessers() -> Vec<String> {
    let output = Command::new("tshark").args(["-G", "heuristic-decodes"]).output().unwrap();
    let table = String::from_utf8(output.stdout).unwrap();
    let mut rows = Vec::new();
    for row in table.lines() {
        if let ["infiniband.payload", protocol, ..] = row.split('\t').collect::<Vec<_>>()[..] {
            rows.push(protocol.to_owned());
        }
    }
    rows
}

/// Numbers and booleans in decimal, whatever the dissector's taste and version; others unchanged.
fn plain(text: &str) -> String {
    let hex = text.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
    match (text, hex) {
        ("True" | "Good", _) => "1".into(),
        ("False", _) => "0".into(),
        (_, Some(number)) => number.to_string(),
        (_, None) => text.into(),
    }
}

type Fields = Vec<(&'static str, String)>;

fn expected(sample: &Sample) -> Fields {
    let bytes = sample.bytes();
    let bth = &sample.bth;
    let pad = sample.payload.len().next_multiple_of(4) - sample.payload.len();
    let padded = [&sample.payload[..], &[0; 3][..pad]].concat();
    // Shown as the four bytes come.
    let icrc = u32::from_be_bytes(*bytes.last_chunk().unwrap());
    let mut fields = expected_ip(&sample.envelope.ip);
    fields.extend([
        ("_ws.malformed", String::new()),
        ("udp.srcport", sample.envelope.udp.src_port.to_string()),
        ("udp.dstport", "4791".into()),
        ("infiniband.bth.opcode", bth.opcode.byte().to_string()),
        ("infiniband.bth.se", u8::from(bth.solicited).to_string()),
        ("infiniband.bth.m", u8::from(bth.migrated).to_string()),
        ("infiniband.bth.padcnt", pad.to_string()),
        ("infiniband.bth.tver", "0".into()),
        ("infiniband.bth.p_key", bth.pkey.0.to_string()),
        ("infiniband.bth.destqp", bth.dest_qpn.get().to_string()),
        ("infiniband.bth.a", u8::from(bth.ack_request).to_string()),
        ("infiniband.bth.reserved7", "0".into()),
        ("infiniband.bth.psn", bth.psn.get().to_string()),
        ("data.data", padded.iter().map(|byte| format!("{byte:02x}")).collect()),
        ("infiniband.invariant.crc", icrc.to_string()),
    ]);
    fields.extend(expected_extension(&sample.ext));
    fields
}

fn expected_ip(ip: &Ip) -> Fields {
    let (v4, v6) = match *ip {
        Ip::V4(ip) => (Some(ip), None),
        Ip::V6(ip) => (None, Some(ip)),
    };
    vec![
        ("ip.src", text(v4.map(|ip| ip.src))),
        ("ip.dst", text(v4.map(|ip| ip.dst))),
        ("ip.dsfield", text(v4.map(|ip| ip.tos))),
        ("ip.ttl", text(v4.map(|ip| ip.ttl))),
        ("ip.id", text(v4.map(|ip| ip.id))),
        ("ip.flags.df", text(v4.map(|ip| u8::from(ip.dont_fragment)))),
        ("ip.checksum.status", text(v4.map(|_| 1))),
        ("ipv6.src", text(v6.map(|ip| ip.src))),
        ("ipv6.dst", text(v6.map(|ip| ip.dst))),
        ("ipv6.tclass", text(v6.map(|ip| ip.traffic_class))),
        ("ipv6.flow", text(v6.map(|ip| ip.flow_label))),
        ("ipv6.hlim", text(v6.map(|ip| ip.hop_limit))),
    ]
}

fn expected_extension(ext: &Extension) -> Fields {
    let (mut reth, mut aeth, mut imm) = (None, None, None);
    let (mut atomic, mut original, mut ieth, mut deth) = (None, None, None, None);
    match *ext {
        Extension::Empty => {}
        Extension::Imm(header) => imm = Some(header),
        Extension::Ieth(header) => ieth = Some(header),
        Extension::Reth(header) => reth = Some(header),
        Extension::RethImm(first, second) => (reth, imm) = (Some(first), Some(second)),
        Extension::Aeth(header) => aeth = Some(header),
        Extension::AethAtomicAck(first, second) => {
            (aeth, original) = (Some(first), Some(second.original));
        }
        Extension::Atomic(header) => atomic = Some(header),
        Extension::Deth(header) => deth = Some(header),
        Extension::DethImm(first, second) => (deth, imm) = (Some(first), Some(second)),
    }
    let (va, rkey) = match (reth, atomic) {
        (Some(reth), _) => (Some(reth.va), Some(reth.rkey.0)),
        (_, Some(atomic)) => (Some(atomic.va), Some(atomic.rkey.0)),
        _ => (None, None),
    };
    vec![
        ("infiniband.reth.va", text(va)),
        ("infiniband.reth.r_key", text(rkey)),
        ("infiniband.reth.dmalen", text(reth.map(|reth| reth.dma_len))),
        ("infiniband.atomiceth.swapdt", text(atomic.map(|atomic| atomic.swap_add))),
        ("infiniband.atomiceth.cmpdt", text(atomic.map(|atomic| atomic.compare))),
        ("infiniband.deth.q_key", text(deth.map(|deth| deth.qkey))),
        ("infiniband.deth.srcqp", text(deth.map(|deth| deth.src_qpn.get()))),
        ("infiniband.aeth.syndrome", text(aeth.map(|aeth| aeth.syndrome.byte()))),
        ("infiniband.aeth.msn", text(aeth.map(|aeth| aeth.msn.get()))),
        ("infiniband.atomicacketh.origremdt", text(original)),
        ("infiniband.immdt", text(imm.map(|imm| format!("{:08x}", imm.data)))),
        ("infiniband.ieth", text(ieth.map(|ieth| format!("{:08x}", ieth.rkey.0)))),
    ]
}

fn text(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}
