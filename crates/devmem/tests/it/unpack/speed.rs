//! 64 MiB in fragments of 4 KiB, shuffled, on a GPU: by kernel, by the copy engine one by one, through
//! the host, and beside one plain copy of as many bytes.
//!
//! ```text
//! cargo test --release -p warpverbs-devmem --test it -- --ignored --nocapture unpack::speed
//! ```

use super::gpu::cuda;
use super::{TIMEOUT, at};
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};
use warpverbs_devmem::unpack::Shape;
use warpverbs_devmem::{Move, UnpackConfig, UnpackWay, Unpacker};
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

/// Medians: from the call to the end, and from the call's return to the end.
#[derive(Clone, Copy)]
struct Times {
    whole: Duration,
    after: Duration,
}

fn timed<T>(times: usize, mut submit: impl FnMut() -> T, mut wait: impl FnMut(T)) -> Times {
    let median = |mut took: Vec<Duration>| {
        took.sort();
        took[took.len() / 2]
    };
    let (whole, after) = (0..times)
        .map(|_| {
            let called = Instant::now();
            let submitted = submit();
            let returned = Instant::now();
            wait(submitted);
            (called.elapsed(), returned.elapsed())
        })
        .unzip();
    Times { whole: median(whole), after: median(after) }
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

    fn plain(&self) -> Times {
        let start = || copy(self.to.region(), 0, self.from.region(), 0, TOTAL as usize);
        timed(50, start, |started| {
            if let Progress::Pending(pending) = started.expect("a copy") {
                while !pending.is_done().expect("no failure") {}
            }
        })
    }

    /// Unpacks `times` times, and checks the bytes.
    fn unpack(&self, way: UnpackWay, shape: Shape, shift: u64, times: usize) -> Times {
        let config = UnpackConfig { way, shape, ..UnpackConfig::default() };
        let mut unpacker = Unpacker::new(self.gpu.clone(), config);
        unpacker.add(self.from.clone());
        unpacker.add(self.to.clone());
        let unpacker = RefCell::new(unpacker);
        self.gpu.write(&self.to, 0, &vec![0; TOTAL as usize + 16]).expect("cleared");
        let moves = shuffled(shift);
        let submit = || unpacker.borrow_mut().submit(&moves).expect("submitted");
        let took = timed(times, submit, |ticket| {
            while unpacker.borrow_mut().completed().expect("no failure") < ticket {}
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
    let row = |what: &str, Times { whole, after }: Times, plain: Times| {
        let ratio = plain.whole.as_secs_f64() / after.as_secs_f64();
        println!("| {what} | {whole:.1?} | {after:.1?} | {ratio:.2} |");
    };
    println!("| way | from the call | after submission | plain copy / after submission |");
    println!("|---|---|---|---|");
    let plain = memory.plain();
    row("plain copy", plain, plain);
    for shift in [0, 5] {
        for threads in [128, 256, 512] {
            for each in [None, Some(1), Some(2), Some(4), Some(8), Some(16)] {
                let what = format!("kernel, {threads} threads, each {each:?}, shifted by {shift}");
                let shape = Shape { threads, each };
                row(&what, memory.unpack(UnpackWay::Kernel, shape, shift, 50), plain);
            }
        }
    }
    let again = memory.plain();
    row("plain copy again", again, again);
    let shape = Shape::default();
    row("copy engine, one by one", memory.unpack(UnpackWay::CopyEngine, shape, 0, 3), again);
    row("host", memory.unpack(UnpackWay::Host, shape, 0, 2), again);
    let kernel = memory.unpack(UnpackWay::Kernel, shape, 0, 100);
    row("kernel", kernel, memory.plain());
    assert!(TIMEOUT > kernel.whole);
}
