//! A NIC: reads the doorbell, the WQEs behind it, and writes payload and CQEs, one access at a
//! time.

use crate::host::{access, knows, load, note, pause, read, require, store, write};
use crate::op::Access;
use crate::op::Order::{Acquire, Relaxed, Release};
use crate::world::{DONE, DOORBELL, QPN, SENDS, World};

/// The value of a doorbell that names `next`.
pub(crate) fn doorbell(next: u64) -> u64 {
    let low = ((next as u32 & 0xffff) << 8).swap_bytes();
    u64::from((QPN << 8).swap_bytes()) << 32 | u64::from(low)
}

/// Words of the longest WQE: four WQEBBs.
const WORDS: usize = 32;

#[derive(Clone, Copy)]
pub(crate) struct Nic {
    world: World,
    /// Everything below has been executed.
    done: u64,
    /// CQEs written.
    producer: u64,
    failed: bool,
}

/// A WQE as read.
#[derive(Clone, Copy)]
struct Wqe {
    words: [u64; WORDS],
    wqebbs: u64,
}

impl Wqe {
    fn byte(&self, at: usize) -> u8 {
        self.words[at / 8].to_le_bytes()[at % 8]
    }
    fn opcode(&self) -> u8 {
        self.byte(3)
    }
    fn index(&self) -> u16 {
        u16::from_be_bytes([self.byte(1), self.byte(2)])
    }
    fn signalled(&self) -> bool {
        self.byte(11) & 0x0c == 0x08
    }
    fn be64(&self, word: usize) -> u64 {
        self.words[word].swap_bytes()
    }
    fn be32(&self, at: usize) -> u32 {
        (self.words[at / 8] >> (8 * (at % 8))) as u32
    }
    /// Byte count of the entry at byte `at`, and whether its data follows.
    fn entry(&self, at: usize) -> (u32, bool) {
        let count = self.be32(at).swap_bytes();
        (count & 0x7fff_ffff, count >> 31 != 0)
    }
}

impl Nic {
    pub(crate) fn new(world: World) -> Self {
        let start = world.shape.start;
        Self { world, done: start, producer: start, failed: false }
    }

    pub(crate) fn run(mut self) {
        note(DONE, self.done);
        loop {
            knows((self.done, self.producer, self.failed));
            // Acquire, pairs with the combiner's release of the doorbell.
            let value = load(DOORBELL, 8, Acquire);
            require((value >> 32) as u32 == (QPN << 8).swap_bytes(), "the doorbell names a QP");
            let next = (value as u32).swap_bytes() >> 8 & 0xffff;
            let rung = self.limit(self.done + self.ahead(next as u16).max(self.by_record()));
            self.check_record(next as u16);
            while self.done < rung {
                self.execute(rung);
            }
            pause();
        }
    }

    /// WQEBBs between what has been executed and `next`, of a doorbell or a record; what was read
    /// late may be behind.
    fn ahead(&self, next: u16) -> u64 {
        let ahead = next.wrapping_sub(self.done as u16);
        if self.world.shape.reads_record && (ahead as i16) < 0 {
            return 0;
        }
        require(u64::from(ahead) <= self.world.depth(), "no more than the ring is announced");
        ahead.into()
    }

    /// WQEBBs that the record announces to a device that reads it.
    fn by_record(&self) -> u64 {
        if !self.world.shape.reads_record {
            return 0;
        }
        // Acquire, pairs with the combiner's release of the record.
        self.ahead((load(SENDS.record, 4, Acquire) as u32).swap_bytes() as u16)
    }

    /// How far it goes if it was rung up to `rung`.
    fn limit(&self, rung: u64) -> u64 {
        self.world.shape.stops_at.map_or(rung, |at| rung.min(at))
    }

    /// The record was written before the doorbell: it names as much, or more.
    fn check_record(&self, next: u16) {
        let record = (load(SENDS.record, 4, Relaxed) as u32).swap_bytes() as u16;
        let newer = u64::from(record.wrapping_sub(next));
        require(newer <= self.world.depth(), "the record is not older than the doorbell");
    }

    fn execute(&mut self, rung: u64) {
        let wqe = self.fetch(rung);
        if self.failed || self.world.shape.fails_at.is_some_and(|at| at < self.done + wqe.wqebbs) {
            // WR_FLUSH_ERR behind the first.
            let syndrome = if self.failed { 0x05 } else { 0x13 };
            self.failed = true;
            self.complete(&wqe, 13, syndrome);
            return;
        }
        self.transfer(&wqe);
        if wqe.signalled() {
            self.complete(&wqe, 0, 0);
        } else {
            self.done += wqe.wqebbs;
            note(DONE, self.done);
        }
    }

    /// Reads the WQE at `done`, plainly: the store that wrote it must be ordered before.
    fn fetch(&self, rung: u64) -> Wqe {
        let mut wqe = Wqe { words: [0; WORDS], wqebbs: 1 };
        for word in 0..8 {
            wqe.words[word] = read(self.world.wqebb(self.done) + 8 * word as u64);
        }
        require(wqe.index() == self.done as u16, "the WQE in the slot is the one that was rung");
        require(wqe.be32(4).swap_bytes() >> 8 == QPN, "the WQE names the QP");
        wqe.wqebbs = u64::from(wqe.byte(7) & 0x3f).div_ceil(4);
        require((1..=4).contains(&wqe.wqebbs), "the WQE has a length");
        require(self.done + wqe.wqebbs <= rung, "the doorbell covers whole WQEs");
        for word in 8..8 * wqe.wqebbs as usize {
            let at = self.world.wqebb(self.done + word as u64 / 8);
            wqe.words[word] = read(at + 8 * (word as u64 % 8));
        }
        wqe
    }

    /// Moves whole words.
    fn transfer(&self, wqe: &Wqe) {
        let remote = wqe.be64(2);
        // A signal follows all payload before it.
        let put = |at: u64, value: u64| match World::is_signal(at) {
            true => store(at, 8, value, Release),
            false => write(at, value),
        };
        match wqe.opcode() {
            0x00 => {}
            0x08 => {
                let (bytes, inline) = wqe.entry(32);
                for at in (0..u64::from(bytes)).step_by(8) {
                    let value = if inline {
                        let from = 36 + at as usize;
                        u64::from(wqe.be32(from)) | u64::from(wqe.be32(from + 4)) << 32
                    } else {
                        read(wqe.be64(5) + at)
                    };
                    put(remote + at, value);
                }
            }
            0x10 => write(wqe.be64(5), read(remote)),
            0x12 if World::is_signal(remote) => {
                let old = access(remote, 8, Access::Add(wqe.be64(4)), Release);
                write(wqe.be64(7), old);
            }
            0x12 => {
                let old = read(remote);
                write(remote, old.wrapping_add(wqe.be64(4)));
                write(wqe.be64(7), old);
            }
            _ => require(false, "the NIC knows the opcode"),
        }
    }

    /// Writes the CQE of `wqe`: body first, the last 8 bytes with release.
    fn complete(&mut self, wqe: &Wqe, opcode: u64, syndrome: u32) {
        let world = self.world;
        let owner = world.shape.log_cq.map_or(0, |log_size| {
            // Acquire, pairs with the poller's release of SET_CI: it has read the entry.
            let returned = (load(SENDS.cq_record, 4, Acquire) as u32).swap_bytes();
            let in_use = (self.producer as u32).wrapping_sub(returned) & 0xff_ffff;
            require(in_use < 1 << log_size, "the CQ has room");
            self.producer >> log_size & 1
        });
        let cqe = world.cqe(if world.shape.log_cq.is_some() { self.producer } else { 0 });
        if opcode != 0 {
            store(cqe + 52, 4, u64::from(syndrome) << 24, Relaxed);
        }
        let counter = u64::from((self.done as u16).swap_bytes()) << 32;
        let qpn = u64::from((QPN | u32::from(wqe.opcode()) << 24).swap_bytes());
        self.done += wqe.wqebbs;
        self.producer += 1;
        note(DONE, self.done);
        store(cqe + 56, 8, (opcode << 4 | owner) << 56 | counter | qpn, Release);
    }
}
