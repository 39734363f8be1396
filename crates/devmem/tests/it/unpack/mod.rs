//! Unpacking by every way: compared with copies on plain vectors, byte by byte, guards included.

mod gpu;
mod speed;

use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng};
use std::sync::Arc;
use std::time::Duration;
use warpverbs_dev::seeds;
use warpverbs_devmem::{
    AreaId, AreaOffset, Move, Moves, Ticket, UnpackConfig, UnpackError, UnpackWay, Unpacker,
};
use warpverbs_gpu::simt::{SimtConfig, SimtDevice};
use warpverbs_gpu::{Gpu, Place as Memory};

const TIMEOUT: Duration = Duration::from_secs(120);
const WAYS: [UnpackWay; 4] =
    [UnpackWay::Auto, UnpackWay::CopyEngine, UnpackWay::Host, UnpackWay::Kernel];

/// Areas, and what they ought to hold.
pub(crate) struct Bench {
    gpu: Arc<dyn Gpu>,
    pub(crate) unpacker: Unpacker,
    model: Vec<Vec<u8>>,
}

fn simt(seed: u64) -> Arc<dyn Gpu> {
    Arc::new(SimtDevice::new(SimtConfig::seeded(seed)).expect("a SIMT device"))
}

impl Bench {
    /// Areas of random bytes.
    fn new(gpu: Arc<dyn Gpu>, config: UnpackConfig, sizes: &[(usize, Memory)]) -> Self {
        let mut rng = StdRng::seed_from_u64(sizes.len() as u64);
        let mut unpacker = Unpacker::new(gpu.clone(), config);
        let model = sizes.iter().enumerate().map(|(index, &(len, place))| {
            let bytes: Vec<u8> = (0..len).map(|_| rng.random()).collect();
            let buffer = gpu.alloc(len, place).expect("memory");
            gpu.write(&buffer, 0, &bytes).expect("written");
            assert_eq!(unpacker.add(buffer), AreaId(index as u32));
            bytes
        });
        let model = model.collect();
        Self { gpu, unpacker, model }
    }

    /// Submits moves, and makes them in the model.
    fn submit(&mut self, moves: &[Move]) -> Ticket {
        for Move { from, to, len } in moves {
            let source = &self.model[from.area.0 as usize][from.offset as usize..];
            let bytes = source[..*len as usize].to_vec();
            let target = &mut self.model[to.area.0 as usize][to.offset as usize..];
            target[..*len as usize].copy_from_slice(&bytes);
        }
        loop {
            match self.unpacker.submit(moves) {
                Ok(ticket) => return ticket,
                Err(UnpackError::Full) => drop(self.unpacker.completed().expect("no failure")),
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Every byte of every area.
    fn check(&mut self, ticket: Ticket) {
        self.unpacker.wait(ticket, TIMEOUT).expect("completed");
        for (index, expected) in self.model.iter().enumerate() {
            let buffer = self.unpacker.area(AreaId(index as u32)).expect("an area");
            let mut found = vec![0; expected.len()];
            self.gpu.read(buffer, 0, &mut found).expect("read");
            let wrong = found.iter().zip(expected).position(|(found, expected)| found != expected);
            assert_eq!(wrong, None, "area {index}, first wrong byte");
        }
    }
}

fn at(area: u32, offset: u64) -> AreaOffset {
    AreaOffset { area: AreaId(area), offset }
}

fn config(way: UnpackWay) -> UnpackConfig {
    UnpackConfig { way, entries: 1 << 13, deadline: TIMEOUT, ..UnpackConfig::default() }
}

/// Each pair of alignments modulo 16 with each of these lengths.
fn all_alignments() -> (Vec<Move>, usize) {
    let lengths = [1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 64, 127, 130, 600];
    let mut moves = Vec::new();
    for from in 0..16 {
        for to in 0..16 {
            for len in lengths {
                let slot = moves.len() as u64 * 1024;
                moves.push(Move { from: at(0, slot + from), to: at(1, slot + to), len });
            }
        }
    }
    let size = moves.len() * 1024;
    (moves, size)
}

fn every_length_and_alignment(gpu: &Arc<dyn Gpu>, way: UnpackWay) {
    let (moves, size) = all_alignments();
    let memory = [(size, Memory::Device), (size, Memory::Device)];
    let mut bench = Bench::new(gpu.clone(), config(way), &memory);
    let ticket = bench.submit(&moves);
    bench.check(ticket);
}

#[test]
fn every_length_at_every_alignment_in_one_batch() {
    for way in WAYS {
        every_length_and_alignment(&simt(1), way);
    }
}

/// Fragments of a stream in any order and of any size, from device and from host memory, into places
/// that touch one another. Several batches in flight, through a ring that wraps.
fn shuffled_stream(gpu: &Arc<dyn Gpu>, way: UnpackWay, seed: u64, total: u64) {
    println!("{way}");
    let mut rng = StdRng::seed_from_u64(seed);
    let size = total as usize + 64;
    let memory = [(size, Memory::Device), (size, Memory::Shared), (size, Memory::Device)];
    let small = UnpackConfig { entries: 64, ..config(way) };
    let mut bench = Bench::new(gpu.clone(), small, &memory);
    let (mut pieces, mut offset, shift) = (Vec::new(), 0, rng.random_range(0..16));
    while offset < total {
        let most: u64 = if rng.random_bool(0.2) { 50_000 } else { 5000 };
        let len = rng.random_range(1..=most).min(total - offset);
        let source = u32::from(rng.random_bool(0.2));
        let from = at(source, offset + rng.random_range(0..16));
        pieces.push(Move { from, to: at(2, offset + shift), len });
        offset += len;
    }
    pieces.shuffle(&mut rng);
    let mut last = Ticket(0);
    for batch in pieces.chunks(rng.random_range(1..12)) {
        let mut moves = Moves::new();
        batch.iter().for_each(|next| moves.push(*next));
        last = bench.submit(moves.as_slice());
    }
    bench.check(last);
}

#[test]
fn a_shuffled_stream_is_put_together() {
    for seed in seeds(4) {
        for way in WAYS {
            shuffled_stream(&simt(seed), way, seed, 300_000);
        }
    }
}

#[test]
fn moves_that_are_not_inside_of_areas_start_nothing() {
    for way in WAYS {
        let mut bench = Bench::new(simt(3), config(way), &[(4096, Memory::Device); 2]);
        let good = Move { from: at(0, 0), to: at(1, 0), len: 4096 };
        let wrong = [
            Move { from: at(2, 0), ..good },
            Move { to: at(u32::MAX, 0), ..good },
            Move { from: at(0, 1), ..good },
            Move { to: at(1, 4097), len: 0, ..good },
            Move { to: at(1, u64::MAX), ..good },
            Move { len: u64::MAX, ..good },
        ];
        for next in wrong {
            let error = bench.unpacker.submit(&[good, next]).expect_err("outside").to_string();
            assert!(error.starts_with("move 1"), "{error}");
        }
        // Nor has the first move of the refused batches been made.
        let none = bench.submit(&[]);
        bench.check(none);
    }
}

#[test]
fn a_batch_that_the_ring_cannot_hold_is_refused() {
    let small = UnpackConfig { entries: 16, ..config(UnpackWay::Kernel) };
    let mut bench = Bench::new(simt(4), small, &[(1 << 20, Memory::Device); 2]);
    let all = Move { from: at(0, 0), to: at(1, 0), len: 1 << 20 };
    let error = bench.unpacker.submit(&[all]).expect_err("64 descriptors or one more");
    assert!(
        matches!(error, UnpackError::TooLarge { descriptors: 64 | 65, entries: 16 }),
        "{error}"
    );
    let ticket = bench.submit(&[Move { len: 1 << 17, ..all }]);
    bench.check(ticket);
}

#[test]
fn what_is_in_flight_outlives_its_area() {
    let mut bench = Bench::new(simt(5), config(UnpackWay::Kernel), &[(100_000, Memory::Device); 2]);
    let ticket = bench.submit(&[Move { from: at(0, 1), to: at(1, 2), len: 99_000 }]);
    let kept = bench.unpacker.area(AreaId(1)).cloned().expect("an area");
    assert!(bench.unpacker.remove(AreaId(0)).is_some());
    assert!(bench.unpacker.remove(AreaId(1)).is_some());
    assert!(bench.unpacker.submit(&[Move { from: at(0, 0), to: at(1, 0), len: 1 }]).is_err());
    bench.unpacker.wait(ticket, TIMEOUT).expect("completed");
    let mut found = vec![0; 100_000];
    bench.gpu.read(&kept, 0, &mut found).expect("read");
    assert!(found == bench.model[1]);
}

#[test]
fn the_way_is_chosen_by_place_and_size() {
    let sizes = [(4096, Memory::Device), (4096, Memory::Device)];
    let bench = Bench::new(simt(6), config(UnpackWay::Auto), &sizes);
    let moves = [Move { from: at(0, 0), to: at(1, 0), len: 4096 }];
    assert_eq!(bench.unpacker.way_for(&moves).expect("inside"), UnpackWay::Host);
    for way in &WAYS[1..] {
        let bench = Bench::new(simt(6), config(*way), &sizes);
        assert_eq!(bench.unpacker.way_for(&moves).expect("inside"), *way);
    }
}
