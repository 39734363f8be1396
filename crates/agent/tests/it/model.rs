//! Random transfers against a model that moves bytes one by one in plain vectors: all memory of both
//! sides is compared after each, so a byte outside of a registered range, or of a block, would show.

use crate::bed::{pair, run, tell};
use proptest::prelude::*;
use std::sync::OnceLock;
use warpverbs_agent::{Agent, AgentConfig, CopyBy, Op, PathKind, Registration};
use warpverbs_mem::{HostBuf, Region};
use warpverbs_transport::Context;

/// Bytes of a buffer, and of the guard on either side of what is registered of it.
const LEN: usize = 3000;
const GUARD: usize = 100;

/// One block: which memory, where.
type Block = (usize, u64);

#[derive(Clone, Debug)]
struct Case {
    write: bool,
    len: u64,
    local: Vec<Block>,
    remote: Vec<Block>,
    local_index: Vec<u32>,
    remote_index: Vec<u32>,
}

fn cases() -> impl Strategy<Value = Case> {
    let usable = (LEN - 2 * GUARD) as u64;
    let side = move |len: u64| prop::collection::vec((0usize..2, 0..=usable - len), 1..20);
    (any::<bool>(), 1u64..200).prop_flat_map(move |(write, len)| {
        (side(len), side(len), 1usize..30).prop_flat_map(move |(local, remote, count)| {
            let index = |blocks: usize| prop::collection::vec(0..blocks as u32, count);
            (index(local.len()), index(remote.len())).prop_map(
                move |(local_index, remote_index)| {
                    let (local, remote) = (local.clone(), remote.clone());
                    Case { write, len, local, remote, local_index, remote_index }
                },
            )
        })
    })
}

/// The model: registered bytes of both sides in order of memory.
fn expect(case: &Case, local: &mut [Vec<u8>], remote: &mut [Vec<u8>]) {
    for (here, there) in case.local_index.iter().zip(&case.remote_index) {
        let (here, there) = (case.local[*here as usize], case.remote[*there as usize]);
        for i in 0..case.len {
            let (a, b) = (GUARD + (here.1 + i) as usize, GUARD + (there.1 + i) as usize);
            match case.write {
                true => remote[there.0][b] = local[here.0][a],
                false => local[here.0][a] = remote[there.0][b],
            }
        }
    }
}

/// Blocks whose targets overlap may be moved in any order.
fn overlaps(case: &Case) -> bool {
    let (blocks, index) = match case.write {
        true => (&case.remote, &case.remote_index),
        false => (&case.local, &case.local_index),
    };
    let mut targets: Vec<_> = index.iter().map(|i| blocks[*i as usize]).collect();
    targets.sort_unstable();
    targets.windows(2).any(|pair| pair[0].0 == pair[1].0 && pair[0].1 + case.len > pair[1].1)
}

struct Sides {
    initiator: Agent,
    target: Agent,
    buffers: [Vec<Region>; 2],
    memory: [Vec<Registration>; 2],
}

impl Sides {
    fn new(config: &dyn Fn() -> AgentConfig) -> Self {
        let (initiator, target) = pair(config);
        Self::between(initiator, target)
    }

    /// Between memories of one agent.
    fn of_one() -> Self {
        let agent = Agent::new("only", AgentConfig::default()).unwrap();
        Self::between(agent.clone(), agent)
    }

    fn between(initiator: Agent, target: Agent) -> Self {
        let two = |()| (0..2).map(|_| HostBuf::region(LEN).unwrap()).collect::<Vec<_>>();
        let buffers = [(); 2].map(two);
        let register = |agent: &Agent, buffers: &[Region]| -> Vec<_> {
            let inner = |region: &Region| region.slice(GUARD as u64, LEN - 2 * GUARD).unwrap();
            buffers.iter().map(|region| agent.register(inner(region), "m").unwrap()).collect()
        };
        let memory = [register(&initiator, &buffers[0]), register(&target, &buffers[1])];
        tell(&initiator, &target);
        Self { initiator, target, buffers, memory }
    }

    fn fill(&self) -> [Vec<Vec<u8>>; 2] {
        let mut seed = 0u8;
        self.buffers.each_ref().map(|side| {
            side.iter()
                .map(|region| {
                    seed = seed.wrapping_add(77);
                    let bytes: Vec<u8> = (0..LEN)
                        .map(|i| (i as u8).wrapping_mul(31) ^ (i >> 8) as u8 ^ seed)
                        .collect();
                    region.write(0, &bytes).unwrap();
                    bytes
                })
                .collect()
        })
    }

    fn check(&self, case: &Case) -> Result<(), TestCaseError> {
        let [mut local, mut remote] = self.fill();
        expect(case, &mut local, &mut remote);
        let list = |memory: &[Registration], blocks: &[Block]| {
            let mut blocks = blocks.iter().map(|(m, at)| memory[*m].blocks(*at, case.len, 1));
            let first = blocks.next().unwrap().unwrap();
            blocks.fold(first, |mut list, block| {
                list.append(&block.unwrap()).unwrap();
                list
            })
        };
        let (here, there) =
            (list(&self.memory[0], &case.local), list(&self.memory[1], &case.remote));
        let (here, there) =
            (self.initiator.prepare(&here).unwrap(), self.initiator.prepare(&there).unwrap());
        let op = if case.write { Op::Write } else { Op::Read };
        let transfer = self.initiator.prepared_transfer(
            op,
            &here,
            &case.local_index,
            &there,
            &case.remote_index,
        );
        run(&transfer.unwrap());
        for (regions, expected) in self.buffers.iter().zip([local, remote]) {
            for (region, expected) in regions.iter().zip(expected) {
                let mut bytes = vec![0; LEN];
                region.read(0, &mut bytes).unwrap();
                prop_assert!(bytes == expected);
            }
        }
        prop_assert_eq!(self.target.next_notification(), None);
        Ok(())
    }
}

fn check(path: &'static OnceLock<Sides>, config: &dyn Fn() -> AgentConfig, case: &Case) {
    path.get_or_init(|| Sides::new(config)).check(case).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_path_moves_these_bytes_and_no_others(case in cases()) {
        prop_assume!(!overlaps(&case));
        static CPU: OnceLock<Sides> = OnceLock::new();
        static KERNEL: OnceLock<Sides> = OnceLock::new();
        static NETWORK: OnceLock<Sides> = OnceLock::new();
        static TCP: OnceLock<Sides> = OnceLock::new();
        static NIC: OnceLock<warpverbs_transport::Device> = OnceLock::new();
        static OWN: OnceLock<Sides> = OnceLock::new();
        OWN.get_or_init(Sides::of_one).check(&case).unwrap();
        check(&CPU, &AgentConfig::default, &case);
        check(&KERNEL, &|| AgentConfig::default().copy_by(CopyBy::Kernel), &case);
        let nic = NIC.get_or_init(|| Context::new().unwrap().open("soft").unwrap());
        let network = || AgentConfig::default().nic(nic).require(PathKind::Network);
        check(&NETWORK, &network, &case);
        check(&TCP, &|| AgentConfig::default().require(PathKind::Tcp), &case);
    }
}
