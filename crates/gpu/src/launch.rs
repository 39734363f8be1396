//! Launches: asynchronous, with a deadline on every wait.

use crate::LaunchError;
use std::time::Duration;

/// Shape of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dim {
    /// Blocks.
    pub blocks: u32,
    /// Threads per block, 1 to 1024.
    pub threads: u32,
}

impl Dim {
    /// `blocks` blocks of `threads` threads.
    pub const fn new(blocks: u32, threads: u32) -> Self {
        Self { blocks, threads }
    }
}

/// What a device keeps of a running launch.
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
}

impl Launch {
    /// Wraps what a device started just now; `deadline` bounds [`Launch::wait`] and the drop.
    pub fn new(state: Box<dyn LaunchState>, deadline: Duration) -> Self {
        Self { state, deadline, started: std::time::Instant::now(), over: false }
    }

    /// Whether the kernel has ended. Never blocks.
    pub fn is_done(&mut self) -> Result<bool, LaunchError> {
        if !self.over {
            self.over = self.state.poll().inspect_err(|_| self.over = true)?;
        }
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
                std::thread::yield_now();
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
