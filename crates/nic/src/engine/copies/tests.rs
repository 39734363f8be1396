use super::*;
use crate::format::{Lkey, Sge};
use crate::violation::KeySide;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng};
use std::sync::Arc;
use warpverbs_mem::testing::{LazyCopier, LazyMemory};
use warpverbs_mem::{Access, AccessError, HostBuf};

const NONE: [Vec<Grant>; 2] = [vec![], vec![]];
const LEN: usize = 48;

/// Memory of the host and of two devices, each filled with bytes of its own.
struct Places {
    copiers: [Arc<LazyCopier>; 2],
    /// As copies name it, and as the test sees it.
    regions: [(Region, Region); 3],
}

impl Places {
    fn new() -> Self {
        let copiers = [Arc::<LazyCopier>::default(), Arc::default()];
        let host = HostBuf::region(LEN).unwrap();
        let device = |i: u32| LazyMemory::regions(LEN, i, &copiers[i as usize]).unwrap();
        let regions = [(host.clone(), host), device(0), device(1)];
        for ((_, view), first) in regions.iter().zip([0, 100, 200]) {
            view.write(0, &(first..).take(LEN).collect::<Vec<u8>>()).unwrap();
        }
        Self { copiers, regions }
    }

    fn bytes(&self) -> [[u8; LEN]; 3] {
        let mut all = [[0; LEN]; 3];
        for ((_, view), bytes) in self.regions.iter().zip(&mut all) {
            view.read(0, bytes).unwrap();
        }
        all
    }

    fn span(&self, (place, at): (usize, usize), len: usize) -> Span<'_> {
        let (offset, len) = (at as u64, len as u32);
        Span { region: &self.regions[place].0, offset, len, proxy_lkey: None }
    }
}

/// For any copies and any slow engine: memory at any moment is as copying one after the other would
/// have left it at some moment, and nothing of it is undone.
#[test]
fn what_is_seen_is_what_copying_in_order_shows() {
    for seed in 0..300 {
        println!("seed {seed}");
        let mut rng = StdRng::seed_from_u64(seed);
        let places = Places::new();
        let mut queue = CopyQueue::default();
        // Entry `n`: the bytes after the first `n` copies, made one after the other.
        let mut history = vec![places.bytes()];
        let (mut seen, mut asked) = (0, Vec::new());
        while asked.len() < 60 || !queue.is_empty() {
            if asked.len() < 60 && rng.random_range(0..3) > 0 {
                let len = rng.random_range(1..8);
                let mut side = || (rng.random_range(0..3), rng.random_range(0..LEN - len));
                let (from, to) = (side(), side());
                let (source, target) = (places.span(from, len), places.span(to, len));
                asked.push(queue.push_all(Source::Spans(&[source]), &[target], &NONE, ()));
                let mut next = *history.last().unwrap();
                let moved = next[from.0][from.1..from.1 + len].to_vec();
                next[to.0][to.1..to.1 + len].copy_from_slice(&moved);
                history.push(next);
            }
            places.copiers[rng.random_range(0..2)].allow(rng.random_range(0..3));
            queue.poll(0, None, u64::MAX);
            let ended = asked.iter().take_while(|&&upto| queue.has_ended(upto)).count();
            let now = places.bytes();
            let at = history[seen..].iter().position(|bytes| *bytes == now);
            seen += at.expect("bytes that copying in order never leaves");
            let last = history.iter().rposition(|bytes| *bytes == now);
            assert!(last >= Some(ended), "{ended} copies have ended, {last:?} are seen");
        }
        assert_eq!(places.bytes(), *history.last().unwrap());
    }
}

#[test]
fn a_long_copy_moves_slice_by_slice_as_long_as_its_key_holds() {
    let places = Places::new();
    let mut keys = KeyTable::new(Some(1)).unwrap();
    let key = keys.insert(1, &places.regions[0].0, Access::LOCAL_WRITE).unwrap();
    let addr = places.regions[0].0.addr() + 20;
    let sge = Sge { addr, len: 10, lkey: Lkey(key) };
    let right = (1, KeySide::Receive, Access::LOCAL_WRITE);
    let granted = [vec![], grants(right, [sge].into_iter(), 10)];
    let mut queue = CopyQueue::default();
    let (from, to) = (places.span((0, 0), 10), places.span((0, 20), 10));
    let upto = queue.push_all(Source::Spans(&[from]), &[to], &granted, ());
    for moved in [4, 8] {
        queue.poll(0, Some(&keys), 4);
        assert_eq!(queue.outcome(upto), Ok(false));
        assert_eq!(places.bytes()[0][20 + moved - 4..20 + moved + 1][4], 20 + moved as u8);
        assert_eq!(places.bytes()[0][20 + moved - 1], moved as u8 - 1);
    }
    keys.remove(key);
    queue.poll(0, Some(&keys), 4);
    let unknown = AccessError::UnknownKey { key };
    let fault = Fault::Key { side: KeySide::Receive, segment: 0, error: unknown };
    assert_eq!(queue.outcome(upto), Err(fault));
    assert_eq!(places.bytes()[0][28..30], [28, 29], "bytes of a removed key are touched");
}

#[test]
fn a_failure_ends_its_own_list_and_no_other() {
    let places = Places::new();
    let mut queue = CopyQueue::default();
    let [host, first, second] = [0, 1, 2].map(|place| places.span((place, 0), 4));
    let both = [first, second];
    let from = [host, host];
    let failing = queue.push_all(Source::Spans(&from), &both, &NONE, ());
    let later = queue.push_all(Source::Bytes(b"good"), &[host], &NONE, ());
    queue.poll(0, None, u64::MAX);
    assert_eq!((queue.outcome(failing), places.copiers[1].waiting()), (Ok(false), 0));
    places.copiers[0].break_down();
    queue.poll(0, None, u64::MAX);
    assert!(matches!(queue.outcome(failing), Err(Fault::Copy(_))));
    assert_eq!(queue.outcome(later), Ok(true));
    assert_eq!((&places.bytes()[0][..4], places.bytes()[2][0]), (&b"good"[..], 200));
}

#[test]
fn a_copy_that_hangs_fails_and_those_behind_it_go_on() {
    let places = Places::new();
    let mut queue = CopyQueue::default();
    let [host, device] = [0, 1].map(|place| places.span((place, 0), 4));
    let hung = queue.push_all(Source::Spans(&[host]), &[device], &NONE, ());
    let later = queue.push_all(Source::Bytes(b"next"), &[host], &NONE, ());
    let timeout = crate::clock::nanos(TIMEOUT);
    for (now, ended) in [(5, false), (timeout + 5, false), (timeout + 6, true)] {
        queue.poll(now, None, u64::MAX);
        assert_eq!((queue.has_ended(hung), queue.has_ended(later)), (ended, ended), "at {now}");
    }
    assert_eq!(queue.outcome(hung), Err(Fault::Copy(HANGS)));
    assert_eq!((queue.outcome(later), &places.bytes()[0][..4]), (Ok(true), &b"next"[..]));
    // Memory that the engine may still touch is kept until the engine is done with it.
    places.copiers[0].allow(1);
    assert_eq!(places.bytes()[1][..4], *b"next");
}
