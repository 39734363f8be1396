//! The table of the matrix, and which of its cells are run.

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use std::collections::BTreeSet;

/// Calls that the ranks of a cell make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Put,
    /// By the route that the caller names.
    PutNamed,
    Get,
    PutValue,
    PutSignalAdd,
    PutSignalSet,
    /// Each lane to another rank.
    Scatter,
    SignalEach,
    WaitEach,
    FetchAdd,
    CompareExchange,
    Exchange,
    Barrier,
    Sync,
    /// Single words by mail, round all ranks.
    MailRing,
    /// Messages of all lengths by mail.
    Letters,
    /// Message passing.
    Message,
    /// Transitivity over three ranks.
    Chain,
    /// Many signals behind one fence.
    Fan,
}

const CALLS: [Call; 19] = [
    Call::Put,
    Call::PutNamed,
    Call::Get,
    Call::PutValue,
    Call::PutSignalAdd,
    Call::PutSignalSet,
    Call::Scatter,
    Call::SignalEach,
    Call::WaitEach,
    Call::FetchAdd,
    Call::CompareExchange,
    Call::Exchange,
    Call::Barrier,
    Call::Sync,
    Call::MailRing,
    Call::Letters,
    Call::Message,
    Call::Chain,
    Call::Fan,
];

pub(super) const WORLDS: [u32; 3] = [2, 3, 4];
/// Values of `WARPVERBS_SHMEM_ROUTE`: direct, rdma, mixed.
pub(super) const ROUTES: [&str; 3] = ["direct", "rdma", "rdma:1"];
/// Bytes of calls that move any number of them.
const SIZES: [u64; 9] = [0, 1, 3, 8, 15, 16, 17, 4095, LARGEST];
pub(super) const LARGEST: u64 = (1 << 20) + 5;
/// Of target and source, behind a place that is 16-byte aligned.
const SHIFTS: [(u64, u64); 8] = [(0, 0), (1, 1), (0, 1), (3, 8), (8, 0), (5, 13), (15, 2), (4, 12)];

impl Call {
    /// Sizes that it knows: bytes, words, or the longest message.
    fn sizes(self) -> &'static [u64] {
        match self {
            Self::Put | Self::PutNamed | Self::Get | Self::PutSignalAdd | Self::PutSignalSet => {
                &SIZES
            }
            Self::PutValue => &[1, 4, 8],
            Self::Scatter => &[0, 13, 64],
            Self::FetchAdd | Self::CompareExchange | Self::Exchange => &[4, 8],
            Self::Letters => &[8, 50, 1500],
            Self::Message | Self::Chain | Self::Fan => &[1, 37, 1000],
            _ => &[8],
        }
    }

    /// How many levels each factor has for this call; [`CALLS`] itself is the first factor.
    fn levels(self) -> Row {
        let shifts = if self.sizes().len() == SIZES.len() { SHIFTS.len() } else { 1 };
        // Each lane of its kernel is a caller of its own.
        let groups = if self == Self::Scatter { 1 } else { 3 };
        [CALLS.len(), WORLDS.len(), ROUTES.len(), groups, self.sizes().len(), shifts]
    }
}

/// A level of each factor: call, number of ranks, routes, group, size, misalignment.
type Row = [usize; 6];
/// Two factors with a level each.
type Pair = [(usize, usize); 2];

/// One cell of the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) call: Call,
    pub(super) world: u32,
    pub(super) routes: &'static str,
    /// 0 thread, 1 warp, 2 block.
    pub(super) group: u32,
    pub(super) size: u64,
    pub(super) shifts: (u64, u64),
}

fn is_valid(row: Row) -> bool {
    let call = CALLS[row[0]];
    if !row.iter().zip(call.levels()).all(|(level, levels)| *level < levels) {
        return false;
    }
    call != Call::Chain || cell(row).world > 2
}

fn cell(row: Row) -> Cell {
    let [call, world, routes, group, size, shifts] = row;
    Cell {
        call: CALLS[call],
        world: WORLDS[world],
        routes: ROUTES[routes],
        group: group as u32,
        size: CALLS[call].sizes()[size],
        shifts: SHIFTS[shifts],
    }
}

/// Every row that is one.
fn product() -> impl Iterator<Item = Row> {
    let most = [CALLS.len(), WORLDS.len(), ROUTES.len(), 3, SIZES.len(), SHIFTS.len()];
    let rows = most.into_iter().product();
    (0..rows)
        .map(move |mut index: usize| {
            most.map(|levels| {
                let level = index % levels;
                index /= levels;
                level
            })
        })
        .filter(|&row| is_valid(row))
}

fn pairs(row: Row) -> impl Iterator<Item = Pair> {
    (0..row.len()).flat_map(move |j| (0..j).map(move |i| [(i, row[i]), (j, row[j])]))
}

/// Every cell.
pub(super) fn all() -> Vec<Cell> {
    product().map(cell).collect()
}

/// Cells in which any two levels of two factors meet, if they can, and `more` others, as the seed says.
pub(super) fn chosen(seed: u64, more: usize) -> Vec<Cell> {
    let mut rng = SmallRng::seed_from_u64(seed);
    let rows: Vec<Row> = product().collect();
    let mut missing: BTreeSet<Pair> = rows.iter().copied().flat_map(pairs).collect();
    let mut chosen = Vec::new();
    while let Some(&[a, b]) = missing.first() {
        let fitting: Vec<Row> =
            rows.iter().copied().filter(|row| row[a.0] == a.1 && row[b.0] == b.1).collect();
        // Of a few, the one with most new pairs.
        let some = (0..9).filter_map(|_| fitting.choose(&mut rng).copied());
        let new = |row: &Row| pairs(*row).filter(|pair| missing.contains(pair)).count();
        let best = some.max_by_key(new).expect("one of 9");
        for pair in pairs(best) {
            missing.remove(&pair);
        }
        chosen.push(best);
    }
    chosen.extend((0..more).filter_map(|_| rows.choose(&mut rng)));
    chosen.into_iter().map(cell).collect()
}

#[test]
fn any_two_levels_meet_in_few_cells() {
    let (all, few) = (all(), chosen(7, 0));
    println!("{} of {} cells", few.len(), all.len());
    assert!(few.len() < 300, "{}", few.len());
    // Looked for without the pairs of the choice.
    for a in &all {
        let meet = |what: &str, same: &dyn Fn(&Cell) -> bool| {
            assert!(few.iter().any(same), "{what} of {a:?}");
        };
        meet("call and routes", &|b| (a.call, a.routes) == (b.call, b.routes));
        meet("call and size", &|b| (a.call, a.size) == (b.call, b.size));
        meet("call and ranks", &|b| (a.call, a.world) == (b.call, b.world));
        meet("call and group", &|b| (a.call, a.group) == (b.call, b.group));
        meet("call and misalignment", &|b| (a.call, a.shifts) == (b.call, b.shifts));
        meet("ranks and routes", &|b| (a.world, a.routes) == (b.world, b.routes));
        meet("group and misalignment", &|b| (a.group, a.shifts) == (b.group, b.shifts));
    }
}
