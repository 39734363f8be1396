//! The self-test kernels, on host SIMT under several schedules, and on a GPU with `--ignored`.

use std::time::Duration;
use warpverbs::gpu::simt::{SimtConfig, SimtDevice};
use warpverbs::gpu::{Buffer, Dim, Gpu, GpuChoice, KernelPtr, Place, SafeKernel};
use warpverbs_test_kernels::selftest as k;

const DEADLINE: Duration = Duration::from_secs(60);

fn words(gpu: &dyn Gpu, count: usize) -> Buffer {
    gpu.alloc(count * 8, Place::Device).expect("memory")
}

fn read(gpu: &dyn Gpu, buffer: &Buffer) -> Vec<u64> {
    let mut bytes = vec![0; buffer.len()];
    gpu.read(buffer, 0, &mut bytes).expect("read");
    bytes.chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().expect("8 bytes"))).collect()
}

fn run(gpu: &dyn Gpu, kernel: &dyn SafeKernel, dim: Dim) {
    let name = kernel.entry().name;
    let launch = gpu.launch(kernel, dim, DEADLINE).unwrap_or_else(|e| panic!("{name}: {e}"));
    launch.wait().unwrap_or_else(|e| panic!("{name}: {e}"));
}

/// Three blocks of 70 threads, in whatever shape: numbered x first.
fn identify(gpu: &dyn Gpu, dim: Dim) {
    let (out, warp) = (words(gpu, 2 * 210 + 1), gpu.info().warp_size);
    run(gpu, &k::Identify { out: KernelPtr::new(&out) }, dim);
    let seen: Vec<u32> =
        read(gpu, &out).iter().flat_map(|w| [*w as u32, (*w >> 32) as u32]).collect();
    for (id, row) in seen[..840].chunks_exact(4).enumerate() {
        let (thread, block) = (id as u32 % 70, id as u32 / 70);
        assert_eq!(row, [thread, block, thread % warp, thread / warp], "thread {id} of {dim:?}");
    }
    assert_eq!(seen[840..842], [70, 3]);
}

/// Two blocks of 77 threads: the last warp of each has 13 lanes.
fn collect(gpu: &dyn Gpu, dim: Dim) {
    let (out, warp) = (words(gpu, 4 * 154), u64::from(gpu.info().warp_size));
    run(gpu, &k::Collect { out: KernelPtr::new(&out) }, dim);
    let seen = read(gpu, &out);
    for (id, row) in seen.chunks_exact(4).enumerate() {
        let id = id as u64;
        let (thread, block) = (id % 77, id / 77);
        let first = block * 77 + thread / warp * warp;
        let lanes = (77 - thread / warp * warp).min(warp);
        let value = |lane: u64| 1000 + first + lane;
        let mask = |test: &dyn Fn(u64) -> bool| {
            (0..lanes).filter(|l| test(value(*l))).fold(0u64, |m, l| m | 1 << l)
        };
        let own = 1000 + id;
        assert_eq!(row[0], value((thread % warp + 1) % lanes), "shfl of thread {id}");
        assert_eq!(row[1], mask(&|v| v % 2 == 1), "ballot of thread {id}");
        assert_eq!(row[2], mask(&|v| v % 3 == own % 3), "match_any of thread {id}");
        assert_eq!(row[3], (0..lanes).map(value).sum::<u64>(), "sum of thread {id}");
    }
}

/// WQEBBs are the same whether each lane writes its own or four lanes write one together, also where
/// the ring ends among them.
fn fill_ring(gpu: &dyn Gpu) {
    let warp = gpu.info().warp_size;
    for (base, together) in [(0u64, 0), (0, 1), (7, 1), (230, 0), (230, 1), (511, 1)] {
        let ring = words(gpu, 2048);
        gpu.write(&ring, 0, &[0xff; 16384]).expect("write");
        run(gpu, &k::FillRing { ring: (&ring).into(), base, together }, Dim::new(1, warp));
        let mut want = vec![u32::MAX; 4096];
        for index in base..base + 2 * u64::from(warp) {
            for word in 0..16 {
                want[(index % 256 * 16 + word) as usize] = (16 * index + word) as u32;
            }
        }
        let seen = read(gpu, &ring).into_iter().flat_map(|w| [w as u32, (w >> 32) as u32]);
        assert_eq!(seen.collect::<Vec<_>>(), want, "base {base}, together {together}");
    }
}

fn diverge(gpu: &dyn Gpu) {
    let (counts, groups) = (words(gpu, 2), words(gpu, 1));
    let kernel = k::Diverge { counts: (&counts).into(), groups: (&groups).into(), rounds: 20 };
    run(gpu, &kernel, Dim::new(4, 96));
    assert_eq!(read(gpu, &counts), [4 * 96 * 10, 4 * 96 * 10]);
    let groups = read(gpu, &groups)[0];
    assert!((4 * 3 * 20..=4 * 96 * 20).contains(&groups), "{groups} groups");
}

fn reduce(gpu: &dyn Gpu) {
    let (blocks, threads, rounds) = (3u64, 100u64, 5u64);
    let out = words(gpu, blocks as usize);
    run(gpu, &k::Reduce { out: (&out).into(), rounds: 5 }, Dim::new(3, 100));
    for (block, sum) in read(gpu, &out).iter().enumerate() {
        let first = block as u64 * threads;
        let ids: u64 = (first..first + threads).sum();
        let want: u64 = (0..rounds).map(|round| ids + threads * round).sum();
        assert_eq!(*sum, want, "block {block}");
    }
}

fn atomics(gpu: &dyn Gpu, dim: Dim, rounds: u32) {
    let (cells, lock) = (words(gpu, 7), words(gpu, 1));
    run(gpu, &k::Atomics { cells: (&cells).into(), lock: (&lock).into(), rounds }, dim);
    let threads = u64::from(dim.blocks() * dim.threads());
    let times = u64::from(rounds);
    let xor = if rounds % 2 == 1 { (0..threads).fold(0, |x, id| x ^ id) } else { 0 };
    let want = [
        times * (0..threads).sum::<u64>(),
        xor,
        (0..threads).fold(0, |x, id| x | id),
        threads - 1,
        times * threads,
        times * threads,
        3 * times * threads,
    ];
    assert_eq!(read(gpu, &cells), want);
}

fn relay(gpu: &dyn Gpu) {
    let (token, data, late) = (words(gpu, 1), words(gpu, 1), words(gpu, 1));
    let kernel = k::Relay {
        token: (&token).into(),
        data: (&data).into(),
        late: (&late).into(),
        patience: 30_000_000_000,
    };
    run(gpu, &kernel, Dim::new(4, 64));
    assert_eq!(read(gpu, &late), [0]);
    assert_eq!(read(gpu, &token), [256]);
    assert_eq!(read(gpu, &data), [(0..256).sum::<u64>()]);
}

fn all(gpu: &dyn Gpu) {
    gpu.load(&k::IMAGE).expect("load");
    for dim in [Dim::new(3, 70), Dim::of((1, 3), (35, 2)), Dim::of((1, 1, 3), (7, 5, 2))] {
        identify(gpu, dim);
    }
    for dim in [Dim::new(2, 77), Dim::of((1, 2), (11, 7))] {
        collect(gpu, dim);
    }
    fill_ring(gpu);
    diverge(gpu);
    reduce(gpu);
    for dim in [Dim::new(4, 64), Dim::of((2, 2), (16, 2, 2))] {
        atomics(gpu, dim, 3);
    }
    relay(gpu);
}

#[test]
fn simt_free() {
    all(&SimtDevice::new(SimtConfig::default()).expect("device"));
}

#[test]
fn simt_under_many_seeds() {
    let first = SimtConfig::seed_from_env(0).expect("seed");
    for seed in first..first + 24 {
        println!("WARPVERBS_SIMT_SEED={seed}");
        for lockstep in [false, true] {
            let config = SimtConfig::seeded(seed).lockstep(lockstep);
            all(&SimtDevice::new(config).expect("device"));
        }
    }
}

#[test]
fn simt_by_seed_in_real_time() {
    let seed = SimtConfig::seed_from_env(11).expect("seed");
    println!("WARPVERBS_SIMT_SEED={seed}");
    all(&SimtDevice::new(SimtConfig::seeded_real_time(seed)).expect("device"));
}

#[test]
fn simt_atomics_from_4096_lanes() {
    let gpu = SimtDevice::new(SimtConfig::default()).expect("device");
    atomics(&gpu, Dim::new(32, 128), 4);
    let gpu = SimtDevice::new(SimtConfig::seeded(5)).expect("device");
    atomics(&gpu, Dim::new(32, 128), 1);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cuda() {
    let gpu = warpverbs::gpu::open(GpuChoice::Cuda(0)).expect("a CUDA device");
    all(&*gpu);
    atomics(&*gpu, Dim::new(32, 128), 4);
}

#[test]
#[ignore = "needs an AMD GPU, or its emulator"]
fn hip() {
    let gpu = warpverbs::gpu::open(GpuChoice::Hip(0)).expect("a HIP device");
    println!("{}", gpu.info().name);
    all(&*gpu);
}
