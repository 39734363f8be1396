//! Batches of moves, executed in one of several ways and completed in order.

use super::{AreaId, AreaOffset, Move, Shape, Ticket, UnpackError, UnpackWay};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use warpverbs_gpu::{Buffer, CopyRing, Gpu, RangeCopy};
use warpverbs_mem::{Kind, Pending, Progress, copy};

/// Settings of an [`Unpacker`].
#[derive(Clone, Copy, Debug)]
pub struct UnpackConfig {
    /// The way that moves the bytes.
    pub way: UnpackWay,
    /// Descriptors of the ring, 16 bytes each; a move needs one for each 16 KiB, and one more.
    pub entries: u32,
    /// How the kernel is launched.
    pub shape: Shape,
    /// A kernel that takes longer has failed.
    pub deadline: Duration,
}

impl Default for UnpackConfig {
    fn default() -> Self {
        let (way, shape) = (UnpackWay::Auto, Shape::default());
        Self { way, entries: 1 << 16, shape, deadline: Duration::from_secs(10) }
    }
}

/// From this average size of a move on, the copy engine is as fast as a kernel and leaves the
/// device's processors to others. A copy costs the driver some 10 µs.
const LARGE: u64 = 1 << 20;

/// Work of a batch that is in flight.
enum Work {
    Done,
    Copies(Vec<Pending>),
    /// Its number in the ring.
    Kernel(u64),
}

/// Moves bytes between areas of memory.
pub struct Unpacker {
    gpu: Arc<dyn Gpu>,
    config: UnpackConfig,
    areas: Vec<Option<Buffer>>,
    /// Made by the first batch that a kernel moves.
    ring: Option<CopyRing>,
    in_flight: VecDeque<Work>,
    submitted: u64,
    failed: bool,
}

impl Unpacker {
    /// On `gpu`, without areas.
    pub fn new(gpu: Arc<dyn Gpu>, config: UnpackConfig) -> Self {
        let (areas, in_flight) = (Vec::new(), VecDeque::new());
        Self { gpu, config, areas, ring: None, in_flight, submitted: 0, failed: false }
    }

    /// Makes an area of memory that kernels of the device reach: its own, or host memory that it
    /// allocated or mapped.
    pub fn add(&mut self, memory: Buffer) -> AreaId {
        let free = self.areas.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.areas.push(None);
            self.areas.len() - 1
        });
        self.areas[index] = Some(memory);
        AreaId(index as u32)
    }

    /// Forgets an area. Batches in flight keep its memory alive. The number will be used again.
    pub fn remove(&mut self, area: AreaId) -> Option<Buffer> {
        self.areas.get_mut(area.0 as usize)?.take()
    }

    /// The memory of an area.
    pub fn area(&self, area: AreaId) -> Option<&Buffer> {
        self.areas.get(area.0 as usize)?.as_ref()
    }

    /// Which way a batch takes: never [`UnpackWay::Auto`].
    ///
    /// # Errors
    /// A move is not inside of areas.
    pub fn way_for(&self, moves: &[Move]) -> Result<UnpackWay, UnpackError> {
        Ok(choose(self.config.way, &resolve(&self.areas, moves)?))
    }

    /// Starts a batch of moves. Moves are in no order, neither within a batch nor between batches in
    /// flight; sources must not change and destinations must not be used until the ticket is
    /// complete.
    ///
    /// # Errors
    /// Nothing has been started: a move is not inside of areas, or the ring is full.
    pub fn submit(&mut self, moves: &[Move]) -> Result<Ticket, UnpackError> {
        if self.failed {
            return Err(UnpackError::Failed);
        }
        let moves = resolve(&self.areas, moves)?;
        let work = match choose(self.config.way, &moves) {
            _ if moves.is_empty() => Work::Done,
            UnpackWay::Kernel => {
                let ring = match &mut self.ring {
                    Some(ring) => ring,
                    none => none.insert(CopyRing::new(self.gpu.clone(), self.config.entries)?),
                };
                let (shape, info) = (self.config.shape, self.gpu.info());
                let shape = |count| shape.launch(count, info.sm_count, info.warp_size);
                Work::Kernel(ring.copy(&moves, shape, self.config.deadline)?)
            }
            UnpackWay::CopyEngine => copy_each(&moves)?,
            UnpackWay::Host | UnpackWay::Auto => through_host(&*self.gpu, &moves)?,
        };
        self.in_flight.push_back(work);
        self.submitted += 1;
        Ok(Ticket(self.submitted))
    }

    /// The newest ticket that is complete, and all before it; `Ticket(0)` if none is. Never blocks.
    ///
    /// # Errors
    /// A batch failed. Nothing can be submitted any more.
    pub fn completed(&mut self) -> Result<Ticket, UnpackError> {
        while let Some(work) = self.in_flight.front_mut() {
            match work.is_done(self.ring.as_mut()) {
                Ok(true) => self.in_flight.pop_front(),
                Ok(false) => break,
                Err(error) => {
                    self.failed = true;
                    return Err(error);
                }
            };
        }
        Ok(Ticket(self.submitted - self.in_flight.len() as u64))
    }

    /// Waits until `ticket` is complete.
    ///
    /// # Errors
    /// It is not after `timeout`, or a batch failed.
    pub fn wait(&mut self, ticket: Ticket, timeout: Duration) -> Result<(), UnpackError> {
        let start = Instant::now();
        while self.completed()? < ticket {
            if start.elapsed() > timeout {
                return Err(UnpackError::Timeout { after: timeout });
            }
            warpverbs_mem::pause();
        }
        Ok(())
    }
}

/// The buffers of moves, if they are inside of them.
fn resolve<'a>(
    areas: &'a [Option<Buffer>],
    moves: &[Move],
) -> Result<Vec<RangeCopy<'a>>, UnpackError> {
    let find = |index: usize, len: u64, AreaOffset { area, offset }: AreaOffset| {
        let Some(buffer) = areas.get(area.0 as usize).and_then(Option::as_ref) else {
            return Err(UnpackError::NoArea { index, area });
        };
        let size = buffer.len();
        let inside = offset.checked_add(len).is_some_and(|end| end <= size as u64);
        match inside {
            true => Ok((buffer, offset)),
            false => Err(UnpackError::Outside { index, area, offset, len, size }),
        }
    };
    let both = moves.iter().enumerate().map(|(index, &Move { from, to, len })| {
        let ((from, from_offset), (to, to_offset)) =
            (find(index, len, from)?, find(index, len, to)?);
        Ok(RangeCopy { from, from_offset, to, to_offset, len })
    });
    both.collect()
}

fn on_host(next: &RangeCopy<'_>) -> bool {
    [next.from, next.to].iter().all(|buffer| buffer.region().kind() == Kind::Host)
}

fn choose(way: UnpackWay, moves: &[RangeCopy<'_>]) -> UnpackWay {
    let bytes: u128 = moves.iter().map(|next| u128::from(next.len)).sum();
    match way {
        UnpackWay::Auto if moves.iter().all(on_host) => UnpackWay::Host,
        UnpackWay::Auto if bytes >= moves.len() as u128 * u128::from(LARGE) => {
            UnpackWay::CopyEngine
        }
        UnpackWay::Auto => UnpackWay::Kernel,
        way => way,
    }
}

/// One copy for each move.
fn copy_each(moves: &[RangeCopy<'_>]) -> Result<Work, UnpackError> {
    let mut pending = Vec::new();
    for RangeCopy { from, from_offset, to, to_offset, len } in moves {
        let len = *len as usize;
        match copy(to.region(), *to_offset, from.region(), *from_offset, len)? {
            Progress::Pending(copy) => pending.push(copy),
            Progress::Done => {}
        }
    }
    Ok(Work::Copies(pending))
}

/// Gathers bytes for neighbouring places in host memory, and writes them there together. Moves that
/// are on the host at both ends are copied.
fn through_host(gpu: &dyn Gpu, moves: &[RangeCopy<'_>]) -> Result<Work, UnpackError> {
    let mut gathered = Vec::new();
    let mut at: Option<(&Buffer, u64)> = None;
    let write = |at: Option<(&Buffer, u64)>, bytes: &mut Vec<u8>| {
        let result = at.map_or(Ok(()), |(memory, offset)| gpu.write(memory, offset, bytes));
        bytes.clear();
        result
    };
    for next in moves {
        let RangeCopy { from, from_offset, to, to_offset, len } = *next;
        if on_host(next) {
            copy(to.region(), to_offset, from.region(), from_offset, len as usize)?;
            continue;
        }
        let follows = at.is_some_and(|(memory, offset)| {
            std::ptr::eq(memory, to) && offset + gathered.len() as u64 == to_offset
        });
        if !follows {
            write(at, &mut gathered)?;
            at = Some((to, to_offset));
        }
        let start = gathered.len();
        gathered.resize(start + len as usize, 0);
        gpu.read(from, from_offset, &mut gathered[start..])?;
    }
    write(at, &mut gathered)?;
    Ok(Work::Done)
}

impl Work {
    fn is_done(&mut self, ring: Option<&mut CopyRing>) -> Result<bool, UnpackError> {
        Ok(match self {
            Self::Done => true,
            Self::Copies(pending) => {
                while let Some(copy) = pending.last() {
                    if !copy.is_done()? {
                        return Ok(false);
                    }
                    pending.pop();
                }
                true
            }
            Self::Kernel(copy) => match ring {
                Some(ring) => ring.is_done(*copy)?,
                None => true,
            },
        })
    }
}
