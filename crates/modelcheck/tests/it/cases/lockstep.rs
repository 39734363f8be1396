//! Two lanes of one warp that runs in lockstep: while one spins, the other stands still.

use super::{Case, Group, TWO_LANES, arrived, both, lanes, mode};
use warpverbs_modelcheck::End;
use warpverbs_modelcheck::kernels::*;
use warpverbs_modelcheck::threads::in_lockstep;
use warpverbs_modelcheck::world::{Shape, World, target};

fn added(end: &End<'_>) -> Result<(), String> {
    let mut olds = [end.notes[1], end.notes[2]];
    olds.sort_unstable();
    match (olds, end.value(target(0))) {
        ([1, 2], 2) => Ok(()),
        other => Err(format!("two additions of 1 gave {other:?}")),
    }
}

pub(crate) fn lockstep() -> Vec<Case> {
    let groups: [Group; 5] = [
        ("put", PUT, TWO_LANES, 1, |end| arrived(end, 2)),
        ("put_wait", PUT_WAIT, TWO_LANES, 1, |end| arrived(end, 2)),
        ("put_many", PUT_MANY, TWO_LANES, 3, |end| arrived(end, 6)),
        ("put_quiet", PUT_QUIET, TWO_LANES, 1, |end| arrived(end, 2)),
        ("defer_wait", DEFER_WAIT, TWO_LANES, 1, |end| arrived(end, 2)),
    ];
    let mut cases = Vec::new();
    for w in both(Shape { log_sq: 2, start: 3, ..Shape::default() }) {
        for (name, kernel, places, step, payload) in groups {
            let name = format!("{name} in lockstep, {}", mode(&w));
            let threads = lanes(&w, kernel, places, step).into_iter().map(in_lockstep).collect();
            cases
                .push(Case { scenario: w.scenario(&name, threads, payload), preemptions: Some(2) });
        }
        // Arguments from 1 on: notes of their results.
        let fetch =
            |lane| warpverbs_modelcheck::threads::lane(FETCH_ADD, &w, 0, lane, 1 + u64::from(lane));
        let threads = [0, 1].map(|lane| in_lockstep(fetch(lane))).into();
        let name = format!("fetch_add in lockstep, {}", mode(&w));
        cases.push(Case { scenario: w.scenario(&name, threads, added), preemptions: Some(2) });
    }
    cases
}

/// A lock that is given back outside of the loop that takes it; `stalls` in lockstep.
pub(crate) fn lock_outside(stalls: bool) -> Case {
    let w = World { shape: Shape::default() };
    let threads = lanes(&w, LOCK_OUTSIDE, TWO_LANES, 1).into_iter();
    let threads = threads.map(|thread| if stalls { in_lockstep(thread) } else { thread }).collect();
    let scenario = w.scenario("a lock given back outside of the loop", threads, |_| Ok(()));
    Case { scenario, preemptions: Some(2) }
}
