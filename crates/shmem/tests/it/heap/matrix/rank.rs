//! One rank of the matrix: its heap, its places, and what it launches.

use super::cells::{Cell, LARGEST};
use crate::heap::ranks::{PATIENCE, Rank, SIZE};
use crate::model::Model;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use warpverbs_gpu::{Buffer, DeviceStatus, Dim, KernelPtr, Place, SafeKernel};
use warpverbs_shmem::{Heap, HeapConfig, Signal, Sym, Team};
use warpverbs_test_kernels::{shm as k, shm_litmus as l, shm_mail as m};
use warpverbs_transport::KernelStatus;

/// The last warp is not full, and the second block does nothing.
pub(super) const DIM: Dim = Dim::new(2, 80);
pub(super) const THREADS: usize = 2 * 80;

/// Bytes of targets, and as many of sources behind them.
pub(super) const HALF: u64 = LARGEST.next_multiple_of(4096);
/// Signals and words behind both: with any value at first, and for counting from zero.
pub(super) const SIGNALS: u64 = 2 * HALF;
pub(super) const WORDS: u64 = SIGNALS + 16 * 16;
pub(super) const COUNTS: u64 = WORDS + 8 * 16;
const SPAN: u64 = COUNTS + 16 * 16;

/// Mailboxes of the table's sizes: bytes of the longest message, and the logarithm of the slots.
pub(super) const BOXES: [(u32, u8); 3] = [(8, 1), (50, 2), (1500, 3)];
/// u64 that the litmus tests put to and from.
pub(super) const LITMUS_WORDS: u64 = 2 * 1000;

pub(super) struct Part {
    pub(super) rank: Rank,
    pub(super) heap: Heap,
    /// Memory that the model has of every rank.
    pub(super) all: Sym<u8>,
    pub(super) model: Model,
    pub(super) rng: SmallRng,
    pub(super) team: Team,
    pub(super) rows: Sym<u64>,
    pub(super) ring: Sym<u64>,
    pub(super) boxes: [Sym<u64>; 3],
    pub(super) desk: Sym<u64>,
    pub(super) litmus: Sym<u64>,
    pub(super) litmus_signal: Sym<Signal>,
    /// For kernels: how often the rank has signalled, messages by box and sender.
    pub(super) counted: u64,
    pub(super) sent: [[u64; 4]; 3],
}

impl Part {
    pub(super) fn new(mut rank: Rank, seed: u64) -> Self {
        for image in [&k::IMAGE, &l::IMAGE, &m::IMAGE] {
            rank.gpu.load(image).unwrap();
        }
        let config = HeapConfig::new(SIZE).deadline(PATIENCE).timeout(PATIENCE).qps_per_peer(2);
        let mut heap = rank.heap(&config).unwrap();
        // Several segments, whose borders the larger transfers cross.
        while heap.bytes() < 4 * SIZE {
            heap.grow(&mut rank.world).unwrap();
        }
        let world = &mut rank.world;
        let size = heap.world();
        let team = heap.team(world, 0, 1, size).unwrap();
        let ring = heap.mail_block(world, 8, 2).unwrap();
        let boxes = BOXES.map(|(bytes, slots)| heap.mail_block(world, bytes, slots).unwrap());
        let rows = heap.alloc_zeroed::<u64>(world, size.into()).unwrap();
        let all = heap.alloc::<u8>(SPAN).unwrap();
        let desk = heap.alloc::<u64>(2048 / 8).unwrap();
        let litmus = heap.alloc::<u64>(LITMUS_WORDS).unwrap();
        let litmus_signal = heap.alloc::<Signal>(1).unwrap();
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut model = Model::new(size, SPAN as usize, &mut rng);
        let zeros = vec![0; (SPAN - COUNTS) as usize];
        (0..size).for_each(|rank| model.store(rank, COUNTS, &zeros));
        heap.write(&all, model.of(heap.rank())).unwrap();
        // Nobody puts before every rank has written its own place.
        rank.meet();
        let (counted, sent) = (0, [[0; 4]; 3]);
        Self {
            rank,
            heap,
            all,
            model,
            rng,
            team,
            rows,
            ring,
            boxes,
            desk,
            litmus,
            litmus_signal,
            counted,
            sent,
        }
    }

    pub(super) fn me(&self) -> u32 {
        self.heap.rank()
    }

    pub(super) fn world(&self) -> u32 {
        self.heap.world()
    }

    /// Bytes from the heap's start of a byte of the modelled place.
    pub(super) fn at(&self, offset: u64) -> u64 {
        self.all.offset() + offset
    }

    /// Runs a kernel to its end.
    pub(super) fn run<K: SafeKernel>(
        &self,
        cell: &Cell,
        dim: Dim,
        make: impl FnOnce(KernelPtr<warpverbs_gpu::DeviceHeap>, KernelPtr<DeviceStatus>) -> K,
    ) {
        let status = KernelStatus::new(&self.rank.gpu).unwrap();
        let kernel = make(self.heap.device(), status.pointer());
        let launch = self.rank.gpu.launch(&kernel, dim, 2 * PATIENCE);
        let ended = launch.unwrap_or_else(|e| panic!("{cell:?}: {e}")).wait();
        let me = self.me();
        ended.unwrap_or_else(|e| panic!("rank {me}, {cell:?}: {e}"));
        let health = || self.heap.health().map_or_else(|e| e.to_string(), |h| h.to_string());
        status.check(&[]).unwrap_or_else(|e| panic!("rank {me}, {cell:?}: {e}; {}", health()));
    }

    /// Memory of this rank's kernels alone, zeroed.
    pub(super) fn buffer(&self, len: usize) -> Buffer {
        self.rank.gpu.alloc(len, Place::Device).unwrap()
    }

    /// Runs a kernel that counts what is wrong, of which there must be nothing.
    pub(super) fn none_wrong<K: SafeKernel>(
        &self,
        cell: &Cell,
        make: impl FnOnce(
            KernelPtr<warpverbs_gpu::DeviceHeap>,
            KernelPtr<u64>,
            KernelPtr<DeviceStatus>,
        ) -> K,
    ) {
        let wrong = self.buffer(8);
        self.run(cell, Dim::new(1, 80), |heap, status| make(heap, (&wrong).into(), status));
        let mut count = [0; 8];
        self.rank.gpu.read(&wrong, 0, &mut count).unwrap();
        assert_eq!(count, [0; 8], "rank {}, {cell:?}: words that must not be so", self.me());
    }

    /// The own place is as the model says, once all ranks have done their part of the cell.
    pub(super) fn check(&mut self, cell: &Cell) {
        self.rank.meet();
        let mut found = vec![0; SPAN as usize];
        self.heap.read(&self.all, &mut found).unwrap();
        let me = self.me();
        self.model.compare(me, &found, &format!("{cell:?}"));
        self.rank.meet();
    }
}
