//! Whose memory it is. Everything that metadata say of processes and descriptors is public and may
//! be repeated by anybody, so nothing of it is used before its owner has proven it to this asker:
//!
//! ```text
//! asker                                              owner
//!   nonce, number of memory ── control connection ─▶  digest of the nonce, both agents and all that
//!                                                     is said of the memory: left in read-only memory,
//!                           ◀── address, thread ────  and told to the server of descriptors
//!   reads the digest there, in the process that the metadata name, by that thread
//!   asks the server that the metadata name, by secrets made of the digest
//! ```
//!
//! An owner that names the process, the memory or the descriptors of a third agent fails at both: the
//! third one has left no digest of these two agents, or one of what it offers itself.

use crate::control::{Asked, Link, Service};
use crate::deadline::Deadline;
use crate::memories::Memories;
use crate::metadata::{MemoryInfo, random};
use crate::names::Owner;
use crate::remote::{PeerMemory, Proven};
use crate::{AgentError, lock};
use sha2::{Digest, Sha256};
use std::sync::{Arc, Mutex};
use warpverbs_mem::{Process, ProcessError, Proof, ProofPlace};
use warpverbs_peer::Identity;
use warpverbs_peer::descriptor::Secrets;

/// How often an asker asks.
const ATTEMPTS: usize = 4;

/// The digest that only `owner` leaves in its memory, and only for `asker`.
fn digest(nonce: &[u8; 32], asker: &Owner, owner: &Owner, said: &MemoryInfo) -> [u8; 32] {
    // Fails only for want of memory.
    let said = postcard::to_stdvec(said).unwrap_or_default();
    let mut digest = Sha256::new().chain_update(b"warpverbs proof of memory").chain_update(nonce);
    for part in [asker, owner] {
        digest.update((part.name.len() as u64).to_le_bytes());
        digest.update(part.name.as_bytes());
        digest.update(part.generation.to_bytes());
    }
    digest.chain_update(said).finalize().into()
}

fn secrets(digest: &[u8; 32]) -> Secrets {
    let both = Sha256::new().chain_update(b"descriptors").chain_update(digest);
    <[u8; 32]>::from(both.finalize()).into()
}

/// The owner's side: proves to `asker` what this agent says of its memory. In the control thread, which
/// is not the first of its process and lives as long as the agent.
pub(crate) fn answer(
    memories: &Memories,
    link: &Link,
    asker: &Owner,
    bytes: &[u8],
) -> Result<Vec<u8>, String> {
    let say = |error: &dyn std::fmt::Display| error.to_string();
    let (nonce, id): ([u8; 32], u32) = postcard::from_bytes(bytes).map_err(|e| say(&e))?;
    let memory = memories.memory(id).map_err(|e| say(&e))?;
    let said = memory.info().ok_or_else(|| say(&memory.extent.deregistered()))?;
    let digest = digest(&nonce, asker, &memories.owner, &said);
    memory.grant(secrets(&digest));
    let proof = Proof::new(&digest).map_err(|e| say(&e))?;
    let ProofPlace { proof: at, word, thread } = proof.place();
    link.keep(proof);
    postcard::to_stdvec(&(at, word, thread)).map_err(|e| say(&e))
}

/// The asker's side: the process that a peer's metadata name, once it is known to be the peer's.
pub(crate) struct Prover {
    own: Identity,
    theirs: Identity,
    /// One descriptor for all memory of a peer.
    process: Mutex<Option<Arc<Process>>>,
}

impl Prover {
    pub(crate) fn new(own: &Identity, theirs: &Identity) -> Self {
        Self { own: own.clone(), theirs: theirs.clone(), process: Mutex::default() }
    }

    /// Whether both ends say that they run on one machine.
    pub(crate) fn same_machine(&self) -> bool {
        !self.own.boot_id.is_empty() && self.own.boot_id == self.theirs.boot_id
    }

    /// Reasons of the process copy that are certain before anything is tried.
    pub(crate) fn may_copy(&self) -> Result<(), String> {
        let Self { own, theirs, .. } = self;
        match self.same_machine() {
            false => Err(format!("{} is another machine than {}", theirs.host, own.host)),
            true if own.pid_namespace == theirs.pid_namespace => Ok(()),
            true => Err(format!(
                "the peer is in {}, not in {}",
                theirs.pid_namespace, own.pid_namespace
            )),
        }
    }

    /// The proof of the owner of `memory`; asked for once.
    pub(crate) fn proven(
        &self,
        asker: &Owner,
        peer: &Arc<dyn Asked>,
        memory: &PeerMemory,
        deadline: &Deadline,
    ) -> Result<Arc<Proven>, AgentError> {
        let what = || format!("a proof of {}", peer.owner());
        let make = || self.ask(asker, peer, memory, deadline).map(Arc::new);
        memory.proven.get_or_make(deadline, what, make)
    }

    fn ask(
        &self,
        asker: &Owner,
        peer: &Arc<dyn Asked>,
        memory: &PeerMemory,
        deadline: &Deadline,
    ) -> Result<Proven, AgentError> {
        let refused = |error: &dyn std::fmt::Display| {
            let (peer, why) = (peer.owner().to_string(), error.to_string());
            AgentError::Refused { peer, why }
        };
        let mut attempt = 0;
        loop {
            attempt += 1;
            let nonce: [u8; 32] = random()?;
            let link = peer.clone().link(deadline)?;
            let question =
                postcard::to_stdvec(&(nonce, memory.extent.id)).map_err(|e| refused(&e))?;
            let told = link.call(peer.owner(), Service::Prove, &question, deadline)?;
            let (proof, word, thread) = postcard::from_bytes(&told).map_err(|e| refused(&e))?;
            let digest = digest(&nonce, asker, peer.owner(), &memory.info);
            let process = self.process(&ProofPlace { proof, word, thread }, &digest);
            // The digest may have had to make room for others.
            let again = matches!(process, Err(Some(ProcessError::WrongProof { .. })));
            if again && attempt < ATTEMPTS {
                continue;
            }
            let why = |error: Option<ProcessError>| match error {
                Some(error) => error.to_string(),
                None => self.may_copy().err().unwrap_or_default(),
            };
            return Ok(Proven { secrets: secrets(&digest), process: process.map_err(why) });
        }
    }

    /// The peer's process, in which the digest is found. No error if it cannot be looked at from here.
    fn process(
        &self,
        place: &ProofPlace,
        digest: &[u8; 32],
    ) -> Result<Arc<Process>, Option<ProcessError>> {
        self.may_copy().map_err(|_| None)?;
        let known = lock(&self.process).clone();
        let is_same =
            |process: &Arc<Process>| process.is_by(place.thread) && process.check().is_ok();
        let process = match known.filter(is_same) {
            Some(process) => process,
            None => Arc::new(Process::open(self.theirs.pid, place.thread).map_err(Some)?),
        };
        let word = u64::from_le_bytes(random().unwrap_or_default());
        process.prove(place, digest, word).map_err(Some)?;
        *lock(&self.process) = Some(process.clone());
        Ok(process)
    }
}

#[cfg(test)]
mod tests;
