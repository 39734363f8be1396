//! A NIC: reads the doorbell, the WQEs behind it, and writes payload and CQEs, one access at a
//! time. [`PlainNic`] reads send queues of bnxt_re's and ionic's formats: one WQE to an index, doorbells without
//! a record, CQEs of 32 bytes that tell the lap of their ring.

use crate::host::{access, knows, load, note, pause, read, require, store, write};
use crate::memory::Initial;
use crate::op::Access;
use crate::op::Order::{Acquire, Relaxed, Release};
use crate::world::{CQ, DONE, DOORBELL, PACKETS, QPN, RQ, SCRATCH, SENDS, SQ, World, plain, word};
use warpverbs_mlx5::export::NicFormat;

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

/// Number of the send CQ.
const CQN: u64 = 1;
/// Bits of the index in the word `reserved` of bnxt_re's format.
const INDEX_BITS: u32 = 40;
/// Packet number of the first WQE.
const PSN: u64 = 0x77;
const CQE: u64 = 32;

impl World {
    fn is_bnxt(&self) -> bool {
        self.shape.format == NicFormat::Bnxt
    }

    /// Bytes of a WQE.
    fn wqe_bytes(&self) -> u64 {
        if self.is_bnxt() { 48 } else { 64 }
    }

    fn wqe(&self, index: u64) -> u64 {
        SQ + self.wqe_bytes() * (index & (self.depth() - 1))
    }

    fn log_cq(&self) -> u8 {
        self.shape.log_cq.unwrap_or(0)
    }

    fn packets_of(&self, index: u64) -> u64 {
        PACKETS + 8 * (index & (self.depth() - 1))
    }

    /// The index in the word `reserved`.
    pub(crate) fn index_of(&self, word: u64) -> u64 {
        if self.is_bnxt() { word & ((1 << INDEX_BITS) - 1) } else { word }
    }

    /// The doorbell of a ring of 2^`log` entries of `units` each, at `next`.
    fn bell(&self, (kind, queue, units): (u64, u64, u64), next: u64, log: u8) -> u64 {
        let place = next & ((1 << log) - 1);
        if !self.is_bnxt() {
            return queue << 24 | place;
        }
        kind << 60 | 1 << 58 | queue << 32 | (next >> log & 1) << 24 | (place * units)
    }

    /// How far a doorbell is ahead of `before`.
    fn ahead(
        &self,
        value: u64,
        (kind, queue, units): (u64, u64, u64),
        before: u64,
        log: u8,
    ) -> u64 {
        let depth = 1u64 << log;
        if !self.is_bnxt() {
            require(value >> 24 == queue, "the doorbell names the queue");
            return (value & 0xffff).wrapping_sub(before) & (depth - 1);
        }
        require(value >> 58 == kind << 2 | 1, "the doorbell is valid, and of its kind");
        require(value >> 32 & 0xf_ffff == queue, "the doorbell names the queue");
        require(
            (value & 0xff_ffff).is_multiple_of(units),
            "the doorbell names the beginning of a WQE",
        );
        let place = (value & 0xff_ffff) / units + (value >> 24 & 1) * depth;
        place.wrapping_sub(before) & (2 * depth - 1)
    }

    fn sends(&self) -> (u64, u64, u64) {
        (0, QPN.into(), 3)
    }
    fn completions(&self) -> (u64, u64, u64) {
        (4, CQN, 1)
    }

    /// Makes these queues of mlx5's.
    pub(crate) fn adapt(&self, memory: &mut Vec<Initial>) {
        let start = self.shape.start;
        let replaced = |addr| {
            (SQ..RQ).contains(&addr)
                || (CQ..SCRATCH).contains(&addr)
                || [SENDS.record, SENDS.cq_record, DOORBELL].contains(&addr)
        };
        memory.retain(|initial| !replaced(initial.addr));
        let reserved = memory.iter_mut().find(|initial| initial.addr == SENDS.reserved);
        if let Some(initial) = reserved.filter(|_| self.is_bnxt()) {
            initial.value += PSN << INDEX_BITS;
        }
        memory.push(word(DOORBELL, 8, self.bell(self.sends(), start, self.shape.log_sq)));
        memory.push(word(SENDS.cq_record, 8, self.bell(self.completions(), start, self.log_cq())));
        for index in start..start + self.depth().min(16) {
            let words = (0..self.wqe_bytes()).step_by(8);
            memory.extend(words.map(|at| plain(self.wqe(index) + at, 0)));
            memory.push(word(self.packets_of(index), 8, 0));
        }
        for ci in start..start + (1 << self.log_cq()) {
            let cqe = self.entry(ci);
            memory.extend([word(cqe + 4, 4, 0), word(cqe + 8, 4, 0)]);
            memory.push(word(cqe + 24, 8, self.tail(ci, 0, 0, false)));
        }
    }

    fn entry(&self, ci: u64) -> u64 {
        CQ + CQE * (ci & ((1 << self.log_cq()) - 1))
    }

    /// The last 8 bytes of the CQE at `ci`, of type SEND; as of another lap if it is not `new`.
    fn tail(&self, ci: u64, error: u64, status: u64, new: bool) -> u64 {
        let even = ci >> self.log_cq() & 1 == 0;
        let phase = u64::from(even == new);
        if self.is_bnxt() {
            return phase | status << 8;
        }
        let flags = QPN << 8 | 2 << 5 | (error as u32) << 1 | phase as u32;
        u64::from(flags.to_be()) << 32 | u64::from((status as u32).to_be())
    }
}

/// The NIC.
#[derive(Clone, Copy)]
pub(crate) struct PlainNic {
    world: World,
    /// Everything below has been executed.
    done: u64,
    /// CQEs written.
    producer: u64,
    /// Packet number of the next WQE.
    psn: u64,
    failed: bool,
}

/// A work request as read.
struct Asked {
    reads: bool,
    signalled: bool,
    remote: u64,
    bytes: u64,
    /// Address of the data, or the data.
    data: Result<u64, [u64; 2]>,
}

impl PlainNic {
    pub(crate) fn new(world: World) -> Self {
        let start = world.shape.start;
        Self { world, done: start, producer: start, psn: PSN, failed: false }
    }

    pub(crate) fn run(mut self) {
        note(DONE, self.done);
        loop {
            knows((self.done, self.producer, self.failed));
            // Acquire, pairs with the combiner's release of the doorbell.
            let value = load(DOORBELL, 8, Acquire);
            let shape = self.world.shape;
            let ahead = self.world.ahead(value, self.world.sends(), self.done, shape.log_sq);
            require(ahead <= self.world.depth(), "no more than the ring is announced");
            let rung = shape.stops_at.map_or(self.done + ahead, |at| at.min(self.done + ahead));
            while self.done < rung && !self.failed {
                self.execute();
            }
            pause();
        }
    }

    fn execute(&mut self) {
        let asked = match self.world.is_bnxt() {
            true => self.fetch_bnxt(),
            false => self.fetch_ionic(),
        };
        if self.world.shape.fails_at == Some(self.done) {
            // Remote access error. Nothing behind it is executed or reported.
            self.failed = true;
            let status = if self.world.is_bnxt() { 7 } else { 9 };
            self.complete(1, status);
            return;
        }
        for at in (0..asked.bytes).step_by(8) {
            match asked.data {
                Ok(local) if asked.reads => write(local + at, read(asked.remote + at)),
                Ok(local) => write(asked.remote + at, read(local + at)),
                Err(inline) => write(asked.remote + at, inline[at as usize / 8]),
            }
        }
        self.done += 1;
        note(DONE, self.done);
        if asked.signalled {
            self.complete(0, 0);
        }
    }

    /// Reads the WQE at `done`, plainly: the store that wrote it must be ordered before.
    fn words(&self) -> [u64; 8] {
        let mut words = [0; 8];
        let wqe = self.world.wqe(self.done);
        let used = (0..self.world.wqe_bytes()).step_by(8);
        words.iter_mut().zip(used).for_each(|(word, at)| *word = read(wqe + at));
        words
    }

    fn fetch_bnxt(&mut self) -> Asked {
        let w = self.words();
        let (kind, flags, bytes) = (w[0] & 0xff, w[0] >> 8 & 0xff, w[1] & 0xffff_ffff);
        require(w[0] >> 16 & 0xffff == 3, "a WQE of three slots");
        require([4, 6].contains(&kind), "the NIC knows the type");
        // Relaxed: the doorbell's acquire has ordered it. An old one names another packet.
        let entry = load(self.world.packets_of(self.done), 8, Relaxed);
        let place = 3 * (self.done & (self.world.depth() - 1));
        require(entry & 0xff_ffff == self.psn, "the WQE has the connection's next packet number");
        self.psn += bytes.div_ceil(256).max(1);
        require(entry >> 24 & 0xff_ffff == self.psn, "and as many as its message has packets");
        require(entry >> 48 == place, "the entry is that of the WQE");
        let data = if flags & 0x10 != 0 { Err([w[4], w[5]]) } else { Ok(w[4]) };
        Asked { reads: kind == 6, signalled: flags & 1 != 0, remote: w[2], bytes, data }
    }

    fn fetch_ionic(&self) -> Asked {
        let w = self.words();
        let (opcode, flags) = (w[1] & 0xff, (w[1] >> 16) as u16);
        let flags = flags.swap_bytes();
        require(w[0] == self.done, "the WQE in the slot is the one that was rung");
        let even = self.done >> self.world.shape.log_sq & 1 == 0;
        require((flags & 0x10 != 0) == even, "the WQE has the colour of its lap");
        require([0x21, 0x02].contains(&opcode), "the NIC knows the opcode");
        let bytes = u64::from(((w[3] >> 32) as u32).swap_bytes());
        let data = if flags & 4 != 0 { Err([w[4], w[5]]) } else { Ok(w[4].swap_bytes()) };
        let (reads, signalled) = (opcode == 0x02, flags & 8 != 0);
        Asked { reads, signalled, remote: w[2].swap_bytes(), bytes, data }
    }

    /// Writes the CQE of everything below `done`: body first, the last 8 bytes with release.
    fn complete(&mut self, error: u64, status: u64) {
        let world = self.world;
        // Acquire, pairs with the poller's release of its doorbell: it has read the entry.
        let returned = load(SENDS.cq_record, 8, Acquire);
        let size = 1u64 << world.log_cq();
        let laps = if world.is_bnxt() { 2 * size } else { size };
        let behind = world.ahead(returned, world.completions(), self.producer, world.log_cq());
        let in_use = laps.wrapping_sub(behind) & (laps - 1);
        // Without a lap, a full ring would be told as an empty one.
        require(in_use < laps.min(size) - u64::from(laps == size), "the CQ has room");
        let cqe = world.entry(self.producer);
        match world.is_bnxt() {
            true => store(cqe + 8, 4, self.done & 0xffff, Relaxed),
            false => store(cqe + 4, 4, u64::from((self.done as u32 & 0xff_ffff).to_be()), Relaxed),
        }
        let tail = world.tail(self.producer, error, status, true);
        self.producer += 1;
        store(cqe + 24, 8, tail, Release);
    }
}
