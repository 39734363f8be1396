//! Receive queues, calls of warps and blocks, signals, and waits that end without success.

use super::{Case, ONE, TWO_BLOCKS, TWO_LANES, arrived, both, lanes, mode};
use std::mem::offset_of;
use std::rc::Rc;
use warpverbs_mlx5::export::Fault;
use warpverbs_modelcheck::host::{access, load, note, pause, read, require};
use warpverbs_modelcheck::kernels::*;
use warpverbs_modelcheck::threads::{far_lane, host_thread, lane, member, watcher};
use warpverbs_modelcheck::world::{Shape, World, inbox, signal};
use warpverbs_modelcheck::{Access, End, Kernel, Order, Poster, ThreadSpec, Time};

/// Indexes of receives that `threads` threads noted, each once and in any order.
fn received(end: &End<'_>, start: u64, threads: usize) -> Result<(), String> {
    let mut seen: Vec<u64> = end.notes[1..=threads].to_vec();
    seen.sort_unstable();
    let expected: Vec<u64> = (1..=threads as u64).map(|i| start + i).collect();
    match seen == expected {
        true => Ok(()),
        false => Err(format!("receives {seen:?} (plus 1) completed, expected {expected:?}")),
    }
}

/// A host thread that posts a receive and, if it `waits`, takes a message.
fn receiver(w: World, i: u64, waits: bool) -> ThreadSpec {
    host_thread(&format!("host{i}"), move || {
        let poster = Poster::receives(w);
        let posted = poster.receive(inbox(i));
        if waits {
            let index = poster.wait_receive();
            if index >= posted {
                require(read(inbox(i)) == 0x200 + posted, "the message is there");
            }
            note(i as usize + 1, index + 1);
        }
    })
}

/// Receives posted and taken by kernels, by the host, and by both.
pub(crate) fn receiving() -> Vec<Case> {
    let mut cases = Vec::new();
    for start in [0, 3, 0xffff] {
        let shape = Shape { log_rq: Some(1), start, ..Shape::default() };
        let w = World { shape: Shape { messages: 3, ..shape } };
        let many = w.scenario(
            &format!("receive_many from {start}"),
            lanes(&w, RECEIVE_MANY, ONE, 0),
            |_| Ok(()),
        );
        cases.push(Case { scenario: many, preemptions: None });
    }
    const START: u64 = 3;
    let w =
        World { shape: Shape { log_rq: Some(1), start: START, messages: 2, ..Shape::default() } };
    let wait = |i| lane(RECEIVE_WAIT, &w, i as u32, 0, i);
    let groups: [(&str, Vec<ThreadSpec>); 6] = [
        ("two blocks receive_wait", lanes(&w, RECEIVE_WAIT, TWO_BLOCKS, 1)),
        ("two lanes receive_wait", lanes(&w, RECEIVE_WAIT, TWO_LANES, 1)),
        ("receive_wait beside the host", vec![wait(0), receiver(w, 1, true)]),
        ("two host threads receive", vec![receiver(w, 0, true), receiver(w, 1, true)]),
        (
            "wait_recv for host and kernel",
            vec![receiver(w, 0, false), lane(RECEIVE, &w, 0, 0, 1), lane(WAIT_RECV, &w, 1, 0, 0)],
        ),
        ("post_recv and receive", vec![lane(POST_RECV, &w, 0, 0, 0), lane(RECEIVE, &w, 1, 0, 1)]),
    ];
    for (name, threads) in groups {
        let waiters = name.contains("wait") || name.contains("threads receive");
        let scenario = w.scenario(
            name,
            threads,
            match waiters {
                true if name.starts_with("wait_recv") => |end| received(end, START, 1),
                true => |end| received(end, START, 2),
                false => |_| Ok(()),
            },
        );
        cases.push(Case { scenario, preemptions: waiters.then_some(2) });
    }
    cases
}

/// Lanes and threads that call together.
pub(crate) fn together() -> Vec<Case> {
    let calls: [(&str, Kernel, bool); 4] = [
        ("put by a warp", PUT_WARP, false),
        ("put by a block", PUT_BLOCK, true),
        ("put_each by a warp", PUT_EACH_WARP, false),
        ("put_each and quiet by a warp", PUT_EACH_QUIET, false),
    ];
    let mut cases = Vec::new();
    for (name, kernel, warps) in calls {
        for w in both(Shape { log_sq: 2, start: 3, ..Shape::default() }) {
            let members = |n: u32| (0..n).map(|i| member(kernel, &w, i, n, warps)).collect();
            let named = |n: &str| format!("{name} of {n}, {}", mode(&w));
            let two = w.scenario(&named("two"), members(2), |end| arrived(end, 2));
            cases.push(Case { scenario: two, preemptions: Some(2) });
            if w.shape.log_cq.is_none() {
                let three = w.scenario(&named("three"), members(3), |end| arrived(end, 3));
                cases.push(Case { scenario: three, preemptions: Some(1) });
            }
        }
    }
    let w = World { shape: Shape { log_sq: 2, start: 3, ..Shape::default() } };
    let mut threads: Vec<_> = (0..2).map(|i| member(PUT_EACH_WARP, &w, i, 2, false)).collect();
    threads.push(lane(PUT, &w, 1, 0, 2));
    let scenario = w.scenario("put_each beside a put", threads, |end| arrived(end, 3));
    cases.push(Case { scenario, preemptions: Some(1) });
    cases
}

/// Payload, then a signal that a kernel of another GPU waits for.
pub(crate) fn signalling() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, kernel) in [("set", PUT_SIGNAL_SET), ("add", PUT_SIGNAL_ADD)] {
        let w = World { shape: Shape { log_sq: 2, start: 2, ..Shape::default() } };
        let threads = vec![lane(kernel, &w, 0, 0, 0), far_lane(WAIT_SIGNAL, &w, 1)];
        let scenario = w.scenario(&format!("a signal, {name}"), threads, |end| arrived(end, 1));
        cases.push(Case { scenario, preemptions: None });
    }
    let w = World { shape: Shape { log_sq: 3, start: 2, ..Shape::default() } };
    let mut threads = lanes(&w, PUT_SIGNAL_ADD, TWO_BLOCKS, 1);
    threads.push(far_lane(WAIT_SIGNAL, &w, 2));
    let scenario = w.scenario("two signals", threads, |end| match end.value(signal()) {
        2 => arrived(end, 2),
        other => Err(format!("two signals of 1 made {other}")),
    });
    cases.push(Case { scenario, preemptions: Some(2) });
    cases
}

/// `wv::outcome`.
const OK: u64 = 0;
const TIMEOUT: u64 = 1;
const ABORTED: u64 = 2;
/// Of a thread that is not there.
const NONE: u64 = 0xff;

/// The statuses of two threads' waits, which are noted with 1 added.
fn outcomes(end: &End<'_>) -> [u64; 2] {
    [end.notes[1], end.notes[2]].map(|note| note.wrapping_sub(1) & 0xff)
}

fn one_of(end: &End<'_>, allowed: &[u64]) -> Result<(), String> {
    match outcomes(end) {
        both if both.iter().all(|one| allowed.contains(one)) => Ok(()),
        other => Err(format!("the waits ended with {other:?}, not any of {allowed:?}")),
    }
}

/// A host that waits for the report of the first failed wait, which it finds whole.
fn fault_reader(w: World) -> ThreadSpec {
    watcher("host", move || {
        // Acquire, pairs with the release of 2.
        while load(w.fault(offset_of!(Fault, claim)), 4, Order::Acquire) != 2 {
            pause();
        }
        let status = load(w.fault(offset_of!(Fault, status)), 4, Order::Relaxed);
        require(status & 0xff == TIMEOUT, "the fault says why");
        let field = |at| load(w.fault(at), 8, Order::Relaxed);
        require(field(offset_of!(Fault, expected)) > 0, "the fault says what was expected");
        let [what, qpn] = [offset_of!(Fault, what), offset_of!(Fault, qpn)]
            .map(|at| load(w.fault(at), 4, Order::Relaxed));
        require(what != 0 && qpn != 0, "the fault says who waited for what");
        let _ = (field(offset_of!(Fault, actual)), field(offset_of!(Fault, thread)));
    })
}

/// Waits that end by their deadline or because the host says so.
pub(crate) fn ending() -> Vec<Case> {
    let stopped = World { shape: Shape { stops_at: Some(0), log_rq: Some(1), ..Shape::default() } };
    let full = World { shape: Shape { backlog: 4, ..stopped.shape } };
    let slow = World { shape: Shape { start: 3, ..Shape::default() } };
    let two = |w: &World, kernel| lanes(w, kernel, TWO_BLOCKS, 1);
    let timed = |time, name: &str, w: World, threads, ends: &'static [u64]| {
        let end = move |end: &End<'_>| one_of(end, ends);
        let mut scenario = w.scenario(&format!("{name}, {time:?}"), threads, |_| Ok(()));
        let finish = scenario.finish.clone();
        scenario.finish = Rc::new(move |e| finish(e).and_then(|()| end(e)));
        (scenario.time, scenario.aborts) = (time, time == Time::Never);
        scenario
    };
    let mut cases = Vec::new();
    let mut case = |scenario, preemptions| cases.push(Case { scenario, preemptions });
    for time in [Time::AtRest, Time::AnyTime] {
        case(
            timed(time, "a NIC that stops", stopped, two(&stopped, PUT_ENDS), &[TIMEOUT]),
            Some(1),
        );
        let threads = vec![lane(PUT_ENDS, &stopped, 0, 0, 0), fault_reader(stopped)];
        case(timed(time, "a fault for the host", stopped, threads, &[TIMEOUT, NONE]), None);
        let threads = two(&full, PUT_ENDS);
        case(timed(time, "a ring that stays full", full, threads, &[TIMEOUT, ABORTED]), Some(1));
    }
    let threads = two(&slow, PUT_MAY_FAIL);
    case(timed(Time::AnyTime, "a slow NIC", slow, threads, &[OK, TIMEOUT]), Some(2));
    let order = move || {
        watcher("host", move || {
            access(stopped.abort(), 4, Access::Store(1), Order::Relaxed);
        })
    };
    for (name, kernel) in [
        ("put ends by the host's order", PUT_ENDS),
        ("wait_recv ends by the host's order", WAIT_RECV_ENDS),
        ("wait_signal ends by the host's order", WAIT_SIGNAL_ENDS),
    ] {
        let threads = vec![lane(kernel, &stopped, 0, 0, 0), order()];
        case(timed(Time::Never, name, stopped, threads, &[ABORTED, NONE]), None);
    }
    let mut threads = two(&stopped, PUT_ENDS);
    threads.push(order());
    case(
        timed(Time::Never, "two puts end by the host's order", stopped, threads, &[ABORTED]),
        Some(0),
    );
    cases
}
