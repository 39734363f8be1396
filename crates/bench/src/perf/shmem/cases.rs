//! The rows of `perf shmem`.

use clap::ValueEnum;

/// A group of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Table {
    /// Messages between two ranks, there and back
    Exchange,
    /// Single calls with what makes sure that they are done
    Calls,
    /// Bandwidth by number of blocks
    Stream,
    /// Barriers of all ranks
    Barrier,
    /// Making a heap, and its growth beside a running kernel
    Life,
}

/// Settings that are alike at all ranks.
pub(super) struct Plan {
    pub(super) iters: u32,
    pub(super) warmup: u32,
    pub(super) transfers: u32,
    pub(super) bytes: u64,
    /// Whether ranks 0 and 1 reach each other by loads and stores.
    pub(super) direct: bool,
    /// Whether a thread of the device has copies of its own (bulk), for which a block lends shared memory.
    pub(super) bulk: bool,
    pub(super) on_host: bool,
}

/// Threads that make a call together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    Thread = 0,
    Warp = 1,
    Block = 2,
}

impl Group {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Thread => "thread",
            Self::Warp => "warp",
            Self::Block => "block",
        }
    }
}

/// `Exchange` of `crates/test-kernels/kernels/shm_perf.cu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    Signal = 0,
    PutSignal = 1,
    Mail = 2,
    Batch = 3,
    /// `put_value` of 8 bytes.
    Value = 4,
    /// A mail of 8 bytes from and to registers.
    Word = 5,
    /// `put_through` and a signal, by one thread.
    Through = 6,
}

/// Bytes of the `put_signal` that the bare machine's rows are about.
pub(super) const SMALL: u32 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Put,
    Get,
    FetchAdd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Case {
    Exchange {
        message: Message,
        group: Group,
        threads: u32,
        bytes: u32,
    },
    Call {
        call: Call,
        group: Group,
        threads: u32,
        bytes: u32,
    },
    Stream {
        gets: bool,
        blocks: u32,
        threads: u32,
    },
    /// `put_signal` and the wait for it by one thread of rank 0 that is its own peer: what the executor
    /// of the host takes for one side.
    Own,
    /// A cache line between two threads of rank 0's host, there and back.
    Line,
    /// Puts by one thread of each block.
    Through {
        blocks: u32,
    },
    Meet {
        light: bool,
        group: Group,
        threads: u32,
    },
}

impl Case {
    pub(super) fn is_stream(&self) -> bool {
        matches!(self, Self::Stream { .. } | Self::Through { .. })
    }

    pub(super) fn lent(&self) -> u32 {
        match *self {
            Self::Through { .. } => STREAM_LENT,
            // As much as the message, and the words in front of the tiles.
            Self::Exchange { message: Message::Through, bytes, .. } => bytes + 128,
            _ => 0,
        }
    }
}

/// Lent to the thread that streams: more was not faster on an H200.
const STREAM_LENT: u32 = 96 << 10;

/// Kernels by RDMA take more registers.
const RDMA_THREADS: u32 = 128;

impl Table {
    pub(super) const ALL: [Self; 5] =
        [Self::Exchange, Self::Calls, Self::Stream, Self::Barrier, Self::Life];

    pub(super) fn cases(self, plan: &Plan) -> Vec<Case> {
        match self {
            Self::Exchange => exchanges(plan),
            Self::Calls => calls(),
            Self::Stream => streams(plan),
            Self::Barrier => {
                let groups = [(Group::Thread, 1), (Group::Warp, 32), (Group::Block, 256)];
                let meet =
                    |light| groups.map(|(group, threads)| Case::Meet { light, group, threads });
                [meet(false), meet(true)].concat()
            }
            // Not a kernel's: see `life`.
            Self::Life => Vec::new(),
        }
    }
}

fn exchanges(plan: &Plan) -> Vec<Case> {
    use Group::{Block, Thread, Warp};
    use Message::{Batch, Mail, PutSignal, Signal, Through, Value, Word};
    let rows = [
        (Word, Thread, 1, 8),
        (Word, Warp, 32, 8),
        (Mail, Warp, 32, 4096),
        (Mail, Block, 128, 1 << 10),
        (Mail, Block, 512, 4 << 10),
        (Mail, Block, 512, 16 << 10),
        (Mail, Block, 768, 64 << 10),
        (Signal, Thread, 1, 0),
        (Value, Thread, 1, 8),
        (PutSignal, Thread, 1, 8),
        (PutSignal, Warp, 32, 8),
        (PutSignal, Warp, 32, 4 << 10),
        (PutSignal, Warp, 32, 16 << 10),
        (Through, Warp, 32, 16 << 10),
        (PutSignal, Block, 512, 16 << 10),
        (PutSignal, Block, 512, 64 << 10),
        (Batch, Warp, 32, 8),
    ];
    let mut cases: Vec<Case> = Vec::new();
    for (message, group, threads, bytes) in rows {
        if message == Through && !(plan.direct && plan.bulk) {
            continue;
        }
        let (group, threads) = if plan.direct { (group, threads) } else { (Block, RDMA_THREADS) };
        let case = Case::Exchange { message, group, threads, bytes };
        // By RDMA, rows that differ only in who calls are one.
        if !cases.contains(&case) {
            cases.push(case);
        }
    }
    if plan.on_host && plan.direct {
        cases.extend([Case::Own, Case::Line]);
    }
    cases
}

fn calls() -> Vec<Case> {
    use Call::{FetchAdd, Get, Put};
    use Group::{Block, Thread, Warp};
    [
        (Put, Thread, 1, 8),
        (Put, Warp, 32, 4 << 10),
        (Put, Block, 256, 64 << 10),
        (Get, Thread, 1, 8),
        (Get, Warp, 32, 4 << 10),
        (Get, Block, 256, 64 << 10),
        (FetchAdd, Thread, 1, 8),
    ]
    .map(|(call, group, threads, bytes)| Case::Call { call, group, threads, bytes })
    .to_vec()
}

fn streams(plan: &Plan) -> Vec<Case> {
    let blocks: &[u32] = if plan.on_host { &[1, 2] } else { &[1, 2, 4, 8, 16, 32, 64, 128] };
    let threads = if plan.on_host { 64 } else { 512 };
    let of = |gets| blocks.iter().map(move |&blocks| Case::Stream { gets, blocks, threads });
    let through: &[u32] = if plan.direct && plan.bulk { &[1, 2, 8] } else { &[] };
    let through = through.iter().filter(|&&count| count <= blocks[blocks.len() - 1]);
    let through = through.map(|&blocks| Case::Through { blocks });
    of(false).chain(of(true)).chain(through).collect()
}
