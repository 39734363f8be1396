//! Launches that are withdrawn, on a device whose lanes get on only as the test allows.

use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use warpverbs_gpu::simt::{SimtConfig, SimtDevice};
use warpverbs_gpu::{BlockRun, BlockSide, Blocks, Buffer, Gpu, Launch, Place};

/// Ends a hang: nothing that comes at all takes this long, however slow the machine is.
const HANG: Duration = Duration::from_secs(240);
const LEN: usize = 256 << 10;
const BLOCK: u64 = 4 << 10;

/// A device, and a list that copies all of one buffer to another.
struct Rig {
    gpu: SimtDevice,
    /// How often the scheduler of a launch may look whether it is to go on.
    allowed: Arc<AtomicU64>,
    looks: Arc<AtomicU64>,
    buffers: [Buffer; 2],
    list: Blocks,
    random: StdRng,
}

impl Rig {
    fn new(config: SimtConfig, mut random: StdRng) -> Self {
        let allowed = Arc::new(AtomicU64::new(0));
        let looks = Arc::new(AtomicU64::new(0));
        let (gate, looking) = (allowed.clone(), looks.clone());
        let wait = move || {
            let look = looking.fetch_add(1, Ordering::AcqRel);
            while look >= gate.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            false
        };
        let gpu = SimtDevice::with_stepper(config, Arc::new(wait)).unwrap();
        let buffers = [(); 2].map(|()| {
            let buffer = gpu.alloc(LEN, Place::Device).unwrap();
            let mut bytes = vec![0; LEN];
            random.fill_bytes(&mut bytes);
            gpu.write(&buffer, 0, &bytes).unwrap();
            buffer
        });
        let side = |buffer| BlockSide { buffer, offset: 0, stride: BLOCK };
        let count = LEN as u64 / BLOCK;
        let run = BlockRun { to: side(0), from: side(1), bytes: BLOCK, count };
        let list = Blocks::new(&gpu, &buffers, &[run]).unwrap();
        Self { gpu, allowed, looks, buffers, list, random }
    }

    fn copy(&self) -> Launch {
        self.list.copy(&self.gpu, None, HANG).unwrap()
    }

    fn bytes(&self, side: usize) -> Vec<u8> {
        let mut bytes = vec![0; LEN];
        self.gpu.read(&self.buffers[side], 0, &mut bytes).unwrap();
        bytes
    }

    /// Lets lanes get on, until all launches have ended.
    fn run(&self, launches: usize) {
        self.allowed.store(u64::MAX, Ordering::Release);
        until(|| self.gpu.finished().len() == launches);
    }
}

fn until(mut holds: impl FnMut() -> bool) {
    let asked = Instant::now();
    while !holds() {
        assert!(asked.elapsed() < HANG, "it does not come");
        std::thread::yield_now();
    }
}

fn seed() -> u64 {
    let seed = rand::random();
    println!("seed {seed}");
    seed
}

#[test]
fn a_launch_that_is_withdrawn_before_it_begins_does_nothing_when_it_does() {
    let rig = Rig::new(SimtConfig::default(), StdRng::seed_from_u64(seed()));
    let before = rig.bytes(0);
    let mut launch = rig.copy();
    assert!(!launch.is_done().unwrap());
    until(|| launch.withdraw().unwrap());
    assert!(launch.is_done().unwrap() && launch.withdraw().unwrap());
    // Waits for nothing any more.
    drop(launch);
    assert!(rig.gpu.finished().is_empty());
    rig.run(1);
    assert!(rig.bytes(0) == before, "a launch that was withdrawn has copied");
    // The next one has a record that was not raised.
    rig.copy().wait().unwrap();
    assert!(rig.bytes(0) == rig.bytes(1));
}

#[test]
fn a_launch_that_was_withdrawn_while_it_ran_writes_nothing_later() {
    let mut random = StdRng::seed_from_u64(seed());
    let (mut waited, mut partly) = (0, 0);
    for _ in 0..24 {
        let config = SimtConfig::seeded_real_time(random.random());
        let mut rig = Rig::new(config, StdRng::from_rng(&mut random));
        let mut launch = rig.copy();
        let looks = 1 << rig.random.random_range(0..14);
        rig.allowed.store(looks, Ordering::Release);
        until(|| rig.looks.load(Ordering::Acquire) > looks || !rig.gpu.finished().is_empty());
        let mut late = false;
        // Blocks that are inside may be held by the gate for as long as the test likes.
        for _ in 0..100 {
            late = !launch.withdraw().unwrap();
            std::thread::yield_now();
        }
        waited += u64::from(late);
        rig.allowed.store(u64::MAX, Ordering::Release);
        until(|| launch.withdraw().unwrap());
        let at_end = rig.bytes(0);
        partly += u64::from(at_end != rig.bytes(1));
        rig.run(1);
        assert!(rig.bytes(0) == at_end, "bytes landed after the launch was withdrawn");
    }
    println!("{waited} were waited for, {partly} copied less than all");
    assert!(waited > 0 && partly > 0);
}
