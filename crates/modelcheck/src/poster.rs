//! The host's posting protocol, as it is in the transport crate, over the checker's memory.

use crate::host::{self, compare_exchange, load, store};
use crate::op::{Access, Order};
use crate::post::protocol::{Place, Ring, publish, try_lock, try_reserve};
use crate::post::word::Word;
use crate::world::{QPN, World};
use std::sync::atomic::Ordering::{self, Relaxed};

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

/// The send queue of a [`World`] as the host's poster sees it.
pub struct Poster {
    world: World,
    most_passes: u32,
    reserved: Shared<u64>,
    published: Shared<u64>,
    poll: Shared<u64>,
    ring_token: Shared<u32>,
    ready: Shared<u64>,
    record: Shared<u32>,
    doorbell: Shared<u64>,
}

impl Poster {
    /// Rings of up to 64 WQEBBs: one word of ready bits.
    pub fn new(world: World) -> Self {
        Self {
            world,
            most_passes: 64,
            reserved: Shared::at(world.reserved()),
            published: Shared::at(world.published()),
            poll: Shared::at(world.poll()),
            ring_token: Shared::at(world.ring_token()),
            ready: Shared::at(world.ready(0)),
            record: Shared::at(world.record()),
            doorbell: Shared::at(world.doorbell()),
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
        let base = loop {
            match try_reserve(self, 1) {
                Some(base) => break base,
                None if self.drain() => {}
                None => host::pause(),
            }
        };
        let index = u64::from((base as u32 & 0xffff) << 8 | 0x08).swap_bytes() >> 32;
        let second = u64::from((QPN << 8 | 3).swap_bytes()) << 32;
        let byte_count_and_key = u64::from(8u32.swap_bytes());
        let words = [
            index | second,
            8 << 24,
            remote.swap_bytes(),
            0,
            byte_count_and_key,
            local.swap_bytes(),
            0,
            0,
        ];
        let wqebb = self.world.wqebb(base);
        for (at, word) in words.into_iter().enumerate() {
            host::write(wqebb + 8 * at as u64, word);
        }
        store(self.world.span(base), 1, 1, Order::Relaxed);
        publish(self, base, 1);
        base + 1
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
        let from = load(self.world.cq_ci(), 8, Order::Relaxed);
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
            store(self.world.cq_ci(), 8, ci, Order::Relaxed);
            let value = (ci as u32 & 0xff_ffff).swap_bytes();
            store(self.world.cq_record(), 4, value.into(), Order::Release);
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
        self.world.shape.log_sq.into()
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
    fn ready(&self, _: usize) -> &Shared<u64> {
        &self.ready
    }
    fn record(&self) -> &Shared<u32> {
        &self.record
    }
    fn doorbell(&self) -> Option<(&Shared<u64>, u32)> {
        Some((&self.doorbell, QPN))
    }
    fn most_passes(&self) -> u32 {
        self.most_passes
    }
    fn pause(&self) {}
}
