//! Measurements that the user asked for, checked before anything is set up.

use super::memory::Mem;
use crate::rig::plot::Output;
use crate::units::{self, parse_size};
use anyhow::{Result, ensure};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::str::FromStr;
use std::time::Duration;
use warpverbs::agent::{CopyBy, Op, PathKind};

/// Options of a measurement.
#[derive(Args, Clone, Debug)]
pub(crate) struct MeasureArgs {
    /// Directions of transfers; exchange: kernels of both ends put a block and raise a counter,
    /// there and back, by one thread and by a warp
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Way::Write, Way::Read])]
    ops: Vec<Way>,
    /// Lists: SIZE of a block, or SIZExCOUNT (K, M, G are powers of 1024)
    #[arg(
        short = 's',
        long,
        value_delimiter = ',',
        default_value = "8,4K,64K,1M,16M,4Kx256,4Kx4096"
    )]
    shapes: Vec<Shape>,
    /// Memory at both ends, or here:there. host: bytes of the process; shared: host memory that
    /// others can map; pinned: host memory for the GPU; gpu: the GPU's, by its virtual memory
    /// management; malloc: the GPU's, by cudaMalloc
    #[arg(short = 'm', long = "mem", value_delimiter = ',', default_value = "host,shared")]
    memory: Vec<Pair>,
    /// Where the blocks of a list lie: adjacent ones become one piece; scattered ones have no
    /// neighbour in common
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Layout::Scattered])]
    layouts: Vec<Layout>,
    /// Threads here, each with a transfer of its own
    #[arg(short = 't', long, value_delimiter = ',', default_values_t = [1])]
    threads: Vec<u32>,
    /// Seconds for each row
    #[arg(short = 'D', long, default_value_t = 0.2)]
    seconds: f64,
    /// Transfers of each thread and row, in place of a time
    #[arg(short = 'n', long, conflicts_with = "seconds")]
    iters: Option<u64>,
    /// Transfers of each thread and row before measuring
    #[arg(short = 'w', long, default_value_t = 5)]
    warmup: u64,
    /// Lists that are made to measure what making them takes
    #[arg(long, default_value_t = 20)]
    makes: u32,
    /// Only this path may be taken
    #[arg(long, value_parser = named(&PATHS))]
    pub(super) require: Option<PathKind>,
    /// How bytes are copied between memories that are mapped
    #[arg(long, value_parser = named(&COPIES), default_value = "auto")]
    pub(super) copy_by: CopyBy,
    /// Blocks of threads of a copy by a kernel at most
    #[arg(long)]
    pub(super) kernel_blocks: Option<u32>,
    /// Queue pairs of the network path
    #[arg(short = 'q', long, default_value_t = 2)]
    pub(super) queue_pairs: usize,
    #[command(flatten)]
    pub(super) output: Output,
}

/// The work of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Way {
    /// Transfers of lists to the peer.
    Write,
    /// Transfers of lists from the peer.
    Read,
    /// Kernels of both ends put a block and raise a counter, there and back.
    Exchange,
}

impl Way {
    /// As transfers say it.
    pub(super) fn op(self) -> Option<Op> {
        match self {
            Self::Write => Some(Op::Write),
            Self::Read => Some(Op::Read),
            Self::Exchange => None,
        }
    }
}

/// Paths that can be asked for, and ways to copy.
const PATHS: [(&str, PathKind); 4] = [
    ("mapped", PathKind::Mapped),
    ("process-copy", PathKind::ProcessCopy),
    ("network", PathKind::Network),
    ("tcp", PathKind::Tcp),
];
const COPIES: [(&str, CopyBy); 3] =
    [("auto", CopyBy::Auto), ("kernel", CopyBy::Kernel), ("engine", CopyBy::Engine)];

/// Reads one of these names.
fn named<T: Copy + Send + Sync + 'static>(
    all: &'static [(&'static str, T)],
) -> impl TypedValueParser<Value = T> {
    let names = PossibleValuesParser::new(all.iter().map(|(name, _)| *name));
    names.try_map(|found| {
        let of = all.iter().find(|(name, _)| *name == found);
        of.map(|(_, value)| *value).ok_or("no such name")
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Layout {
    Adjacent,
    Scattered,
}

impl Layout {
    /// Which of `count` blocks at the peer goes with each of those here.
    pub(super) fn order(self, count: u64) -> Vec<u64> {
        match self {
            Self::Adjacent => (0..count).collect(),
            Self::Scattered => {
                // About the golden section: coprime to the count, so every block has its turn, and
                // no two that follow one another do so at the peer.
                let step = (count as f64 * 0.618) as u64;
                let coprime = |step: &u64| gcd(*step, count) == 1 && (*step != 1 || count < 3);
                let step = (step.max(1)..count).find(coprime).unwrap_or(1);
                (0..count).map(|i| (i * step + 1) % count).collect()
            }
        }
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// A number of blocks, and the bytes of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) bytes: u64,
    pub(super) count: u64,
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (bytes, count) = match text.split_once('x') {
            Some((bytes, count)) => {
                (bytes, count.parse().map_err(|_| format!("{count:?} blocks"))?)
            }
            None => (text, 1),
        };
        let bytes = parse_size(bytes)?;
        let total = bytes.saturating_mul(count);
        match bytes > 0 && (1..=1 << 20).contains(&count) && total <= MOST {
            true => Ok(Self { bytes, count }),
            false => {
                let most = units::bytes(MOST);
                Err(format!(
                    "{text}: expected 1 to 2^20 blocks, at least a byte each, up to {most}"
                ))
            }
        }
    }
}

/// Memory here and at the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) here: Mem,
    pub(super) there: Mem,
}

impl FromStr for Pair {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (here, there) = text.split_once(':').unwrap_or((text, text));
        Ok(Self { here: Mem::from_str(here, true)?, there: Mem::from_str(there, true)? })
    }
}

/// Memory that one end registers at most, bytes.
pub(super) const MOST: u64 = 4 << 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) way: Way,
    pub(super) shape: Shape,
    pub(super) layout: Layout,
    pub(super) threads: u32,
}

impl Case {
    /// Bytes of the list of one thread.
    pub(super) fn span(&self) -> u64 {
        self.shape.bytes * self.shape.count
    }

    pub(super) fn total(&self) -> u64 {
        match self.way {
            // Those of both ends.
            Way::Exchange => 2 * self.span(),
            _ => self.span() * u64::from(self.threads),
        }
    }
}

/// A checked request.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) pairs: Vec<Pair>,
    pub(super) cases: Vec<Case>,
    pub(super) amount: Amount,
    pub(super) warmup: u64,
    pub(super) makes: u32,
}

/// How much each thread does in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Amount {
    Transfers(u64),
    Time(Duration),
}

impl MeasureArgs {
    /// Checks everything that can be checked without a server.
    pub(super) fn plan(&self) -> Result<Plan> {
        let (seconds, makes) = (self.seconds, self.makes);
        ensure!(seconds > 0.0 && seconds <= 60.0, "-D is {seconds}, expected up to 60 seconds");
        ensure!((1..=10_000).contains(&makes), "--makes is {makes}, expected 1 to 10000");
        ensure!(self.warmup <= 1_000_000, "-w is {}, expected up to 1000000", self.warmup);
        let amount = match self.iters {
            Some(iters) => {
                ensure!((1..=10_000_000).contains(&iters), "-n is {iters}, expected 1 to 10000000");
                Amount::Transfers(iters)
            }
            None => Amount::Time(Duration::from_secs_f64(seconds)),
        };
        let mut cases = self.exchanges()?;
        for &threads in &self.threads {
            ensure!((1..=64).contains(&threads), "-t is {threads}, expected 1 to 64");
            for &way in self.ops.iter().filter(|way| way.op().is_some()) {
                for &shape in &self.shapes {
                    // Of one block there is only one layout.
                    let layouts =
                        if shape.count == 1 { &[Layout::Adjacent] } else { &*self.layouts };
                    cases.extend(layouts.iter().map(|&layout| Case {
                        way,
                        shape,
                        layout,
                        threads,
                    }));
                }
            }
        }
        for case in &cases {
            let (total, most) = (units::bytes(case.total()), units::bytes(MOST));
            ensure!(
                case.total() <= MOST,
                "{:?} and -t {} take {total}, expected up to {most}",
                case.shape,
                case.threads
            );
        }
        let pairs = self.memory.clone();
        Ok(Plan { pairs, cases, amount, warmup: self.warmup, makes })
    }

    /// Of blocks by a thread and by a warp.
    fn exchanges(&self) -> Result<Vec<Case>> {
        if !self.ops.contains(&Way::Exchange) {
            return Ok(Vec::new());
        }
        let mut cases = Vec::new();
        for &shape in &self.shapes {
            let good = shape.count == 1 && shape.bytes.is_multiple_of(16) || shape.bytes == 8;
            ensure!(good, "{shape:?}: exchange takes one block, of 8 bytes or a multiple of 16");
            let (way, layout) = (Way::Exchange, Layout::Adjacent);
            cases.extend([1, 32].map(|threads| Case { way, shape, layout, threads }));
        }
        Ok(cases)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scattered_blocks_are_a_permutation_in_which_no_two_stay_neighbours() {
        for count in (1..200).chain([256, 4096, 6720, 1 << 16]) {
            let order = Layout::Scattered.order(count);
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert!(sorted.iter().copied().eq(0..count), "{count}");
            // Of three blocks in a ring every order has neighbours.
            let together = order.windows(2).filter(|two| two[0] + 1 == two[1]).count();
            assert!(together == 0 || count == 3, "{count}: {order:?}");
        }
    }

    #[test]
    fn shapes_and_pairs_are_read_or_refused_with_what_was_expected() {
        assert_eq!("4Kx256".parse(), Ok(Shape { bytes: 4096, count: 256 }));
        assert_eq!("1M".parse(), Ok(Shape { bytes: 1 << 20, count: 1 }));
        for bad in ["0", "8x0", "8xmany", "4Gx2", "x4", "18446744073709551615x3"] {
            assert!(bad.parse::<Shape>().is_err(), "{bad}");
        }
        let mixed = Pair { here: Mem::Host, there: Mem::Gpu };
        assert_eq!("host:gpu".parse(), Ok(mixed));
        assert_eq!("gpu".parse::<Pair>().map(|pair| pair.there), Ok(Mem::Gpu));
        assert!("host:disk".parse::<Pair>().unwrap_err().contains("disk"));
    }
}
