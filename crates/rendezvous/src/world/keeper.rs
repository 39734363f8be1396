//! The rank that runs the store.
//!
//! | key, behind `warpverbs/JOB/GENERATION/` | value | written by |
//! |---|---|---|
//! | `store` | `RANK ADDRESS TOKEN`: who runs it, where it listens, and a token of this store | that rank |

use crate::{Client, ClientError, Deadline, Server};
use std::net::SocketAddr;

/// The rank that runs the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Keeper {
    pub(super) rank: u32,
    /// None if that is every address of its machine: then other machines have it as well.
    pub(super) listens: Option<SocketAddr>,
    /// Of this store, to tell it from the next.
    pub(super) token: String,
}

impl Keeper {
    /// A rank of which no more is known.
    pub(super) fn of_rank(rank: u32) -> Self {
        Self { rank, listens: None, token: String::new() }
    }

    /// The rank that runs `server`.
    pub(super) fn of_server(rank: u32, server: &Server, token: String) -> Self {
        let listens = Some(server.local_addr()).filter(|addr| !addr.ip().is_unspecified());
        Self { rank, listens, token }
    }

    /// The rank whose end is that of the store, if it is not `me`.
    pub(super) fn other(keeper: Option<&Self>, me: u32) -> Option<u32> {
        keeper.map(|keeper| keeper.rank).filter(|rank| *rank != me)
    }

    /// Tells all ranks.
    pub(super) fn tell(&self, client: &mut Client, root: &str) -> Result<(), ClientError> {
        client.set(&key(root), self.encode().as_bytes())
    }

    /// The rank that the store names, once it names one.
    pub(super) fn await_word(
        client: &mut Client,
        root: &str,
        deadline: Deadline,
    ) -> Result<Option<Self>, ClientError> {
        client.wait(&[&key(root)], deadline)?;
        Self::ask(client, root)
    }

    /// The rank that the store names; none where that of another version runs it.
    pub(super) fn ask(client: &mut Client, root: &str) -> Result<Option<Self>, ClientError> {
        let key = key(root);
        if !client.check(&[&key])? {
            return Ok(None);
        }
        Ok(client.read(&[&key])?.first().and_then(|text| Self::decode(text)))
    }

    fn encode(&self) -> String {
        let listens = self.listens.map_or_else(|| "-".to_owned(), |addr| addr.to_string());
        format!("{} {listens} {}", self.rank, self.token)
    }

    /// None for what is no keeper.
    fn decode(text: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(text);
        let (rank, rest) = text.split_once(' ')?;
        let (listens, token) = rest.split_once(' ')?;
        let listens = if listens == "-" { None } else { Some(listens.parse().ok()?) };
        Some(Self { rank: rank.parse().ok()?, listens, token: token.to_owned() })
    }
}

fn key(root: &str) -> String {
    format!("{root}/store")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keeper_travels_as_text() {
        let token = "ab".to_owned();
        for listens in [None, Some(([127, 0, 0, 1], 7).into()), Some("[::1]:9".parse().unwrap())] {
            let keeper = Keeper { rank: 3, listens, token: token.clone() };
            assert_eq!(Keeper::decode(keeper.encode().as_bytes()), Some(keeper));
        }
        for bad in ["", "1", "1 -", "x - ab", "1 127.0.0.1 ab"] {
            assert_eq!(Keeper::decode(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
