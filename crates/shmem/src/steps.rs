//! Steps that all ranks take together, or none.

use crate::ShmemError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::{Duration, Instant};
use warpverbs_rendezvous::{World, WorldError};

/// Takes the steps of one call, and knows how long each took.
pub(crate) struct Steps<'a> {
    world: &'a mut World,
    /// Begins the names of the exchanges; the same on all ranks.
    prefix: String,
    /// Whether the prefix is that of one heap, so that what is announced under it counts.
    of_heap: bool,
    timeout: Duration,
    since: Instant,
    pub(crate) times: Vec<(&'static str, Duration)>,
}

impl<'a> Steps<'a> {
    /// Those of a heap, or the first of a heap that has no identity yet.
    pub(crate) fn new(world: &'a mut World, heap: Option<u64>, deadline: Duration) -> Self {
        let timeout = world.timeout();
        world.set_timeout(deadline);
        let prefix = heap.map_or_else(|| "shmem".to_owned(), name);
        let of_heap = heap.is_some();
        Self { world, prefix, of_heap, timeout, since: Instant::now(), times: Vec::new() }
    }

    /// The heap's identity is known now.
    pub(crate) fn set_heap(&mut self, heap: u64, reached: &str) -> Result<(), ShmemError> {
        (self.prefix, self.of_heap) = (name(heap), true);
        let announced = self.world.announce(&self.prefix, reached.as_bytes());
        announced.map_err(|cause| self.not_met("identity", cause))
    }

    /// Ends a step: exchanges this rank's result for those of all ranks, all of which must take part. If
    /// some rank failed, all get the error of the lowest one that did.
    pub(crate) fn end<T: Serialize + DeserializeOwned>(
        &mut self,
        step: &'static str,
        mine: Result<T, ShmemError>,
    ) -> Result<Vec<T>, ShmemError> {
        self.all_here(step)?;
        let all = self.end_of_members(step, mine)?;
        Ok(all.into_iter().flatten().collect())
    }

    /// All ranks are members, of which all members know the same.
    fn all_here(&self, step: &'static str) -> Result<(), ShmemError> {
        let away = |rank: &u32| !self.world.members().contains(rank);
        let ranks: Vec<_> = (0..self.world.world_size()).filter(away).collect();
        if ranks.is_empty() { Ok(()) } else { Err(ShmemError::Away { step, ranks }) }
    }

    /// The same among the members of the world; None for a rank that is no member.
    pub(crate) fn end_of_members<T: Serialize + DeserializeOwned>(
        &mut self,
        step: &'static str,
        mine: Result<T, ShmemError>,
    ) -> Result<Vec<Option<T>>, ShmemError> {
        self.tell(step, mine.map_err(|error| error.to_string()))
    }

    fn tell<T: Serialize + DeserializeOwned>(
        &mut self,
        step: &'static str,
        mine: Result<T, String>,
    ) -> Result<Vec<Option<T>>, ShmemError> {
        let bytes = serde_json::to_vec(&mine).unwrap_or_default();
        let name = format!("{}/{step}", self.prefix);
        // Known to be here, should another step never be reached.
        let announced = match self.of_heap {
            true => self.world.announce(&self.prefix, step.as_bytes()),
            false => Ok(()),
        };
        let all = announced.and_then(|()| self.world.exchange(&name, &bytes));
        let all = all.map_err(|cause| self.not_met(step, cause))?;
        let now = Instant::now();
        self.times.push((step, now - std::mem::replace(&mut self.since, now)));
        let mut outcomes = Vec::with_capacity(all.len());
        let mut failed = Vec::new();
        for (rank, bytes) in (0..).zip(&all) {
            if !self.world.members().contains(&rank) {
                outcomes.push(None);
                continue;
            }
            let outcome = serde_json::from_slice::<Result<T, String>>(bytes);
            match outcome.unwrap_or_else(|_| Err("it sent something else: mixed versions".into())) {
                Ok(outcome) => outcomes.push(Some(outcome)),
                Err(cause) => failed.push((rank, cause)),
            }
        }
        let others = failed.len().saturating_sub(1);
        match failed.into_iter().next() {
            Some((rank, cause)) => Err(ShmemError::Step { step, rank, cause, others }),
            None => Ok(outcomes),
        }
    }

    /// As [`Steps::end`], for a result of which a part is kept here.
    pub(crate) fn end_with<K, T: Serialize + DeserializeOwned>(
        &mut self,
        step: &'static str,
        mine: Result<(K, T), ShmemError>,
    ) -> Result<(K, Vec<T>), ShmemError> {
        self.all_here(step)?;
        let (kept, all) = self.end_with_members(step, mine)?;
        Ok((kept, all.into_iter().flatten().collect()))
    }

    /// As [`Steps::end_of_members`], for a result of which a part is kept here.
    pub(crate) fn end_with_members<K, T: Serialize + DeserializeOwned>(
        &mut self,
        step: &'static str,
        mine: Result<(K, T), ShmemError>,
    ) -> Result<(K, Vec<Option<T>>), ShmemError> {
        match mine {
            Ok((kept, told)) => Ok((kept, self.end_of_members(step, Ok(told))?)),
            Err(error) => {
                self.tell::<T>(step, Err(error.to_string()))?;
                Err(error)
            }
        }
    }

    /// The same for a result that is kept here.
    pub(crate) fn keep_of_members<K>(
        &mut self,
        step: &'static str,
        mine: Result<K, ShmemError>,
    ) -> Result<K, ShmemError> {
        let (kept, _) = self.end_with_members(step, mine.map(|kept| (kept, ())))?;
        Ok(kept)
    }

    /// As [`Steps::end`], for a result that is kept here.
    pub(crate) fn keep<K>(
        &mut self,
        step: &'static str,
        mine: Result<K, ShmemError>,
    ) -> Result<K, ShmemError> {
        let (kept, _) = self.end_with(step, mine.map(|kept| (kept, ())))?;
        Ok(kept)
    }

    fn not_met(&mut self, step: &'static str, cause: WorldError) -> ShmemError {
        let missing = match &cause {
            WorldError::Missing { ranks, .. } => ranks.clone(),
            WorldError::Lost { rank, .. } => vec![*rank],
            _ => Vec::new(),
        };
        let last = missing.into_iter().map(|rank| {
            // Without a store there is nothing to be known.
            let reached = self.world.announced(&self.prefix, rank).ok().flatten();
            let text = match reached {
                Some(step) => format!("reached step {:?}", String::from_utf8_lossy(&step)),
                None => "reached no step".to_owned(),
            };
            (rank, text)
        });
        ShmemError::Meet { step, last: last.collect(), cause: Box::new(cause) }
    }
}

impl Drop for Steps<'_> {
    fn drop(&mut self) {
        self.world.set_timeout(self.timeout);
    }
}

fn name(heap: u64) -> String {
    format!("shmem/{heap:016x}")
}

/// The first rank whose value differs from that of the first one.
pub(crate) fn agree<T: PartialEq + std::fmt::Display>(
    what: &'static str,
    values: impl IntoIterator<Item = (u32, T)>,
) -> Result<(), ShmemError> {
    let mut values = values.into_iter();
    let Some((rank, value)) = values.next() else { return Ok(()) };
    match values.find(|(_, other)| *other != value) {
        None => Ok(()),
        Some((other, other_value)) => Err(ShmemError::Unequal {
            what,
            rank,
            value: value.to_string(),
            other,
            other_value: other_value.to_string(),
        }),
    }
}
