//! Kernels that post in every format, to the software NIC's queues of that format, from one body.

mod side;

use crate::bed::{Bed, simt};
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use side::{FORMATS, MTU, Side};
use warpverbs::gpu::{Buffer, DeviceStatus, Dim, KernelPtr, Local, Place, Remote};
use warpverbs::raw::mem::Access;
use warpverbs::raw::mlx5::export::NicFormat;
use warpverbs::raw::mlx5::syndrome::Syndrome;
use warpverbs::raw::nic::{Config, Mr, Pd};
use warpverbs::transport::Outcome;
use warpverbs_dev::simt_seeds;
use warpverbs_test_kernels::formats as k;

/// Memory at one end, registered with all rights.
struct Memory {
    buffer: Buffer,
    mr: Mr,
}

impl Memory {
    fn new(bed: &Bed, pd: &Pd, bytes: &[u8]) -> Self {
        let buffer = bed.gpu.alloc(bytes.len(), Place::Shared).expect("memory");
        bed.gpu.write(&buffer, 0, bytes).expect("write");
        let mr = bed.nic.reg_mr(pd, buffer.region(), Access::all()).expect("a key");
        Self { buffer, mr }
    }

    fn local(&self) -> Local {
        Local { addr: self.buffer.kernel_addr(), lkey: self.mr.lkey() }
    }

    fn remote(&self) -> Remote {
        Remote { addr: self.mr.addr(), rkey: self.mr.rkey() }
    }
}

/// Two connected queue pairs, whose formats may differ.
struct Rig {
    bed: Bed,
    pd: Pd,
    a: Side,
    b: Side,
    what: String,
}

/// Packet numbers that wrap soon.
const PSNS: [u32; 2] = [0xff_fff0, 0x12_3456];

impl Rig {
    fn new(bed: Bed, [a, b]: [NicFormat; 2], start: u64) -> Self {
        let pd = bed.nic.alloc_pd();
        let what = format!("{a:?} to {b:?}, {}", bed.what);
        let a = Side::new(&bed, &pd, a, start, PSNS[0]);
        let b = Side::new(&bed, &pd, b, 0, PSNS[1]);
        a.connect(&b, MTU);
        b.connect(&a, MTU);
        Self { bed, pd, a, b, what }
    }

    fn random(&self, len: usize, rng: &mut StdRng) -> Memory {
        let mut bytes = vec![0; len];
        rng.fill_bytes(&mut bytes);
        Memory::new(&self.bed, &self.pd, &bytes)
    }

    fn read(&self, memory: &Memory) -> Vec<u8> {
        self.bed.read(&memory.buffer)
    }
}

/// Runs a test for each format and the one after it, under seeded interleavings and in real time.
fn each(seeds: u64, test: impl Fn(&Rig, &mut StdRng)) {
    let pairs = FORMATS.into_iter().zip(FORMATS.into_iter().cycle().skip(1));
    for (a, b) in pairs.chain([(NicFormat::Bnxt, NicFormat::Bnxt)]) {
        for seed in simt_seeds(0, seeds) {
            let rig = Rig::new(Bed::seeded(seed, Config::default()), [a, b], 0);
            test(&rig, &mut StdRng::seed_from_u64(seed));
        }
        let rig = Rig::new(Bed::real(simt(), Config::default()), [a, b], 0);
        test(&rig, &mut StdRng::seed_from_u64(7));
    }
}

/// Bytes of a piece of memory.
const PIECE: usize = 2048;

/// Applies a step to the two pieces.
fn expect(kind: u32, bytes: usize, offset: u64, here: &mut [u8], there: &mut [u8]) {
    match kind {
        0 | 2 | 6 | 7 | 9 => there[..bytes].copy_from_slice(&here[..bytes]),
        1 => here[..bytes].copy_from_slice(&there[..bytes]),
        3 => there[..8].copy_from_slice(&offset.to_le_bytes()),
        4 => add(there, 2),
        5 => there[..8].copy_from_slice(&offset.to_le_bytes()),
        8 => {
            there[8..8 + bytes].copy_from_slice(&here[8..8 + bytes]);
            add(there, 1);
        }
        _ => {}
    }
}

fn add(word: &mut [u8], by: u64) {
    let (word, _) = word.split_first_chunk_mut::<8>().expect("8 bytes");
    *word = u64::from_le_bytes(*word).wrapping_add(by).to_le_bytes();
}

#[test]
fn every_request_by_lanes_of_several_blocks() {
    each(4, |rig, rng| {
        let (dim, each) = (Dim::new(2, 40), 12);
        let count = 80 * each as usize;
        let (here, there) = (rig.random(count * PIECE, rng), rig.random(count * PIECE, rng));
        let (mut ours, mut theirs) = (rig.read(&here), rig.read(&there));
        let steps: Vec<_> = (0..count)
            .map(|i| {
                let kind = rng.random_range(0..11);
                let most = if kind == 2 { 16 } else { PIECE - 8 };
                // Now and then nothing, or whole packets.
                let bytes = match rng.random_range(0..8) {
                    0 => 0,
                    1 if most > 512 => 512 * rng.random_range(1..4),
                    _ => rng.random_range(0..=most),
                };
                let at = i * PIECE;
                if kind == 5 {
                    theirs[at..at + 8].fill(0);
                }
                k::Step { kind, bytes: bytes as u32, offset: at as u64 }
            })
            .collect();
        rig.bed.gpu.write(&there.buffer, 0, &theirs).expect("write");
        let all = KernelPtr::upload(&*rig.bed.gpu, &steps).expect("steps");
        rig.bed.run(dim, |status| k::FormatsSteps {
            qp: rig.a.exported.clone(),
            from: here.local(),
            to: there.remote(),
            steps: all,
            each,
            status,
        });
        for (i, step) in steps.iter().enumerate() {
            let at = i * PIECE..(i + 1) * PIECE;
            let (ours, theirs) = (&mut ours[at.clone()], &mut theirs[at]);
            expect(step.kind, step.bytes as usize, step.offset, ours, theirs);
        }
        let what = &rig.what;
        same(&rig.read(&here), &ours, &steps, what);
        same(&rig.read(&there), &theirs, &steps, what);
        assert_eq!(rig.bed.nic.take_violations(), [], "{what}");
    });
}

fn same(found: &[u8], expected: &[u8], steps: &[k::Step], what: &str) {
    for ((found, expected), step) in found.chunks(PIECE).zip(expected.chunks(PIECE)).zip(steps) {
        assert!(found == expected, "step {} of {} bytes, {what}", step.kind, step.bytes);
    }
}

#[test]
fn warps_that_post_different_lengths_together() {
    each(4, |rig, rng| {
        let (most, rounds) = (1500, 16);
        let len = most * rounds * 96;
        let (here, there) = (rig.random(len, rng), rig.random(len, rng));
        let (ours, mut theirs) = (rig.read(&here), rig.read(&there));
        for piece in 0..rounds * 96 {
            let bytes = if piece / 96 % 8 == 7 { most } else { piece * 37 % (most + 1) };
            let at = piece * most..piece * most + bytes;
            theirs[at.clone()].copy_from_slice(&ours[at]);
        }
        rig.bed.run(Dim::new(1, 96), |status| k::FormatsTogether {
            qp: rig.a.exported.clone(),
            from: here.local(),
            to: there.remote(),
            most: most as u32,
            rounds: rounds as u32,
            status,
        });
        assert!(rig.read(&there) == theirs, "{}", rig.what);
        assert_eq!(rig.bed.nic.take_violations(), [], "{}", rig.what);
    });
}

#[test]
fn messages_over_many_laps_of_the_receive_queue() {
    each(4, |rig, rng| {
        let (room, count) = (700, 150);
        let len = room * count;
        let [from, to, into] = [(); 3].map(|()| rig.random(len, rng));
        let (sent, mut written, mut got) = (rig.read(&from), rig.read(&to), rig.read(&into));
        let taken = rig.bed.buffer(16 * count);
        rig.bed.run(Dim::new(2, 1), |status| k::FormatsTalk {
            sender: rig.a.exported.clone(),
            receiver: rig.b.exported.clone(),
            from: from.local(),
            to: to.remote(),
            into: into.local(),
            room: room as u32,
            count: count as u32,
            window: 12,
            taken: (&taken).into(),
            status,
        });
        let taken = rig.bed.read(&taken);
        let words: Vec<_> =
            taken.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
        for i in 0..count {
            let bytes = i * 37 % (room + 1);
            let at = i * room..i * room + bytes;
            let target = if i % 3 == 2 { &mut written } else { &mut got };
            target[at.clone()].copy_from_slice(&sent[at]);
            // By the numbers of mlx5's CQEs.
            let kind = [2, 3, 1][i % 3];
            let imm = if i % 3 == 0 { 0 } else { 1000 + i as u32 };
            let expected = [bytes as u32, imm, kind, i as u32];
            assert_eq!(words[4 * i..4 * i + 4], expected, "message {i}, {}", rig.what);
        }
        assert!(rig.read(&to) == written && rig.read(&into) == got, "{}", rig.what);
        assert_eq!(rig.bed.nic.take_violations(), [], "{}", rig.what);
    });
}

#[test]
fn one_thread_that_counts_indexes_by_itself() {
    each(1, |rig, rng| {
        let (bytes, count) = (300, 3 << side::LOG_SQ);
        let (here, there) = (rig.random(bytes * count, rng), rig.random(bytes * count, rng));
        rig.bed.run(Dim::new(1, 1), |status| k::FormatsAlone {
            qp: rig.a.exported.clone(),
            from: here.local(),
            to: there.remote(),
            bytes: bytes as u32,
            count: count as u32,
            status,
        });
        assert!(rig.read(&there) == rig.read(&here), "{}", rig.what);
        assert_eq!(rig.bed.nic.take_violations(), [], "{}", rig.what);
    });
}

/// Indexes of which bnxt_re's word of reservations has 40 bits, and the packet number above takes the
/// carry.
#[test]
fn indexes_beyond_the_bits_of_a_reservation() {
    for format in FORMATS {
        // CQEs of ionic count 24 bits, doorbells and the CQEs of the others 16.
        let ahead = if format == NicFormat::Ionic { 0 } else { 1 << 16 };
        let bed = Bed::real(simt(), Config::default());
        let rig = Rig::new(bed, [format, NicFormat::Mlx5], (1 << 40) - ahead);
        let mut rng = StdRng::seed_from_u64(3);
        let (here, there) = (rig.random(8, &mut rng), rig.random(8, &mut rng));
        let rounds = ahead as u32 / 64 + 32;
        rig.bed.run(Dim::new(2, 32), |status| k::FormatsLaps {
            qp: rig.a.exported.clone(),
            from: here.local(),
            to: there.remote(),
            rounds,
            status,
        });
        assert!(rig.read(&there) == rig.read(&here), "{}", rig.what);
        assert_eq!(rig.bed.nic.take_violations(), [], "{}", rig.what);
        let posted = u64::from(rounds) * 64;
        assert!(rig.a.qp.stats().wqes.total() >= posted, "{}", rig.what);
    }
}

#[test]
fn everybody_is_told_of_a_failure() {
    each(4, |rig, rng| {
        let (here, there) = (rig.random(8, rng), rig.random(8, rng));
        let ends = rig.bed.buffer(3 * 4 * 64);
        let kernel = k::FormatsFail {
            qp: rig.a.exported.clone(),
            peer: rig.b.exported.clone(),
            from: here.local(),
            to: there.remote(),
            wrong: Remote { rkey: !there.mr.rkey(), ..there.remote() },
            ends: (&ends).into(),
        };
        rig.bed.run_kernel(&kernel, Dim::new(2, 32)).expect("an end");
        let words = rig.bed.read(&ends);
        let outcome = |word: &[u8; 4]| Outcome::of(DeviceStatus(u32::from_le_bytes(*word)));
        let ends: Vec<_> = words.as_chunks().0.iter().map(outcome).collect();
        let (failed, what) = (Err(Outcome::Requester(Syndrome::RemoteAccess)), &rig.what);
        for lane in ends[..96].chunks(3) {
            // A lane may come late and find the queue dead.
            assert!(lane[0] == Ok(()) || lane[0] == failed, "{lane:?}, {what}");
            assert_eq!(lane[1..], [failed, failed], "{what}");
        }
        // By its own refusal of the request, or as a receive that is flushed.
        let refused = matches!(ends[96], Err(Outcome::Requester(_) | Outcome::Responder(_)));
        assert!(refused, "the peer's receiver: {:?}, {what}", ends[96]);
    });
}
