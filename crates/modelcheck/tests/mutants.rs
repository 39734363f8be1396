//! Every order, scope and barrier is weakened in turn; some configuration must notice.

mod common;

use common::{all, effort};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use warpverbs_modelcheck::Order::{Acquire, Relaxed, Release};
use warpverbs_modelcheck::{Change, Mutant, Scope, Settings, SiteUse, explore};

/// What nothing can notice: part of the source line, the change, and why.
const NOT_NOTICED: &[(&str, Change, &str)] = &[
    (
        "load<order::relaxed, scope::system>(at<u64>(address))",
        Change::Scope(Scope::Gpu),
        "the CQE's acquire has ordered the NIC's write before it",
    ),
    (
        "(record, mlx5::cq_set_ci(ci))",
        Change::Order(Relaxed),
        "keeps loads before a store, which this model never reorders",
    ),
    (
        "(token, 1u, 0u) == 1) return;",
        Change::Order(Release),
        "where it fails, the pass of `combine` that follows acquires the token itself",
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

/// The line of source at a mutant's place.
fn source(mutant: &Mutant) -> String {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let folder = match mutant.site.file.starts_with("warpverbs/") {
        true => "kernels/include",
        false => "crates",
    };
    let path = format!("{root}/{folder}/{}", mutant.site.file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    text.lines().nth(mutant.site.line as usize - 1).unwrap_or_default().to_owned()
}

/// Every ordering operation that any configuration reaches.
fn sites() -> BTreeSet<SiteUse> {
    let settings = Settings { walks: 100, exhaustive: false, ..Settings::default() };
    let found = all().into_iter().flat_map(|case| explore(&case.scenario, None, &settings).sites);
    // The NIC and the host's reading of CQEs are the checker's own.
    found.filter(|site| !site.site.file.starts_with("modelcheck")).collect()
}

/// The configuration that notices, and what it says.
fn noticed(mutant: &Mutant) -> Option<String> {
    let walks = Settings { walks: 200 * effort(), exhaustive: false, ..Settings::default() };
    all().iter().find_map(|case| {
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
                while let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match noticed(mutant) {
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
    for part in ["impl/publish.h", "impl/drain.h", "impl/wait.h", "post/protocol.rs"] {
        assert!(mutants.iter().any(|m| m.site.file.ends_with(part)), "{part} was not reached");
    }
    let missed = missed(&mutants);
    println!("{} weakenings, {} not noticed", mutants.len(), missed.len());
    let known = |mutant: &&&Mutant| {
        let line = source(mutant);
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
    let late: Vec<Mutant> = late.filter(|m| source(m).contains("published()")).collect();
    assert!(!late.is_empty(), "the host's store of `published` was not found");
    assert_eq!(missed(&late).len(), late.len());
}
