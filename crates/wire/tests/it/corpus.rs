//! The fuzzer's seeds, run as an ordinary test. `WARPVERBS_BLESS=1` writes them anew.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use crate::common::{Generator, Version, robust, sample_of};
use warpverbs_wire::{Checks, Ip, Opcode, Packet, Pkey};

#[test]
fn seeds_hold_and_cover_every_opcode() {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/roce_packet");
    if std::env::var_os("WARPVERBS_BLESS").is_some() {
        fs::create_dir_all(&dir).unwrap();
        for (name, bytes) in seeds() {
            fs::write(dir.join(name), bytes).unwrap();
        }
    }
    let files = fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let paths: BTreeSet<_> = files.map(|entry| entry.unwrap().path()).collect();
    let mut covered = BTreeSet::new();
    let mut total = 0;
    for path in &paths {
        println!("{}", path.display());
        let data = fs::read(path).unwrap();
        total += data.len();
        robust::packet(&data);
        let checks = Checks { pkey: Pkey::DEFAULT, ..Checks::STRICT };
        if let Ok(packet) = Packet::parse(&data, &checks) {
            let v4 = matches!(packet.envelope.ip, Ip::V4(_));
            covered.insert((packet.transport.bth.opcode.byte(), v4));
        }
    }
    assert_eq!(covered.len(), 2 * Opcode::ALL.len());
    assert!(paths.len() <= 256 && total <= 64 << 10, "{} files, {total} bytes", paths.len());
}

/// A small packet for each opcode and IP version and, over IPv6, the same with nothing behind the
/// headers but a pad count of 3 and a right ICRC.
fn seeds() -> Vec<(String, Vec<u8>)> {
    let mut generator = Generator::seeded(1);
    let mut seeds = Vec::new();
    for version in [Version::V4, Version::V6] {
        for &opcode in Opcode::ALL {
            let sample = std::iter::repeat_with(|| generator.next(sample_of(version, opcode)))
                .find(|sample| sample.payload.len() <= 256)
                .unwrap();
            let name = format!("{version:?}-{:02x}", opcode.byte()).to_lowercase();
            let mut bytes = sample.bytes();
            seeds.push((name.clone(), bytes.clone()));
            let headers = sample.envelope.len();
            bytes[headers + 1] |= 0x30;
            bytes.truncate(headers + 12 + opcode.headers().len() + 4);
            if version == Version::V6 {
                sample.envelope.emit(bytes.len() - headers, &mut bytes).unwrap();
                sample.envelope.seal(&mut bytes[headers..]).unwrap();
                seeds.push((name + "-all-pad", bytes));
            }
        }
    }
    seeds
}
