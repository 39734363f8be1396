//! Every order, scope and barrier is weakened in turn; some configuration must notice.

use super::cases::{Case, all, effort};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use warpverbs_modelcheck::Order::{Acquire, Relaxed, Release};
use warpverbs_modelcheck::{Change, Mutant, Scope, Settings, Site, SiteUse, explore};

/// Mutants that nothing can notice: part of the source line, the change, and why.
const NOT_NOTICED: &[(&str, Change, &str)] = &[
    (
        "load<order::relaxed, scope::system>(at<u64>(address))",
        Change::Scope(Scope::Gpu),
        "the CQE's acquire has ordered the NIC's write before it",
    ),
    (
        "cq_set_ci(ci))",
        Change::Order(Relaxed),
        "keeps loads before a store, which this model never reorders",
    ),
    ("(impl::at<u64>(cq.dbr), ", Change::Order(Relaxed), "the same of formats without a record"),
    (
        "wv::fence<order::release, scope::system>();",
        Change::Nothing,
        "for a device that looks at a colour before the doorbell; the NIC here looks behind it alone",
    ),
    ("wv::fence<order::release, scope::system>();", Change::Scope(Scope::Gpu), "the same"),
    (
        "(word, 1u, 0u) != 1;",
        Change::Order(Release),
        "where it fails, the pass of `combine` that follows acquires the token itself",
    ),
    (
        "(&fault->",
        Change::Scope(Scope::Gpu),
        "the release of `claim` behind it orders it before the host's look",
    ),
    (
        "released by the look",
        Change::Order(Acquire),
        "it continues the release sequence that the look before it heads",
    ),
    (
        "sync_block();",
        Change::Nothing,
        "the second one of `broadcast`: all callers meet again before they broadcast again",
    ),
    (
        "exchange(OFFERED, AcqRel)",
        Change::Order(Release),
        "the exchange back from OFFERED acquires the same release sequence",
    ),
    (
        "compare_exchange(OFFERED, 1, AcqRel, Acquire)",
        Change::Order(Release),
        "the exchange to OFFERED has acquired all there is to acquire",
    ),
    (
        "compare_exchange(OFFERED, 1, AcqRel, Acquire)",
        Change::Order(Acquire),
        "the compare-and-swap to 0 that ends every turn releases all that this would",
    ),
];

/// The line of source at a place.
fn source(site: Site) -> String {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let folder = match site.file.starts_with("warpverbs/") {
        true => "kernels/include",
        false => "crates",
    };
    let path = format!("{root}/{folder}/{}", site.file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    text.lines().nth(site.line as usize - 1).unwrap_or_default().to_owned()
}

/// A configuration with the operations that random runs of it reach.
type Reached = (Case, &'static BTreeSet<SiteUse>);

/// Every configuration. The runs are made once for all tests and threads.
fn reached() -> Vec<Reached> {
    static SITES: OnceLock<Vec<BTreeSet<SiteUse>>> = OnceLock::new();
    let settings = Settings { walks: 100, exhaustive: false, ..Settings::default() };
    let sites = |case: &Case| explore(&case.scenario, None, &settings).sites;
    let cases = all();
    let sites = SITES.get_or_init(|| cases.iter().map(sites).collect());
    cases.into_iter().zip(sites).collect()
}

/// Every operation of the device library and the host's protocol that any configuration reaches.
fn sites() -> BTreeSet<SiteUse> {
    let found = reached().into_iter().flat_map(|(_, sites)| sites);
    // The NIC and the host's reading of CQEs are the checker's own.
    found.filter(|site| !site.site.file.starts_with("modelcheck")).copied().collect()
}

/// The configuration that notices, and what it says.
fn noticed(mutant: &Mutant, cases: &[Reached]) -> Option<String> {
    let walks = Settings { walks: 200 * effort(), exhaustive: false, ..Settings::default() };
    let there = |sites: &BTreeSet<SiteUse>| sites.iter().any(|s| s.site == mutant.site);
    cases.iter().filter(|(_, sites)| there(sites)).find_map(|(case, _)| {
        let failure = explore(&case.scenario, Some(mutant), &walks).failure?;
        Some(format!("{}: {}", case.scenario.name, failure.what))
    })
}

fn name(mutant: &Mutant) -> String {
    format!("{} {} {:?}", mutant.site, mutant.access, mutant.change)
}

/// The mutants that no configuration notices.
fn missed(mutants: &[Mutant]) -> Vec<&Mutant> {
    let (next, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let cases = reached();
                while let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match noticed(mutant, &cases) {
                        Some(by) => println!("{}: {by}", name(mutant)),
                        None => missed.lock().unwrap().push(mutant),
                    }
                }
            });
        }
    });
    missed.into_inner().unwrap()
}

#[test]
fn every_weakening_is_noticed() {
    // Rust has no scopes.
    let has_scope = |m: &Mutant| m.site.file.starts_with("warpverbs");
    let applies = |m: &Mutant| has_scope(m) || !matches!(m.change, Change::Scope(_));
    let mutants: Vec<Mutant> = sites().iter().flat_map(SiteUse::mutants).filter(applies).collect();
    for part in ["impl/publish.h", "impl/mlx5.h", "impl/wait.h", "post/protocol.rs"] {
        assert!(mutants.iter().any(|m| m.site.file.ends_with(part)), "{part} was not reached");
    }
    let missed = missed(&mutants);
    println!("{} weakenings, {} not noticed", mutants.len(), missed.len());
    let known = |mutant: &&&Mutant| {
        let line = source(mutant.site);
        NOT_NOTICED.iter().any(|(part, change, _)| line.contains(part) && mutant.change == *change)
    };
    let unknown: Vec<String> = missed.iter().filter(|m| !known(m)).map(|m| name(m)).collect();
    assert!(unknown.is_empty(), "not noticed:\n{unknown:#?}");
}

/// A poller that sees a completion before it can see `published` leaves the entry where it is and
/// looks again: nothing is lost if the host stores `published` only after the doorbell.
#[test]
fn a_late_published_loses_no_completion() {
    let stores = sites().into_iter().filter(|s| s.access == "store" && s.order == Relaxed);
    let late = stores.map(|s| Mutant { site: s.site, access: s.access, change: Change::Later });
    let late: Vec<Mutant> = late.filter(|m| source(m.site).contains("published()")).collect();
    assert!(!late.is_empty(), "the host's store of `published` was not found");
    assert_eq!(missed(&late).len(), late.len());
}

/// Faults of the protocol: part of the source line, the operation, what becomes of it, and its name.
const FAULTS: &[(&str, &str, Change, &str)] = &[
    ("&c->ring_token, seen, 0u)", "compare_exchange", Change::Blind, "a token given up blindly"),
    ("compare_exchange(seen, 0, ", "compare_exchange", Change::Blind, "the same by the host"),
    ("(word, 1u, 0u) != 1", "compare_exchange", Change::Blind, "the same by a lone lane"),
    ("compare_exchange(OFFERED, 1,", "compare_exchange", Change::Blind, "a token offered and kept"),
    ("exchange(OFFERED, AcqRel)", "exchange", Change::Stores(0), "a token left unoffered"),
    ("(word, 1u);", "fetch_add", Change::Torn, "a token taken in two steps"),
    ("ring_token().fetch_add(1,", "fetch_add", Change::Torn, "the same by the host"),
    ("&c->ring_token, 0u, 1u) == 0", "compare_exchange", Change::Torn, "the same by a lone lane"),
    ("(word, 0u);", "fetch_add", Change::Torn, "a poster that defers undoes what asked meanwhile"),
    ("(&c->reserved, amount)", "fetch_add", Change::Torn, "indexes reserved in two steps"),
    (
        "(&c->reserved, word, next)",
        "compare_exchange",
        Change::Torn,
        "the same where there is room",
    ),
    ("reserved().compare_exchange", "compare_exchange", Change::Torn, "the same by the host"),
    ("(&q->poll, u64{1})", "fetch_or", Change::Torn, "a poll lock taken in two steps"),
    ("poll().compare_exchange(", "compare_exchange", Change::Torn, "the same by the host"),
    ("(q.ready + last / 64, bits)", "fetch_xor", Change::Swapped, "ready words flipped upwards"),
    ("fetch_xor(mask, Release)", "fetch_xor", Change::Swapped, "the same by the host"),
    ("PollWord{load<order::acquire", "load", Change::Reads(2), "room for one too many"),
    ("PollWord(self.poll().load(Acquire))", "load", Change::Reads(2), "the same by the host"),
    ("(&state->error, 0, mine)", "compare_exchange", Change::Blind, "an error replaced"),
    ("(&fault->claim, 0, 1)", "compare_exchange", Change::Blind, "a fault reported twice"),
    (
        "(&state->scratch_free, free,",
        "compare_exchange",
        Change::Torn,
        "a scratch slot taken twice",
    ),
    ("(&q->cq_ci, ci + 1)", "store", Change::Stores(0), "a receive CQE taken twice"),
    (
        "store<order::relaxed, scope::gpu>(&q->cq_ci, ci)",
        "store",
        Change::Stores(0),
        "a CQE taken twice",
    ),
];

#[test]
fn every_fault_is_noticed() {
    let uses = sites();
    let mut mutants = Vec::new();
    for &(line, access, change, what) in FAULTS {
        let here = |used: &&SiteUse| used.access == access && source(used.site).contains(line);
        let found = uses.iter().find(here);
        let site = found.unwrap_or_else(|| panic!("{what}: no {access} at {line:?}")).site;
        mutants.push(Mutant { site, access, change });
    }
    let missed = missed(&mutants);
    println!("{} faults, {} not noticed", mutants.len(), missed.len());
    assert!(missed.is_empty(), "not noticed: {missed:#?}");
}
