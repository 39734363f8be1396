//! Transfers by kernels that cannot begin, because others hold the device: deadlines and cancelling end them
//! all the same, and when their kernels run at last, they touch nothing.

use crate::terminal::{LEN, Rig, SOON, config};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use warpverbs_agent::{AgentError, CopyBy, Op, PathKind, PostOptions, Registration, State};
use warpverbs_gpu::Gpu;
use warpverbs_gpu::simt::{SimtConfig, SimtDevice};

const BLOCK: usize = 64 << 10;
const PATHS: [PathKind; 3] = [PathKind::SameProcess, PathKind::Mapped, PathKind::ProcessCopy];

/// A device on which nothing gets on while the test holds it.
struct Device {
    gpu: Arc<SimtDevice>,
    held: Arc<Mutex<()>>,
}

impl Device {
    fn new() -> Self {
        let held = Arc::new(Mutex::new(()));
        let gate = held.clone();
        let wait = move || {
            drop(gate.lock());
            false
        };
        let gpu = SimtDevice::with_stepper(SimtConfig::default(), Arc::new(wait)).unwrap();
        Self { gpu: Arc::new(gpu), held }
    }

    fn hold(&self) -> MutexGuard<'_, ()> {
        self.held.lock().unwrap()
    }

    fn rig(&self, path: PathKind) -> Rig {
        let gpu: Arc<dyn Gpu> = self.gpu.clone();
        Rig::with(path, config(path).gpu(&gpu).copy_by(CopyBy::Kernel))
    }
}

/// How a transfer is ended while its kernel cannot begin.
#[derive(Clone, Copy, Debug)]
enum End {
    Deadline,
    Cancel,
}

fn bytes(memory: &Registration) -> Vec<u8> {
    let mut bytes = vec![0; LEN];
    memory.read(0, &mut bytes).unwrap();
    bytes
}

fn until(mut holds: impl FnMut() -> bool) {
    let asked = Instant::now();
    while !holds() {
        assert!(asked.elapsed() < SOON, "it does not come");
        std::thread::yield_now();
    }
}

/// Posts a transfer that cannot begin; it is over when this returns.
fn ended(rig: &Rig, op: Op, end: End) {
    let transfer = rig.transfer(op, &rig.ours, BLOCK);
    let options = match end {
        End::Deadline => PostOptions::new().deadline(Duration::from_millis(50)),
        End::Cancel => PostOptions::new(),
    };
    std::thread::scope(|scope| {
        if matches!(end, End::Cancel) {
            scope.spawn(|| {
                // Until a kernel is queued; before that a cancellation has no transfer to end.
                until(|| transfer.state() == State::InProgress);
                std::thread::sleep(Duration::from_millis(20));
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
    assert!(expected, "{op:?} {end:?}: {over:?}");
}

#[test]
fn a_read_that_could_not_begin_leaves_the_memory_here_alone() {
    for (path, end) in
        PATHS.into_iter().flat_map(|path| [(path, End::Deadline), (path, End::Cancel)])
    {
        let device = Device::new();
        let mut rig = device.rig(path);
        let theirs = rig.bytes();
        rig.seen.write(0, &theirs).unwrap();
        rig.run(&rig.transfer(Op::Write, &rig.seen, BLOCK));
        let known = device.gpu.finished().len();
        let held = device.hold();
        ended(&rig, Op::Read, end);
        // The memory is in use again.
        let new = rig.bytes();
        rig.ours.write(0, &new).unwrap();
        assert_eq!(device.gpu.finished().len(), known, "the kernel has run");
        drop(held);
        until(|| device.gpu.finished().len() > known);
        assert!(bytes(&rig.ours) == new, "{path}, {end:?}: bytes landed");
        // And the path works.
        rig.run(&rig.transfer(Op::Read, &rig.ours, BLOCK));
        let blocks = theirs.chunks(BLOCK);
        assert!(bytes(&rig.ours) == blocks.collect::<Vec<_>>().concat());
    }
}

#[test]
fn a_write_that_could_not_begin_leaves_the_memory_there_alone() {
    for (path, end) in
        PATHS.into_iter().flat_map(|path| [(path, End::Deadline), (path, End::Cancel)])
    {
        let device = Device::new();
        let mut rig = device.rig(path);
        let theirs = rig.bytes();
        rig.seen.write(0, &theirs).unwrap();
        rig.run(&rig.transfer(Op::Write, &rig.seen, BLOCK));
        let ours = rig.bytes();
        rig.ours.write(0, &ours).unwrap();
        let known = device.gpu.finished().len();
        let held = device.hold();
        ended(&rig, Op::Write, end);
        assert_eq!(device.gpu.finished().len(), known, "the kernel has run");
        drop(held);
        until(|| device.gpu.finished().len() > known);
        rig.seen.write(0, &ours).unwrap();
        rig.run(&rig.transfer(Op::Read, &rig.seen, BLOCK));
        assert!(bytes(&rig.seen) == theirs, "{path}, {end:?}: bytes landed");
    }
}
