//! Launches, withdrawals, copies and frees over a [driver](super::fake) whose device gets on as the test says.

use super::fake::{Script, device};
use super::{CopyCounts, DriverGpu};
use crate::launch::Launch;
use crate::stop::MOST_WITHDRAWN;
use crate::{
    BlockRun, BlockSide, Blocks, Buffer, Gpu, GpuError, LaunchError, Place, kernels::blocks,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use warpverbs_mem::{Progress, copy};

/// Ends a hang: nothing that comes at all takes this long, however slow the machine is.
const HANG: Duration = Duration::from_secs(240);
/// Longer than what small requests share, so that it is freed when it is dropped.
const LEN: usize = 3 << 20;
const BYTES: u64 = 64 << 10;

struct Rig {
    gpu: DriverGpu,
    script: Arc<Script>,
    random: StdRng,
    /// Frees wait for the launches of every device.
    _turn: MutexGuard<'static, ()>,
}

impl Rig {
    fn new() -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = super::lock::lock(&TURN);
        let seed = rand::random();
        println!("seed {seed}");
        let (gpu, script) = device();
        gpu.load(&blocks::IMAGE).unwrap();
        Self { gpu, script, random: StdRng::seed_from_u64(seed), _turn: turn }
    }

    /// Memory of random bytes.
    fn buffer(&mut self) -> Buffer {
        let buffer = self.gpu.alloc(LEN, Place::Device).unwrap();
        let mut bytes = vec![0; LEN];
        self.random.fill_bytes(&mut bytes);
        self.gpu.write(&buffer, 0, &bytes).unwrap();
        buffer
    }

    fn bytes(&self, buffer: &Buffer) -> Vec<u8> {
        let mut bytes = vec![0; BYTES as usize];
        self.gpu.read(buffer, 0, &mut bytes).unwrap();
        bytes
    }

    /// The begin of the second, to be copied to the first.
    fn list(&self, buffers: &[Buffer]) -> Blocks {
        let side = |buffer| BlockSide { buffer, offset: 0, stride: BYTES };
        let run = BlockRun { to: side(0), from: side(1), bytes: BYTES, count: 1 };
        Blocks::new(&self.gpu, buffers, &[run]).unwrap()
    }

    /// A launch that copies it.
    fn launch(&self, buffers: &[Buffer], deadline: Duration) -> Launch {
        self.list(buffers).copy(&self.gpu, None, deadline).unwrap()
    }

    /// Starts a copy inside the device.
    fn copy_inside(&self, to: &Buffer, from: &Buffer) -> Progress {
        copy(to.region(), 0, from.region(), 0, BYTES as usize).unwrap()
    }

    /// A launch that takes all of the device.
    fn fill(&self, buffers: &[Buffer; 2], deadline: Duration) -> Result<Launch, GpuError> {
        let kernel = self.whole(buffers);
        let dim = crate::Dim::new(2 * super::fake::MULTIPROCESSORS, super::fake::THREADS / 2);
        // SAFETY: a list without pieces: nothing is touched but the record.
        unsafe { self.gpu.launch_unchecked(&kernel, dim, deadline) }
    }

    fn whole(&self, buffers: &[Buffer; 2]) -> blocks::CopyList {
        let stop = self.gpu.stops().take().unwrap().record();
        let list = crate::KernelPtr::new(&buffers[0]);
        blocks::CopyList { list, first: 0, count: 0, mask: u64::MAX, each: 1, stop }
    }
}

fn until(mut holds: impl FnMut() -> bool) {
    let asked = Instant::now();
    while !holds() {
        assert!(asked.elapsed() < HANG, "it does not come");
        std::thread::yield_now();
    }
}

fn landed(progress: &Progress) -> bool {
    matches!(progress, Progress::Done)
        || matches!(progress, Progress::Pending(copy) if copy.is_done().unwrap())
}

#[test]
fn a_withdrawn_launch_that_is_queued_copies_nothing_when_it_runs_and_its_memory_stays_until_then() {
    let mut rig = Rig::new();
    let (seen, dropped) = ([rig.buffer(), rig.buffer()], [rig.buffer(), rig.buffer()]);
    let (before, there) = (rig.bytes(&seen[0]), dropped[0].region().addr());
    rig.script.fill(true);
    for buffers in [&seen, &dropped] {
        let mut launch = rig.launch(buffers, HANG);
        until(|| launch.withdraw().unwrap());
    }
    drop(dropped);
    assert_eq!(rig.script.begun(), 0);
    assert!(!rig.script.is_freed(there), "the kernel may still begin");
    rig.script.fill(false);
    assert_eq!(rig.script.begun(), 2);
    assert!(rig.bytes(&seen[0]) == before, "a launch that was withdrawn has copied");
    // The next launch that ends has the deferred frees done.
    rig.launch(&seen, HANG).wait().unwrap();
    assert!(rig.bytes(&seen[0]) == rig.bytes(&seen[1]));
    assert!(rig.script.is_freed(there));
}

/// Each keeps a stream, a record and its list, on a device that other kernels fill for as long as they like.
#[test]
fn few_launches_are_withdrawn_and_queued_and_none_is_counted_that_has_run() {
    let mut rig = Rig::new();
    let buffers = [rig.buffer(), rig.buffer()];
    let list = rig.list(&buffers);
    let before = rig.bytes(&buffers[0]);
    for _ in 0..2 {
        rig.script.fill(true);
        let mut queued = 0;
        let refused = loop {
            match list.copy(&rig.gpu, None, HANG) {
                Ok(mut launch) => until(|| launch.withdraw().unwrap()),
                Err(refused) => break refused,
            }
            queued += 1;
            assert!(queued <= MOST_WITHDRAWN, "launches are queued without a bound");
        };
        assert!(matches!(refused, GpuError::Withdrawn { .. }), "{refused}");
        assert_eq!(queued, MOST_WITHDRAWN);
        assert!(rig.script.streams() < 2 * MOST_WITHDRAWN);
        // They run, and nobody is told.
        rig.script.fill(false);
        assert!(rig.bytes(&buffers[0]) == before, "a launch that was withdrawn has copied");
    }
    list.copy(&rig.gpu, None, HANG).unwrap().wait().unwrap();
    assert!(rig.bytes(&buffers[0]) == rig.bytes(&buffers[1]));
}

#[test]
fn a_withdrawal_waits_for_the_copies_that_make_it() {
    let mut rig = Rig::new();
    let buffers = [rig.buffer(), rig.buffer()];
    rig.script.fill(true);
    let mut launch = rig.launch(&buffers, HANG);
    rig.script.slow(true);
    for _ in 0..100 {
        assert!(!launch.withdraw().unwrap());
    }
    rig.script.slow(false);
    until(|| launch.withdraw().unwrap());
    rig.script.fill(false);
}

#[test]
fn a_withdrawal_does_not_stand_behind_copies_that_wait_for_the_device() {
    let mut rig = Rig::new();
    let buffers = [rig.buffer(), rig.buffer()];
    // Kernels of others, of which this crate does not know.
    rig.script.fill(true);
    let inside = rig.copy_inside(&buffers[0], &buffers[1]);
    let mut launch = rig.launch(&buffers, HANG);
    until(|| launch.withdraw().unwrap());
    assert!(!landed(&inside));
    rig.script.fill(false);
    until(|| landed(&inside));
}

#[test]
fn a_launch_that_is_given_up_runs_later_with_its_memory() {
    let mut rig = Rig::new();
    let buffers = [rig.buffer(), rig.buffer()];
    let there = buffers[0].region().addr();
    let source = rig.bytes(&buffers[1]);
    rig.script.fill(true);
    let late = rig.launch(&buffers, Duration::ZERO).wait();
    assert!(matches!(late, Err(LaunchError::Deadline { .. })), "{late:?}");
    let seen = buffers[0].clone();
    drop(buffers);
    assert_eq!(rig.script.begun(), 0);
    assert!(!rig.script.is_freed(there));
    rig.script.fill(false);
    assert!(rig.bytes(&seen) == source, "nobody withdrew it");
}

#[test]
fn streams_are_used_again_when_their_kernel_has_ended_and_not_before() {
    let mut rig = Rig::new();
    let buffers = [rig.buffer(), rig.buffer()];
    rig.launch(&buffers, HANG).wait().unwrap();
    let known = rig.script.streams();
    for _ in 0..3 {
        rig.launch(&buffers, HANG).wait().unwrap();
    }
    assert_eq!(rig.script.streams(), known);
    rig.script.fill(true);
    let mut queued = [(); 3].map(|()| rig.launch(&buffers, HANG));
    assert_eq!(rig.script.streams(), known + 2);
    for launch in &mut queued {
        until(|| launch.withdraw().unwrap());
    }
    drop(queued);
    let last = rig.launch(&buffers, HANG);
    assert_eq!(rig.script.streams(), known + 3, "a stream with a queued kernel was used again");
    rig.script.fill(false);
    last.wait().unwrap();
}

#[test]
fn nothing_of_a_lost_context_is_waited_for() {
    let mut rig = Rig::new();
    let buffers = [rig.buffer(), rig.buffer()];
    rig.script.fill(true);
    let (mut withdrawn, waited) = (rig.launch(&buffers, HANG), rig.launch(&buffers, HANG));
    rig.script.lose();
    let lost = withdrawn.withdraw();
    assert!(matches!(lost, Err(LaunchError::Failed(GpuError::KernelFailed { .. }))), "{lost:?}");
    let lost = waited.wait();
    assert!(matches!(lost, Err(LaunchError::Failed(GpuError::KernelFailed { .. }))), "{lost:?}");
    rig.script.fill(false);
    assert_eq!(rig.script.begun(), 0);
}

#[test]
fn copies_inside_the_device_go_by_the_host_while_launches_leave_no_room() {
    let mut rig = Rig::new();
    let buffers = [rig.buffer(), rig.buffer()];
    until({
        let copy = rig.copy_inside(&buffers[0], &buffers[1]);
        move || landed(&copy)
    });
    assert_eq!(rig.gpu.copy_counts(), CopyCounts { direct: 1, bounced: 0 });
    let other = rig.buffer();
    rig.script.fill(true);
    let whole = rig.fill(&buffers, HANG).unwrap();
    until({
        let copy = rig.copy_inside(&buffers[0], &other);
        move || landed(&copy)
    });
    assert_eq!(rig.gpu.copy_counts(), CopyCounts { direct: 1, bounced: 1 });
    assert!(rig.bytes(&buffers[0]) == rig.bytes(&other));
    rig.script.fill(false);
    whole.wait().unwrap();
}

#[test]
fn a_launch_that_leaves_no_room_waits_for_copies_until_its_deadline() {
    let mut rig = Rig::new();
    let buffers = [rig.buffer(), rig.buffer()];
    rig.script.fill(true);
    let inside = rig.copy_inside(&buffers[0], &buffers[1]);
    let late = rig.fill(&buffers, Duration::from_millis(1)).map(drop);
    assert!(
        matches!(late, Err(GpuError::Stuck { after, .. }) if after < Duration::from_secs(1)),
        "{late:?}"
    );
    rig.script.fill(false);
    until(|| landed(&inside));
    rig.fill(&buffers, HANG).unwrap().wait().unwrap();
}
