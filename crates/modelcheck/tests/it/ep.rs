//! The words and credits of expert parallelism between two ranks on two GPUs: rows before the word that says
//! so, results before theirs, nothing written before it was read. Each order is weakened in turn, and must
//! be noticed.

use super::cases::effort;
use std::rc::Rc;
use warpverbs_modelcheck::kernels::{EP_LEAVES, EP_PLANS, EP_READS, EP_RECEIVES, EP_SENDS};
use warpverbs_modelcheck::threads::block_of;
use warpverbs_modelcheck::{
    Change, Initial, Mutant, Scenario, Settings, SiteUse, ThreadSpec, Time, explore,
};

/// As in `scenarios/ep.cc`.
const HEAPS: u64 = 0x40_0000;
const STRIDE: u64 = 0x10_0000;
const STATE: u64 = 0x8000;
const ALARMS: u64 = 0x9000;
const ARRIVED: u64 = 0x100;
const ANNOUNCED: u64 = 0x300;
const RETURNED: u64 = 0x200;
const ROWS: u64 = 0x400;
const RESULTS: u64 = 0x500;
/// Memory of each block, as in `arch/check.h`.
const SHARED: u64 = 0x11_1000;

/// Offsets in an `EpState`, from `layout/ep.h`.
mod state {
    pub(super) const EPOCH: u64 = 0;
    pub(super) const LEAVING: u64 = 4;
    pub(super) const COUNTED: u64 = 8;
    pub(super) const MISSING: u64 = 16;
    pub(super) const UNANSWERED: u64 = 32;
    pub(super) const SENT: u64 = 48;
    pub(super) const RETURNED: u64 = 304;
    pub(super) const MEMBERS: u64 = 560;
    pub(super) const GENERATION: u64 = 568;
    pub(super) const ENDED: u64 = 572;
    pub(super) const BEGUN: u64 = 576;
    pub(super) const LEFT_OUT: u64 = 584;
    pub(super) const WAITED: u64 = 592;
}

/// The call before the first one, so that the epoch wraps between two calls.
const EPOCH: u64 = 0xff_fffe;
const GENERATION: u64 = 3;

fn word(epoch: u64, value: u64) -> u64 {
    GENERATION << 56 | epoch << 32 | value
}

fn memory() -> Vec<Initial> {
    let plain = |addr| Initial { addr, size: 8, value: 0, atomic: false };
    let mut all: Vec<_> = (0..4).map(|block| plain(SHARED + 8 * block)).collect();
    for base in [HEAPS, HEAPS + STRIDE] {
        let mut put = |at: u64, size, value| {
            all.push(Initial { addr: base + at, size, value, atomic: true });
        };
        put(STATE + state::EPOCH, 4, EPOCH);
        put(STATE + state::COUNTED, 8, EPOCH);
        put(STATE + state::MEMBERS, 8, 3);
        put(STATE + state::GENERATION, 4, GENERATION);
        for counter in [state::SENT, state::RETURNED, state::ENDED, state::LEAVING] {
            put(STATE + counter, 4, 0);
        }
        (0..2).for_each(|parity| put(STATE + state::BEGUN + 4 * parity, 4, 0));
        for set in [state::MISSING, state::UNANSWERED] {
            (0..2).for_each(|parity| put(STATE + set + 8 * parity, 8, 0));
        }
        (0..2).for_each(|parity| put(STATE + state::LEFT_OUT + parity, 1, 0));
        (0..2).for_each(|rank| put(STATE + state::WAITED + 8 * rank, 8, 0));
        (0..3).for_each(|alarm| put(ALARMS + 4 * alarm, 4, 0));
        // Two lanes of two ranks.
        for at in (0..4).flat_map(|i| [ARRIVED + 16 * i, RETURNED + 16 * i]) {
            // A signal's word for kernels, and that for NICs.
            put(at, 8, word(EPOCH, 1));
            put(at + 8, 8, 0);
        }
        (0..4).for_each(|i| put(ANNOUNCED + 16 * i, 8, 0));
        for place in [ROWS, RESULTS] {
            all.extend((0..2).map(|block| plain(base + place + 8 * block)));
        }
    }
    all
}

fn scenario(name: &str, threads: Vec<ThreadSpec>, memory: Vec<Initial>) -> Scenario {
    Scenario {
        name: name.into(),
        threads,
        memory,
        rules: vec![],
        describe: Rc::new(|addr| {
            let Some(at) = addr.checked_sub(HEAPS) else { return format!("shared at {addr:#x}") };
            format!("rank {} + {:#x}", at / STRIDE, at % STRIDE)
        }),
        finish: Rc::new(|_| Ok(())),
        time: Time::Never,
        aborts: false,
    }
}

fn all() -> Vec<Scenario> {
    let both = |kernel, device, lanes| {
        [0, 1].map(|block| block_of(kernel, device, 2 * u32::from(device) + block, lanes))
    };
    let ranks = |lanes| [both(EP_SENDS, 0, lanes), both(EP_RECEIVES, 1, lanes)].concat();
    // The plan is one word of four bytes.
    let mut plan = memory();
    let mut kept = memory();
    let first = |size| Initial { addr: HEAPS + ROWS, size, value: 0, atomic: true };
    for (all, size) in [(&mut plan, 4), (&mut kept, 8)] {
        all.retain(|at| at.addr != HEAPS + ROWS);
        all.push(first(size));
    }
    let reads = vec![block_of(EP_LEAVES, 0, 0, 1), block_of(EP_READS, 1, 2, 1)];
    vec![
        scenario("rows, results and credit, a lane of two blocks", ranks(1), memory()),
        scenario("rows, results and credit, a lane for each block", ranks(2), memory()),
        scenario("a result that is overwritten", reads, kept),
        scenario("a plan", both(EP_PLANS, 0, 1).to_vec(), plan),
    ]
}

fn settings(walks: u64, states: u64) -> Settings {
    let effort = effort();
    Settings {
        walks: walks * effort,
        preemptions: Some(2),
        exhaustive: states != 0,
        states: states * effort,
        ..Settings::default()
    }
}

#[test]
fn rows_results_and_credits_are_ordered() {
    for scenario in all() {
        let report = explore(&scenario, None, &settings(500, 25_000));
        let whole = if report.complete { "all" } else { "part" };
        println!("{}: {} runs, {} states, {whole}", scenario.name, report.runs, report.states);
        if let Some(failure) = report.failure {
            panic!("{failure}");
        }
    }
}

fn line(site: warpverbs_modelcheck::Site) -> String {
    let path = format!("{}/../../kernels/include/{}", env!("CARGO_MANIFEST_DIR"), site.file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    text.lines().nth(site.line as usize - 1).unwrap_or_default().trim().to_owned()
}

#[test]
fn every_weaker_order_and_torn_counter_is_noticed() {
    let cases: Vec<_> = all()
        .into_iter()
        .map(|case| (explore(&case, None, &settings(50, 0)).sites, case))
        .collect();
    let uses = cases.iter().flat_map(|(sites, _)| sites.iter());
    let torn =
        |used: &SiteUse| Mutant { site: used.site, access: used.access, change: Change::Torn };
    let uses: Vec<_> = uses.filter(|used| used.site.file.starts_with("warpverbs/")).collect();
    let counters = uses.iter().filter(|used| used.access == "fetch_add");
    let mut mutants: Vec<_> = counters.map(|used| torn(used)).collect();
    mutants.extend(uses.iter().flat_map(|used| used.mutants()));
    // A block is one thread here.
    mutants.retain(|mutant| !mutant.access.starts_with("sync"));
    let known_scope = |mutant: &Mutant| matches!(mutant.change, Change::Scope(_));
    // Alarms and faults, which nobody else touches here.
    mutants.retain(|mutant| !(known_scope(mutant) && mutant.site.file.ends_with("heap_wait.h")));
    mutants.sort();
    mutants.dedup();
    let files = |part: &str| mutants.iter().any(|mutant| mutant.site.file.ends_with(part));
    assert!(files("impl/ep_words.h") && files("impl/ep_dispatch.h"), "{mutants:?}");
    let notices = |mutant: &Mutant| {
        let by = cases.iter().find_map(|(sites, case)| {
            sites.iter().find(|used| used.site == mutant.site)?;
            explore(case, Some(mutant), &settings(1000, 0)).failure
        });
        by.map(|failure| println!("{} {:?}: {}", mutant.site, mutant.change, failure.what))
    };
    let missed: Vec<_> = mutants
        .iter()
        .filter(|mutant| notices(mutant).is_none())
        .map(|mutant| {
            format!("{} {} {:?}: {}", mutant.site, mutant.access, mutant.change, line(mutant.site))
        })
        .collect();
    println!("{} weaker orders", mutants.len());
    assert!(missed.is_empty(), "not noticed:\n{}", missed.join("\n"));
}
