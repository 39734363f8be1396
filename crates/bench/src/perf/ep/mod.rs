//! `perf ep`: dispatch and combine by kernels, each call beside the least that it can take on this
//! machine. Ranks are threads of this process, or processes of a launcher.

mod load;
mod plan;
mod rank;
mod row;

use crate::busy::Watch;
use crate::output::{Bound, Finding, Measured};
use crate::perf::shmem::{self, Yardsticks};
use crate::rig::machine::on_host;
use crate::rig::plan::{check_warmup, within};
use crate::rig::ranks::{Ranks, setting};
use crate::units;
use anyhow::{Context as _, Result};
use clap::Args;
use load::Load;
use plan::{Back, By, Case, Elements, LIMIT, Loop, Sizes};
use rank::Rank;
use row::EpRow;
use warpverbs::ep::EpConfig;
use warpverbs::gpu::{Dim, GpuInfo, Opened};
use warpverbs::rendezvous::{World, WorldConfig};
use warpverbs::shmem::RoutePolicy;
use warpverbs::transport::Device;

/// Options of `perf ep`.
#[derive(Args, Clone, Debug)]
pub(crate) struct EpArgs {
    #[command(flatten)]
    ranks: Ranks,
    /// Routes between ranks: auto, direct, rdma, or rdma:1,3 for those of some ranks
    #[arg(long, default_value = "auto")]
    route: RoutePolicy,
    /// Tokens of each rank, a row for each [default: 1,8,32,128,512,4096; 1,8 on the host]
    #[arg(long, value_delimiter = ',')]
    tokens: Option<Vec<u32>>,
    /// Elements of a token, a multiple of 8 [default: 7168; 256 on the host]
    #[arg(long)]
    hidden: Option<u32>,
    /// Experts of a token, 1 to 32
    #[arg(long, default_value_t = 8)]
    top_k: u32,
    /// Experts of all ranks [default: 64 for each rank; 8 on the host]
    #[arg(long)]
    experts: Option<u32>,
    /// Where received rows lie
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [By::Expert, By::Rank])]
    layout: Vec<By>,
    /// Elements of the rows of a dispatch
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Elements::Bf16])]
    payload: Vec<Elements>,
    /// Rows that come back
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Back::Reduced])]
    combine: Vec<Back>,
    /// In rank-major layout results lie outside the heap and are stored at their tokens' ranks, which else read
    /// them where they are
    #[arg(long)]
    outside: bool,
    /// Blocks of a rank's launch, a row for each [default: one for each of its share of
    /// multiprocessors; 2 on the host]
    #[arg(long, value_delimiter = ',')]
    blocks: Option<Vec<u32>>,
    /// Threads of a block [default: 256; 64 on the host]
    #[arg(long)]
    threads: Option<u32>,
    /// Measured calls of each row [default: 200; 5 on the host]
    #[arg(short = 'n', long)]
    iters: Option<u32>,
    /// The same, before measuring
    #[arg(short = 'w', long, default_value_t = 10)]
    warmup: u32,
    /// Seed of tokens and routing [default: a random one]
    #[arg(long)]
    seed: Option<u64>,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

impl EpArgs {
    fn check(&self) -> Result<()> {
        check_warmup(self.warmup)?;
        within("-n", self.iters.unwrap_or(1).into(), 1, 10_000)?;
        for &tokens in self.tokens.iter().flatten() {
            within("--tokens", tokens.into(), 1, 1 << 16)?;
        }
        within("--hidden", self.hidden.unwrap_or(8).into(), 8, 1 << 14)?;
        for &blocks in self.blocks.iter().flatten() {
            within("--blocks", blocks.into(), 1, 4096)?;
        }
        within("--threads", self.threads.unwrap_or(32).into(), 32, 1024)?;
        Ok(())
    }

    /// Cases for `ranks` ranks, of which `sharing` have the same device; the same on all ranks of equal
    /// devices.
    fn cases(&self, info: &GpuInfo, ranks: u32, sharing: u32) -> Vec<Case> {
        let on_host = on_host(info);
        let pick = |few, value| if on_host { few } else { value };
        let hidden = self.hidden.unwrap_or(pick(256, 7168));
        let experts = self.experts.unwrap_or(ranks * pick(8, 64));
        let share = pick(2, info.sm_count / sharing.max(1)).max(1);
        let blocks = self.blocks.clone().unwrap_or_else(|| vec![share]);
        let threads = self.threads.unwrap_or(pick(64, 256));
        let usual: &[u32] = if on_host { &[1, 8] } else { &[1, 8, 32, 128, 512, 4096] };
        let tokens = self.tokens.as_deref().unwrap_or(usual);
        let mut cases = Vec::new();
        for (&elements, &by) in
            self.payload.iter().flat_map(|one| self.layout.iter().map(move |by| (one, by)))
        {
            for &back in &self.combine {
                // Rank-major has one combine.
                if by == By::Rank && back != self.combine[0] {
                    continue;
                }
                for &tokens in tokens {
                    let sizes = Sizes { tokens, hidden, top_k: self.top_k, experts };
                    let dims = blocks.iter().map(|&blocks| Dim::new(blocks, threads));
                    cases.extend(dims.map(|dim| Case {
                        elements,
                        by,
                        back,
                        outside: self.outside,
                        sizes,
                        dim,
                    }));
                }
            }
        }
        cases
    }
}

pub(crate) fn run(args: &EpArgs) -> Result<()> {
    args.check()?;
    let seed = match args.seed {
        Some(seed) => seed,
        None => getrandom::u64().context("a random seed")?,
    };
    let args = &EpArgs { seed: Some(seed), ..args.clone() };
    args.ranks.run("perf ep", LIMIT, |config, opened, nic| one_rank(args, config, opened, nic))
}

/// Settings that all ranks share: rank 0's seed, and how many ranks share the most shared device.
fn agree(world: &mut World, args: &EpArgs, info: &GpuInfo) -> Result<(u64, u32)> {
    let seed = world.exchange("seed", &args.seed.unwrap_or(0).to_le_bytes())?.swap_remove(0);
    let seed = u64::from_le_bytes(seed.try_into().ok().context("rank 0's seed")?);
    let mine = info.uuid.clone().unwrap_or_default();
    let all = world.exchange("devices", mine.as_bytes())?;
    let sharing = |one: &Vec<u8>| all.iter().filter(|other| *other == one).count() as u32;
    Ok((seed, all.iter().map(sharing).max().unwrap_or(1)))
}

/// All rows, as one rank; rank 0 prints.
fn one_rank(args: &EpArgs, config: &WorldConfig, opened: Opened, nic: &Device) -> Result<()> {
    let info = opened.gpu.info().clone();
    let setting = setting(&opened, nic);
    let on_host = on_host(&info);
    let looped = Loop {
        // Blocks read what other blocks of the rank have unpacked, in the first call perhaps before.
        warmup: args.warmup.max(1),
        iters: args.iters.unwrap_or(if on_host { 5 } else { 200 }),
    };
    let number = config.rank;
    let watch = Watch::start();
    let mut world = World::join(config)?;
    let ranks = world.world_size();
    let (seed, sharing) = agree(&mut world, args, &info)?;
    let cases = args.cases(&info, ranks, sharing);
    let (world, yardsticks) = shmem::yardsticks(world, &opened.gpu, nic)?;
    let configs: Vec<EpConfig> = cases.iter().map(Case::config).collect();
    let gathered = cases.iter().map(|case| gathered(case, ranks)).max().unwrap_or(0);
    let rank = Rank::join(world, opened.gpu, nic, args.route.clone(), (&configs, gathered), looped);
    let mut rank = rank.with_context(|| format!("rank {number}"))?;
    // They are of loads and stores.
    let yardsticks = yardsticks.filter(|_| !rank.ways().staged);
    let mut rows = Vec::new();
    let end = cases.iter().try_for_each(|case| {
        let row = measure(&mut rank, case, seed, yardsticks.as_ref());
        rows.extend(row.with_context(|| case.name())?);
        Ok(())
    });
    let (first, route) = (rank.is_first(), rank.route());
    rank.leave(end.as_ref().err());
    if !first {
        return end;
    }
    let mut notes = vec![
        format!("{ranks} ranks, {sharing} on a device, route {route}, seed {seed:#x}"),
        DEFINITIONS.to_owned(),
    ];
    notes.extend(on_host.then(|| "times are those of this machine's CPU".to_owned()));
    notes.extend(yardsticks.as_ref().map(describe));
    notes.extend(rows.iter().map(EpRow::phases));
    notes.extend(enough_blocks(&rows));
    let findings = if on_host || sharing > 1 { Vec::new() } else { findings(&rows, ranks) };
    let measured = Measured::new("perf ep", setting, rows).noting(notes).with(findings);
    measured.watched(&watch).print_up_to(end, args.json)
}

const DEFINITIONS: &str = "times: from the first block's begin to the last block's end on a rank's own clock, \
    ranks aligned by a barrier before, the slowest rank of each call; L2 as the calls before leave it. pair: \
    calls in a row without barriers. wire: bytes that leave a rank for others, headers and scales too. algo: rows of \
    all choices with their scales, the own rank's too, as DeepEP counts. bound: 2.8 µs, half a flag's round trip, and the wire bytes \
    at the rate of the peer copy. All in resident kernels, without launches.";

fn describe(yardsticks: &Yardsticks) -> String {
    let Yardsticks { copy_bytes_per_s, flag_ns } = *yardsticks;
    format!(
        "yardsticks of this run: peer copy by stores {}, flag there and back {}",
        units::rate(copy_bytes_per_s),
        units::nanos(flag_ns)
    )
}

/// Bytes that a rank gives to an all-gather of the rows of a case, with headers.
fn gathered_by_one(case: &Case) -> u64 {
    u64::from(case.sizes.tokens) * case.moved_row_bytes()
}

/// Of the heap, with what it brings.
fn gathered(case: &Case, ranks: u32) -> u64 {
    (u64::from(ranks) + 1) * (gathered_by_one(case) + 512)
}

fn measure(
    rank: &mut Rank,
    case: &Case,
    seed: u64,
    yardsticks: Option<&Yardsticks>,
) -> Result<Option<EpRow>> {
    let load = Load::new(seed, case.sizes, rank.ways().ranks);
    let figures = rank.measure(case, &load)?;
    let gather = rank.gather(gathered_by_one(case), case.dim)?;
    let row = EpRow::new(case, &figures, load.moved(), yardsticks, gather);
    Ok(row.filter(|_| rank.is_first()))
}

/// Of rows that differ in their blocks alone: the fewest that reach 90 % of the best rate.
fn enough_blocks(rows: &[EpRow]) -> Vec<String> {
    let mut notes = Vec::new();
    for group in rows.chunk_by(|a, b| a.is_same_but_for_blocks(b)) {
        if group.len() < 2 {
            continue;
        }
        let enough = |time: fn(&EpRow) -> u64| {
            let best = group.iter().map(time).min().unwrap_or(0) as f64;
            let good = group.iter().filter(|row| time(row) as f64 * 0.9 <= best);
            good.map(|row| row.blocks).min().unwrap_or(0)
        };
        let [dispatch, combine] =
            [enough(|row| row.dispatch.time.p50_ns), enough(|row| row.back.time.p50_ns)];
        notes.push(format!(
            "{}: 90 % of the best rate with {dispatch} multiprocessors (blocks) for dispatch, {combine} for combine",
            group[0].name()
        ));
    }
    notes
}

/// The wanted figures, on two GPUs with a link between them.
fn findings(rows: &[EpRow], ranks: u32) -> Vec<Finding> {
    let mut found = Vec::new();
    for row in rows {
        let name = row.name();
        for (what, part) in [("dispatch", &row.dispatch), ("combine", &row.back)] {
            let us = part.time.p50_ns as f64 / 1e3;
            let over = |most| (format!("{name}: {what} over its bound"), part.over_bound, most);
            let (what, value, most) = match row.tokens {
                1 => (format!("{name}: µs of {what}"), Some(us), 6.0),
                128 => over(1.5),
                4096 => over(1.2),
                _ => continue,
            };
            found.extend(value.map(|value| Finding::new(what, value, Bound::AtMost(most))));
        }
        if ranks == 4 && row.tokens == 128 {
            let megabytes = row.channel_bytes as f64 / 1e6;
            found.push(Finding::new(
                format!("{name}: MB of a channel"),
                megabytes,
                Bound::AtMost(20.0),
            ));
        }
    }
    found
}
