//! Signs of life: a thread of each rank raises a number in the store, so that a rank that is slow can
//! be told from one that is stopped, or whose host is gone.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::background::Background;
use super::{World, WorldError, borrowed};
use crate::{Client, ClientError};

/// Pause between two beats of a small world.
const BEAT: Duration = Duration::from_millis(500);
/// A world of this many ranks more beats, and looks, that much less often.
const RANKS_PER_BEAT: u32 = 128;

/// Beats at `key`, by a connection of its own, until it is dropped.
fn beat(mut client: Client, key: String, pause: Duration) -> Option<Background> {
    // A beat has no reply, so it only waits if the store reads nothing.
    client.set_timeout(pause);
    let thread = Background::start("warpverbs-pulse", move |stop| {
        let mut count = 1u64;
        while !stop.comes_within(pause) {
            count += 1;
            if let Err(error) = client.set(&key, count.to_string().as_bytes()) {
                tracing::debug!(%error, "no more signs of life");
                return;
            }
        }
    });
    thread.inspect_err(|error| tracing::warn!(%error, "no signs of life")).ok()
}

/// When each other rank showed a sign of life last, as far as this one has looked.
#[derive(Debug)]
pub(super) struct Signs {
    /// A rank without a sign for so long is lost.
    pub(super) silence: Duration,
    looked: Instant,
    seen: HashMap<u32, (Vec<u8>, Instant)>,
    /// Ranks that were silent for too long.
    pub(super) silent: Vec<u32>,
}

impl Signs {
    pub(super) fn new(silence: Duration) -> Self {
        Self { silence, looked: Instant::now(), seen: HashMap::new(), silent: Vec::new() }
    }

    /// Begins anew, with other members.
    pub(super) fn forget(&mut self) {
        self.seen.clear();
        self.silent.clear();
    }

    /// The ranks that have been silent for too long at `now`, by the beats that were found.
    fn look(&mut self, now: Instant, found: Vec<(u32, Vec<u8>)>) -> Vec<u32> {
        let mut silent = Vec::new();
        // This process itself may have been stopped: then nobody else is to blame.
        let absent = now.duration_since(self.looked) > self.silence / 2;
        self.looked = now;
        for (rank, value) in found {
            match self.seen.get_mut(&rank) {
                Some((last, since)) if *last == value && !absent => {
                    if now.duration_since(*since) >= self.silence {
                        silent.push(rank);
                    }
                }
                _ => drop(self.seen.insert(rank, (value, now))),
            }
        }
        silent
    }
}

/// Shows signs of life, if ranks do.
pub(super) fn start_beating(world: &mut World) -> Result<(), WorldError> {
    let Some(silence) = world.signs.as_ref().map(|signs| signs.silence) else { return Ok(()) };
    let key = world.sign(world.rank);
    world.client.set(&key, b"1").map_err(|error| world.refine(error))?;
    let client = world.client.again(silence).map_err(WorldError::Connect)?;
    world.pulse = beat(client, key, world.beat());
    Ok(())
}

impl World {
    /// Pause between two beats, and between two looks.
    pub(super) fn beat(&self) -> Duration {
        let pause = BEAT * (1 + self.world_size / RANKS_PER_BEAT);
        self.signs.as_ref().map_or(pause, |signs| pause.min(signs.silence / 4))
    }

    /// Looks for ranks that show no sign of life any more, if it is time for that.
    ///
    /// # Errors
    /// [`WorldError::Lost`] with [`Loss::Silent`](super::Loss::Silent).
    pub(super) fn check_signs(&mut self) -> Result<(), WorldError> {
        let pause = self.beat();
        if self.signs.as_ref().is_none_or(|signs| signs.looked.elapsed() < pause) {
            return Ok(());
        }
        let found = self.read_signs().map_err(|error| self.refine(error))?;
        let Some(signs) = &mut self.signs else { return Ok(()) };
        let mut silent = signs.look(Instant::now(), found);
        let silence = signs.silence;
        self.forgive(&mut silent)?;
        let first = silent.first().copied();
        if let Some(signs) = &mut self.signs {
            signs.silent = silent;
        }
        first.map_or(Ok(()), |rank| Err(WorldError::silent(rank, silence)))
    }

    /// A rank that has left is silent with good reason.
    fn forgive(&mut self, silent: &mut Vec<u32>) -> Result<(), WorldError> {
        if silent.is_empty() {
            return Ok(());
        }
        let keys: Vec<_> = silent.iter().map(|rank| self.key(&format!("left/{rank}"))).collect();
        let left = self.client.present(&borrowed(&keys)).map_err(|error| self.refine(error))?;
        let mut left = left.into_iter();
        silent.retain(|_| !left.next().unwrap_or(false));
        Ok(())
    }

    /// The beats of the other ranks; a rank of PyTorch has none.
    fn read_signs(&mut self) -> Result<Vec<(u32, Vec<u8>)>, ClientError> {
        let others = self.view.members.iter().copied().filter(|&rank| rank != self.rank);
        let keys: Vec<_> = others.map(|rank| (rank, self.sign(rank))).collect();
        let all: Vec<_> = keys.iter().map(|(_, key)| key.as_str()).collect();
        let present = self.client.present(&all)?;
        let present: Vec<_> = keys.iter().zip(present).filter(|(_, there)| *there).collect();
        let there: Vec<_> = present.iter().map(|((_, key), _)| key.as_str()).collect();
        let values = self.client.read(&there)?;
        Ok(present.iter().map(|((rank, _), _)| *rank).zip(values).collect())
    }

    /// The key at which `rank` beats.
    pub(super) fn sign(&self, rank: u32) -> String {
        format!("{}/alive/{rank}", self.root)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SILENCE: Duration = Duration::from_secs(4);

    /// The ranks found silent in each second, if rank 1 shows `beat` in it.
    fn looks(seconds: impl Iterator<Item = u64>, beat: impl Fn(u64) -> u64) -> Vec<u64> {
        let mut signs = Signs::new(SILENCE);
        let start = signs.looked;
        let silent = |second: &u64| {
            let found = vec![(1, beat(*second).to_string().into_bytes())];
            !signs.look(start + Duration::from_secs(*second), found).is_empty()
        };
        seconds.filter(silent).collect()
    }

    #[test]
    fn a_rank_is_silent_when_it_has_shown_nothing_new_for_so_long() {
        // However rarely it runs, if that is often enough.
        assert_eq!(looks(0..100, |second| second / 4), []);
        assert_eq!(looks(0..100, |second| second.min(90)), [94, 95, 96, 97, 98, 99]);
        // A beat that comes late is one.
        assert_eq!(looks(0..12, |second| second / 6), [4, 5, 10, 11]);
    }

    #[test]
    fn a_process_that_did_not_run_itself_blames_nobody() {
        // It begins to count anew.
        assert_eq!(looks((0..3).chain(50..57), |_| 1), [54, 55, 56]);
        assert_eq!(looks((0..100).step_by(3), |_| 1), []);
    }
}
