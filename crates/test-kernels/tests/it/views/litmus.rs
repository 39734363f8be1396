//! Values that an agent must see once it has seen a counter, in many interleavings of agents and NIC.

use crate::views::agents::{Agents, GROUPS, ROUTES};
use warpverbs::gpu::{Dim, KernelPtr};
use warpverbs_dev::simt_seeds;
use warpverbs_test_kernels::nixl_litmus as k;

const WORDS: u32 = 37;
const DATA: u64 = 64;
const ENTRIES: [(u64, u64); 2] = [(DATA, 16 * WORDS as u64), (0, 16)];

#[test]
fn a_counter_brings_all_earlier_puts_of_its_channel_along() {
    for seed in simt_seeds(0x100, 10) {
        for (route, group) in ROUTES.into_iter().flat_map(|r| GROUPS.map(|g| (r, g))) {
            let agents = Agents::new(4096, route, seed);
            let wrong = agents.buffer(8);
            agents.run(Dim::new(2, 40), |status| k::NixlMessage {
                own_a: agents.local(0, &ENTRIES),
                b_from_a: agents.remote(0, &ENTRIES),
                own_b: agents.local(1, &ENTRIES),
                a_from_b: agents.remote(1, &ENTRIES),
                group,
                words: WORDS,
                rounds: 4,
                defer: (seed % 2) as u32,
                wrong: KernelPtr::new(&wrong),
                status,
            });
            let what = &agents.what;
            assert_eq!(
                agents.read(&wrong),
                [0; 8],
                "{what}: words that a counter should bring along"
            );
        }
    }
}
