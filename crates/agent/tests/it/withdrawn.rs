//! Transfers by kernels that cannot begin, because others hold the device: deadlines and cancelling end them
//! all the same, and when their kernels run at last, they touch nothing.

use crate::bed::{SOON, by};
use crate::terminal::{Rig, few_lanes};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use warpverbs_agent::{AgentError, CopyBy, Op, PathKind, PostOptions, State, Transfer};
use warpverbs_gpu::Gpu;
use warpverbs_gpu::simt::SimtDevice;

const BLOCK: usize = 64 << 10;
const PATHS: [PathKind; 3] = [PathKind::SameProcess, PathKind::Mapped, PathKind::ProcessCopy];

/// A device on which nothing gets on while the test holds it.
struct Device {
    gpu: Arc<SimtDevice>,
    held: Arc<Mutex<()>>,
    /// How often a launch came to where it is held.
    looks: Arc<AtomicUsize>,
}

impl Device {
    fn new() -> Self {
        let held = Arc::new(Mutex::new(()));
        let looks = Arc::new(AtomicUsize::new(0));
        let (gate, looking) = (held.clone(), looks.clone());
        let wait = move || {
            looking.fetch_add(1, Ordering::Relaxed);
            drop(gate.lock());
            false
        };
        let gpu = SimtDevice::with_stepper(few_lanes(), Arc::new(wait)).unwrap();
        Self { gpu: Arc::new(gpu), held, looks }
    }

    fn hold(&self) -> MutexGuard<'_, ()> {
        self.held.lock().unwrap()
    }

    fn looks(&self) -> usize {
        self.looks.load(Ordering::Relaxed)
    }

    fn rig(&self, path: PathKind) -> Rig {
        let gpu: Arc<dyn Gpu> = self.gpu.clone();
        Rig::with(path, by(path).gpu(&gpu).copy_by(CopyBy::Kernel))
    }
}

/// How a transfer is ended while its kernel cannot begin.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    Deadline,
    Cancel,
}

fn until(mut holds: impl FnMut() -> bool) {
    let asked = Instant::now();
    while !holds() {
        assert!(asked.elapsed() < SOON, "it does not come");
        std::thread::yield_now();
    }
}

/// Posts a transfer that cannot begin; it is over when this returns. `queued` says whether its kernel is.
pub(crate) fn ended(transfer: &Transfer, end: End, queued: impl Fn() -> bool + Sync) {
    let mut deadline = Duration::from_millis(50);
    loop {
        let options = match end {
            End::Deadline => PostOptions::new().deadline(deadline),
            End::Cancel => PostOptions::new(),
        };
        std::thread::scope(|scope| {
            if matches!(end, End::Cancel) {
                scope.spawn(|| {
                    until(|| transfer.state() == State::InProgress && queued());
                    transfer.cancel();
                });
            }
            // Its error is its state's.
            let _ = transfer.post(options);
            until(|| transfer.state().is_terminal());
        });
        let over = transfer.wait(SOON);
        let expected = match end {
            End::Deadline => matches!(over, Err(AgentError::Timeout { .. })),
            End::Cancel => matches!(over, Err(AgentError::Cancelled)),
        };
        assert!(expected, "{end:?}: {over:?}");
        if queued() {
            return;
        }
        // The machine is so slow that there was no time to launch it.
        deadline *= 2;
    }
}

#[test]
fn a_transfer_that_could_not_begin_leaves_the_memory_at_both_ends_alone() {
    let ends = [(Op::Read, End::Deadline), (Op::Read, End::Cancel)];
    let ends = ends.into_iter().chain([(Op::Write, End::Deadline), (Op::Write, End::Cancel)]);
    for (path, (op, end)) in ends.flat_map(|end| PATHS.map(|path| (path, end))) {
        let what = format!("{path}, {op:?}, {end:?}");
        let device = Device::new();
        let mut rig = device.rig(path);
        let theirs = rig.bytes();
        rig.seen.write(0, &theirs).unwrap();
        rig.run(&rig.transfer(Op::Write, &rig.seen, BLOCK));
        let ours = rig.bytes();
        rig.ours.write(0, &ours).unwrap();
        let known = device.gpu.finished().len();
        let held = device.hold();
        let looks = device.looks();
        let transfer = rig.transfer(op, &rig.ours, BLOCK);
        ended(&transfer, end, || device.looks() > looks);
        // The memory is in use again.
        let new = rig.bytes();
        rig.ours.write(0, &new).unwrap();
        assert_eq!(device.gpu.finished().len(), known, "{what}: the kernel has run");
        drop(held);
        until(|| device.gpu.finished().len() > known);
        assert!(rig.ours.to_vec().unwrap() == new, "{what}: bytes landed here");
        // And the path works: the peer's bytes are as they were.
        rig.run(&rig.transfer(Op::Read, &rig.ours, BLOCK));
        assert!(rig.ours.to_vec().unwrap() == theirs, "{what}: bytes landed there");
    }
}

/// Each that ends early leaves a launch, until there are as many as there may be. The next ones wait, each
/// until its own deadline, and one that has the time copies when the device gets on.
#[test]
fn transfers_that_end_early_leave_few_launches() {
    const MOST: usize = 16;
    let device = Device::new();
    let gpu: Arc<dyn Gpu> = device.gpu.clone();
    let config = by(PathKind::SameProcess).gpu(&gpu).copy_by(CopyBy::Kernel);
    // A block each: a lane has two mappings.
    let mut rig = Rig::with(PathKind::SameProcess, config.kernel_blocks(1));
    let theirs = rig.bytes();
    rig.seen.write(0, &theirs).unwrap();
    rig.run(&rig.transfer(Op::Write, &rig.seen, BLOCK));
    let held = device.hold();
    let transfer = rig.transfer(Op::Read, &rig.ours, BLOCK);
    let mut launches = 0;
    loop {
        let posted = transfer.post(PostOptions::new().deadline(Duration::from_millis(100)));
        let late = matches!(posted, Err(AgentError::Timeout { .. }));
        assert!(late || matches!(posted, Ok(State::InProgress)), "{posted:?}");
        transfer.cancel();
        assert!(transfer.wait(SOON).is_err());
        launches += usize::from(!late);
        assert!(launches <= MOST, "launches are queued without a bound");
        // Before that, the machine is so slow that there was no time to launch it.
        if late && launches == MOST {
            break;
        }
    }
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| transfer.post(PostOptions::new()).unwrap());
        until(|| transfer.state() == State::InProgress);
        drop(held);
        waiting.join().unwrap();
    });
    assert_eq!(transfer.wait(SOON).unwrap(), State::Done);
    assert!(rig.ours.to_vec().unwrap() == theirs);
}

/// Its end takes the transfer along, but not before the kernel is withdrawn.
#[test]
fn a_peer_that_is_lost_takes_no_kernel_for_ended() {
    let device = Device::new();
    let mut rig = device.rig(PathKind::Mapped);
    rig.run(&rig.transfer(Op::Read, &rig.ours, BLOCK));
    let known = device.gpu.finished().len();
    let held = device.hold();
    let read = rig.transfer(Op::Read, &rig.ours, BLOCK);
    assert_eq!(read.post(PostOptions::new()).unwrap(), State::InProgress);
    rig.lose_target();
    let lost = read.wait(SOON);
    assert!(matches!(lost, Err(AgentError::PeerLost { .. })), "{lost:?}");
    let new = rig.bytes();
    rig.ours.write(0, &new).unwrap();
    assert_eq!(device.gpu.finished().len(), known, "the kernel has run");
    drop(held);
    until(|| device.gpu.finished().len() > known);
    assert!(rig.ours.to_vec().unwrap() == new, "bytes landed");
}
