//! 64 MiB in fragments of 4 KiB, shuffled, on a GPU: by kernel, by the copy engine one by one, through
//! the host, and beside one plain copy of as many bytes.
//!
//! ```text
//! cargo test --release -p warpverbs-devmem --test unpack -- --ignored --nocapture speed
//! ```

use super::gpu::cuda;
use super::{TIMEOUT, at};
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng};
use std::sync::Arc;
use std::time::{Duration, Instant};
use warpverbs_devmem::unpack::Shape;
use warpverbs_devmem::{Move, UnpackConfig, Unpacker, Way};
use warpverbs_gpu::{Buffer, Gpu, Place};
use warpverbs_mem::{Progress, copy};

const TOTAL: u64 = 64 << 20;
const FRAGMENT: u64 = 4096;

/// Every fragment of the source, in any order, to the next place of the destination.
fn shuffled(shift: u64) -> Vec<Move> {
    let mut order: Vec<u64> = (0..TOTAL / FRAGMENT).collect();
    order.shuffle(&mut StdRng::seed_from_u64(7));
    let moves = order.iter().enumerate().map(|(index, source)| Move {
        from: at(0, source * FRAGMENT),
        to: at(1, index as u64 * FRAGMENT + shift),
        len: FRAGMENT,
    });
    moves.collect()
}

/// Least and median time of `run`.
fn timed(times: usize, mut run: impl FnMut()) -> (Duration, Duration) {
    let mut took: Vec<_> = (0..times)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed()
        })
        .collect();
    took.sort();
    (took[0], took[times / 2])
}

struct Memory {
    gpu: Arc<dyn Gpu>,
    from: Buffer,
    to: Buffer,
    bytes: Vec<u8>,
}

impl Memory {
    fn new() -> Self {
        let gpu = cuda();
        let mut rng = StdRng::seed_from_u64(1);
        let bytes: Vec<u8> =
            (0..TOTAL / 8).flat_map(|_| rng.random::<u64>().to_ne_bytes()).collect();
        let from = gpu.alloc(bytes.len(), Place::Device).expect("memory");
        gpu.write(&from, 0, &bytes).expect("written");
        let to = gpu.alloc(bytes.len() + 16, Place::Device).expect("memory");
        Self { gpu, from, to, bytes }
    }

    fn plain(&self) -> (Duration, Duration) {
        timed(50, || {
            let started = copy(self.to.region(), 0, self.from.region(), 0, TOTAL as usize);
            if let Progress::Pending(pending) = started.expect("a copy") {
                while !pending.is_done().expect("no failure") {}
            }
        })
    }

    /// Unpacks `times` times, and checks the bytes.
    fn unpack(&self, way: Way, shape: Shape, shift: u64, times: usize) -> (Duration, Duration) {
        let config = UnpackConfig { way, shape, ..UnpackConfig::default() };
        let mut unpacker = Unpacker::new(self.gpu.clone(), config);
        unpacker.add(self.from.clone());
        unpacker.add(self.to.clone());
        self.gpu.write(&self.to, 0, &vec![0; TOTAL as usize + 16]).expect("cleared");
        let moves = shuffled(shift);
        let took = timed(times, || {
            let ticket = unpacker.submit(&moves).expect("submitted");
            while unpacker.completed().expect("no failure") < ticket {}
        });
        let mut found = vec![0; TOTAL as usize];
        self.gpu.read(&self.to, shift, &mut found).expect("read");
        for next in moves {
            let [from, to] = [next.from.offset, next.to.offset - shift].map(|at| at as usize);
            let len = next.len as usize;
            assert!(found[to..to + len] == self.bytes[from..from + len], "fragment at {to:#x}");
        }
        took
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn speed() {
    let memory = Memory::new();
    let row = |what: &str, (best, median): (Duration, Duration), plain: Duration| {
        let ratio = plain.as_secs_f64() / median.as_secs_f64();
        let rate = TOTAL as f64 / median.as_secs_f64() / 1e9;
        println!("| {what} | {best:.1?} | {median:.1?} | {rate:.1} | {ratio:.2} |");
    };
    println!("| way | least | median | GB/s | plain copy / this |\n|---|---|---|---|---|");
    let plain = memory.plain();
    row("plain copy", plain, plain.1);
    for shift in [0, 5] {
        for threads in [128, 256, 512] {
            for each in [None, Some(1), Some(2), Some(4), Some(8), Some(16)] {
                let what = format!("kernel, {threads} threads, each {each:?}, shifted by {shift}");
                let shape = Shape { threads, each };
                row(&what, memory.unpack(Way::Kernel, shape, shift, 50), plain.1);
            }
        }
    }
    row("plain copy again", memory.plain(), plain.1);
    let shape = Shape::default();
    row("copy engine, one by one", memory.unpack(Way::CopyEngine, shape, 0, 3), plain.1);
    row("host", memory.unpack(Way::Host, shape, 0, 2), plain.1);
    let kernel = memory.unpack(Way::Kernel, shape, 0, 100);
    let plain = memory.plain();
    let ratio = plain.1.as_secs_f64() / kernel.1.as_secs_f64();
    println!("kernel: {:.1?}, plain copy: {:.1?}, ratio {ratio:.2}, wanted 0.7", kernel.1, plain.1);
    assert!(TIMEOUT > kernel.1);
}
