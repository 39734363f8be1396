//! The four posts of lists: single, partial, all, signal.

use crate::model::Model;
use crate::views::agents::{Agents, DIM, GROUPS, ROUTES, Route};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use warpverbs::gpu::{KernelPtr, LocalView, RemoteView};
use warpverbs::transport::Outcome;
use warpverbs_test_kernels::nixl as k;

/// Entries of both views, of different sizes; the last is the counter, and the local view has none.
const SIZES: [u64; 6] = [256, 1, 4096, 48, 333, 0];
const COUNTER: u64 = 15_360;
const BYTES: u64 = 1 << 14;
/// Where sources start; targets start at 0.
const SOURCES: u64 = 1 << 13;

const SINGLE: u32 = 0;
const PARTIAL: u32 = 1;
const ALL: u32 = 2;
const SIGNAL: u32 = 3;

fn entries(start: u64) -> Vec<(u64, u64)> {
    let mut at = start;
    let one = |size: &u64| {
        let entry = (at, *size);
        at += size + 17;
        entry
    };
    SIZES.iter().map(one).collect()
}

struct Lists {
    agents: Agents,
    model: Model,
    rng: SmallRng,
    sources: Vec<(u64, u64)>,
    targets: Vec<(u64, u64)>,
    local: KernelPtr<LocalView>,
    remote: KernelPtr<RemoteView>,
}

/// At `offset` of the counters' entry.
fn counter(offset: u64, value: u64) -> k::Counter {
    k::Counter { offset, value, index: SIZES.len() as u32, channel: 2 }
}

#[derive(Clone, Copy)]
struct Item {
    index: u32,
    bytes: u64,
    from: u64,
    to: u64,
}

impl Lists {
    fn new(route: Route, seed: u64) -> Self {
        let agents = Agents::new(BYTES as usize, route, seed);
        let mut rng = SmallRng::seed_from_u64(seed);
        let model = agents.fill(&mut rng);
        let (sources, mut targets) = (entries(SOURCES), entries(0));
        targets.push((COUNTER, 32));
        let (local, remote) = (agents.local(0, &sources), agents.remote(0, &targets));
        Self { agents, model, rng, sources, targets, local, remote }
    }

    fn post(
        &self,
        what: u32,
        group: u32,
        items: &[Item],
        counter: k::Counter,
    ) -> Result<(), Outcome> {
        let words = |of: fn(&Item) -> u64| {
            let bytes: Vec<u8> = items.iter().flat_map(|item| of(item).to_le_bytes()).collect();
            self.agents.array::<u64>(&[bytes, vec![0; 8]].concat())
        };
        let indices: Vec<u8> = items.iter().flat_map(|item| item.index.to_le_bytes()).collect();
        let (sizes, from, to) = (words(|i| i.bytes), words(|i| i.from), words(|i| i.to));
        self.agents.launch(DIM, |status| k::NixlList {
            local: self.local.clone(),
            remote: self.remote.clone(),
            group,
            what,
            count: items.len() as u32,
            indices: self.agents.array(&[indices, vec![0; 4]].concat()),
            sizes,
            from,
            to,
            counter,
            status,
        })
    }

    fn apply(&mut self, items: &[Item], added: Option<(u64, u64)>) {
        for item in items {
            let (source, target) =
                (self.sources[item.index as usize].0, self.targets[item.index as usize].0);
            self.model.copy((0, source + item.from), (1, target + item.to), item.bytes);
        }
        if let Some((offset, value)) = added {
            self.model.add(1, COUNTER + offset + self.agents.route.half(), value);
        }
    }

    fn whole(&self) -> Vec<Item> {
        let one = |(index, (_, bytes)): (usize, &(u64, u64))| Item {
            index: index as u32,
            bytes: *bytes,
            from: 0,
            to: 0,
        };
        self.sources.iter().enumerate().map(one).collect()
    }

    /// Parts of entries, some of them empty.
    fn parts(&mut self) -> Vec<Item> {
        let rng = &mut self.rng;
        let mut one = |index: usize| {
            let bytes = rng.random_range(0..=SIZES[index]);
            let [from, to] = [0, 1].map(|_| rng.random_range(0..=SIZES[index] - bytes));
            Item { index: index as u32, bytes, from, to }
        };
        [4, 0, 2, 5, 1].map(&mut one).to_vec()
    }
}

#[test]
fn single_partial_all_and_signal_do_what_they_say() {
    for (route, group) in ROUTES.into_iter().flat_map(|r| GROUPS.map(|g| (r, g))) {
        let mut lists = Lists::new(route, 0x30 + u64::from(group));
        for _ in 0..6 {
            let parts = lists.parts();
            let value = lists.rng.random();
            assert_eq!(lists.post(SINGLE, group, &parts[..1], counter(0, value)), Ok(()));
            lists.apply(&parts[..1], None);
            lists.agents.compare(&lists.model, "single");
            assert_eq!(lists.post(PARTIAL, group, &parts, counter(16, value)), Ok(()));
            lists.apply(&parts, Some((16, value)));
            lists.agents.compare(&lists.model, "partial");
            assert_eq!(lists.post(ALL, group, &[], counter(0, value)), Ok(()));
            let whole = lists.whole();
            lists.apply(&whole, Some((0, value)));
            lists.agents.compare(&lists.model, "all");
            assert_eq!(lists.post(SIGNAL, group, &[], counter(16, value)), Ok(()));
            lists.apply(&[], Some((16, value)));
            lists.agents.compare(&lists.model, "signal");
        }
    }
}

#[test]
fn a_list_with_one_bad_part_posts_nothing() {
    for (route, group) in ROUTES.into_iter().flat_map(|r| GROUPS.map(|g| (r, g))) {
        let lists = Lists::new(route, 0x40);
        let good = Item { index: 0, bytes: 256, from: 0, to: 0 };
        for bad in [
            Item { bytes: 257, ..good },
            Item { from: 1, ..good },
            Item { to: 1, ..good },
            Item { from: u64::MAX, bytes: 2, ..good },
            Item { index: SIZES.len() as u32 + 1, bytes: 0, ..good },
        ] {
            let refused = lists.post(PARTIAL, group, &[good, bad], counter(0, 1));
            assert_eq!(refused, Err(Outcome::BadAddress));
        }
        for bad in [
            counter(8, 1),
            counter(32, 1),
            k::Counter { index: SIZES.len() as u32 + 1, ..counter(0, 1) },
        ] {
            assert_eq!(lists.post(PARTIAL, group, &[good], bad.clone()), Err(Outcome::BadAddress));
            assert_eq!(lists.post(SIGNAL, group, &[], bad), Err(Outcome::BadAddress));
        }
        lists.agents.compare(&lists.model, "refused lists");
    }
}
