//! The configurations.

mod beyond;
mod formats;
mod lockstep;

use warpverbs_modelcheck::host::{read, require, write};
use warpverbs_modelcheck::kernels::*;
use warpverbs_modelcheck::threads::{host_thread, lane};
use warpverbs_modelcheck::world::{Payload, Shape, World, source, target};
use warpverbs_modelcheck::{End, Kernel, Poster, Scenario, Settings, ThreadSpec, explore};

pub(crate) use beyond::{ending, receiving, signalling, together};
pub(crate) use formats::formats;
pub(crate) use lockstep::{lock_outside, lockstep};

/// A scenario and how often a running thread may be stopped for another; `None` for any number.
pub(crate) struct Case {
    pub(crate) scenario: Scenario,
    preemptions: Option<u32>,
}

fn value(i: u64) -> u64 {
    0x100 + i
}

fn arrived(end: &End<'_>, words: u64) -> Result<(), String> {
    match (0..words).find(|&i| end.value(target(i)) != value(i)) {
        Some(i) => Err(format!("target[{i}] is {:#x} at the end", end.value(target(i)))),
        None => Ok(()),
    }
}

/// Ring CQ and collapsed CQ. A ring of four entries is as long as its queue, since each entry is given
/// back at once; a longer one is twice as long.
fn both(shape: Shape) -> [World; 2] {
    let log_ring = if shape.log_sq > 2 { shape.log_sq + 1 } else { shape.log_sq };
    [None, Some(log_ring)].map(|log_cq| World { shape: Shape { log_cq, ..shape } })
}

/// The same kernel on several lanes; a thread's argument is `step` times its number.
fn lanes(w: &World, kernel: Kernel, places: &[(u32, u32)], step: u64) -> Vec<ThreadSpec> {
    let spec = |(i, &(block, number)): (u64, &(u32, u32))| lane(kernel, w, block, number, i * step);
    (0u64..).zip(places).map(spec).collect()
}

fn host(w: World, i: u64, waits: bool) -> ThreadSpec {
    host_thread(&format!("host{i}"), move || {
        write(source(i), value(i));
        let poster = Poster::new(w);
        if waits {
            poster.write_and_wait(source(i), target(i));
            require(read(target(i)) == value(i), "the payload is there");
        } else {
            poster.write(source(i), target(i));
        }
    })
}

/// Posts a WQE of two WQEBBs without waiting.
fn inline_host(w: World, i: u64) -> ThreadSpec {
    host_thread(&format!("host{i}"), move || {
        let words = std::array::from_fn(|k| value(i + k as u64));
        Poster::new(w).write_inline(words, target(i));
    })
}

/// Posts three times without waiting for completions, but for room.
fn busy_host(w: World, i: u64) -> ThreadSpec {
    host_thread(&format!("host{i}"), move || {
        let poster = Poster::new(w);
        for k in i..i + 3 {
            write(source(k), value(k));
            poster.write(source(k), target(k));
        }
    })
}

/// Posts without waiting, and hands the combiner's part over as soon as it can.
fn hasty_host(w: World, i: u64) -> ThreadSpec {
    host_thread(&format!("host{i}"), move || {
        write(source(i), value(i));
        Poster::handing_over(w).write(source(i), target(i));
    })
}

const ONE: &[(u32, u32)] = &[(0, 0)];
const TWO_LANES: &[(u32, u32)] = &[(0, 0), (0, 1)];
const TWO_BLOCKS: &[(u32, u32)] = &[(0, 0), (1, 0)];
const THREE: &[(u32, u32)] = &[(0, 0), (0, 1), (1, 0)];

/// One lane, each kind of work.
pub(crate) fn alone() -> Vec<Case> {
    let kinds: [(&str, Kernel, Payload); 6] = [
        ("put_wait", PUT_WAIT, |end| arrived(end, 1)),
        ("put_twice", PUT_TWICE, |end| arrived(end, 2)),
        ("put_quiet", PUT_QUIET, |end| arrived(end, 1)),
        ("put_inline", PUT_INLINE, |end| arrived(end, 8)),
        ("put_many", PUT_MANY, |end| arrived(end, 3)),
        ("get_wait", GET_WAIT, |_| Ok(())),
    ];
    let mut cases = Vec::new();
    for (name, kernel, payload) in kinds {
        // Across the end of a lap, and of the 16 bits of a CQE.
        for start in [0, 3, 0xfffe] {
            for w in both(Shape { log_sq: 3, start, ..Shape::default() }) {
                let name = format!("{name} from {start}, {}", mode(&w));
                let scenario = w.scenario(&name, lanes(&w, kernel, ONE, 0), payload);
                cases.push(Case { scenario, preemptions: None });
            }
        }
    }
    cases
}

fn mode(w: &World) -> &'static str {
    if w.shape.log_cq.is_some() { "ring CQ" } else { "collapsed CQ" }
}

type Group = (&'static str, Kernel, &'static [(u32, u32)], u64, Payload);

/// Several posters that do not wait.
pub(crate) fn posting() -> Vec<Case> {
    let groups: [Group; 5] = [
        ("two blocks put", PUT, TWO_BLOCKS, 1, |end| arrived(end, 2)),
        ("two lanes put", PUT, TWO_LANES, 1, |end| arrived(end, 2)),
        ("three lanes put", PUT, THREE, 1, |end| arrived(end, 3)),
        ("two blocks put_inline", PUT_INLINE, TWO_BLOCKS, 8, |end| arrived(end, 16)),
        ("two lanes put_inline", PUT_INLINE, TWO_LANES, 8, |end| arrived(end, 16)),
    ];
    let mut cases = Vec::new();
    for (name, kernel, places, step, payload) in groups {
        let w = World { shape: Shape { log_sq: 3, start: 6, ..Shape::default() } };
        let scenario = w.scenario(name, lanes(&w, kernel, places, step), payload);
        let preemptions = if places.len() == 2 { None } else { Some(2) };
        cases.push(Case { scenario, preemptions });
    }
    // A WQE across two words of ready bits, in the middle of a ring and at its end.
    for start in [63, 127] {
        let w = World { shape: Shape { log_sq: 7, start, ..Shape::default() } };
        let threads = lanes(&w, PUT_INLINE, TWO_BLOCKS, 8);
        let name = format!("two blocks put_inline from {start}");
        let scenario = w.scenario(&name, threads, |end| arrived(end, 16));
        cases.push(Case { scenario, preemptions: None });
    }
    cases
}

/// Several posters that wait, and a ring that is full.
pub(crate) fn waiting() -> Vec<Case> {
    let mut cases = Vec::new();
    for w in both(Shape { log_sq: 2, start: 3, ..Shape::default() }) {
        let groups: [Group; 4] = [
            ("two blocks put_wait", PUT_WAIT, TWO_BLOCKS, 1, |end| arrived(end, 2)),
            ("two lanes put_wait", PUT_WAIT, TWO_LANES, 1, |end| arrived(end, 2)),
            ("two blocks put_many", PUT_MANY, TWO_BLOCKS, 3, |end| arrived(end, 6)),
            ("two blocks put_quiet", PUT_QUIET, TWO_BLOCKS, 1, |end| arrived(end, 2)),
        ];
        for (name, kernel, places, step, payload) in groups {
            let name = format!("{name}, {}", mode(&w));
            let scenario = w.scenario(&name, lanes(&w, kernel, places, step), payload);
            cases.push(Case { scenario, preemptions: Some(2) });
        }
        cases.extend(odd(w));
    }
    // A ring CQ of which entries are given back late: six completions, eight entries.
    let w = World { shape: Shape { log_sq: 2, log_cq: Some(3), start: 3, ..Shape::default() } };
    let threads = lanes(&w, PUT_MANY, TWO_BLOCKS, 3);
    let scenario = w.scenario("two blocks put_many, long ring CQ", threads, |end| arrived(end, 6));
    cases.push(Case { scenario, preemptions: Some(2) });
    cases
}

/// Cases that do not fit the table of `waiting`.
fn odd(w: World) -> Vec<Case> {
    let full = World { shape: Shape { backlog: 4, ..w.shape } };
    let refused = World { shape: Shape { fails_at: Some(3), ..w.shape } };
    let named = |name: &str| format!("{name}, {}", mode(&w));
    let scenarios = [
        full.scenario(&named("put_now, full"), lanes(&full, PUT_NOW, TWO_BLOCKS, 1), |_| Ok(())),
        full.scenario(&named("put, full"), lanes(&full, PUT, TWO_BLOCKS, 1), |end| arrived(end, 2)),
        refused.scenario(&named("put_fails"), lanes(&refused, PUT_FAILS, TWO_BLOCKS, 1), |end| {
            // Everybody is told the same. In a collapsed CQ the flush behind the first error may
            // have overwritten it before anybody looked.
            let status = end.notes[1];
            match status >> 8 & 0xff {
                0x13 | 0x05 if end.notes[2] == status => Ok(()),
                _ => Err(format!("the statuses are {status:#x} and {:#x}", end.notes[2])),
            }
        }),
        w.scenario(&named("fetch_add"), fetchers(&w), |end| {
            let mut olds = [end.notes[1], end.notes[2]];
            olds.sort_unstable();
            match (olds, end.value(target(0))) {
                ([1, 2], 2) => Ok(()),
                other => Err(format!("two additions of 1 gave {other:?}")),
            }
        }),
    ];
    let case = |scenario| Case { scenario, preemptions: Some(2) };
    scenarios.into_iter().map(case).collect()
}

fn fetchers(w: &World) -> Vec<ThreadSpec> {
    vec![lane(FETCH_ADD, w, 0, 0, 1), lane(FETCH_ADD, w, 1, 0, 2)]
}

/// Host and kernel on one queue.
pub(crate) fn mixed() -> Vec<Case> {
    let mut cases = Vec::new();
    for w in both(Shape { log_sq: 2, start: 3, ..Shape::default() }) {
        for (name, kernel, waits) in [("put", PUT, false), ("put_wait", PUT_WAIT, true)] {
            let threads = vec![lane(kernel, &w, 0, 0, 0), host(w, 1, waits)];
            let name = format!("{name} beside the host, {}", mode(&w));
            let scenario = w.scenario(&name, threads, |end| arrived(end, 2));
            cases.push(Case { scenario, preemptions: waits.then_some(2) });
        }
        let name = format!("two host threads, {}", mode(&w));
        let threads = vec![host(w, 0, true), host(w, 1, true)];
        let scenario = w.scenario(&name, threads, |end| arrived(end, 2));
        cases.push(Case { scenario, preemptions: Some(2) });
    }
    // The end of a CQE's 16 bits; a ring that is too small for all.
    let w = World { shape: Shape { log_sq: 2, start: 0xfffe, ..Shape::default() } };
    let threads = vec![host(w, 0, true), host(w, 1, true)];
    let scenario = w.scenario("two host threads from 65534", threads, |end| arrived(end, 2));
    cases.push(Case { scenario, preemptions: Some(2) });
    let threads = vec![busy_host(w, 0), busy_host(w, 3)];
    let scenario = w.scenario("two host threads fill the ring", threads, |end| arrived(end, 6));
    cases.push(Case { scenario, preemptions: Some(2) });
    let w = World { shape: Shape { log_sq: 7, start: 62, ..Shape::default() } };
    let threads = vec![hasty_host(w, 8), inline_host(w, 0)];
    let scenario = w.scenario("host WQE across two words", threads, |end| arrived(end, 9));
    cases.push(Case { scenario, preemptions: None });
    let w = World { shape: Shape { log_sq: 2, start: 6, ..Shape::default() } };
    let threads = (0..3).map(|i| hasty_host(w, i)).collect();
    let scenario = w.scenario("three host threads hand over", threads, |end| arrived(end, 3));
    cases.push(Case { scenario, preemptions: Some(3) });
    cases
}

/// A device that may act on the doorbell record before it receives the doorbell.
pub(crate) fn recording() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut case = |scenario, preemptions| cases.push(Case { scenario, preemptions });
    let shape = Shape { log_sq: 3, start: 6, reads_record: true, ..Shape::default() };
    for w in both(shape) {
        let groups: [Group; 3] = [
            ("one lane put_wait", PUT_WAIT, ONE, 0, |end| arrived(end, 1)),
            ("two blocks put_inline", PUT_INLINE, TWO_BLOCKS, 8, |end| arrived(end, 16)),
            ("two lanes put", PUT, TWO_LANES, 1, |end| arrived(end, 2)),
        ];
        for (name, kernel, places, step, payload) in groups {
            let name = format!("{name}, by the record, {}", mode(&w));
            case(w.scenario(&name, lanes(&w, kernel, places, step), payload), Some(2));
        }
        let name = format!("the host beside a kernel, by the record, {}", mode(&w));
        let threads = vec![lane(PUT_WAIT, &w, 0, 0, 0), host(w, 1, true)];
        case(w.scenario(&name, threads, |end| arrived(end, 2)), Some(2));
        let name = format!("two host threads, by the record, {}", mode(&w));
        let threads = vec![host(w, 0, true), host(w, 1, true)];
        case(w.scenario(&name, threads, |end| arrived(end, 2)), Some(2));
    }
    cases
}

/// Posts that leave the doorbell to whoever posts or waits next: alone, among each other, beside
/// others and beside the host.
pub(crate) fn deferring() -> Vec<Case> {
    let w = World { shape: Shape { log_sq: 3, start: 6, ..Shape::default() } };
    let beside = |kernel, other: ThreadSpec| vec![lane(kernel, &w, 0, 0, 0), other];
    let put = |i| lane(PUT, &w, 1, 0, i);
    let groups: [(&str, Vec<ThreadSpec>, Payload); 7] = [
        ("defer_put_wait", lanes(&w, DEFER_PUT_WAIT, ONE, 0), |end| arrived(end, 2)),
        ("defer_wait", lanes(&w, DEFER_WAIT, ONE, 0), |end| arrived(end, 1)),
        ("defer_quiet", lanes(&w, DEFER_QUIET, ONE, 0), |end| arrived(end, 1)),
        ("two blocks defer_wait", lanes(&w, DEFER_WAIT, TWO_BLOCKS, 1), |end| arrived(end, 2)),
        ("two lanes defer_wait", lanes(&w, DEFER_WAIT, TWO_LANES, 1), |end| arrived(end, 2)),
        ("defer_put_wait beside put", beside(DEFER_PUT_WAIT, put(2)), |end| arrived(end, 3)),
        ("defer_wait beside the host", beside(DEFER_WAIT, host(w, 1, true)), |end| arrived(end, 2)),
    ];
    let case = |(name, threads, payload): (&str, Vec<ThreadSpec>, Payload)| {
        let preemptions = (threads.len() > 1).then_some(2);
        Case { scenario: w.scenario(name, threads, payload), preemptions }
    };
    let mut cases: Vec<_> = groups.into_iter().map(case).collect();
    // A put that is not deferred arrives, though nobody waits. The bits of the two posts lie in two
    // words, and in a ring of this size no quarter ends there, which would be rung.
    let w = World { shape: Shape { log_sq: 9, start: 63, unrung: true, ..Shape::default() } };
    let threads = vec![lane(DEFER, &w, 0, 0, 1), lane(PUT, &w, 1, 0, 0)];
    let scenario = w.scenario("defer beside put", threads, |end| arrived(end, 1));
    cases.push(Case { scenario, preemptions: Some(3) });
    cases
}

pub(crate) fn all() -> Vec<Case> {
    let groups = [
        alone(),
        posting(),
        waiting(),
        mixed(),
        deferring(),
        recording(),
        receiving(),
        together(),
        signalling(),
        ending(),
        lockstep(),
        formats(),
    ];
    groups.into_iter().flatten().collect()
}

/// 1, or how many times more is explored than in CI.
pub(crate) fn effort() -> u64 {
    let text = std::env::var("WARPVERBS_MODELCHECK_EFFORT").unwrap_or_else(|_| "1".into());
    text.parse().unwrap_or_else(|_| panic!("WARPVERBS_MODELCHECK_EFFORT is {text:?}, not a number"))
}

impl Case {
    fn settings(&self) -> Settings {
        let effort = effort();
        let preemptions = self.preemptions.map(|most| most + effort.ilog10());
        // A case without a bound on preemptions is small enough to be explored whole.
        let most = if preemptions.is_none() { 60_000 } else { 25_000 };
        Settings {
            walks: 500 * effort,
            seed: effort,
            preemptions,
            spurious: effort.ilog10().min(2),
            states: most * effort,
            ..Settings::default()
        }
    }

    /// Why a run of the scenario breaks a rule, if one does.
    pub(crate) fn failure(&self) -> Option<String> {
        explore(&self.scenario, None, &self.settings()).failure.map(|failure| failure.what)
    }

    /// Explores the scenario and fails with the schedule and every step of a run that broke a rule.
    pub(crate) fn check(&self) {
        let report = explore(&self.scenario, None, &self.settings());
        let whole = if report.complete { "all" } else { "part" };
        println!(
            "{}: {} runs, {} states, {} cut, {whole}",
            self.scenario.name, report.runs, report.states, report.cut
        );
        if let Some(failure) = report.failure {
            panic!("{}\n{failure}", self.scenario.name);
        }
    }
}
