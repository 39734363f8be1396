//! The posting protocol under loom: every interleaving and every stale read that the C11 model
//! allows, up to a bound on preemptions. The mutants show that the models can fail.

mod mutants;

use super::protocol::{Place, Ring, has_room, publish, try_lock, try_reserve};
use super::word::{Word, word};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64};
use loom::thread;
use mutants::{GivenUpBlindly, LeftUnoffered, OfferedAndKept, TakenInTwoSteps, Token, Unordered};
use std::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};
use warpverbs_mlx5::export::PollWord;

word!(AtomicU64: u64, AtomicU32: u32);

fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// The poll word; `torn`, its lock is taken in two steps.
struct PollCell {
    word: AtomicU64,
    torn: bool,
}

impl Word<u64> for PollCell {
    fn load(&self, order: Ordering) -> u64 {
        self.word.load(order)
    }
    fn store(&self, value: u64, order: Ordering) {
        self.word.store(value, order);
    }
    fn exchange(&self, value: u64, order: Ordering) -> u64 {
        self.word.swap(value, order)
    }
    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.word.fetch_add(value, order)
    }
    fn fetch_xor(&self, value: u64, order: Ordering) -> u64 {
        self.word.fetch_xor(value, order)
    }
    fn compare_exchange(
        &self,
        now: u64,
        new: u64,
        ok: Ordering,
        err: Ordering,
    ) -> Result<u64, u64> {
        if !self.torn {
            return self.word.compare_exchange(now, new, ok, err);
        }
        let old = self.word.load(Acquire);
        if old != now {
            return Err(old);
        }
        self.word.store(new, Release);
        Ok(old)
    }
}

/// A ring whose WQE bytes are race detectors: a write that is not ordered with the NIC's read, or
/// a second holder of a token, fails the model.
struct ModelRing<T> {
    log_depth: u32,
    reserved: AtomicU64,
    published: AtomicU64,
    poll: PollCell,
    ring_token: T,
    ready: [AtomicU64; 2],
    poller: UnsafeCell<()>,
    record: AtomicU32,
    doorbell: Doorbell,
    /// `wqe_counter` of the newest CQE of a collapsed CQ; above `u16::MAX` for none yet.
    cqe: AtomicU64,
}

/// A doorbell that looks at what it is rung for. Indexes in these models are below 2^16.
struct Doorbell {
    wqe: Vec<UnsafeCell<()>>,
    combiner: UnsafeCell<()>,
    /// The index after the last work request that was rung for.
    next: AtomicU64,
    /// The middle of a work request: never the end of what is rung.
    indivisible: u64,
}

impl Doorbell {
    fn slot(&self, index: u64) -> &UnsafeCell<()> {
        &self.wqe[index as usize & (self.wqe.len() - 1)]
    }

    /// What a combiner rings for: everything that it stored before comes before.
    fn ring(&self, next: u64, order: Ordering) {
        self.combiner.with_mut(|_| ());
        let last = self.next.load(Relaxed);
        assert!(last < next, "doorbell went from {last} to {next}");
        assert_ne!(next, self.indivisible, "rang half a work request");
        (last..next).for_each(|index| self.slot(index).with(|_| ()));
        self.next.store(next, order);
    }
}

impl Word<u64> for Doorbell {
    fn store(&self, value: u64, order: Ordering) {
        self.ring(u64::from_be(value) >> 40, order);
    }
    fn load(&self, order: Ordering) -> u64 {
        self.next.load(order)
    }
    fn exchange(&self, _: u64, _: Ordering) -> u64 {
        unreachable!("a doorbell is only written to")
    }
    fn fetch_add(&self, _: u64, _: Ordering) -> u64 {
        unreachable!("a doorbell is only written to")
    }
    fn fetch_xor(&self, _: u64, _: Ordering) -> u64 {
        unreachable!("a doorbell is only written to")
    }
    fn compare_exchange(&self, _: u64, _: u64, _: Ordering, _: Ordering) -> Result<u64, u64> {
        unreachable!("a doorbell is only written to")
    }
}

impl<T: Token> ModelRing<T> {
    /// A ring in which everything below `start` has been rung and completed.
    fn new(log_depth: u32, start: u64) -> Self {
        let depth = 1u64 << log_depth;
        let flips = |slot: u64| start.saturating_sub(slot).div_ceil(depth);
        let bits = |from: u64| {
            (from..depth.min(from + 64)).fold(0, |w, s| w | (flips(s) & 1) << (s - from))
        };
        Self {
            log_depth,
            reserved: AtomicU64::new(start),
            published: AtomicU64::new(start),
            poll: PollCell { word: AtomicU64::new(PollWord::new(start, false).0), torn: false },
            ring_token: T::new(),
            ready: [AtomicU64::new(bits(0)), AtomicU64::new(bits(64))],
            poller: UnsafeCell::new(()),
            record: AtomicU32::new(0),
            doorbell: Doorbell {
                wqe: (0..depth).map(|_| UnsafeCell::new(())).collect(),
                combiner: UnsafeCell::new(()),
                next: AtomicU64::new(start),
                indivisible: u64::MAX,
            },
            cqe: AtomicU64::new(u64::MAX),
        }
    }

    fn write(&self, base: u64, n: u64) {
        (base..base + n).for_each(|index| self.doorbell.slot(index).with_mut(|_| ()));
    }

    /// What a poller does with a collapsed CQ whose work requests take one slot each.
    fn drain(&self) {
        let Some(mut poller) = try_lock(self) else { return };
        self.poller.with_mut(|_| ());
        // Acquire, pairs with the NIC's release: its reads of the WQE come before the CQE.
        if let Ok(counter) = u16::try_from(self.cqe.load(Acquire))
            && let Place::InFlight(index) = poller.place(counter)
        {
            poller.retire(index + 1);
        }
    }

    /// A NIC that executes until it has done everything below `upto`.
    fn serve(&self, mut done: u64, upto: u64) {
        while done < upto {
            let rung = self.doorbell.load(Acquire);
            if rung == done {
                thread::yield_now();
                continue;
            }
            (done..rung).for_each(|index| self.doorbell.slot(index).with(|_| ()));
            // As pollers rely on.
            assert!(self.published.load(Relaxed) >= rung, "published is behind the doorbell");
            done = rung;
            self.cqe.store((done - 1) & 0xffff, Release);
        }
    }
}

impl<T: Token> Ring for ModelRing<T> {
    type Counter = AtomicU64;
    type Poll = PollCell;
    type Token = T;
    type Record = AtomicU32;
    type Doorbell = Doorbell;

    fn log_depth(&self) -> u32 {
        self.log_depth
    }
    fn reserved(&self) -> &AtomicU64 {
        &self.reserved
    }
    fn published(&self) -> &AtomicU64 {
        &self.published
    }
    fn poll(&self) -> &PollCell {
        &self.poll
    }
    fn ring_token(&self) -> &T {
        &self.ring_token
    }
    fn most_passes(&self) -> u32 {
        1
    }
    fn pause(&self) {
        thread::yield_now();
    }
    fn ready(&self, word: usize) -> &AtomicU64 {
        &self.ready[word]
    }
    fn record(&self) -> &AtomicU32 {
        &self.record
    }
    fn doorbell(&self) -> Option<(&Doorbell, u32)> {
        Some((&self.doorbell, 7))
    }
}

/// Posters that publish one request each; once all are back, all of it must have been rung.
fn everything_is_rung<T: Token>(posters: u64, log_depth: u32, start: u64) {
    let ring = Arc::new(ModelRing::<T>::new(log_depth, start));
    let post = |ring: Arc<ModelRing<T>>| {
        move || {
            let base = try_reserve(&*ring, 1).expect("the ring is deep enough");
            ring.write(base, 1);
            publish(&*ring, base, 1);
        }
    };
    let threads: Vec<_> = (1..posters).map(|_| thread::spawn(post(ring.clone()))).collect();
    post(ring.clone())();
    threads.into_iter().for_each(|t| t.join().unwrap());
    assert_eq!(ring.doorbell.load(Acquire), start + posters, "work was left unrung");
    assert_eq!(ring.published.load(Acquire), start + posters);
    assert_eq!(ring.ring_token.load(Acquire), 0);
}

#[test]
fn loom_publish_two_posters() {
    check(4, || everything_is_rung::<AtomicU32>(2, 2, 0));
}

#[test]
fn loom_publish_three_posters_across_a_lap() {
    check(2, || everything_is_rung::<AtomicU32>(3, 2, 6));
}

#[test]
#[should_panic(expected = "work was left unrung")]
fn loom_rejects_a_token_given_up_blindly() {
    check(4, || everything_is_rung::<GivenUpBlindly>(2, 2, 0));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_rejects_a_combiner_that_offers_and_keeps() {
    check(3, || everything_is_rung::<OfferedAndKept>(3, 2, 0));
}

#[test]
#[should_panic(expected = "work was left unrung")]
fn loom_rejects_a_combiner_that_leaves_after_its_last_pass() {
    check(3, || everything_is_rung::<LeftUnoffered>(2, 2, 0));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_rejects_a_token_taken_in_two_steps() {
    check(4, || everything_is_rung::<TakenInTwoSteps>(2, 2, 0));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_rejects_an_unordered_token() {
    check(4, || everything_is_rung::<Unordered>(2, 2, 0));
}

/// A request of two slots that lies across two ready words, beside a poster that may be ringing.
fn straddle(publish_pair: fn(&ModelRing<AtomicU32>)) {
    let mut ring = ModelRing::<AtomicU32>::new(7, 62);
    ring.doorbell.indivisible = 64;
    ring.reserved.with_mut(|reserved| *reserved = 65);
    let ring = Arc::new(ring);
    let other = ring.clone();
    let single = thread::spawn(move || {
        other.write(62, 1);
        publish(&*other, 62, 1);
    });
    ring.write(63, 2);
    publish_pair(&ring);
    single.join().unwrap();
    assert_eq!(ring.doorbell.load(Acquire), 65, "work was left unrung");
}

#[test]
fn loom_request_across_two_ready_words() {
    check(4, || straddle(|ring| publish(ring, 63, 2)));
}

#[test]
#[should_panic(expected = "rang half a work request")]
fn loom_rejects_ready_words_flipped_upwards() {
    check(4, || {
        straddle(|ring| {
            ring.ready(0).fetch_xor(1 << 63, Release);
            ring.ready(1).fetch_xor(1, Release);
            publish(ring, 65, 0);
        });
    });
}

/// Two waiters look at what a NIC completes one by one, across the 16-bit wrap.
fn waiters_drain(torn: bool) {
    const START: u64 = 0x1_fffe;
    let mut ring = ModelRing::<AtomicU32>::new(2, START);
    ring.poll.torn = torn;
    ring.published.with_mut(|published| *published = START + 3);
    ring.published.with_mut(|published| *published = START + 3);
    let ring = Arc::new(ring);
    let watch = |ring: Arc<ModelRing<AtomicU32>>| {
        move || {
            let mut last = START;
            for _ in 0..2 {
                ring.drain();
                let now = ring.completed();
                assert!(now >= last, "completed went from {last} to {now}");
                last = now;
            }
        }
    };
    let watcher = thread::spawn(watch(ring.clone()));
    let nic = ring.clone();
    let nic = thread::spawn(move || {
        (0..3).for_each(|i| nic.cqe.store((START + i) & 0xffff, Release));
    });
    watch(ring.clone())();
    nic.join().unwrap();
    watcher.join().unwrap();
    ring.drain();
    assert_eq!(ring.completed(), START + 3, "a completion was lost");
}

#[test]
fn loom_one_poller() {
    check(2, || waiters_drain(false));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_rejects_two_pollers() {
    check(2, || waiters_drain(true));
}

/// Posters that reserve without asking, as kernels do, and wait for room in a ring of two,
/// beside a NIC. `gate` says when `[base, base + 1)` may be written.
fn gated(gate: fn(&ModelRing<AtomicU32>, u64) -> bool) {
    const START: u64 = 3;
    let ring = Arc::new(ModelRing::<AtomicU32>::new(1, START));
    let nic = ring.clone();
    let nic = thread::spawn(move || nic.serve(START, START + 3));
    let post = move |ring: &ModelRing<AtomicU32>| {
        let base = ring.reserved.fetch_add(1, Relaxed);
        while !gate(ring, base) {
            ring.drain();
            thread::yield_now();
        }
        ring.write(base, 1);
        publish(ring, base, 1);
    };
    let other = ring.clone();
    let other = thread::spawn(move || post(&other));
    post(&ring);
    post(&ring);
    other.join().unwrap();
    nic.join().unwrap();
    assert_eq!(ring.doorbell.load(Acquire), START + 3);
}

#[test]
fn loom_gate_of_a_full_ring() {
    check(2, || gated(|ring, base| has_room(ring, base, 1)));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_rejects_a_gate_that_is_off_by_one() {
    check(2, || gated(|ring, base| has_room(ring, base - 1, 1)));
}
