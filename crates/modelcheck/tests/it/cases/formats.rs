//! Queues of bnxt_re's and ionic's formats: no record, and of bnxt_re's a packet number beside the index.

use super::{Case, Group, ONE, THREE, TWO_BLOCKS, TWO_LANES, arrived, lanes};
use warpverbs_mlx5::export::NicFormat;
use warpverbs_modelcheck::kernels::*;
use warpverbs_modelcheck::threads::member;
use warpverbs_modelcheck::world::{Shape, World};

/// Their CQs are rings, twice as long as the queue.
fn world(format: NicFormat, log_sq: u8, start: u64) -> World {
    World { shape: Shape { format, log_sq, log_cq: Some(log_sq + 1), start, ..Shape::default() } }
}

pub(crate) fn formats() -> Vec<Case> {
    [NicFormat::Bnxt, NicFormat::Ionic].into_iter().flat_map(of).collect()
}

fn of(format: NicFormat) -> Vec<Case> {
    let mut cases = Vec::new();
    // Across the end of a lap of the ring and of its CQ.
    for start in [16, 30] {
        let w = world(format, 3, start);
        let groups: [Group; 9] = [
            ("put_wait", PUT_WAIT, ONE, 0, |end| arrived(end, 1)),
            ("put_twice", PUT_TWICE, ONE, 0, |end| arrived(end, 2)),
            ("put_quiet", PUT_QUIET, ONE, 0, |end| arrived(end, 1)),
            ("put_many", PUT_MANY, ONE, 0, |end| arrived(end, 3)),
            ("get_wait", GET_WAIT, ONE, 0, |_| Ok(())),
            ("defer_put_wait", DEFER_PUT_WAIT, ONE, 0, |end| arrived(end, 2)),
            ("two blocks put", PUT, TWO_BLOCKS, 1, |end| arrived(end, 2)),
            ("two lanes put", PUT, TWO_LANES, 1, |end| arrived(end, 2)),
            ("three lanes put", PUT, THREE, 1, |end| arrived(end, 3)),
        ];
        for (name, kernel, places, step, payload) in groups {
            let name = format!("{name} from {start}, {format}");
            let scenario = w.scenario(&name, lanes(&w, kernel, places, step), payload);
            cases.push(Case { scenario, preemptions: (places.len() > 2).then_some(2) });
        }
    }
    // A ring that is too small for all.
    let w = world(format, 2, 10);
    let groups: [Group; 5] = [
        ("two blocks put_wait", PUT_WAIT, TWO_BLOCKS, 1, |end| arrived(end, 2)),
        ("two lanes put_wait", PUT_WAIT, TWO_LANES, 1, |end| arrived(end, 2)),
        ("two blocks put_many", PUT_MANY, TWO_BLOCKS, 3, |end| arrived(end, 6)),
        ("two blocks put_quiet", PUT_QUIET, TWO_BLOCKS, 1, |end| arrived(end, 2)),
        ("two blocks defer_wait", DEFER_WAIT, TWO_BLOCKS, 1, |end| arrived(end, 2)),
    ];
    for (name, kernel, places, step, payload) in groups {
        let name = format!("{name}, {format}");
        let scenario = w.scenario(&name, lanes(&w, kernel, places, step), payload);
        cases.push(Case { scenario, preemptions: Some(2) });
    }
    let threads = (0..2).map(|thread| member(PUT_EACH_WARP, &w, thread, 2, false)).collect();
    let scenario = w.scenario(&format!("put_each, {format}"), threads, |end| arrived(end, 2));
    cases.push(Case { scenario, preemptions: Some(2) });
    let refused = World { shape: Shape { fails_at: Some(10), ..w.shape } };
    let threads = lanes(&refused, PUT_FAILS, TWO_BLOCKS, 1);
    let name = format!("put_fails, {format}");
    let scenario = refused.scenario(&name, threads, |end| match end.notes[1] >> 8 & 0xff {
        0x13 if end.notes[2] == end.notes[1] => Ok(()),
        _ => Err(format!("the statuses are {:#x} and {:#x}", end.notes[1], end.notes[2])),
    });
    cases.push(Case { scenario, preemptions: Some(2) });
    cases
}
