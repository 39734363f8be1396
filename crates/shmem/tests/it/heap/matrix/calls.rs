//! The calls of the table: launches of this rank, and their effects on all ranks' bytes.

use super::cells::{Call, Cell};
use super::rank::{BOXES, COUNTS, DIM, HALF, LITMUS_WORDS, Part, SIGNALS, THREADS, WORDS};
use crate::calls::{AT_LEAST, Move, WAIT, Wait, put_value, signal_each};
use rand::RngExt;
use warpverbs_gpu::KernelPtr;
use warpverbs_shmem::layout::NO_RANK;
use warpverbs_test_kernels::{shm as k, shm_litmus as l, shm_mail as m};

/// Whether a rank reaches another directly, as the table says: the test's own idea of it.
fn direct(routes: &str, from: u32, to: u32) -> bool {
    match routes {
        "direct" => true,
        "rdma" => from == to,
        _ => from == to || (from != 1 && to != 1),
    }
}

/// Which half of a signal a rank's adds and sets go to.
fn half(cell: &Cell, from: u32, to: u32) -> u64 {
    if direct(cell.routes, from, to) { 0 } else { 8 }
}

impl Part {
    /// All ranks do this at once.
    pub(super) fn cell(&mut self, cell: &Cell) {
        let turn = self.rng.random_range(0..self.world());
        match cell.call {
            Call::Put | Call::PutNamed | Call::Get | Call::PutSignalAdd | Call::PutSignalSet => {
                self.moves(cell, turn);
            }
            Call::PutValue => self.put_value(cell, turn),
            Call::Scatter => self.scatter(cell),
            Call::SignalEach => self.signal_each(cell),
            Call::WaitEach => self.wait_each(cell),
            Call::FetchAdd => self.fetch_add(cell, turn),
            Call::CompareExchange | Call::Exchange => self.exchange(cell, turn),
            Call::Barrier | Call::Sync => self.barrier(cell),
            Call::MailRing => self.mail_ring(cell),
            Call::Letters => self.letters(cell, turn),
            Call::Message | Call::Chain | Call::Fan => self.litmus(cell, turn),
        }
        self.check(cell);
    }

    /// Every rank moves bytes between itself and the rank `turn` behind it.
    fn moves(&mut self, cell: &Cell, turn: u32) {
        let (me, world, bytes) = (self.me(), self.world(), cell.size);
        let slot = SIGNALS + 16 * self.rng.random_range(0..16);
        let (pe, target, source, value) = self.model_moves(cell, turn, slot);
        let (group, to, from) = (cell.group, self.at(target), self.at(source));
        let moved = Move { group, to, from, bytes, pe };
        match cell.call {
            Call::Put => self.run(cell, DIM, moved.put()),
            Call::PutNamed => {
                let route = if direct(cell.routes, me, pe) { 1 } else { 2 };
                self.run(cell, DIM, moved.put_by(route));
            }
            Call::Get => self.run(cell, DIM, moved.get()),
            _ => {
                let set = cell.call == Call::PutSignalSet;
                self.run(cell, DIM, moved.put_signal(self.at(slot), set, value));
                self.wait_sum(cell, slot, (me + world - turn) % world);
            }
        }
    }

    /// Applies all ranks' moves to the model: this rank's peer, target, source and signal value.
    fn model_moves(&mut self, cell: &Cell, turn: u32, slot: u64) -> (u32, u64, u64, u64) {
        let (me, world, bytes) = (self.me(), self.world(), cell.size);
        let mut mine = None;
        for from in 0..world {
            let pe = (from + turn) % world;
            let mut place = |base: u64, shift: u64| {
                base + 16 * self.rng.random_range(0..=(HALF - shift - bytes) / 16) + shift
            };
            let (target, source) = (place(0, cell.shifts.0), place(HALF, cell.shifts.1));
            let value = self.rng.random();
            let (reader, writer) = if cell.call == Call::Get { (pe, from) } else { (from, pe) };
            self.model.copy((reader, source), (writer, target), bytes);
            let word = slot + half(cell, from, pe);
            match cell.call {
                Call::PutSignalAdd => self.model.add(pe, word, value),
                Call::PutSignalSet => self.model.store(pe, word, &value.to_le_bytes()),
                _ => {}
            }
            if from == me {
                mine = Some((pe, target, source, value));
            }
        }
        mine.expect("this rank is one of them")
    }

    /// Waits until the own signal is what the model says.
    fn wait_sum(&self, cell: &Cell, slot: u64, from: u32) {
        let word = |at| self.model.word(self.me(), at, 8);
        let (group, signal) = (cell.group, self.at(slot));
        let value = word(slot).wrapping_add(word(slot + 8));
        self.run(cell, DIM, Wait { group, signal, value, from, ..WAIT }.kernel());
    }

    fn put_value(&mut self, cell: &Cell, turn: u32) {
        let (me, world, width) = (self.me(), self.world(), cell.size);
        for from in 0..world {
            let (pe, value) = ((from + turn) % world, self.rng.random::<u64>());
            let target = width * self.rng.random_range(0..HALF / width);
            self.model.store(pe, target, &value.to_le_bytes()[..width as usize]);
            if from == me {
                let to = self.at(target);
                self.run(cell, DIM, put_value(cell.group, to, (value, width as u32), pe));
            }
        }
    }

    /// Each thread of each rank puts to the rank of its number, into a part of its own.
    fn scatter(&mut self, cell: &Cell) {
        let (me, world, bytes) = (self.me(), self.world(), cell.size);
        let (slot, each) = (SIGNALS, THREADS as u64 * bytes);
        for (from, thread) in
            (0..world).flat_map(|from| (0..THREADS as u64).map(move |t| (from, t)))
        {
            let (pe, at) = ((thread % u64::from(world)) as u32, u64::from(from) * each);
            let (target, source) = (at + thread * bytes, HALF + thread * bytes);
            self.model.copy((from, source), (pe, target), bytes);
            self.model.add(pe, slot + half(cell, from, pe), 1);
        }
        let (to, from) = (self.at(u64::from(me) * each), self.at(HALF));
        let signal = self.at(slot);
        self.run(cell, DIM, |heap, status| k::ShmScatter { heap, to, from, bytes, signal, status });
        self.wait_sum(cell, slot, NO_RANK);
    }

    /// Everybody signals everybody, one of many signals each.
    fn signal_each(&mut self, cell: &Cell) {
        let (me, world) = (self.me(), self.world());
        let slot = |pe: u32| SIGNALS + 16 * u64::from(pe);
        for from in 0..world {
            let value = self.rng.random();
            for pe in 0..world {
                self.model.add(pe, slot(pe) + half(cell, from, pe), value);
            }
            if from == me {
                let call = signal_each(cell.group, self.at(SIGNALS), value, (0, world));
                self.run(cell, DIM, call);
            }
        }
        self.wait_sum(cell, slot(me), NO_RANK);
    }

    /// Everybody waits for a signal of each rank.
    fn wait_each(&mut self, cell: &Cell) {
        let (me, world, group) = (self.me(), self.world(), cell.group);
        self.counted += 1;
        for (from, pe) in (0..world).flat_map(|from| (0..world).map(move |pe| (from, pe))) {
            let at = COUNTS + 16 * u64::from(from);
            self.model.add(pe, at + half(cell, from, pe), 1);
            if from == me {
                self.run(cell, DIM, signal_each(group, self.at(at), 1, (pe, 1)));
            }
        }
        let (signal, value) = (self.at(COUNTS), self.counted);
        self.run(cell, DIM, |heap, status| k::ShmWaitEach {
            heap,
            group,
            signal,
            count: world,
            how: AT_LEAST,
            value,
            ns: 0,
            from: NO_RANK,
            status,
        });
    }

    /// The values that each thread, or the group, saw before its atomic.
    fn atomic(
        &self,
        cell: &Cell,
        what: u32,
        (at, pe): (u64, u32),
        (first, second): (u64, u64),
    ) -> Vec<u64> {
        let olds = self.buffer(8 * THREADS);
        let (group, width, at) = (cell.group, cell.size as u32, self.at(at));
        self.run(cell, DIM, |heap, status| k::ShmAtomic {
            heap,
            group,
            what,
            width,
            at,
            first,
            second,
            pe,
            olds: KernelPtr::new(&olds),
            status,
        });
        let mut bytes = vec![0; 8 * callers(cell)];
        self.rank.gpu.read(&olds, 0, &mut bytes).unwrap();
        words(&bytes)
    }

    /// All threads of all ranks add to one word: together they see every multiple once.
    fn fetch_add(&mut self, cell: &Cell, target: u32) {
        let mask = u64::MAX >> (64 - 8 * cell.size);
        let at = WORDS + 8 * self.rng.random_range(0..16);
        let step = self.rng.random::<u64>() & mask | 1;
        let start = self.model.word(target, at, cell.size);
        let own = self.atomic(cell, 0, (at, target), (step, 0));
        let own: Vec<u8> = own.into_iter().flat_map(u64::to_le_bytes).collect();
        let all = self.rank.world.exchange("olds", &own).unwrap().concat();
        let mut seen = words(&all);
        seen.sort_unstable();
        let count = u64::from(self.world()) * callers(cell) as u64;
        let after = |i: u64| start.wrapping_add(i.wrapping_mul(step)) & mask;
        let mut expected: Vec<_> = (0..count).map(after).collect();
        expected.sort_unstable();
        assert_eq!(seen, expected, "{cell:?}");
        self.model.store(target, at, &after(count).to_le_bytes()[..cell.size as usize]);
    }

    /// Every rank exchanges a word of the rank `turn` behind it.
    fn exchange(&mut self, cell: &Cell, turn: u32) {
        let (me, world, width) = (self.me(), self.world(), cell.size as usize);
        let mask = u64::MAX >> (64 - 8 * cell.size);
        let at = WORDS + 8 * self.rng.random_range(0..16);
        for from in 0..world {
            let (pe, new) = ((from + turn) % world, self.rng.random::<u64>() & mask);
            let (old, hits) = (self.model.word(pe, at, cell.size), self.rng.random());
            let compares = cell.call == Call::CompareExchange;
            let stored = !compares || hits;
            if stored {
                self.model.store(pe, at, &new.to_le_bytes()[..width]);
            }
            if from != me {
                continue;
            }
            let expected = if hits { old } else { old ^ 1 };
            let mut seen = match compares {
                true => self.atomic(cell, 1, (at, pe), (expected, new)),
                false => self.atomic(cell, 2, (at, pe), (new, 0)),
            };
            // One caller saw the old word; the others what that one left.
            let left = if stored { new } else { old };
            let first = seen.iter().position(|word| *word == old);
            seen.remove(
                first.unwrap_or_else(|| panic!("{cell:?}: nobody saw {old:#x}: {seen:x?}")),
            );
            assert!(seen.iter().all(|word| *word == left), "{cell:?}: {left:#x}: {seen:x?}");
        }
    }

    fn barrier(&mut self, cell: &Cell) {
        let (group, size) = (cell.group, self.world());
        let (team_block, words) = (self.team.block().offset(), self.rows.offset());
        self.none_wrong(cell, |heap, wrong, status| m::ShmBarrier {
            members: self.members(m::Member { heap }),
            group,
            team_block,
            first: 0,
            stride: 1,
            size,
            words,
            rounds: 3,
            light: u32::from(cell.call == Call::Sync),
            wrong,
            status,
        });
    }

    fn members<M: warpverbs_gpu::KernelArg>(&self, own: M) -> KernelPtr<M> {
        KernelPtr::upload(&*self.rank.gpu, &[own]).unwrap()
    }

    fn mail_ring(&mut self, cell: &Cell) {
        let (group, ring) = (cell.group, self.ring.offset());
        self.none_wrong(cell, |heap, wrong, status| m::ShmRound {
            members: self.members(m::Member { heap }),
            group,
            r#box: ring,
            rounds: 7,
            wrong,
            status,
        });
    }

    /// From the rank of number `turn` to the next one, by mail_recv and mail_try_recv in turns.
    fn letters(&mut self, cell: &Cell, turn: u32) {
        let index = BOXES.iter().position(|(bytes, _)| u64::from(*bytes) == cell.size).unwrap();
        let ((bytes, log_slots), block) = (BOXES[index], self.boxes[index].offset());
        let (count, skip) = (11, self.sent[index][turn as usize]);
        let (desk, receiver) = (self.desk.offset(), (turn + 1) % self.world());
        self.none_wrong(cell, |heap, wrong, status| m::ShmLetters {
            members: self.members(m::Member { heap }),
            sender: turn,
            receiver,
            group: cell.group,
            r#box: block,
            bytes,
            log_slots: log_slots.into(),
            log_period: 4,
            desk,
            count,
            skip,
            look: u32::from(skip % 2 == 0),
            wrong,
            status,
        });
        self.sent[index][turn as usize] += u64::from(count);
    }

    fn litmus(&mut self, cell: &Cell, turn: u32) {
        assert!(2 * cell.size <= LITMUS_WORDS);
        self.heap.write(&self.litmus_signal, &[0; 16]).unwrap();
        // Nobody signals before all are at zero.
        self.rank.meet();
        let (group, words, rounds) = (cell.group, cell.size, 4);
        let (data, signal_at) = (self.litmus.offset(), self.litmus_signal.offset());
        match cell.call {
            Call::Message => self.none_wrong(cell, |heap, wrong, status| l::ShmMessage {
                members: self.members(l::Member { heap }),
                turn,
                group,
                data,
                words,
                signal_at,
                rounds,
                wrong,
                status,
            }),
            Call::Chain => self.none_wrong(cell, |heap, wrong, status| l::ShmChain {
                members: self.members(l::Member { heap }),
                turn,
                group,
                data,
                words,
                signal_at,
                rounds,
                wrong,
                status,
            }),
            _ => self.none_wrong(cell, |heap, wrong, status| l::ShmFan {
                members: self.members(l::Member { heap }),
                turn,
                group,
                data,
                words,
                signal_at,
                wrong,
                status,
            }),
        }
    }
}

/// How many do an atomic in one launch of one rank.
fn callers(cell: &Cell) -> usize {
    if cell.group == 0 { THREADS } else { 1 }
}

fn words(bytes: &[u8]) -> Vec<u64> {
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
    bytes.chunks_exact(8).map(word).collect()
}
