//! Ranks that leave a layer and come back: the next generation.
//!
//! | round | each member | then |
//! |---|---|---|
//! | 1 | has ended its calls; its queue pairs to the others are drained | exchanges settings, generation, last complete call of each channel |
//! | 2 | zeroes its words, sets generation, members and number of the call to go on from | meets the others |
//! | – | gives every member credit, by the usual word | goes on |
//!
//! After round 1 nothing of the last generation is on its way between members, and nobody has begun the next
//! one, so that words may be zeroed. A rank that is no member may still write, in places of its own.

use crate::ep::{agree_on, failure};
use crate::export::Start;
use crate::kernels::ep::{MoeBegin, MoePart, MoeQuiet};
use crate::stage::Turn;
use crate::{Ep, EpError, Export, Regions, Regrouped};
use warpverbs_gpu::Dim;
use warpverbs_rendezvous::World;
use warpverbs_shmem::{Heap, Sym};
use warpverbs_transport::{KernelStatus, Outcome};

/// Bits of an epoch.
const EPOCH_BITS: u32 = 24;

/// One member's message of round 1, in u64: its settings, then these, then a word for each channel.
#[derive(Clone, Copy, Debug)]
struct Standing {
    /// It came back, and knows of no calls.
    is_new: bool,
    generation: u8,
    /// A member that its queue pairs did not reach, plus 1.
    cut_off: u64,
}

impl Ep {
    /// Goes on without some ranks, from which nothing is heard any more: at once, whatever they do. Every other
    /// member calls it, when its own calls have ended, well or not; they may be in different calls. The
    /// first proposal holds if members propose different sets: `members` says which. Ranks may be any.
    ///
    /// # Errors
    /// A member that does not come; or as [`World::regroup`] and [`Heap::regroup`]. It may be called again.
    pub fn exclude(
        &mut self,
        heap: &mut Heap,
        world: &mut World,
        ranks: &[u32],
    ) -> Result<Regrouped, EpError> {
        let members = world.members().iter().copied().filter(|rank| !ranks.contains(rank));
        let members: Vec<_> = members.collect();
        self.regroup(heap, world, &members)
    }

    /// Goes on with ranks that come back: processes that call [`World::rejoin`], [`Heap::create`] and
    /// [`Ep::new`], and make the calls on the heap in between as all did at first. They begin with the
    /// call behind `done`, as all do; [`Ep::last_regroup`] tells them.
    ///
    /// # Errors
    /// As [`Ep::exclude`]. A rank that came back with other settings: all get the same error.
    pub fn admit(
        &mut self,
        heap: &mut Heap,
        world: &mut World,
        ranks: &[u32],
    ) -> Result<Regrouped, EpError> {
        let members: Vec<_> = world.members().iter().chain(ranks).copied().collect();
        self.regroup(heap, world, &members)
    }

    /// Both at once, or neither: with the same members, calls are begun anew after a failure.
    ///
    /// # Errors
    /// As [`Ep::exclude`].
    pub fn regroup(
        &mut self,
        heap: &mut Heap,
        world: &mut World,
        members: &[u32],
    ) -> Result<Regrouped, EpError> {
        world.regroup(members)?;
        self.part(world)?;
        heap.regroup(world)?;
        self.follow(heap, world)
    }

    /// The part of [`Ep::regroup`] between the world's and the heap's: ranks that are no longer members are told that what
    /// they may still read here will be overwritten ([`in_place`](crate::EpConfig::in_place)). Their memory may belong to a process that
    /// has ended.
    ///
    /// # Errors
    /// The device refuses the launch.
    pub fn part(&mut self, world: &World) -> Result<(), EpError> {
        if self.is_new || !self.config.pulled() {
            return Ok(());
        }
        let left = (0..self.ways.ranks)
            .filter(|rank| !world.members().contains(rank))
            .fold(0, |set, rank| set | 1 << rank);
        for slot in &self.channels {
            let ep = slot.channel.device.clone();
            self.gpu.launch(&MoePart { ep, left }, Dim::new(1, 64), self.deadline)?.wait()?;
        }
        Ok(())
    }

    /// The part of [`Ep::regroup`] that comes after the world's and the heap's: where a heap has several layers,
    /// these follow one after another, in the same order on all members.
    ///
    /// # Errors
    /// As [`Ep::exclude`].
    pub fn follow(&mut self, heap: &mut Heap, world: &mut World) -> Result<Regrouped, EpError> {
        if !world.view().newcomers().is_empty() {
            heap.agree(world)?;
        }
        self.export_again(heap)?;
        let mut members = 0u64;
        world.members().iter().for_each(|rank| members |= 1 << rank);
        let standing = Standing {
            is_new: self.is_new,
            generation: self.generation,
            cut_off: self.drain(heap, world)?,
        };
        let mut mine: Vec<u64> = self.config.fields().iter().map(|(_, value)| *value).collect();
        mine.extend([standing.is_new.into(), standing.generation.into(), standing.cut_off]);
        for slot in &self.channels {
            mine.push(slot.channel.ended(&*self.gpu)?.into());
        }
        let mine: Vec<u8> = mine.into_iter().flat_map(u64::to_le_bytes).collect();
        let all = world.exchange("expert parallelism: standing", &mine)?;
        let (generation, done) = self.settle(world, &all)?;
        for (slot, &epoch) in self.channels.iter().zip(&done) {
            slot.channel.start(&*self.gpu, Start { epoch, generation, members })?;
        }
        self.places.iter().try_for_each(|place| self.zero_words(heap, place))?;
        world.barrier("expert parallelism: ready")?;
        (self.generation, self.is_new) = (generation, false);
        for slot in &mut self.channels {
            slot.turn = Turn::DispatchSend;
            slot.status.clear()?;
            let (ep, status) = (slot.channel.device.clone(), slot.status.pointer());
            self.gpu.launch(&MoeBegin { ep, status }, Dim::new(1, 64), self.deadline)?.wait()?;
            if let Err(outcome) = Outcome::of(slot.status.read()?) {
                return Err(failure(heap, outcome, 0)?);
            }
        }
        let regrouped = Regrouped { generation, members: world.members().to_vec(), done };
        self.last = Some(regrouped.clone());
        Ok(regrouped)
    }

    /// The result of the last regroup, or of this rank's coming back.
    pub fn last_regroup(&self) -> Option<&Regrouped> {
        self.last.as_ref()
    }

    /// The channels on the tables that the heap has now.
    fn export_again(&mut self, heap: &Heap) -> Result<(), EpError> {
        let regions = Regions::new(&self.config, self.ways, 0);
        for (slot, place) in self.channels.iter_mut().zip(&self.places) {
            let export = Export {
                config: &self.config,
                ways: self.ways,
                rank: self.rank,
                heap: heap.device(),
                offset: place.offset(),
                regions: &regions,
                epoch: 0,
                generation: 0,
            };
            slot.channel = export.upload_again(&*self.gpu, &slot.channel)?;
        }
        Ok(())
    }

    /// Waits until nothing of this rank is on its way to the members that stayed. The first that its
    /// queue pairs do not reach, plus 1; else 0.
    fn drain(&self, heap: &Heap, world: &World) -> Result<u64, EpError> {
        if !self.ways.staged || self.is_new {
            return Ok(0);
        }
        for &rank in world.members() {
            if world.view().newcomers().contains(&rank) {
                continue;
            }
            let status = KernelStatus::new(&self.gpu)?;
            let kernel = MoeQuiet { heap: heap.device(), rank, status: status.pointer() };
            self.gpu.launch(&kernel, Dim::new(1, 32), self.deadline)?.wait()?;
            if Outcome::of(status.read()?).is_err() {
                return Ok(u64::from(rank) + 1);
            }
        }
        Ok(0)
    }

    /// The next generation, and the last call of each channel that all had ended.
    fn settle(&self, world: &World, all: &[Vec<u8>]) -> Result<(u8, Vec<u32>), EpError> {
        let fields = self.config.fields().len();
        let expected = 8 * (fields + 3 + self.channels.len());
        let mut settings = Vec::new();
        let (mut generation, mut done) = (0, vec![None::<u32>; self.channels.len()]);
        for &rank in world.members() {
            let bytes = &all[rank as usize];
            let found = bytes.len();
            if found != expected {
                return Err(EpError::Version { rank, found, expected });
            }
            let words: Vec<u64> =
                bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
            settings.push((rank, words[..fields].to_vec()));
            let [is_new, theirs, cut_off] = [0, 1, 2].map(|at| words[fields + at]);
            if cut_off != 0 {
                return Err(EpError::CutOff { rank, to: cut_off as u32 - 1 });
            }
            if is_new != 0 {
                continue;
            }
            generation = generation.max(theirs as u8);
            for (least, word) in done.iter_mut().zip(&words[fields + 3..]) {
                let epoch = *word as u32;
                let before =
                    |least: u32| (epoch.wrapping_sub(least) << (32 - EPOCH_BITS)) as i32 <= 0;
                if least.is_none_or(before) {
                    *least = Some(epoch);
                }
            }
        }
        agree_on(&self.config, &settings)?;
        let done = done.into_iter().map(Option::unwrap_or_default).collect();
        Ok((generation.checked_add(1).unwrap_or(1), done))
    }

    /// No rank's words of this channel say anything.
    fn zero_words(&self, heap: &Heap, place: &Sym<u64>) -> Result<(), EpError> {
        let regions = Regions::new(&self.config, self.ways, 0);
        for region in [&regions.announced, &regions.arrived, &regions.returned] {
            let words = place.slice(region.start / 8, (region.end - region.start) / 8)?;
            heap.write(&words, &vec![0; (region.end - region.start) as usize])?;
        }
        Ok(())
    }
}
