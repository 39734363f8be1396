//! How the ranks of a world learn that one of them is lost.
//!
//! The first loss counts. It stands at the key `lost`, written by the rank itself if it fails, or by
//! our store if the rank's connection ends.

use std::fmt;
use std::time::Duration;

use super::keeper::Keeper;
use super::{World, WorldError, borrowed};
use crate::store::WILL_PREFIX;
use crate::{ClientError, Deadline};

/// Where the first loss stands.
pub(super) const LOST: &str = "lost";
/// Where it stands why a rank was not let in.
const REFUSED: &str = "refused";

/// How long a wait for other ranks lasts before it is asked whether one is lost. In large worlds
/// each question is dear, so it is asked less often.
const SLICE: Duration = Duration::from_millis(250);
const RANKS_PER_SLICE: u32 = 32;

/// See [`World::farewell`].
pub(super) const FAREWELL: Duration = Duration::from_secs(5);
/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(10);
/// Longest cause that is handed on, in bytes.
const LONGEST_CAUSE: usize = 2048;

/// Why a rank is not there any more.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// Its connection to the store ended without a word, as that of a killed process does.
    Gone,
    /// It failed, and said why.
    Failed(String),
    /// Its process is stopped, or its host is gone: it has shown no sign of life for so long.
    Silent(Duration),
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Loss::Gone => f.write_str("is gone: its connection to the store ended"),
            Loss::Failed(cause) => write!(f, "failed: {cause}"),
            Loss::Silent(time) => write!(f, "has shown no sign of life for {time:.1?}"),
        }
    }
}

pub(super) fn encode(rank: u32, loss: &Loss) -> String {
    match loss {
        Loss::Gone => format!("{rank} gone"),
        Loss::Silent(time) => format!("{rank} silent {}", time.as_millis()),
        Loss::Failed(cause) => {
            let mut end = cause.len().min(LONGEST_CAUSE);
            while !cause.is_char_boundary(end) {
                end -= 1;
            }
            format!("{rank} failed {}", &cause[..end])
        }
    }
}

pub(super) fn decode(value: &[u8]) -> Option<(u32, Loss)> {
    let text = String::from_utf8_lossy(value);
    let (rank, rest) = text.split_once(' ')?;
    let loss = match rest.split_once(' ') {
        Some(("failed", cause)) => Loss::Failed(cause.to_owned()),
        Some(("silent", millis)) => Loss::Silent(Duration::from_millis(millis.parse().ok()?)),
        None if rest == "gone" => Loss::Gone,
        _ => return None,
    };
    Some((rank.parse().ok()?, loss))
}

impl World {
    /// Whether no rank is known to be lost.
    ///
    /// # Errors
    /// [`WorldError::Lost`] names the first rank that was lost.
    pub fn check(&mut self) -> Result<(), WorldError> {
        let lost = self.key(LOST);
        // A member may be lost before it has entered this view.
        let other = match &self.before {
            _ if !self.joined => Some(self.key(REFUSED)),
            before => before.as_ref().map(|before| format!("{before}/{LOST}")),
        };
        let keys: Vec<&str> = [&*lost].into_iter().chain(other.as_deref()).collect();
        let present = self.client.present(&keys).map_err(|error| self.refine(error))?;
        if present.first() == Some(&true)
            && let Some((rank, loss)) = decode(&self.value(&lost)?)
        {
            if let (Some(signs), Loss::Silent(_)) = (&mut self.signs, &loss) {
                signs.silent = vec![rank];
            }
            return Err(WorldError::Lost { rank, loss });
        }
        if let Some(other) = other.filter(|_| present.get(1) == Some(&true)) {
            let value = self.value(&other)?;
            if !self.joined {
                let cause = String::from_utf8_lossy(&value).into();
                return Err(WorldError::Refused { cause });
            }
            if let Some((rank, loss)) = decode(&value).filter(|(rank, _)| self.view.counts(*rank)) {
                return Err(WorldError::Lost { rank, loss });
            }
        }
        self.check_signs()
    }

    /// The loss of another rank, if there is one by `patience` from now: what to look for when a
    /// peer does not answer.
    pub fn loss_within(&mut self, patience: Duration) -> Option<WorldError> {
        let deadline = Deadline::after(patience);
        loop {
            match self.check() {
                Err(error @ WorldError::Lost { .. }) => return Some(error),
                Err(_) => return None,
                Ok(()) if deadline.passed() => return None,
                Ok(()) => std::thread::sleep(LOOK),
            }
        }
    }

    /// Ends with a failure, which the other ranks get as an error in their next call; the silence of a
    /// rank that this one has found is told as such. The rank that runs the store keeps it for them, 5 s
    /// at most.
    pub fn fail(mut self, cause: &str) {
        let silent = self.signs.as_ref().and_then(|signs| {
            signs.silent.first().map(|rank| encode(*rank, &Loss::Silent(signs.silence)))
        });
        let failed = || encode(self.rank, &Loss::Failed(cause.to_owned()));
        let value = silent.unwrap_or_else(failed);
        let key = self.key(LOST);
        // If the store is gone too, the failure cannot be reported.
        let _ = self.client.compare_set(&key, b"", value.as_bytes());
        self.depart();
    }

    /// Lets the other ranks that are about to join know why this one does not.
    pub(super) fn turn_away(mut self, error: WorldError) -> WorldError {
        let key = self.key(REFUSED);
        let _ = self.client.compare_set(&key, b"", error.to_string().as_bytes());
        self.depart();
        error
    }

    /// Leaves the world without marking this rank as failed. The store stays until all have left,
    /// 5 s at most.
    fn depart(mut self) {
        let _ = self.withdraw_will();
        self.pulse = None;
        let Some(server) = self.server.take() else {
            let _ = self.client.close();
            return;
        };
        // A silent rank does not end its connections: that of its calls, and that of its beats.
        let stay = self.signs.as_ref().map_or(0, |signs| 2 * signs.silent.len() as u64);
        let farewell = self.farewell;
        drop(self);
        let deadline = Deadline::after(farewell);
        while server.stats().connections > stay && !deadline.passed() {
            std::thread::sleep(LOOK);
        }
    }

    pub(super) fn make_will(&mut self) -> Result<(), ClientError> {
        let value = encode(self.rank, &Loss::Gone);
        let key = self.will_key();
        self.client.set_raw(&key, value.as_bytes())
    }

    pub(super) fn withdraw_will(&mut self) -> Result<(), ClientError> {
        let key = self.will_key();
        self.client.set_raw(&key, b"")
    }

    fn will_key(&self) -> String {
        format!("{WILL_PREFIX}{}", self.key(LOST))
    }

    /// Waits for `keys`, and for no rank that is lost.
    pub(super) fn await_all(
        &mut self,
        call: &'static str,
        name: &str,
        keys: &[String],
        deadline: Deadline,
    ) -> Result<(), WorldError> {
        let part = slice(self, SLICE);
        let goes_on = |world: &mut World| world.check().map(|()| true);
        await_while(self, (call, name), keys, (deadline, part), goes_on).map(drop)
    }

    /// An error that names ranks instead of keys, each of which ends with its rank.
    fn missing(
        &self,
        call: &'static str,
        name: &str,
        keys: &[String],
        waited: Duration,
    ) -> WorldError {
        let ranks = keys.iter().filter_map(|key| key.rsplit('/').next()?.parse().ok()).collect();
        WorldError::Missing { call, name: name.into(), ranks, world_size: self.world_size, waited }
    }

    /// A store that has gone is a rank that has gone, where a rank runs it.
    pub(super) fn refine(&self, error: ClientError) -> WorldError {
        let silent = matches!(error, ClientError::Silent { .. });
        match (&self.signs, Keeper::other(self.keeper.as_ref(), self.rank)) {
            (_, Some(rank)) if error.is_end() => WorldError::Lost { rank, loss: Loss::Gone },
            (Some(signs), Some(rank)) if silent => WorldError::silent(rank, signs.silence),
            _ => WorldError::Client(error),
        }
    }
}

/// Waits for `keys`, as long as `goes_on` says so, which is asked after each slice. Whether all are there.
pub(super) fn await_while(
    world: &mut World,
    (call, name): (&'static str, &str),
    keys: &[String],
    (deadline, slice): (Deadline, Duration),
    goes_on: impl Fn(&mut World) -> Result<bool, WorldError>,
) -> Result<bool, WorldError> {
    let all = borrowed(keys);
    loop {
        let part = Deadline::after(deadline.remaining().unwrap_or_default().min(slice));
        let missing = match world.client.wait(&all, part) {
            Ok(()) => return Ok(true),
            Err(ClientError::Missing { missing, .. }) => missing,
            Err(error) => return Err(world.refine(error)),
        };
        if !goes_on(world)? {
            return Ok(false);
        }
        if deadline.passed() {
            return Err(world.missing(call, name, &missing, deadline.waited()));
        }
    }
}

/// A pause between two requests, of which a large world makes fewer.
pub(super) fn slice(world: &World, pause: Duration) -> Duration {
    pause * (1 + world.world_size / RANKS_PER_SLICE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_travels_as_text() {
        let failed = Loss::Failed("row 3: 5 bytes are wrong".into());
        let silent = Loss::Silent(Duration::from_millis(1500));
        for loss in [Loss::Gone, failed, Loss::Failed(String::new()), silent] {
            assert_eq!(decode(encode(7, &loss).as_bytes()), Some((7, loss)));
        }
        let long = encode(1, &Loss::Failed("é".repeat(9999)));
        assert!(long.len() <= LONGEST_CAUSE + 16);
        for bad in ["", "gone", "x gone", "1", "1 left", "1 failing x", "1 silent", "1 silent x"] {
            assert_eq!(decode(bad.as_bytes()), None, "{bad}");
        }
    }
}
