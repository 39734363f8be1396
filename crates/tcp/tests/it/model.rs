//! Random traffic in both directions over any network: everything arrives once, whole and where it
//! belongs.

use crate::ends::{BASE, KEY, Pair, READ_ONLY, REGION};
use rand::RngExt;
use warpverbs_tcp::protocol::{Event, Failure, Op, PeerError, PostError, Refusal, Request};

/// No memory of the peer.
const NOWHERE: (u32, u64) = (0, 0);

/// Operations of one end, kept by the test alone.
#[derive(Default)]
struct Plan {
    messages: Vec<Vec<u8>>,
    capacities: Vec<u64>,
    notes: Vec<Vec<u8>>,
    /// Expected contents of the peer's region.
    image: Vec<u8>,
    /// Where the next write goes; writes do not overlap.
    next: usize,
    writes: usize,
    refused: usize,
    reads: Vec<(u64, usize)>,
}

fn length(pair: &mut Pair) -> usize {
    match pair.rng.random_range(0..4) {
        0 => pair.rng.random_range(0..9),
        1 => pair.rng.random_range(0..5000),
        2 => pair.rng.random_range(0..70_000),
        _ => pair.rng.random_range(60_000..250_000),
    }
}

fn post(pair: &mut Pair, plans: &mut [Plan; 2]) {
    let who = pair.rng.random_range(0..2);
    let (other, len) = (1 - who, length(pair));
    let what = pair.rng.random_range(0..6);
    let bytes = pair.bytes(len);
    let end = &mut pair.ends[who];
    match what {
        0 => {
            end.post(Op::Send, bytes.clone(), NOWHERE).unwrap();
            plans[who].messages.push(bytes);
        }
        1 | 2 => {
            // As long as the message if it is known, and now and then too short.
            let at = plans[who].capacities.len();
            let known = plans[other].messages.get(at).map_or(250_000, Vec::len) as u64;
            let short = pair.rng.random_range(0..10) == 0;
            let capacity = if short { known.saturating_sub(1) } else { known + 3 };
            end.post(Op::Receive, vec![0xee; capacity as usize], NOWHERE).unwrap();
            plans[who].capacities.push(capacity);
        }
        3 => {
            let plan = &mut plans[who];
            let bad = pair.rng.random_range(0..8) == 0;
            let len = len.min(REGION / 8).min(REGION - plan.next);
            let (key, addr) = match bad {
                true => (READ_ONLY, BASE),
                false => (KEY, BASE + plan.next as u64),
            };
            let bytes = bytes[..len].to_vec();
            if end.post(Op::Write, bytes.clone(), (key, addr)).is_err() {
                return;
            }
            plan.writes += 1;
            plan.refused += usize::from(bad);
            if !bad {
                plan.image[plan.next..plan.next + len].copy_from_slice(&bytes[..len]);
                plan.next += len;
            }
        }
        4 => {
            let len = len.min(2000);
            end.post(Op::Notify, bytes[..len].to_vec(), NOWHERE).unwrap();
            plans[who].notes.push(bytes[..len].to_vec());
        }
        _ => {
            let from = pair.rng.random_range(0..REGION - len) as u64;
            match end.post(Op::Read, vec![0; len], (READ_ONLY, BASE + from)) {
                Ok(request) => {
                    assert_eq!(request.number, plans[who].reads.len() as u64);
                    plans[who].reads.push((from, len));
                }
                Err(error) => assert!(matches!(error, PostError::TooMany { .. }), "{error}"),
            }
        }
    }
}

fn run(seed: u64) -> Result<(), PeerError> {
    let mut pair = Pair::new(seed);
    let mut plans = [Plan::default(), Plan::default()];
    for plan in &mut plans {
        plan.image = vec![0; REGION];
    }
    for _ in 0..60 {
        post(&mut pair, &mut plans);
        for _ in 0..pair.rng.random_range(0..60) {
            pair.step(false)?;
        }
    }
    // Every message gets a receive.
    for who in 0..2 {
        let (have, want) = (plans[who].capacities.len(), plans[1 - who].messages.len());
        for at in have..want {
            let capacity = plans[1 - who].messages[at].len() as u64;
            let blank = vec![0xee; capacity as usize];
            pair.ends[who].post(Op::Receive, blank, NOWHERE).unwrap();
            plans[who].capacities.push(capacity);
        }
    }
    pair.settle()?;
    for who in 0..2 {
        check(&pair, &plans, who);
    }
    for end in &mut pair.ends {
        end.link.close();
    }
    pair.settle()?;
    for end in &pair.ends {
        assert_eq!(end.count(|event| matches!(event, Event::Goodbye(_))), 1);
        assert!(end.link.is_closed());
        for socket in 0..end.wires.len() as u16 {
            assert_eq!(end.link.ended(socket), Ok(()));
        }
    }
    Ok(())
}

fn check(pair: &Pair, plans: &[Plan; 2], who: usize) {
    let (end, peer) = (&pair.ends[who], &plans[1 - who]);
    for (at, message) in peer.messages.iter().enumerate() {
        let (id, len, capacity) = (at as u64, message.len() as u64, plans[who].capacities[at]);
        let receive = Request::receive(id);
        let got = &end.memory[&receive];
        if len <= capacity {
            assert!(end.done.contains(&(receive, Ok(len))), "message {id}");
            assert!(got.starts_with(message), "message {id} of {len} bytes");
            assert!(got[message.len()..].iter().all(|byte| *byte == 0xee), "behind {id}");
        } else {
            let failure = Err(Failure::TooLong { len, capacity });
            assert!(end.done.contains(&(receive, failure)), "message {id}");
            assert!(got.iter().all(|byte| *byte == 0xee), "message {id} was refused");
        }
    }
    assert_eq!(end.notes_in, peer.notes);
    // Nothing writes to bytes beyond those that were planned.
    assert!(end.store.bytes == peer.image, "the region of end {who}");
    let plan = &plans[who];
    assert_eq!(end.done(Op::Write, Result::is_ok), plan.writes - plan.refused);
    let refused = |result: &_| *result == Err(Failure::Refused(Refusal::NotAllowed));
    assert_eq!(end.done(Op::Write, refused), plan.refused);
    assert_eq!(end.done(Op::Read, Result::is_ok), plan.reads.len());
    for (op, count) in [(Op::Send, plan.messages.len()), (Op::Notify, plan.notes.len())] {
        assert_eq!(end.done(op, Result::is_ok), count, "{op:?}");
    }
    for (id, (from, len)) in plan.reads.iter().enumerate() {
        // A byte was read before it was written, or after.
        let now = &pair.ends[1 - who].store.bytes[*from as usize..][..*len];
        let read = &end.memory[&Request { op: Op::Read, number: id as u64 }];
        assert!(read.iter().zip(now).all(|(read, now)| *read == 0 || read == now), "read {id}");
    }
}

#[test]
fn everything_arrives_once_and_where_it_belongs() {
    for seed in warpverbs_dev::seeds(150) {
        if let Err(error) = run(seed) {
            panic!("an honest peer was blamed: {error}");
        }
    }
}

/// A key that is taken back while the peer reads: the read fails, and no byte that was not there
/// before is seen.
#[test]
fn a_key_taken_back_ends_reads_and_writes_midway() {
    for seed in 0..50 {
        let mut pair = Pair::new(seed);
        let len = REGION as u64;
        let [near, far] = &mut pair.ends;
        far.store.bytes.fill(5);
        near.post(Op::Read, vec![0; REGION], (KEY, BASE)).unwrap();
        near.post(Op::Write, vec![6; REGION], (KEY, BASE)).unwrap();
        for _ in 0..pair.rng.random_range(0..400) {
            pair.step(false).unwrap();
        }
        pair.ends[1].store.revoked = true;
        let (done, before) = (pair.ends[0].done.len(), pair.ends[1].store.bytes.clone());
        let still_due = before.iter().filter(|byte| **byte == 5).count();
        pair.settle().unwrap();
        let [near, far] = &pair.ends;
        assert_eq!(near.done.len(), 2, "seed {seed}: {:?}", near.done);
        assert_eq!(near.events, [], "seed {seed}");
        for (request, result) in &near.done[done..] {
            let fine = [Ok(len), Err(Failure::Refused(Refusal::UnknownKey))].contains(result);
            assert!(fine && request.number == 0, "seed {seed}: {request:?} {result:?}");
        }
        let left = far.store.bytes.iter().filter(|byte| **byte == 5).count();
        assert!(left <= still_due, "seed {seed}");
    }
}
