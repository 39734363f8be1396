//! Memory of GPUs, between two processes: lists by one launch and by the copy engine; host memory and
//! that of a GPU. `warpverbs perf agent` measures them.

#[path = "../../../gpu/tests/common/mod.rs"]
mod common;

use crate::bed::transfer;
use crate::withdrawn::{End, ended};
use common::Spin;
use std::sync::Arc;
use std::time::Duration;
use warpverbs_agent::{
    Agent, AgentConfig, CopyBy, Op, PathKind, PostOptions, Registration, RemoteMemory, Transfer,
};
use warpverbs_dev::{Child, say};
use warpverbs_gpu::{Gpu, Place};

const SOON: Duration = Duration::from_secs(60);

/// Bytes of each memory: fewer where an emulator's kernels copy them.
fn len(gpu: &dyn Gpu) -> usize {
    if gpu.info().is_emulated() { 4 << 20 } else { 128 << 20 }
}

fn first_gpu() -> Arc<dyn Gpu> {
    warpverbs_gpu::open(common::choice(0)).unwrap()
}

/// The second GPU if there is one.
fn other_gpu() -> Arc<dyn Gpu> {
    warpverbs_gpu::open(common::choice(1)).unwrap_or_else(|_| first_gpu())
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i as u32).wrapping_mul(0x9e37_79b9).to_le_bytes()[3]).collect()
}

/// The part of the other process: memory of four kinds, until its input ends.
#[test]
fn owner() {
    if std::env::var_os("AGENT_GPU_OWNER").is_none() {
        return;
    }
    let gpu = other_gpu();
    let len = len(&*gpu);
    let agent = Agent::new("owner", AgentConfig::default().token("the job's").gpu(&gpu)).unwrap();
    let arena = agent.alloc(len as u64, "arena").unwrap();
    let plain = agent.register(gpu.alloc(len, Place::Device).unwrap(), "plain").unwrap();
    let shared = agent.alloc_host(len as u64, "shared").unwrap();
    shared.write(0, &pattern(len)).unwrap();
    let private = agent.register(vec![0; len], "private").unwrap();
    arena.write(0, &pattern(len)).unwrap();
    plain.write(0, &pattern(len)).unwrap();
    say(agent.address());
    let _ = std::io::stdin().read_line(&mut String::new());
    drop((arena, plain, shared, private));
}

struct Owner(#[expect(dead_code, reason = "lives as long")] Child, std::net::SocketAddr);

impl Owner {
    fn start() -> Self {
        let mut child = Child::of_test("gpu::owner", "AGENT_GPU_OWNER", 1);
        let address = child.said().parse().unwrap();
        Self(child, address)
    }
}

/// Reads `count` blocks in reverse order, twice, and checks every byte.
fn read(agent: &Agent, ours: &Registration, remote: &RemoteMemory, len: u64, count: u64) {
    let at: Vec<_> = (0..count).rev().map(|i| i * len).collect();
    let into = ours.blocks(0, len, count as usize).unwrap();
    let from = remote.blocks_at(&at, len).unwrap();
    let transfer = agent.transfer(Op::Read, &into, &from).unwrap();
    for _ in 0..2 {
        transfer.post(PostOptions::new()).unwrap();
        transfer.wait(SOON).unwrap();
    }
    let bytes = (len * count) as usize;
    let mut seen = vec![0; bytes];
    ours.read(0, &mut seen).unwrap();
    let all = pattern(bytes);
    let blocks = all.chunks(len as usize).rev().flatten();
    assert!(seen.iter().eq(blocks), "{count} blocks of {len} bytes");
}

const SHAPES: [(u64, u64); 6] =
    [(8, 1), (1 << 20, 1), (128 << 20, 1), (1 << 20, 2), (64 << 10, 256), (4 << 10, 4096)];

/// Those of `shapes` whose blocks fit into `len` bytes, with as many blocks as fit.
fn fitting(shapes: &[(u64, u64)], len: usize) -> impl Iterator<Item = (u64, u64)> {
    let fit = move |&(block, count): &(u64, u64)| (block, count.min(len as u64 / block));
    shapes.iter().map(fit).filter(|(_, count)| *count > 0)
}

#[test]
#[ignore = "needs a GPU"]
fn memory_of_gpus_and_of_the_host_moves_between_processes_however_it_is_copied() {
    let owner = Owner::start();
    let gpu = first_gpu();
    let len = len(&*gpu);
    for copy_by in [CopyBy::Kernel, CopyBy::Engine, CopyBy::Auto] {
        let config = AgentConfig::default().token("the job's").gpu(&gpu).copy_by(copy_by);
        let agent = Agent::new(&format!("{copy_by:?}"), config).unwrap();
        agent.fetch_metadata(owner.1, SOON).unwrap();
        let ours = agent.alloc(len as u64, "ours").unwrap();
        let host = agent.register(vec![0; len], "our host memory").unwrap();
        for (ours, label) in
            [(&ours, "arena"), (&ours, "plain"), (&ours, "shared"), (&host, "arena")]
        {
            let remote = agent.remote("owner", label).unwrap();
            let explained = agent.explain(ours, &remote).unwrap();
            // Host memory of another process is not registered with the driver here.
            let bounced = label == "shared";
            let path = if bounced { PathKind::ProcessCopy } else { PathKind::Mapped };
            assert_eq!(explained.how.route, path, "{explained}");
            println!("{copy_by:?}, {} from {label}: {explained}", ours.label());
            for (block, count) in fitting(&SHAPES, len) {
                read(&agent, ours, &remote, block, count);
            }
        }
    }
}

const LISTS: [(u64, u64); 10] = [
    (8, 1),
    (8, 2),
    (4096, 1),
    (1 << 20, 1),
    (64 << 20, 1),
    (4096, 256),
    (4096, 4096),
    (100, 5000),
    (64 << 10, 256),
    (300 << 10, 100),
];

/// Posts it several times; the median from post to done.
fn timed(transfer: &Transfer) -> Duration {
    let once = || {
        transfer.post(PostOptions::new()).unwrap();
        transfer.wait(SOON).unwrap();
        transfer.telemetry().unwrap().transfer
    };
    let mut took: Vec<_> = (0..9).map(|_| once()).collect();
    took.sort_unstable();
    took[4]
}

#[test]
#[ignore = "needs a GPU"]
fn lists_go_to_private_host_memory_of_another_process_and_back() {
    let owner = Owner::start();
    let gpu = first_gpu();
    let all = pattern(len(&*gpu));
    for copy_by in [CopyBy::Engine, CopyBy::Auto, CopyBy::Kernel] {
        let config = AgentConfig::default().token("the job's").gpu(&gpu).copy_by(copy_by);
        let agent = Agent::new(&format!("{copy_by:?}"), config).unwrap();
        agent.fetch_metadata(owner.1, SOON).unwrap();
        let ours = agent.alloc(all.len() as u64, "ours").unwrap();
        let remote = agent.remote("owner", "private").unwrap();
        println!("{copy_by:?}: {}", agent.explain(&ours, &remote).unwrap());
        for (len, count) in fitting(&LISTS, all.len()) {
            let bytes = len as usize * count as usize;
            ours.write(0, &all[..bytes]).unwrap();
            let at: Vec<_> = (0..count).rev().map(|i| i * len).collect();
            let here = ours.blocks(0, len, count as usize).unwrap();
            let there = remote.blocks_at(&at, len).unwrap();
            let write = timed(&agent.transfer(Op::Write, &here, &there).unwrap());
            ours.write(0, &vec![0; bytes]).unwrap();
            let read = timed(&agent.transfer(Op::Read, &here, &there).unwrap());
            let mut seen = vec![0; bytes];
            ours.read(0, &mut seen).unwrap();
            assert!(seen == all[..bytes], "{count} blocks of {len} bytes, {copy_by:?}");
            // In order, so that blocks that were exchanged would show.
            let whole = remote.blocks(0, bytes as u64, 1).unwrap();
            timed(
                &agent
                    .transfer(Op::Read, &ours.blocks(0, bytes as u64, 1).unwrap(), &whole)
                    .unwrap(),
            );
            ours.read(0, &mut seen).unwrap();
            let blocks = all[..bytes].chunks(len as usize).rev().flatten();
            assert!(seen.iter().eq(blocks), "{count} blocks of {len} bytes, {copy_by:?}");
            println!("{copy_by:?}, {count} x {len}: written {write:?}, read {read:?}");
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn a_list_is_written_to_another_gpu_and_the_peer_may_leave() {
    let owner = Owner::start();
    let gpu = first_gpu();
    let agent = Agent::new("writer", AgentConfig::default().token("the job's").gpu(&gpu)).unwrap();
    agent.fetch_metadata(owner.1, SOON).unwrap();
    let ours = agent.alloc(len(&*gpu) as u64, "ours").unwrap();
    let remote = agent.remote("owner", "arena").unwrap();
    ours.write(0, &[0x5a; 1 << 20]).unwrap();
    let there = remote.strided(0, 4096, 8192, 256);
    let write = transfer(&agent, Op::Write, ours.blocks(0, 4096, 256), there);
    write.post(PostOptions::new().notify(b"written")).unwrap();
    write.wait(SOON).unwrap();
    // Back again, with the gaps.
    let into = ours.blocks(0, 2 << 20, 1).unwrap();
    let read = agent.transfer(Op::Read, &into, &remote.blocks(0, 2 << 20, 1).unwrap()).unwrap();
    read.post(PostOptions::new()).unwrap();
    read.wait(SOON).unwrap();
    let mut seen = vec![0; 2 << 20];
    ours.read(0, &mut seen).unwrap();
    let before = pattern(2 << 20);
    let expected = |i: usize| if i % 8192 < 4096 { 0x5a } else { before[i] };
    assert!(seen.iter().enumerate().all(|(i, byte)| *byte == expected(i)));
    drop(owner);
    let lost = loop {
        match write.post(PostOptions::new().notify(b"x")).and_then(|_| write.wait(SOON)) {
            Ok(_) => std::thread::yield_now(),
            Err(lost) => break lost,
        }
    };
    assert!(lost.to_string().contains("owner ("), "{lost}");
}

/// Deadlines and cancelling end transfers whose kernels are queued behind others, and when these have left,
/// nothing lands: neither in memory of another process, mapped or by a bounce buffer, nor here.
#[test]
#[ignore = "needs a GPU"]
fn transfers_end_while_other_kernels_fill_the_gpu_and_touch_nothing_later() {
    const BLOCK: u64 = 64 << 10;
    const COUNT: usize = 256;
    const BYTES: usize = BLOCK as usize * COUNT;
    let owner = Owner::start();
    let gpu: Arc<dyn Gpu> = Arc::new(common::open(0).unwrap());
    let config = AgentConfig::default().token("the job's").gpu(&gpu).copy_by(CopyBy::Kernel);
    let agent = Agent::new("initiator", config).unwrap();
    agent.fetch_metadata(owner.1, SOON).unwrap();
    let ours = agent.alloc(BYTES as u64, "ours").unwrap();
    let seen = agent.alloc(BYTES as u64, "seen").unwrap();
    let theirs = pattern(BYTES);
    let new: Vec<u8> = theirs.iter().map(|byte| !byte).collect();
    let bytes = |memory: &Registration| {
        let mut bytes = vec![0; BYTES];
        memory.read(0, &mut bytes).unwrap();
        bytes
    };
    for label in ["arena", "private"] {
        let remote = agent.remote("owner", label).unwrap();
        println!("{}", agent.explain(&ours, &remote).unwrap());
        let list = |op, memory: &Registration| {
            let here = memory.blocks(0, BLOCK, COUNT).unwrap();
            agent.transfer(op, &here, &remote.blocks(0, BLOCK, COUNT).unwrap()).unwrap()
        };
        let (read, write, look) =
            (list(Op::Read, &ours), list(Op::Write, &ours), list(Op::Read, &seen));
        // So that nothing has to be loaded or mapped later.
        ours.write(0, &theirs).unwrap();
        for transfer in [&write, &read, &look] {
            transfer.post(PostOptions::new()).unwrap();
            transfer.wait(SOON).unwrap();
        }
        assert!(bytes(&seen) == theirs);
        ours.write(0, &new).unwrap();
        let mut spin = Spin::fill(&*gpu, Duration::from_secs(300));
        for (transfer, end) in [
            (&read, End::Deadline),
            (&read, End::Cancel),
            (&write, End::Deadline),
            (&write, End::Cancel),
        ] {
            // Nothing tells that a kernel is queued: most likely it is by then.
            let queued = || {
                std::thread::sleep(Duration::from_millis(20));
                true
            };
            ended(transfer, end, queued);
        }
        assert!(spin.is_running(), "{label}: a transfer has waited for other kernels");
        spin.end().unwrap();
        // A kernel that copies after all is likely to have done so by then; none that is right does.
        std::thread::sleep(Duration::from_millis(200));
        assert!(bytes(&ours) == new, "{label}: bytes landed here");
        look.post(PostOptions::new()).unwrap();
        look.wait(SOON).unwrap();
        assert!(bytes(&seen) == theirs, "{label}: bytes landed there");
    }
}
