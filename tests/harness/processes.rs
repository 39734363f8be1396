//! Processes of an example that end with the one that started them, and with each other.

use anyhow::{Context as _, Result, bail};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// How long the others may go on when one has failed, and again when another has ended: they end by
/// themselves, and say why. One that is stopped, or waits for what will not come, does not.
const GRACE: Duration = Duration::from_secs(3);

/// Processes that do not outlive this one's interest in them.
#[derive(Default)]
pub(crate) struct Processes(Vec<(String, Child)>);

impl Drop for Processes {
    fn drop(&mut self) {
        for (_, child) in &mut self.0 {
            // One that has ended is not there any more.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Processes {
    pub(crate) fn start(&mut self, name: String, command: &mut Command) -> Result<()> {
        let child = command.spawn().with_context(|| format!("{name} does not start"))?;
        self.0.push((name, child));
        Ok(())
    }

    /// Waits for the end of all, which must be a good one.
    pub(crate) fn end(mut self) -> Result<()> {
        let (mut failed, mut last) = (None, Instant::now());
        let mut ended = vec![false; self.0.len()];
        while ended.contains(&false) {
            for (ended, (name, child)) in ended.iter_mut().zip(&mut self.0) {
                if let (false, Some(status)) = (*ended, child.try_wait()?) {
                    (*ended, last) = (true, Instant::now());
                    if !status.success() {
                        failed.get_or_insert_with(|| format!("{name} ended with {status}"));
                    }
                }
            }
            if failed.is_some() && last.elapsed() > GRACE {
                break;
            }
            // Leaves the processor to them.
            std::thread::sleep(Duration::from_millis(5));
        }
        match failed {
            Some(failed) => bail!(failed),
            None => Ok(()),
        }
    }
}
