//! The host's posting protocol, as it is in the transport crate, over the checker's memory. Its loop
//! over CQEs, which is not part of the protocol's files, is written again here.

use crate::host::{self, compare_exchange, load, store};
use crate::op::{Access, Order};
use crate::post::protocol::{Place, Ring, publish, try_lock, try_reserve};
use crate::post::word::Word;
use crate::world::{DOORBELL, QPN, Queue, RECEIVES, SENDS, World};
use std::sync::atomic::Ordering::{self, Relaxed};
use warpverbs_mlx5::cqe::gives_back;
use warpverbs_mlx5::doorbell::record_word;

fn order(order: Ordering) -> Order {
    match order {
        Relaxed => Order::Relaxed,
        Ordering::Acquire => Order::Acquire,
        Ordering::Release => Order::Release,
        Ordering::AcqRel => Order::AcqRel,
        _ => Order::SeqCst,
    }
}

/// One word of the checker's memory.
#[derive(Clone, Copy)]
pub(crate) struct Shared<T> {
    addr: u64,
    of: std::marker::PhantomData<T>,
}

impl<T> Shared<T> {
    fn at(addr: u64) -> Self {
        Self { addr, of: std::marker::PhantomData }
    }
}

macro_rules! word {
    ($($int:ty),*) => {$(
        impl Word<$int> for Shared<$int> {
            #[track_caller]
            fn load(&self, o: Ordering) -> $int {
                host::load(self.addr, size_of::<$int>() as u8, order(o)) as $int
            }
            #[track_caller]
            fn store(&self, value: $int, o: Ordering) {
                host::store(self.addr, size_of::<$int>() as u8, value.into(), order(o));
            }
            #[track_caller]
            fn exchange(&self, value: $int, o: Ordering) -> $int {
                let access = Access::Exchange(value.into());
                host::access(self.addr, size_of::<$int>() as u8, access, order(o)) as $int
            }
            #[track_caller]
            fn fetch_add(&self, value: $int, o: Ordering) -> $int {
                let access = Access::Add(value.into());
                host::access(self.addr, size_of::<$int>() as u8, access, order(o)) as $int
            }
            #[track_caller]
            fn fetch_xor(&self, value: $int, o: Ordering) -> $int {
                let access = Access::Xor(value.into());
                host::access(self.addr, size_of::<$int>() as u8, access, order(o)) as $int
            }
            #[track_caller]
            fn compare_exchange(
                &self,
                now: $int,
                new: $int,
                ok: Ordering,
                err: Ordering,
            ) -> Result<$int, $int> {
                let (swap, size) = ((now.into(), new.into()), size_of::<$int>() as u8);
                let old = compare_exchange(self.addr, size, swap, order(ok), order(err)) as $int;
                if old == now { Ok(old) } else { Err(old) }
            }
        }
    )*};
}

word!(u32, u64);

/// A queue of a [`World`] as the host's poster sees it.
pub struct Poster {
    world: World,
    log_depth: u32,
    most_passes: u32,
    reserved: Shared<u64>,
    published: Shared<u64>,
    poll: Shared<u64>,
    ring_token: Shared<u32>,
    ready: [Shared<u64>; 2],
    record: Shared<u32>,
    doorbell: Option<Shared<u64>>,
}

impl Poster {
    /// The send queue, of up to 128 WQEBBs.
    pub fn new(world: World) -> Self {
        let ready = [0, 1].map(|word| Shared::at(SENDS.ready + 8 * word));
        Self {
            doorbell: Some(Shared::at(DOORBELL)),
            ..Self::of(world, SENDS, world.shape.log_sq, ready)
        }
    }

    /// The receive queue, of up to 64 WQEs.
    pub fn receives(world: World) -> Self {
        let log_rq = world.shape.log_rq.expect("the world has a receive queue");
        Self::of(world, RECEIVES, log_rq, [Shared::at(RECEIVES.ready); 2])
    }

    fn of(world: World, queue: Queue, log_depth: u8, ready: [Shared<u64>; 2]) -> Self {
        Self {
            world,
            log_depth: log_depth.into(),
            most_passes: 64,
            reserved: Shared::at(queue.reserved),
            published: Shared::at(queue.published),
            poll: Shared::at(queue.poll),
            ring_token: Shared::at(queue.ring_token),
            ready,
            record: Shared::at(queue.record),
            doorbell: None,
        }
    }

    /// A combiner that offers the token to others after each pass.
    pub fn handing_over(world: World) -> Self {
        Self { most_passes: 1, ..Self::new(world) }
    }

    /// Posts a signalled WRITE of one word and waits until it is done.
    pub fn write_and_wait(&self, local: u64, remote: u64) {
        let end = self.write(local, remote);
        while self.completed() < end {
            if !self.drain() {
                host::pause();
            }
        }
    }

    /// Posts a WRITE of one word; the index behind it.
    pub fn write(&self, local: u64, remote: u64) -> u64 {
        let byte_count_and_key = u64::from(8u32.swap_bytes());
        self.post(3, [remote.swap_bytes(), 0, byte_count_and_key, local.swap_bytes()])
    }

    /// Posts a WRITE of eight words that the WQE carries: two WQEBBs.
    pub fn write_inline(&self, values: [u64; 8], remote: u64) -> u64 {
        let mut words = [0; 13];
        words[0] = remote.swap_bytes();
        words[2] = u64::from((1u32 << 31 | 64).swap_bytes());
        // Data begins in the middle of a word.
        for (at, value) in values.into_iter().enumerate() {
            words[2 + at] |= value << 32;
            words[3 + at] = value >> 32;
        }
        self.post(7, words)
    }

    /// Posts a WRITE of `units` times 16 bytes: what follows the control segment is `words`.
    fn post<const N: usize>(&self, units: u32, words: [u64; N]) -> u64 {
        let n = u64::from(units.div_ceil(4));
        let base = loop {
            match try_reserve(self, n, 0) {
                Some(got) => break got.base,
                None if self.drain() => {}
                None => host::pause(),
            }
        };
        let index = u64::from((base as u32 & 0xffff) << 8 | 0x08).swap_bytes() >> 32;
        let second = u64::from((QPN << 8 | units).swap_bytes()) << 32;
        let all = [index | second, 8 << 24].into_iter().chain(words);
        for (at, word) in (0..).zip(all) {
            host::write(self.world.wqebb(base + at / 8) + 8 * (at % 8), word);
        }
        store(self.world.span(base), 1, n, Order::Relaxed);
        publish(self, base, n);
        base + n
    }

    /// Posts a receive of one word at `local`, when there is room; its index.
    pub fn receive(&self, local: u64) -> u64 {
        let base = loop {
            match try_reserve(self, 1, 0) {
                Some(got) => break got.base,
                None => host::pause(),
            }
        };
        let wqe = self.world.recv_wqe(base);
        host::write(wqe, u64::from(8u32.swap_bytes()));
        host::write(wqe + 8, local.swap_bytes());
        publish(self, base, 1);
        base
    }

    /// As the transport crate's `Rings::take_recv`: index of a receive that has completed.
    fn take_receive(&self) -> Option<u64> {
        let mut poller = try_lock(self)?;
        let cq_ci = RECEIVES.cq_ci;
        let ci = load(cq_ci, 8, Order::Relaxed);
        let tail = load(self.world.recv_cqe(ci) + 56, 8, Order::Acquire);
        if tail >> 60 == 15 || (tail >> 56 & 1) != (ci >> self.log_depth & 1) {
            return None;
        }
        store(cq_ci, 8, ci + 1, Order::Relaxed);
        let value = ((ci as u32 + 1) & 0xff_ffff).swap_bytes();
        store(RECEIVES.cq_record, 4, value.into(), Order::Release);
        let index = poller.completed();
        host::require(counter(tail) == index as u16, "messages take receives in order");
        poller.retire(index + 1);
        Some(index)
    }

    /// Waits for a message; the index of its receive.
    pub fn wait_receive(&self) -> u64 {
        loop {
            match self.take_receive() {
                Some(index) => return index,
                None => host::pause(),
            }
        }
    }

    /// As the transport crate's `Rings::drain_send`. True if something was counted.
    fn drain(&self) -> bool {
        let Some(mut poller) = try_lock(self) else { return false };
        let before = poller.completed();
        let Some(log_size) = self.world.shape.log_cq else {
            let tail = load(self.world.cqe(0) + 56, 8, Order::Acquire);
            if tail >> 60 == 0
                && let Place::InFlight(index) = poller.place(counter(tail))
            {
                poller.retire(index + self.span(index));
            }
            return poller.completed() != before;
        };
        let from = load(SENDS.cq_ci, 8, Order::Relaxed);
        let mut ci = from;
        loop {
            let tail = load(self.world.cqe(ci) + 56, 8, Order::Acquire);
            if tail >> 60 == 15 || (tail >> 56 & 1) != (ci >> log_size & 1) {
                break;
            }
            match poller.place(counter(tail)) {
                Place::InFlight(index) => poller.retire(index + self.span(index)),
                Place::NotYet => break,
                Place::Never => host::require(false, "a CQE names work in flight"),
            }
            ci += 1;
        }
        if ci != from {
            store(SENDS.cq_ci, 8, ci, Order::Relaxed);
            if gives_back(from, ci, log_size) {
                let value = (ci as u32 & 0xff_ffff).swap_bytes();
                store(SENDS.cq_record, 4, value.into(), Order::Release);
            }
        }
        poller.completed() != before
    }

    fn span(&self, index: u64) -> u64 {
        load(self.world.span(index), 1, Order::Relaxed)
    }
}

fn counter(tail: u64) -> u16 {
    ((tail >> 32) as u16).swap_bytes()
}

impl Ring for Poster {
    type Counter = Shared<u64>;
    type Poll = Shared<u64>;
    type Token = Shared<u32>;
    type Record = Shared<u32>;
    type Doorbell = Shared<u64>;

    fn log_depth(&self) -> u32 {
        self.log_depth
    }
    fn reserved(&self) -> &Shared<u64> {
        &self.reserved
    }
    fn published(&self) -> &Shared<u64> {
        &self.published
    }
    fn poll(&self) -> &Shared<u64> {
        &self.poll
    }
    fn ring_token(&self) -> &Shared<u32> {
        &self.ring_token
    }
    fn ready(&self, word: usize) -> &Shared<u64> {
        &self.ready[word]
    }
    fn record(&self, next: u64) -> Option<(&Shared<u32>, u32)> {
        Some((&self.record, record_word(next)))
    }
    fn doorbell(&self, next: u64) -> Option<(&Shared<u64>, u64)> {
        let value = u64::from((next as u32 & 0xffff) << 8) << 32 | u64::from(QPN << 8);
        self.doorbell.as_ref().map(|doorbell| (doorbell, value.to_be()))
    }
    fn most_passes(&self) -> u32 {
        self.most_passes
    }
    fn pause(&self) {}
}
