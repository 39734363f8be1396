//! Random packets, and what is needed to ask other programs about them.
#![allow(dead_code, reason = "every test file uses its own part")]

pub(crate) mod robust;

use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use warpverbs_wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Envelope, Extension, HeaderSet, Ieth, ImmDt, Ip,
    Ipv4, Ipv6, Msn, Mtu, Opcode, Packet, PayloadRule, Pkey, Psn, Qpn, Reth, Rkey, Syndrome,
    Transport, Udp,
};

/// A packet that owns its payload.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) envelope: Envelope,
    pub(crate) bth: Bth,
    pub(crate) ext: Extension,
    pub(crate) payload: Vec<u8>,
}

impl Sample {
    pub(crate) fn packet(&self) -> Packet<'_> {
        let transport = Transport { bth: self.bth, ext: self.ext, payload: &self.payload };
        Packet { envelope: self.envelope, transport }
    }

    /// Emitted over 0xa5, so that a byte nobody wrote shows.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0xa5; self.packet().len()];
        self.packet().emit(&mut bytes).unwrap();
        bytes
    }
}

/// Which IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    V4,
    V6,
}

fn ip(version: Version) -> BoxedStrategy<Ip> {
    let any = any::<(u128, u128, u8, u8, u32, bool)>();
    any.prop_map(move |(src, dst, tos, ttl, label, dont_fragment)| match version {
        Version::V4 => Ip::V4(Ipv4 {
            src: Ipv4Addr::from(src as u32),
            dst: Ipv4Addr::from(dst as u32),
            tos,
            ttl,
            id: label as u16,
            dont_fragment,
        }),
        Version::V6 => Ip::V6(Ipv6 {
            src: Ipv6Addr::from(src),
            dst: Ipv6Addr::from(dst),
            traffic_class: tos,
            flow_label: label >> 12,
            hop_limit: ttl,
        }),
    })
    .boxed()
}

fn bth(opcode: Opcode) -> impl Strategy<Value = Bth> {
    any::<([bool; 5], u16, u32, u32)>().prop_map(move |(flags, pkey, qpn, psn)| {
        let [solicited, migrated, fecn, becn, ack_request] = flags;
        Bth {
            opcode,
            solicited,
            migrated,
            pkey: Pkey(pkey | 0x7fff),
            fecn,
            becn,
            dest_qpn: Qpn::from_low_bits(qpn),
            ack_request,
            psn: Psn::from_low_bits(psn),
        }
    })
}

fn extension(set: HeaderSet) -> impl Strategy<Value = Extension> {
    any::<(u64, u64, u64, u32, u32)>().prop_map(move |(va, a, b, key, low)| {
        let rkey = Rkey(key);
        let reth = Reth { va, rkey, dma_len: a as u32 };
        let imm = ImmDt { data: low };
        let syndrome = Syndrome::from_byte(b as u8);
        let aeth = Aeth { syndrome, msn: Msn::from_low_bits(low) };
        match set {
            HeaderSet::Empty => Extension::Empty,
            HeaderSet::Imm => Extension::Imm(imm),
            HeaderSet::Ieth => Extension::Ieth(Ieth { rkey }),
            HeaderSet::Reth => Extension::Reth(reth),
            HeaderSet::RethImm => Extension::RethImm(reth, imm),
            HeaderSet::Aeth => Extension::Aeth(aeth),
            HeaderSet::AethAtomicAck => {
                Extension::AethAtomicAck(aeth, AtomicAckEth { original: a })
            }
            HeaderSet::Atomic => Extension::Atomic(AtomicEth { va, rkey, swap_add: a, compare: b }),
            HeaderSet::Deth => {
                Extension::Deth(Deth { qkey: key, src_qpn: Qpn::from_low_bits(low) })
            }
            HeaderSet::DethImm => {
                let deth = Deth { qkey: key, src_qpn: Qpn::from_low_bits(a as u32) };
                Extension::DethImm(deth, imm)
            }
        }
    })
}

fn payload(rule: PayloadRule) -> BoxedStrategy<Vec<u8>> {
    let bytes = |len| prop::collection::vec(any::<u8>(), len);
    match rule {
        PayloadRule::Absent => Just(Vec::new()).boxed(),
        PayloadRule::Full => prop::sample::select(&Mtu::ALL[..])
            .prop_flat_map(move |m| bytes(m.bytes()..=m.bytes()))
            .boxed(),
        PayloadRule::NonEmpty => prop_oneof![8 => bytes(1..=64), 1 => bytes(1..=4096)].boxed(),
        PayloadRule::Any => prop_oneof![8 => bytes(0..=64), 1 => bytes(0..=4096)].boxed(),
    }
}

/// Packets of one opcode over one IP version.
pub(crate) fn sample_of(version: Version, opcode: Opcode) -> impl Strategy<Value = Sample> {
    let parts = (
        ip(version),
        0xc000u16..,
        bth(opcode),
        extension(opcode.headers()),
        payload(opcode.payload()),
    );
    parts.prop_map(|(ip, src_port, bth, ext, payload)| Sample {
        envelope: Envelope { ip, udp: Udp { src_port } },
        bth,
        ext,
        payload,
    })
}

/// Packets of any kind.
pub(crate) fn sample() -> impl Strategy<Value = Sample> {
    let kind =
        (prop::sample::select(&[Version::V4, Version::V6][..]), prop::sample::select(Opcode::ALL));
    kind.prop_flat_map(|(version, opcode)| sample_of(version, opcode))
}

/// Values of a strategy, by a seed: that of `WARPVERBS_SEED`, or one at random, printed.
pub(crate) struct Generator(TestRunner);

impl Generator {
    pub(crate) fn new() -> Generator {
        Generator::seeded(warpverbs_dev::seed())
    }

    pub(crate) fn seeded(seed: u64) -> Generator {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        Generator(TestRunner::new_with_rng(Config::default(), rng))
    }

    pub(crate) fn next<S: Strategy>(&mut self, strategy: S) -> S::Value {
        strategy.new_tree(&mut self.0).unwrap().current()
    }
}

/// Says, past the capture of the test harness, that a test checked nothing and why. With
/// `WARPVERBS_REQUIRE_READERS` set, this is a failure instead.
pub(crate) fn skip(test: &str, reason: &str) {
    assert!(std::env::var_os("WARPVERBS_REQUIRE_READERS").is_none(), "{test}: {reason}");
    let line = format!("SKIPPED {test}: {reason}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

/// A capture file of packets that begin with their IP header (link type RAW, 101).
pub(crate) fn pcap<'a>(packets: impl IntoIterator<Item = &'a Vec<u8>>) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 2 | 4 << 16, 0, 0, 65535, 101] {
        file.extend(word.to_le_bytes());
    }
    for (second, packet) in packets.into_iter().enumerate() {
        let len = packet.len() as u32;
        for word in [second as u32, 0, len, len] {
            file.extend(word.to_le_bytes());
        }
        file.extend(packet);
    }
    file
}
