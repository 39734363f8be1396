//! Launches: asynchronous, with a deadline on every wait.

use crate::{GpuError, LaunchError, Stop};
use std::fmt;
use std::time::Duration;

/// A count in up to three dimensions. Numbers, pairs and triples convert to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// The dimension that is numbered first.
    pub x: u32,
    /// The second, 1 if there is none.
    pub y: u32,
    /// The third, 1 if there is none.
    pub z: u32,
}

impl Extent {
    /// Of all dimensions together, at most `u32::MAX`.
    pub const fn count(self) -> u32 {
        self.x.saturating_mul(self.y).saturating_mul(self.z)
    }
}

impl From<u32> for Extent {
    fn from(x: u32) -> Self {
        Self { x, y: 1, z: 1 }
    }
}

impl From<(u32, u32)> for Extent {
    fn from((x, y): (u32, u32)) -> Self {
        Self { x, y, z: 1 }
    }
}

impl From<(u32, u32, u32)> for Extent {
    fn from((x, y, z): (u32, u32, u32)) -> Self {
        Self { x, y, z }
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self { x, y: 1, z: 1 } => write!(f, "{x}"),
            Self { x, y, z: 1 } => write!(f, "{x}×{y}"),
            Self { x, y, z } => write!(f, "{x}×{y}×{z}"),
        }
    }
}

/// Shape of a launch. Device code numbers blocks and threads x first (`wv::block_index`,
/// `wv::thread_index`), so a warp is 32 threads that follow one another in x.
///
/// ```
/// use warpverbs_gpu::Dim;
///
/// let (flat, shaped) = (Dim::new(6, 64), Dim::of((3, 2), (16, 4)));
/// assert_eq!((flat.blocks(), flat.threads()), (shaped.blocks(), shaped.threads()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Dim {
    /// Blocks of the grid.
    pub grid: Extent,
    /// Threads of a block.
    pub block: Extent,
    /// Bytes of shared memory of a block beside what the kernel declares: `dynamic_shared` of the
    /// device library. 0 unless [`Dim::shared`] says otherwise.
    pub shared: u32,
}

/// The most that every device takes in each dimension, as CUDA documents it (compute capability 3.0
/// and later); the x dimension of a block is bounded by its threads.
const MAX_GRID: Extent = Extent { x: i32::MAX as u32, y: 65535, z: 65535 };
const MAX_BLOCK_Z: u32 = 64;
/// The most dynamic shared memory that any device gives a block (compute capability 9.0 and 10.0).
const MAX_SHARED: u32 = 227 << 10;

pub(crate) const TOO_MUCH_SHARED: &str = "0 to 232448 bytes, or what the device gives a block";

impl Dim {
    /// `blocks` blocks of `threads` threads, in one dimension.
    pub const fn new(blocks: u32, threads: u32) -> Self {
        let grid = Extent { x: blocks, y: 1, z: 1 };
        Self { grid, block: Extent { x: threads, y: 1, z: 1 }, shared: 0 }
    }

    /// A grid of blocks of threads, each in up to three dimensions.
    pub fn of(grid: impl Into<Extent>, block: impl Into<Extent>) -> Self {
        Self { grid: grid.into(), block: block.into(), shared: 0 }
    }

    /// The same with `bytes` of dynamic shared memory for each block.
    #[must_use]
    pub const fn shared(self, bytes: u32) -> Self {
        Self { shared: bytes, ..self }
    }

    /// Blocks of the grid.
    pub const fn blocks(&self) -> u32 {
        self.grid.count()
    }

    /// Threads of a block.
    pub const fn threads(&self) -> u32 {
        self.block.count()
    }

    /// Whether a device can run `kernel` in this shape, with blocks of `max_threads` at most.
    pub(crate) fn check(self, kernel: &'static str, max_threads: u32) -> Result<(), GpuError> {
        let Self { grid, block, .. } = self;
        let within = |field, value: u32, max: u32, expected| match (1..=max).contains(&value) {
            true => Ok(()),
            false => Err(GpuError::BadLaunch { kernel, field, value: value.into(), expected }),
        };
        within("grid.x", grid.x, MAX_GRID.x, "1 to 2147483647")?;
        within("grid.y", grid.y, MAX_GRID.y, "1 to 65535")?;
        within("grid.z", grid.z, MAX_GRID.z, "1 to 65535")?;
        within("blocks", self.blocks(), MAX_GRID.x, "1 to 2147483647 in all dimensions")?;
        within("block.z", block.z, MAX_BLOCK_Z, "1 to 64")?;
        if self.shared > MAX_SHARED {
            let (field, value) = ("shared", self.shared.into());
            return Err(GpuError::BadLaunch { kernel, field, value, expected: TOO_MUCH_SHARED });
        }
        let most = "1 to 1024 in all dimensions, or what the kernel's registers allow";
        within("threads per block", self.threads(), max_threads, most)
    }
}

/// State that a device keeps of a running launch.
pub trait LaunchState: Send {
    /// Whether the kernel has ended; an error if it ended badly. Never blocks.
    fn poll(&mut self) -> Result<bool, LaunchError>;

    /// Ends the kernel if the device can (SIMT: lanes are dropped where they stand) and says what
    /// each warp was doing. On a GPU nothing can be ended; the report says so.
    fn kill(&mut self) -> String;
}

/// A running or finished kernel. Dropping it waits for the kernel, up to the launch's deadline.
pub struct Launch {
    state: Box<dyn LaunchState>,
    deadline: Duration,
    started: std::time::Instant,
    over: bool,
    stop: Option<Stop>,
}

impl Launch {
    /// Wraps what a device started just now; `deadline` bounds [`Launch::wait`] and the drop.
    pub fn new(state: Box<dyn LaunchState>, deadline: Duration) -> Self {
        Self { state, deadline, started: std::time::Instant::now(), over: false, stop: None }
    }

    /// Says that the kernel's blocks enter and leave by this record, so that the launch can be withdrawn.
    #[must_use]
    pub fn stopped_by(mut self, stop: Stop) -> Self {
        self.stop = Some(stop);
        self
    }

    /// Whether the kernel has ended, or was withdrawn. Never blocks.
    pub fn is_done(&mut self) -> Result<bool, LaunchError> {
        if !self.over {
            self.over = self.state.poll().inspect_err(|_| self.over = true)?;
            if self.over
                && let Some(stop) = self.stop.take()
            {
                stop.give_back();
            }
        }
        Ok(self.over)
    }

    /// Begins to withdraw the launch, or goes on: whether none of its blocks touches memory any more, neither
    /// now nor when a launch that is still queued begins. Never blocks. Blocks that are at work leave
    /// soon, those that are not yet do nothing; what they had is kept until the device has run them.
    ///
    /// One that is not [`stopped_by`](Launch::stopped_by) a record goes on to its end.
    ///
    /// # Errors
    /// The kernel failed, or the device did: its context is lost, in which nothing runs any more.
    pub fn withdraw(&mut self) -> Result<bool, LaunchError> {
        if self.is_done()? {
            return Ok(true);
        }
        let Some(stop) = &mut self.stop else { return Ok(false) };
        // A copy that was refused is tried again: whether the context is lost, `is_done` tells.
        self.over = stop.advance().unwrap_or_else(|error| {
            tracing::debug!(%error, "a launch is not withdrawn yet");
            false
        });
        Ok(self.over)
    }

    /// Waits for the end of the kernel, at most until the launch's deadline.
    pub fn wait(mut self) -> Result<(), LaunchError> {
        self.finish()
    }

    fn finish(&mut self) -> Result<(), LaunchError> {
        let mut spins = 0u32;
        while !self.is_done()? {
            if self.started.elapsed() > self.deadline {
                self.over = true;
                return Err(LaunchError::Deadline {
                    after: self.deadline,
                    report: self.state.kill(),
                });
            }
            spins += 1;
            if spins < 64 {
                warpverbs_mem::pause();
            } else {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        Ok(())
    }
}

impl Drop for Launch {
    fn drop(&mut self) {
        if !self.over
            && let Err(error) = self.finish()
        {
            tracing::error!(%error, "a kernel that nobody waited for failed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(dim: Dim) -> Option<(&'static str, u64)> {
        match dim.check("k", 256) {
            Ok(()) => None,
            Err(GpuError::BadLaunch { kernel: "k", field, value, .. }) => Some((field, value)),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn wrong_shapes_are_named() {
        let most = i32::MAX as u32;
        let lent = Dim::new(1, 1).shared(227 << 10);
        for good in [Dim::new(1, 256), Dim::new(most, 1), Dim::of((2, 3, 4), (16, 4, 4)), lent] {
            assert_eq!(refused(good), None, "{good:?}");
        }
        for (bad, field, value) in [
            (Dim::new(0, 1), "grid.x", 0),
            (Dim::new(most + 1, 1), "grid.x", most + 1),
            (Dim::of((1, 65536), 1), "grid.y", 65536),
            (Dim::of((1, 1, 0), 1), "grid.z", 0),
            (Dim::of((most, 2), 1), "blocks", 2 * most),
            (Dim::of((most, 65535, 65535), 1), "blocks", u32::MAX),
            (Dim::of(1, (1, 1, 65)), "block.z", 65),
            (Dim::new(1, 0), "threads per block", 0),
            (Dim::new(1, 257), "threads per block", 257),
            (Dim::of(1, (16, 17)), "threads per block", 272),
            (Dim::new(1, 1).shared((227 << 10) + 1), "shared", (227 << 10) + 1),
        ] {
            assert_eq!(refused(bad), Some((field, value.into())), "{bad:?}");
        }
    }

    #[test]
    fn extents_print_as_far_as_they_go() {
        let shapes = [Extent::from(7), (7, 1).into(), (2, 3).into(), (2, 1, 4).into()];
        assert_eq!(shapes.map(|shape| shape.to_string()), ["7", "7", "2×3", "2×1×4"]);
    }
}
