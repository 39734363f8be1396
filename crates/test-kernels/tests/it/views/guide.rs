//! The kernels of docs/device-guide.md, and that pages quote kernels as they are.

use crate::views::agents::{Agents, ROUTES};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::time::Duration;
use warpverbs::gpu::{Dim, KernelPtr};
use warpverbs::kernels::simple_write as k;

const BYTES: u64 = 4096;
const ENTRIES: [(u64, u64); 2] = [(0, BYTES), (BYTES, 16)];
const LONG: Duration = Duration::from_secs(120);

#[test]
fn pages_quote_code_that_is_compiled() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let read = |path: &str| std::fs::read_to_string(format!("{root}/{path}")).expect(path);
    for (page, source, least) in [
        ("docs/device-guide.md", "kernels/src/simple_write.cu", 4),
        ("README.md", "kernels/src/loopback.cu", 1),
    ] {
        let (text, compiled) = (read(page), read(source));
        let blocks: Vec<_> = text.split("```cpp\n").skip(1).collect();
        assert!(blocks.len() >= least, "{page}: {} blocks of code", blocks.len());
        for block in blocks {
            let code = block.split("```").next().expect("an end");
            assert!(compiled.contains(code), "{page}: not in {source}:\n{code}");
        }
    }
}

#[test]
fn threads_poll_for_their_own_transfers() {
    for route in ROUTES {
        let agents = Agents::new(BYTES as usize + 16, route, 21);
        let mut model = agents.fill(&mut SmallRng::seed_from_u64(21));
        let looks = agents.buffer(8);
        agents.run(Dim::new(2, 32), |status| k::SimpleWritePoll {
            local: agents.local(0, &ENTRIES),
            remote: agents.remote(0, &ENTRIES),
            looks: KernelPtr::new(&looks),
            status,
        });
        model.copy((0, 0), (1, 0), BYTES);
        agents.compare(&model, "64 bytes of each of 64 threads");
        let looks = u64::from_le_bytes(agents.read(&looks).try_into().expect("8 bytes"));
        assert!(looks >= 64, "{looks}");
    }
}

/// The target's kernel waits on one stream while two writers of the initiator run on others.
#[test]
fn writers_and_a_waiting_kernel_run_on_streams_of_their_own() {
    const ROUNDS: u32 = 5;
    for route in ROUTES {
        let agents = Agents::real(BYTES as usize + 16, route);
        let data: Vec<u8> = (0..BYTES).map(|i| (i * 7 + i / 251) as u8).collect();
        agents.gpu.write(&agents.memory[0], 0, &data).expect("write");
        let words = [agents.buffer(4), agents.buffer(8), agents.buffer(8)];
        let status = || KernelPtr::new(&words[0]);
        let (local, remote) = (agents.local(0, &ENTRIES), agents.remote(0, &ENTRIES));
        let wait = k::SimpleWriteWait {
            local: agents.local(1, &ENTRIES),
            expected: 2 * u64::from(ROUNDS),
            ns: LONG.as_nanos() as u64,
            status: status(),
        };
        let thread = k::SimpleWriteThread {
            local: local.clone(),
            remote: remote.clone(),
            bytes: BYTES,
            pieces: 3,
            rounds: ROUNDS,
            took: KernelPtr::new(&words[1]),
            status: status(),
        };
        let warp = k::SimpleWriteWarp {
            local,
            remote,
            bytes: BYTES,
            pieces: 1,
            rounds: ROUNDS,
            took: KernelPtr::new(&words[2]),
            status: status(),
        };
        let dim = Dim::new(1, 32);
        let launches = [
            agents.gpu.launch(&wait, dim, LONG),
            agents.gpu.launch(&thread, dim, LONG),
            agents.gpu.launch(&warp, dim, LONG),
        ];
        for launch in launches {
            launch.expect("a launch").wait().unwrap_or_else(|e| panic!("{}: {e}", agents.what));
        }
        assert_eq!(agents.read(&words[0]), [0; 4], "{}", agents.what);
        assert_eq!(agents.read(&agents.memory[1])[..BYTES as usize], data, "{}", agents.what);
        assert_eq!(agents.counter(1, BYTES), 2 * u64::from(ROUNDS));
    }
}
