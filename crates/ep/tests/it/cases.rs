//! Layers with random sizes, routing and rows, run by all ranks in one launch and compared with the
//! reference.

use crate::case::{Case, Routing};
use crate::data::{Inputs, Outputs};
use crate::ranks::{Pace, Ranks, Routes, pointer};
use rand::rngs::SmallRng;
use rand::{Rng, RngExt, SeedableRng};
use warpverbs::gpu::{Buffer, DeviceStatus, Dim, KernelPtr, Place};
use warpverbs::transport::Outcome;
use warpverbs_ep::reference::{self, Batch};
use warpverbs_ep::{Channel, Export, Regions, Start};
use warpverbs_gpu::layout::EpWord;
use warpverbs_test_kernels::ep as k;
use zerocopy::IntoBytes;

/// Where a channel begins in the heap, and how many bytes behind each region nobody uses.
const OFFSET: u64 = 512;
const GUARD: u64 = 192;

/// Ranks of one process with heaps that are large enough.
pub(crate) fn bed(world: u32, bytes: u64, routes: Routes, pace: Pace) -> Ranks {
    Ranks::new(world, bytes.next_multiple_of(1 << 12), routes, pace)
}

/// A case that is ready to run.
pub(crate) struct Layers {
    pub(crate) ranks: Ranks,
    pub(crate) case: Case,
    pub(crate) inputs: Inputs,
    pub(crate) regions: Regions,
    channels: Vec<Channel>,
    generation: u8,
    before: Vec<Vec<u8>>,
    /// Where in the heap experts' outputs lie, if they do.
    outputs_at: u64,
}

/// How it ended, by rank.
pub(crate) struct Ended {
    pub(crate) status: Vec<Result<(), Outcome>>,
    /// Missing and unanswered ranks.
    pub(crate) absent: Vec<[u64; 2]>,
    pub(crate) outputs: Outputs,
}

impl Layers {
    pub(crate) fn new(case: Case, pace: Pace, rng: &mut SmallRng) -> Self {
        let inputs = Inputs::random(&case, rng);
        let regions = Regions::new(&case.config, case.ways(), GUARD);
        let outputs_at = match regions.outputs.is_empty() {
            true => (OFFSET + regions.bytes() + GUARD).next_multiple_of(256),
            false => OFFSET + regions.outputs.start,
        };
        let each = if case.in_place { case.capacity() * 2 * case.hidden as usize } else { 0 };
        let all = (outputs_at + u64::from(case.calls) * each as u64)
            .max(OFFSET + regions.bytes() + GUARD);
        let ranks = bed(case.ranks, all, case.routes, pace);
        let generation = rng.random();
        let words = |rank: u32, memory: &mut [u8]| {
            for region in [&regions.announced, &regions.arrived, &regions.returned] {
                memory[(OFFSET + region.start) as usize..(OFFSET + region.end) as usize].fill(0);
                for from in 0..case.ranks {
                    // The route's half of each signal.
                    let half = if case.routes.direct(from, rank) { 0 } else { 8 };
                    let word = EpWord::new(0, case.epoch, generation).0.to_le_bytes();
                    let line = OFFSET + region.start + u64::from(from) * regions.line;
                    for lane in 0..u64::from(case.ways().lanes) {
                        let at = (line + 16 * lane + half) as usize;
                        memory[at..at + 8].copy_from_slice(&word);
                    }
                }
            }
        };
        let mut before = Vec::new();
        for rank in 0..case.ranks {
            let mut memory = vec![0; ranks.memory[rank as usize].len()];
            rng.fill_bytes(&mut memory);
            words(rank, &mut memory);
            let calls = if case.pulled() { 1 } else { case.calls as usize };
            for call in 0..if case.in_place { calls } else { 0 } {
                let outputs = &inputs.outputs(&case, call)[rank as usize];
                let at = outputs_at as usize + call * each;
                memory[at..at + each].copy_from_slice(outputs.as_bytes());
            }
            ranks.fill(rank, 0, &memory);
            before.push(memory);
        }
        let channels = Vec::new();
        let mut layers =
            Self { ranks, case, inputs, regions, channels, generation, before, outputs_at };
        layers.channels =
            (0..layers.case.ranks).map(|rank| layers.channel(rank, generation)).collect();
        layers
    }

    fn channel(&self, rank: u32, generation: u8) -> Channel {
        let Self { ranks, case, regions, .. } = self;
        let (config, ways, epoch) = (&case.config, case.ways(), case.epoch);
        let (offset, heap) = (OFFSET, ranks.heaps[rank as usize].clone());
        let export = Export { config, ways, rank, heap, offset, regions, epoch, generation };
        export.upload(&*ranks.gpu).expect("a channel")
    }

    /// Of one rank, another than the words in the heaps have.
    pub(crate) fn set_generation(&mut self, rank: u32, generation: u8) {
        self.channels[rank as usize] = self.channel(rank, generation);
    }

    /// The last call of a rank that counts as ended.
    pub(crate) fn last_ended(&self, rank: u32) -> u32 {
        self.channels[rank as usize].ended(&*self.ranks.gpu).expect("a state")
    }

    /// All ranks but one are in another generation than it, and without it: the words in their heaps too. What
    /// is in its heap looks as if all had sent it rows in its next call.
    pub(crate) fn exclude(&mut self, away: u32) {
        let (old, new) = (self.generation, self.generation.wrapping_add(1));
        let members = (u64::MAX >> (64 - self.case.ranks)) & !(1 << away);
        let epoch = self.case.epoch;
        for rank in (0..self.case.ranks).filter(|rank| *rank != away) {
            let start = Start { epoch, generation: new, members };
            self.channels[rank as usize].start(&*self.ranks.gpu, start).expect("a start");
            let returned = self.regions.returned.clone();
            (0..self.case.ranks).for_each(|from| {
                self.set_word(rank, returned.start, from, EpWord::new(0, epoch, new));
            });
        }
        let next = (epoch + 1) & 0xff_ffff;
        for from in (0..self.case.ranks).filter(|from| *from != away) {
            let (announced, arrived) = (self.regions.announced.start, self.regions.arrived.start);
            self.set_word(away, announced, from, EpWord::new(self.case.tokens, next, old));
            // Rank-major words say how many rows there are, too.
            let rows = self.case.tokens << 8;
            let value = rows | self.case.ways().lanes;
            self.set_word(away, arrived, from, EpWord::new(value, next, old));
        }
    }

    /// The words of `from` in a rank's heap.
    fn set_word(&mut self, rank: u32, region: u64, from: u32, word: EpWord) {
        let half = if self.case.routes.direct(from, rank) { 0 } else { 8 };
        let line = OFFSET + region + u64::from(from) * self.regions.line;
        for lane in 0..u64::from(self.case.ways().lanes) {
            self.ranks.fill(rank, line + 16 * lane + half, &word.0.to_le_bytes());
        }
    }

    fn buffer(&self, bytes: &[u8]) -> Buffer {
        let buffer = self.ranks.gpu.alloc(bytes.len().max(16), Place::Shared).expect("memory");
        self.ranks.gpu.write(&buffer, 0, bytes).expect("write");
        buffer
    }

    pub(crate) fn members(&self) -> KernelPtr<k::EpMember> {
        let member = |channel: &Channel| k::EpMember { ep: channel.device.clone() };
        let members: Vec<_> = self.channels.iter().map(member).collect();
        KernelPtr::upload(&*self.ranks.gpu, &members).expect("members")
    }

    pub(crate) fn run(&self) -> Ended {
        let Self { case, inputs, .. } = self;
        let input = |bytes: &[u8]| self.buffer(bytes);
        let (counts, rows) = (input(inputs.counts.as_bytes()), input(inputs.rows.as_bytes()));
        let (experts, weights) =
            (input(inputs.experts.as_bytes()), input(inputs.weights.as_bytes()));
        let (scales, outputs) = (input(inputs.scales.as_bytes()), input(inputs.outputs.as_bytes()));
        let zero = Outputs::zero(case);
        let packed_scale = input(zero.scales.as_bytes());
        let (packed, of_token) = (input(zero.packed.as_bytes()), input(zero.tokens.as_bytes()));
        let (of_expert, bases) = (input(zero.counts.as_bytes()), input(zero.bases.as_bytes()));
        let (ranges, sums) = (input(zero.ranges.as_bytes()), input(zero.sums.as_bytes()));
        let [absent, status] = [16, 4].map(|each| input(&vec![0; each * case.ranks as usize]));
        let kernel = k::EpLayers {
            members: self.members(),
            ranks: case.ranks,
            blocks: case.dim.0,
            calls: case.calls,
            stops: case.stops.0,
            at: case.stops.1,
            lags: case.lags.0,
            lag_ns: case.lags.1,
            timeout_ns: case.timeout_ns,
            hidden: case.hidden,
            top_k: case.top_k,
            tokens: case.tokens,
            local: case.local(),
            given: case.words()[0],
            into: case.words()[1],
            scaled: case.scaled(),
            capacity: case.capacity() as u32,
            room: case.scale_room() as u32,
            inputs: case.capacity() as u32,
            in_heap_at: if case.in_place { self.outputs_at } else { 0 },
            in_memory: case.in_memory.into(),
            stores: case.stores.into(),
            counts: pointer(&counts),
            rows: pointer(&rows),
            scales: pointer(&scales),
            experts: pointer(&experts),
            weights: pointer(&weights),
            packed: pointer(&packed),
            packed_scale: pointer(&packed_scale),
            of_token: pointer(&of_token),
            of_expert: pointer(&of_expert),
            bases: pointer(&bases),
            ranges: pointer(&ranges),
            outputs: pointer(&outputs),
            sums: pointer(&sums),
            absent: pointer(&absent),
            status: pointer(&status),
        };
        let ended = self.ranks.run_kernel(&kernel, Dim::new(case.ranks * case.dim.0, case.dim.1));
        ended.unwrap_or_else(|e| panic!("{case:?}, {}: {e}", self.ranks.what));
        let read = |buffer: &Buffer| self.ranks.read(buffer);
        let sized = |buffer: &Buffer, len: usize| read(buffer)[..len].to_vec();
        let status = words32(&sized(&status, 4 * case.ranks as usize)).into_iter();
        let words = words64(&read(&absent));
        Ended {
            status: status.map(|code| Outcome::of(DeviceStatus(code))).collect(),
            absent: words.as_chunks().0[..case.ranks as usize].to_vec(),
            outputs: Outputs {
                packed: words16(&sized(&packed, 2 * zero.packed.len())),
                scales: words32(&sized(&packed_scale, 4 * zero.scales.len())),
                tokens: words32(&sized(&of_token, 4 * zero.tokens.len())),
                counts: words32(&sized(&of_expert, 4 * zero.counts.len())),
                bases: words32(&sized(&bases, 4 * zero.bases.len())),
                ranges: words64(&sized(&ranges, 8 * zero.ranges.len())),
                sums: words16(&sized(&sums, 2 * zero.sums.len())),
            },
        }
    }

    /// Everything is as the reference says, and no byte outside of the regions has changed.
    pub(crate) fn check(&self, ended: &Ended) {
        let Self { case, ranks, .. } = self;
        let what = format!("{case:?}, {}", ranks.what);
        for (rank, status) in ended.status.iter().enumerate() {
            let expected = match case.routing {
                Routing::Wrong => Err(Outcome::BadRouting),
                _ => Ok(()),
            };
            // By chance nothing may be wrong in a rank's routing.
            let right = *status == expected || (case.routing == Routing::Wrong && status.is_ok());
            let health = || ranks.endpoints.iter().map(|e| e.health().unwrap().to_string());
            assert!(
                right,
                "rank {rank}: {:?}, absent {:?}, {:?}; {what}\n{}",
                ended.status,
                ended.absent,
                ranks.fault(rank),
                health().collect::<Vec<_>>().join("\n")
            );
            assert_eq!(ended.absent[rank], [0, 0], "rank {rank}; {what}");
        }
        let expected = Outputs::expected(case, &self.inputs);
        compare("counts", &expected.counts, &ended.outputs.counts, &what);
        compare("bases", &expected.bases, &ended.outputs.bases, &what);
        compare("ranges", &expected.ranges, &ended.outputs.ranges, &what);
        compare("tokens", &expected.tokens, &ended.outputs.tokens, &what);
        compare("packed rows", &expected.packed, &ended.outputs.packed, &what);
        compare("packed scales", &expected.scales, &ended.outputs.scales, &what);
        compare("sums", &expected.sums, &ended.outputs.sums, &what);
        self.check_received(&what);
        self.check_canaries(&what);
    }

    /// As [`Layers::check`], of the sums of all ranks but one that stopped in the last call, without what its
    /// experts would have given. `silent`: it did not say how many rows it had.
    pub(crate) fn check_without(&self, ended: &Ended, stopped: u32, silent: bool) {
        let Self { case, inputs, ranks, .. } = self;
        let (what, last) = (format!("{case:?}, {}", ranks.what), case.calls as usize - 1);
        let mut batches = inputs.batches(case, last);
        let full = reference::dispatch(&case.config, case.ways(), &batches);
        let none = Batch::default();
        if silent {
            batches[stopped as usize] = none;
        }
        let dispatched = match silent {
            true => reference::dispatch(&case.config, case.ways(), &batches),
            false => full,
        };
        batches[stopped as usize] = none;
        let gone = case.config.experts_of(case.ranks, stopped);
        let left = |batch: &Batch<'_>| {
            let lost = |expert: &i32| gone.contains(&(*expert as u32));
            batch.experts.iter().map(|e| if lost(e) { -1 } else { *e }).collect::<Vec<_>>()
        };
        let experts: Vec<_> = batches.iter().map(left).collect();
        for (batch, experts) in batches.iter_mut().zip(&experts) {
            batch.experts = experts;
        }
        let (config, outputs) = (&case.config, inputs.outputs(case, last));
        let sums = reference::combine(config, case.ways(), &batches, &dispatched, &outputs);
        for (rank, sums) in sums.iter().enumerate() {
            let start = (last * case.ranks as usize + rank) * (case.tokens * case.hidden) as usize;
            let found = &ended.outputs.sums[start..][..sums.len()];
            compare("sums", sums, found, &format!("rank {rank} without {stopped}; {what}"));
        }
        self.check_canaries(&what);
    }

    /// The rows of the last call as they lie in the heap.
    fn check_received(&self, what: &str) {
        let Self { case, regions, .. } = self;
        let batches = self.inputs.batches(case, case.calls as usize - 1);
        let dispatched = reference::dispatch(&case.config, case.ways(), &batches);
        for (rank, dispatched) in dispatched.iter().enumerate() {
            let memory = self.ranks.bytes(rank as u32);
            for (source, rows) in dispatched.rows.iter().enumerate() {
                for (slot, row) in rows.iter().enumerate() {
                    let number = (source * case.tokens as usize + slot) as u64;
                    let at = (OFFSET + regions.rows.start + number * regions.row_bytes) as usize;
                    let bytes = &memory[at..][..regions.row_bytes as usize];
                    let (header, payload) = bytes.split_at(regions.header_bytes as usize);
                    let (payload, scales) = payload.split_at(2 * row.row.len());
                    let routes = case.routes;
                    // Results have taken the places of rows that NICs sent back.
                    let replaced = regions.back_bytes == regions.row_bytes
                        && !routes.direct(rank as u32, source as u32);
                    let place = format!("row {slot} from {source} at {rank}, {what}");
                    assert!(replaced || words16(payload) == row.row, "{place}");
                    let words = row.scales.len();
                    assert_eq!(words32(&scales[..4 * words]), row.scales, "{place}");
                    assert_eq!(words32(header)[0], row.token, "{place}");
                    assert_eq!(words64(header)[1], row.ranks, "{place}");
                    let k = case.top_k as usize;
                    let experts = row.experts.iter().map(|e| *e as u32).collect::<Vec<_>>();
                    assert_eq!(words32(header)[4..4 + k], experts, "{place}");
                    let weights = row.weights.iter().map(|w| w.to_bits()).collect::<Vec<_>>();
                    assert_eq!(words32(header)[4 + k..4 + 2 * k], weights, "{place}");
                }
            }
        }
    }

    pub(crate) fn check_canaries(&self, what: &str) {
        for (rank, before) in self.before.iter().enumerate() {
            let mut now = self.ranks.bytes(rank as u32);
            for region in self.regions.all() {
                let range = (OFFSET + region.start) as usize..(OFFSET + region.end) as usize;
                now[range.clone()].copy_from_slice(&before[range]);
            }
            compare("bytes outside of the regions", before, &now, &format!("rank {rank}; {what}"));
        }
    }
}

fn compare<T: PartialEq + std::fmt::Debug>(name: &str, expected: &[T], found: &[T], what: &str) {
    let wrong = expected.iter().zip(found).position(|(e, f)| e != f);
    if let Some(at) = wrong {
        panic!("{name} at {at}: {:?}, expected {:?}; {what}", found[at], expected[at]);
    }
    assert_eq!(expected.len(), found.len(), "{name}; {what}");
}

pub(crate) fn words16(bytes: &[u8]) -> Vec<u16> {
    bytes.as_chunks().0.iter().map(|word| u16::from_le_bytes(*word)).collect()
}

pub(crate) fn words32(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
}

fn words64(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

/// A case under a seed, which also says what is chosen at random.
pub(crate) fn under_seed(seed: u64, case: impl FnOnce(&mut SmallRng) -> Case) -> Layers {
    at_pace(Pace::Seeded(seed), seed, case)
}

/// The same at another pace.
pub(crate) fn at_pace(pace: Pace, seed: u64, case: impl FnOnce(&mut SmallRng) -> Case) -> Layers {
    let mut rng = SmallRng::seed_from_u64(seed);
    let case = case(&mut rng);
    Layers::new(case, pace, &mut rng)
}
