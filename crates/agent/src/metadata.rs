//! Metadata: an agent's description of itself and of its memory, as bytes.

use crate::AgentError;
use crate::codec::{EncodingError, Format};
use crate::names::{Generation, Place};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use warpverbs_peer::{Introduction, RangeOffer};

pub(crate) const FORMAT: Format =
    Format { what: "metadata of an agent", magic: *b"WVAM", version: 3 };
/// The longest name of an agent and of a label, bytes.
pub(crate) const MAX_NAME: usize = 256;
/// Addresses at which an agent may say that it listens.
pub(crate) const MAX_ADDRESSES: usize = 64;
/// NICs that an agent may have.
pub(crate) const MOST_NICS: usize = 16;

pub(crate) fn random<const N: usize>() -> Result<[u8; N], AgentError> {
    let mut bytes = [0; N];
    let system = |error: getrandom::Error| std::io::Error::other(error.to_string());
    getrandom::fill(&mut bytes).map_err(|error| AgentError::system("getrandom", system(error)))?;
    Ok(bytes)
}

/// Random bytes of an agent that travel with its metadata: a connection to the agent must prove that it
/// has them.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Secret([u8; 32]);

impl Secret {
    pub(crate) fn new() -> Result<Self, AgentError> {
        random().map(Self)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Registered memory, as its owner describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MemoryInfo {
    pub(crate) id: u32,
    pub(crate) label: Arc<str>,
    /// Where it begins in the owner's process.
    pub(crate) addr: u64,
    pub(crate) place: Place,
    /// How it can be mapped, its key for the first NIC, and its length.
    pub(crate) offer: RangeOffer,
    /// Its keys for the other NICs, in their order.
    pub(crate) rails: Vec<Vec<u8>>,
}

/// The purpose of metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Content {
    /// All registered memory: any other is deregistered.
    Full,
    /// Some of it, in addition to what is known.
    Partial,
    /// The agent is shutting down.
    Gone,
}

/// How an agent is reached, and how it shows that it is the right one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Contact {
    pub(crate) addresses: Vec<SocketAddr>,
    /// The secret whose possession a connection to it must prove.
    pub(crate) secret: Secret,
    /// Its process, and the server of its file descriptors. It is not trusted before the agent has proven
    /// it (`proof.rs`).
    pub(crate) introduction: Introduction,
}

/// Metadata.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) name: Arc<str>,
    pub(crate) generation: Generation,
    pub(crate) content: Content,
    pub(crate) contact: Contact,
    pub(crate) memories: Vec<MemoryInfo>,
}

impl Metadata {
    /// As bytes, authenticated by the job's `token`.
    pub(crate) fn to_bytes(&self, token: &[u8]) -> Result<Vec<u8>, EncodingError> {
        let body = postcard::to_stdvec(self).map_err(|error| FORMAT.wrong(error))?;
        FORMAT.seal(&(keyed(token, &[b"metadata", &body]), body))
    }

    pub(crate) fn from_bytes(bytes: &[u8], token: &[u8]) -> Result<Self, EncodingError> {
        let (mac, body): ([u8; 32], Vec<u8>) = FORMAT.open(bytes)?;
        if mac != keyed(token, &[b"metadata", &body]) {
            return Err(FORMAT.wrong("it is of a job with another token"));
        }
        Self::from_body(&body)
    }

    pub(crate) fn from_body(body: &[u8]) -> Result<Self, EncodingError> {
        let metadata: Self = postcard::from_bytes(body).map_err(|error| FORMAT.wrong(error))?;
        metadata.check().map(|()| metadata)
    }

    fn check(&self) -> Result<(), EncodingError> {
        check_name("name", &self.name).map_err(|why| FORMAT.wrong(why))?;
        let addresses = self.contact.addresses.len();
        if addresses > MAX_ADDRESSES {
            return Err(
                FORMAT.wrong(format!("{addresses} addresses, expected at most {MAX_ADDRESSES}"))
            );
        }
        for memory in &self.memories {
            let (addr, len) = (memory.addr, memory.offer.len());
            if addr.checked_add(len).is_none() || len == 0 {
                return Err(FORMAT.wrong(format!("memory of {len} bytes at {addr:#x}")));
            }
            check_name("label", &memory.label).map_err(|why| FORMAT.wrong(why))?;
            let nics = 1 + memory.rails.len();
            if nics > MOST_NICS {
                let why = format!("memory with keys for {nics} NICs, expected at most {MOST_NICS}");
                return Err(FORMAT.wrong(why));
            }
        }
        Ok(())
    }
}

/// Rule of [`check_name`].
pub(crate) const NAMES: &str = "1 to 256 bytes without control characters";

/// Names are short, not empty, and can be printed.
pub(crate) fn check_name(what: &str, name: &str) -> Result<(), String> {
    if !(1..=MAX_NAME).contains(&name.len()) {
        return Err(format!("a {what} of {} bytes, expected 1 to {MAX_NAME}", name.len()));
    }
    match name.chars().find(|at| at.is_control()) {
        Some(wrong) => Err(format!("a {what} with the control character {wrong:?}")),
        None => Ok(()),
    }
}

/// HMAC-SHA256 (RFC 2104) of the parts, each of which goes in with its length.
pub(crate) fn keyed(token: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut key = [0; 64];
    match token.len() {
        0..=64 => key[..token.len()].copy_from_slice(token),
        _ => key[..32].copy_from_slice(&Sha256::digest(token)),
    }
    let mut inner = Sha256::new().chain_update(key.map(|byte| byte ^ 0x36));
    for part in parts {
        inner.update((part.len() as u64).to_le_bytes());
        inner.update(part);
    }
    let outer = Sha256::new().chain_update(key.map(|byte| byte ^ 0x5c));
    outer.chain_update(inner.finalize()).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_can_be_printed() {
        for good in ["a", "größer \"b\"", &"x".repeat(MAX_NAME)] {
            assert_eq!(check_name("name", good), Ok(()));
        }
        let said = |name: &str| check_name("label", name).unwrap_err();
        assert_eq!(said(""), "a label of 0 bytes, expected 1 to 256");
        assert_eq!(said(&"x".repeat(257)), "a label of 257 bytes, expected 1 to 256");
        assert_eq!(said("a\n"), "a label with the control character '\\n'");
        assert_eq!(said("\u{1b}[2J"), "a label with the control character '\\u{1b}'");
    }

    #[test]
    fn the_keyed_digest_is_that_of_rfc_4231() {
        // Test case 2, whose message our framing cannot make: the inner digest is fed by hand.
        let key = *b"Jefe";
        let mut padded = [0; 64];
        padded[..4].copy_from_slice(&key);
        let inner = Sha256::new()
            .chain_update(padded.map(|b| b ^ 0x36))
            .chain_update(8u64.to_le_bytes())
            .chain_update(b"question");
        let outer = Sha256::new().chain_update(padded.map(|b| b ^ 0x5c));
        let expected: [u8; 32] = outer.chain_update(inner.finalize()).finalize().into();
        assert_eq!(keyed(&key, &[b"question"]), expected);
        assert_ne!(keyed(b"a", &[b"xy"]), keyed(b"b", &[b"xy"]));
        assert_ne!(keyed(b"a", &[b"x", b"y"]), keyed(b"a", &[b"xy"]));
        assert_ne!(keyed(&[1; 65], &[b"x"]), keyed(&[1; 64], &[b"x"]));
    }
}
