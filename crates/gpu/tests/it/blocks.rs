//! Lists of blocks, copied by one launch: compared with copies on plain vectors.

use rand::rngs::SmallRng;
use rand::{Rng, RngExt, SeedableRng};
use std::time::Duration;
use warpverbs_gpu::simt::{SimtConfig, SimtDevice};
use warpverbs_gpu::{BlockError, BlockRun, BlockSide, Blocks, Buffer, Gpu, Place};

const DEADLINE: Duration = Duration::from_secs(120);

/// Buffers of a SIMT device, and what they ought to hold.
struct Memory {
    gpu: SimtDevice,
    buffers: Vec<Buffer>,
    model: Vec<Vec<u8>>,
}

impl Memory {
    fn new(seed: u64, sizes: &[usize]) -> Self {
        let gpu = SimtDevice::new(SimtConfig::seeded(seed)).expect("SIMT device");
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut model: Vec<_> = sizes.iter().map(|len| vec![0; *len]).collect();
        model.iter_mut().for_each(|bytes| rng.fill_bytes(bytes));
        let make = |bytes: &Vec<u8>| {
            let buffer = gpu.alloc(bytes.len(), Place::Device).expect("memory");
            gpu.write(&buffer, 0, bytes).expect("write");
            buffer
        };
        let buffers = model.iter().map(make).collect();
        Self { gpu, buffers, model }
    }

    fn read(&self, index: usize) -> Vec<u8> {
        let mut out = vec![0; self.buffers[index].len()];
        self.gpu.read(&self.buffers[index], 0, &mut out).expect("read");
        out
    }

    fn copy(&self, runs: &[BlockRun], most_blocks: Option<u32>) {
        let list = Blocks::new(&self.gpu, &self.buffers, runs).expect("a list");
        let launch = list.copy(&self.gpu, most_blocks, DEADLINE).expect("a launch");
        launch.wait().expect("a copy");
    }

    fn apply(&mut self, runs: &[BlockRun]) {
        for run in runs {
            for i in 0..run.count {
                let at = |side: BlockSide| (side.offset + i * side.stride) as usize;
                let (to, from, len) = (at(run.to), at(run.from), run.bytes as usize);
                let block = self.model[run.from.buffer as usize][from..from + len].to_vec();
                self.model[run.to.buffer as usize][to..to + len].copy_from_slice(&block);
            }
        }
    }

    fn compare(&self, what: &str) {
        for (index, model) in self.model.iter().enumerate() {
            let wrong = self.read(index).iter().zip(model).position(|(a, b)| a != b);
            assert_eq!(wrong, None, "{what}: first wrong byte of buffer {index}");
        }
    }
}

const fn side(buffer: u32, offset: u64, stride: u64) -> BlockSide {
    BlockSide { buffer, offset, stride }
}

const fn run(to: BlockSide, from: BlockSide, bytes: u64, count: u64) -> BlockRun {
    BlockRun { to, from, bytes, count }
}

#[test]
fn every_misalignment_of_either_side_and_many_sizes() {
    let mut memory = Memory::new(1, &[1 << 20, 1 << 20]);
    let mut runs = Vec::new();
    let mut at = 0;
    for (to, from) in (0..16).flat_map(|to| (0..16).map(move |from| (to, from))) {
        for bytes in [1, 4, 8, 15, 16, 17, 31, 64, 333] {
            runs.push(run(side(0, at + to, 0), side(1, at + from, 0), bytes, 1));
            at += 16 * (bytes + 16).div_ceil(16);
        }
    }
    memory.copy(&runs, None);
    memory.apply(&runs);
    memory.compare("misaligned blocks");
}

#[test]
fn pieces_of_long_blocks_and_strided_runs_are_shared_out_whole() {
    let mut memory = Memory::new(2, &[3 << 20, 2 << 20, 1 << 16]);
    let runs = [
        // Longer than a piece, by one byte and not; misaligned; apart on one side, dense on the other.
        run(side(0, 0, 5000), side(1, 3, 4096), 4096, 9),
        run(side(0, 1 << 16, 4097), side(1, 1 << 16, 8192), 4097, 7),
        run(side(0, (1 << 17) + 5, 0), side(1, (1 << 17) + 2, 0), 300_001, 1),
        run(side(0, 1 << 20, 16), side(2, 0, 7), 7, 1001),
        run(side(2, 1 << 15, 1), side(1, 99, 2), 1, 513),
        // Nothing at all.
        run(side(0, 0, 0), side(1, 0, 0), 0, 5),
        run(side(0, 0, 0), side(1, 0, 0), 77, 0),
        run(side(1, 1 << 20, 0), side(2, 0, 0), 1 << 14, 1),
    ];
    let before: Vec<_> = (0..3).map(|i| memory.read(i)).collect();
    memory.apply(&runs);
    for most_blocks in [None, Some(1), Some(3)] {
        for (buffer, bytes) in memory.buffers.iter().zip(&before) {
            memory.gpu.write(buffer, 0, bytes).expect("write");
        }
        memory.copy(&runs, most_blocks);
        memory.compare("a mixed list");
    }
}

#[test]
fn lists_by_chance_do_as_their_model_does() {
    for seed in 10..22 {
        println!("seed {seed}");
        let mut memory = Memory::new(seed, &[1 << 18, 1 << 17]);
        let mut rng = SmallRng::seed_from_u64(!seed);
        let (mut runs, mut to) = (Vec::new(), 0);
        loop {
            let log = rng.random_range(0..14);
            let bytes = rng.random_range(1..=1 << log);
            let (count, gap) = (rng.random_range(1..=5), rng.random_range(0..20));
            let end = to + gap + count * (bytes + gap);
            if end > 1 << 18 {
                break;
            }
            let room = (1 << 17) - count * (bytes + gap);
            let from = side(1, rng.random_range(0..room), bytes + rng.random_range(0..=gap));
            runs.push(run(side(0, to + gap, bytes + gap), from, bytes, count));
            to = end;
        }
        memory.copy(&runs, Some(rng.random_range(1..=4)));
        memory.apply(&runs);
        memory.compare(&format!("seed {seed}"));
    }
}

#[test]
fn overlapping_targets_hold_bytes_of_one_of_their_blocks_and_nothing_else_changes() {
    let memory = Memory::new(3, &[1 << 14, 1 << 14]);
    let runs = [
        run(side(0, 1001, 0), side(1, 0, 0), 5000, 1),
        run(side(0, 4000, 0), side(1, 8000, 0), 5000, 1),
        // A target over its own blocks' neighbours.
        run(side(0, 12_000, 8), side(1, 100, 100), 16, 3),
    ];
    memory.copy(&runs, None);
    let (found, source) = (memory.read(0), &memory.model[1]);
    for (at, byte) in found.iter().enumerate() {
        let named = runs.iter().flat_map(|run| {
            (0..run.count).filter_map(move |i| {
                let behind = (at as u64).checked_sub(run.to.offset + i * run.to.stride)?;
                let from = run.from.offset + i * run.from.stride + behind;
                (behind < run.bytes).then_some(from as usize)
            })
        });
        let mut choices: Vec<_> = named.map(|from| source[from]).collect();
        if choices.is_empty() {
            choices.push(memory.model[0][at]);
        }
        assert!(choices.contains(byte), "byte {at} is {byte:#x}, expected one of {choices:x?}");
    }
    assert_eq!(memory.read(1), memory.model[1]);
}

#[test]
fn a_source_that_overlaps_its_target_yields_old_or_new_bytes() {
    let memory = Memory::new(4, &[1 << 13]);
    memory.copy(&[run(side(0, 1024, 0), side(0, 1000, 0), 3000, 1)], None);
    let (found, old) = (memory.read(0), &memory.model[0]);
    for (at, byte) in found.iter().enumerate().take(4024).skip(1024) {
        // It stood 24, 48, 72 … bytes ahead.
        let mut ahead = (1..).map(|k| at - 24 * k).take_while(|from| *from >= 1000);
        assert!(ahead.any(|from| old[from] == *byte), "byte {at}");
    }
    assert_eq!((&found[..1024], &found[4024..]), (&old[..1024], &old[4024..]));
}

#[test]
fn runs_outside_their_buffers_are_refused_by_number() {
    let memory = Memory::new(5, &[4096, 64]);
    let good = run(side(0, 0, 64), side(1, 0, 0), 64, 64);
    let refused = |bad: BlockRun| {
        Blocks::new(&memory.gpu, &memory.buffers, &[good, bad]).expect_err("refused")
    };
    assert!(matches!(
        refused(BlockRun { to: side(2, 0, 0), ..good }),
        BlockError::NoBuffer { run: 1, buffer: 2, buffers: 2 }
    ));
    for bad in [
        BlockRun { count: 65, ..good },
        BlockRun { bytes: 65, ..good },
        BlockRun { to: side(0, 1, 64), ..good },
        BlockRun { from: side(1, 0, 1), ..good },
        BlockRun { to: side(0, u64::MAX, 64), ..good },
        BlockRun { to: side(0, 8, u64::MAX), ..good },
        BlockRun { to: side(0, 0, 1 << 63), count: 3, ..good },
        BlockRun { bytes: u64::MAX, count: 1, ..good },
        BlockRun { count: u64::MAX, ..good },
        // Of no bytes, but not in the buffer.
        BlockRun { to: side(0, 4097, 0), bytes: 0, count: 1, ..good },
        BlockRun { from: side(1, 65, 0), count: 0, ..good },
    ] {
        let error = refused(bad);
        assert!(matches!(error, BlockError::Outside { run: 1, .. }), "{bad:?}: {error}");
    }
    let far = run(side(0, 0, 0), side(1, 0, 0), 1 << 4, u64::MAX);
    assert!(matches!(refused(far), BlockError::TooLong { run: 1 }));
    assert_eq!(memory.read(0), memory.model[0]);
}
