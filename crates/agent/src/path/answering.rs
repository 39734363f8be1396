//! The other ends of peers' queue pairs.

use super::network::{MOST_PAIRS, Nics, Poster, connect, handles};
use crate::control::{Link, LinkId};
use crate::lock;
use crate::names::Owner;
use std::collections::HashMap;
use std::sync::Mutex;
use warpverbs_transport::{Endpoint, TransportError};

/// Queue pairs that all peers together may ask for.
const MOST_ANSWERED: usize = 4096;

/// The ends, at this agent, of queue pairs that peers have made. They end with the connection by which
/// they were asked for, and with no other of the same peer.
#[derive(Default)]
pub(crate) struct Answering(Mutex<HashMap<(Owner, Poster), Answered>>);

struct Answered {
    by: LinkId,
    /// The peer's ends, by which it names the set.
    theirs: Vec<Vec<u8>>,
    _ends: Vec<Endpoint>,
}

impl Answering {
    /// Makes ends for a peer's, in the place of those it had before.
    pub(crate) fn accept(
        &self,
        nics: &Nics,
        link: &Link,
        from: &Owner,
        bytes: &[u8],
    ) -> Result<Vec<u8>, String> {
        let (poster, theirs): (Poster, Vec<Vec<u8>>) =
            postcard::from_bytes(bytes).map_err(|error| error.to_string())?;
        if !(1..=MOST_PAIRS).contains(&theirs.len()) {
            return Err(format!("{} queue pairs, expected 1 to {MOST_PAIRS}", theirs.len()));
        }
        let used = nics.of(poster);
        if used.is_empty() {
            return Err("this agent has no NIC".to_owned());
        }
        let key = (from.clone(), poster);
        let others =
            |(known, set): (&_, &Answered)| if *known == key { 0 } else { set.theirs.len() };
        let others: usize = lock(&self.0).iter().map(others).sum();
        if others + theirs.len() > MOST_ANSWERED {
            return Err(format!(
                "{others} queue pairs of all peers, of {MOST_ANSWERED}, are in use"
            ));
        }
        let say = |error: TransportError| error.to_string();
        let ends = nics.endpoints(used, None, theirs.len()).map_err(say)?;
        connect(&ends, &theirs).map_err(say)?;
        let own = postcard::to_stdvec(&handles(&ends)).map_err(|error| error.to_string())?;
        let answered = Answered { by: link.id, theirs, _ends: ends };
        let before = lock(&self.0).insert(key, answered);
        // Queue pairs end without the lock.
        drop(before);
        Ok(own)
    }

    /// Ends a set that the peer has given up, unless it has had another made in its place. When this
    /// returns, nothing that was sent to it lands any more.
    pub(crate) fn end(&self, from: &Owner, bytes: &[u8]) -> Result<Vec<u8>, String> {
        let (poster, theirs): (Poster, Vec<Vec<u8>>) =
            postcard::from_bytes(bytes).map_err(|error| error.to_string())?;
        let mut answering = lock(&self.0);
        let key = (from.clone(), poster);
        let ended = answering.get(&key).is_some_and(|answered| answered.theirs == theirs);
        let ended = if ended { answering.remove(&key) } else { None };
        drop(answering);
        drop(ended);
        Ok(Vec::new())
    }

    /// An agent asks by a control connection, and so has given up those that it had before. Bytes that were
    /// sent to their queue pairs may wait there, because this process was stopped perhaps, and would
    /// overwrite those of its next transfers.
    pub(crate) fn fence(&self, link: &Link, from: &str) {
        self.end_all(|owner, answered| *owner.name == *from && answered.by != link.id);
    }

    fn end_all(&self, which: impl Fn(&Owner, &Answered) -> bool) {
        let ends: Vec<_> =
            lock(&self.0).extract_if(|(owner, _), answered| which(owner, answered)).collect();
        // Queue pairs end without the lock.
        drop(ends);
    }

    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        lock(&self.0).len()
    }

    /// The connection has ended.
    pub(crate) fn forget(&self, link: &Link) {
        self.end_all(|_, answered| answered.by == link.id);
    }
}
