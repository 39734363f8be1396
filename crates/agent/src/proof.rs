//! Whose memory it is. What metadata say of processes and descriptors is public and may be repeated by
//! anybody, so nothing of it is used before its owner has proven it to this asker:
//!
//! ```text
//! asker                                              owner
//!   nonce, number of memory ── control connection ─▶  digest of the nonce, both agents and all that
//!                                                     is said of the memory: left in read-only memory,
//!                           ◀── address of it ──────  and told to the server of descriptors
//!   reads the digest there, in the process that the metadata name
//!   asks the server that the metadata name, by secrets made of the digest
//! ```
//!
//! An owner that names the process, the memory or the descriptors of a third agent fails at both: the
//! third one has left no digest of these two agents, or one of what it offers itself.

use crate::AgentError;
use crate::control::frame::Service;
use crate::control::link::Link;
use crate::inner::Inner;
use crate::list::Owner;
use crate::lock;
use crate::metadata::{MemoryInfo, random};
use crate::peer::{Peer, PeerMemory};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::Instant;
use warpverbs_mem::{Process, ProcessError, Proof, ProofPlace};
use warpverbs_peer::descriptor::{Secrets, Trust};

/// How often an asker asks.
const ATTEMPTS: usize = 4;

/// What an owner has proven of one memory.
pub(crate) struct Proven {
    secrets: Secrets,
    /// Its process, or why that is not known.
    process: Result<Arc<Process>, String>,
}

impl Proven {
    pub(crate) fn process(&self) -> Result<&Arc<Process>, String> {
        self.process.as_ref().map_err(Clone::clone)
    }

    pub(crate) fn trust(&self) -> Trust<'_> {
        let process = self.process.as_ref().map(|process| process.descriptor());
        Trust::Proven { secrets: self.secrets, process: process.map_err(String::as_str) }
    }
}

/// What only `owner` leaves in its memory, and only for `asker`.
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

/// The owner's side: proves to `asker` what this agent says of its memory.
pub(crate) fn answer(
    inner: &Inner,
    link: &Link,
    asker: &Owner,
    bytes: &[u8],
) -> Result<Vec<u8>, String> {
    let say = |error: &dyn std::fmt::Display| error.to_string();
    let (nonce, id): ([u8; 32], u32) = postcard::from_bytes(bytes).map_err(|e| say(&e))?;
    let memory = inner.memory(id).map_err(|e| say(&e))?;
    let said = memory.info().ok_or_else(|| say(&memory.extent.deregistered()))?;
    let digest = digest(&nonce, asker, &inner.owner, &said);
    memory.grant(secrets(&digest));
    let proof = Proof::new(&digest).map_err(|e| say(&e))?;
    let ProofPlace { proof: at, word } = proof.place();
    link.keep(proof);
    postcard::to_stdvec(&(at, word)).map_err(|e| say(&e))
}

/// The asker's side.
pub(crate) fn ask(
    agent: &Arc<Inner>,
    peer: &Arc<Peer>,
    memory: &PeerMemory,
    until: Instant,
) -> Result<Proven, AgentError> {
    let refused = |error: &dyn std::fmt::Display| {
        let (peer, why) = (peer.owner.to_string(), error.to_string());
        AgentError::Refused { peer, why }
    };
    let left = || until.saturating_duration_since(Instant::now());
    let mut attempt = 0;
    loop {
        attempt += 1;
        let nonce: [u8; 32] = random()?;
        let link = agent.connect(peer, left())?;
        let question = postcard::to_stdvec(&(nonce, memory.extent.id)).map_err(|e| refused(&e))?;
        let told = link.call(&peer.owner, Service::Prove, &question, left())?;
        let (proof, word) = postcard::from_bytes(&told).map_err(|e| refused(&e))?;
        let digest = digest(&nonce, &agent.owner, &peer.owner, &memory.info);
        let place = ProofPlace { proof, word };
        let process = process(agent, peer, &place, &digest);
        // The digest may have had to make room for others.
        let again = matches!(process, Err(Some(ProcessError::WrongProof { .. })));
        if again && attempt < ATTEMPTS {
            continue;
        }
        let why = |error: Option<ProcessError>| match error {
            Some(error) => error.to_string(),
            None => elsewhere(agent, peer),
        };
        return Ok(Proven { secrets: secrets(&digest), process: process.map_err(why) });
    }
}

fn elsewhere(agent: &Inner, peer: &Peer) -> String {
    let own = &agent.contact.introduction.identity;
    let theirs = &peer.contact.introduction.identity;
    match own.boot_id.is_empty() || own.boot_id != theirs.boot_id {
        true => format!("{} is another machine than {}", theirs.host, own.host),
        false => {
            format!("the peer is in {}, not in {}", theirs.pid_namespace, own.pid_namespace)
        }
    }
}

/// The peer's process, in which the digest is found. No error if it cannot be looked at from here.
fn process(
    agent: &Inner,
    peer: &Peer,
    place: &ProofPlace,
    digest: &[u8; 32],
) -> Result<Arc<Process>, Option<ProcessError>> {
    may_copy(agent, peer).map_err(|_| None)?;
    let known = lock(&peer.process).clone();
    // One descriptor for all memory of a peer.
    let process = match known.filter(|process| process.check().is_ok()) {
        Some(process) => process,
        None => Arc::new(Process::open(peer.contact.introduction.identity.pid).map_err(Some)?),
    };
    let word = u64::from_le_bytes(random().unwrap_or_default());
    process.prove(place, digest, word).map_err(Some)?;
    *lock(&peer.process) = Some(process.clone());
    Ok(process)
}

impl PeerMemory {
    /// What its owner has proven; asked for once.
    pub(crate) fn proven(
        &self,
        agent: &Arc<Inner>,
        peer: &Arc<Peer>,
        until: Instant,
    ) -> Result<Arc<Proven>, AgentError> {
        let late = || {
            let what = format!("a proof of {}", peer.owner);
            AgentError::Timeout { what, after: agent.config.deadline }
        };
        let make = || ask(agent, peer, self, until).map(Arc::new);
        self.made_proof().get_or_make(until, make, late)
    }
}

/// Reasons of the process copy that are certain before anything is tried.
pub(crate) fn may_copy(agent: &Inner, peer: &Peer) -> Result<(), String> {
    let own = &agent.contact.introduction.identity;
    let theirs = &peer.contact.introduction.identity;
    let here = !own.boot_id.is_empty() && own.boot_id == theirs.boot_id;
    match here && own.pid_namespace == theirs.pid_namespace {
        true => Ok(()),
        false => Err(elsewhere(agent, peer)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Metadata;
    use crate::{Agent, AgentConfig, Op, PathKind, PostOptions, State};
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Child, Command, Stdio};
    use std::time::Duration;

    const TOKEN: &[u8] = b"of the test";
    const LEN: usize = 4096;
    const SOON: Duration = Duration::from_secs(30);

    fn config(path: PathKind) -> AgentConfig {
        AgentConfig::default().token(TOKEN).require(path)
    }

    fn secret(i: usize) -> u8 {
        (i as u32).wrapping_mul(0x9e37_79b9).to_le_bytes()[3]
    }

    /// The part of the third process: says who it is, and whether its memory is as it was.
    #[test]
    fn third() {
        if std::env::var_os("AGENT_THIRD").is_none() {
            return;
        }
        let agent = Agent::new("third", AgentConfig::default().token(TOKEN)).unwrap();
        let private = agent.register((0..LEN).map(secret).collect::<Vec<_>>(), "m").unwrap();
        let shared = agent.alloc(LEN as u64, "m").unwrap();
        let bytes: Vec<u8> = (0..LEN).map(secret).collect();
        shared.write(0, &bytes).unwrap();
        let said: String = agent.metadata().unwrap().iter().map(|b| format!("{b:02x}")).collect();
        println!("\n> {said}");
        for line in std::io::stdin().lines() {
            line.unwrap();
            let mut found = [vec![0; LEN], vec![0; LEN]];
            private.read(0, &mut found[0]).unwrap();
            shared.read(0, &mut found[1]).unwrap();
            println!("\n> {}", found.iter().all(|found| *found == bytes));
        }
    }

    struct Third(Child, Metadata);

    impl Third {
        fn start() -> Self {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "proof::tests::third", "--nocapture"])
                .env("AGENT_THIRD", "1")
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let said = line(&mut child);
            let byte = |at: usize| u8::from_str_radix(&said[at..at + 2], 16).unwrap();
            let bytes: Vec<u8> = (0..said.len()).step_by(2).map(byte).collect();
            Self(child, Metadata::from_bytes(&bytes, TOKEN).unwrap())
        }

        fn is_untouched(&mut self) -> bool {
            writeln!(self.0.stdin.as_mut().unwrap()).unwrap();
            line(&mut self.0) == "true"
        }
    }

    impl Drop for Third {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn line(child: &mut Child) -> String {
        // Nothing is read ahead: one line is asked for at a time.
        let mut lines = BufReader::with_capacity(1, child.stdout.as_mut().unwrap()).lines();
        lines.find_map(|line| line.unwrap().strip_prefix("> ").map(str::to_owned)).unwrap()
    }

    /// What `asker` makes of `said`: the reasons against any path, or an agent that was deceived.
    fn refused(asker: &Agent, said: &Metadata) -> String {
        let name = asker.load_metadata(&said.to_bytes(TOKEN).unwrap()).unwrap();
        let ours = asker.register(vec![0x5a; LEN], "ours").unwrap();
        let remote = asker.remote(&name, "m").unwrap();
        let lists = (ours.blocks(0, 64, 1).unwrap(), remote.blocks(0, 64, 1).unwrap());
        match asker.initialize(Op::Write, &lists.0, &lists.1) {
            Ok(write) => format!("deceived: {:?}", write.post(PostOptions::new())),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn the_process_and_the_memory_of_a_third_agent_are_not_reached_by_the_word_of_another() {
        let mut third = Third::start();
        let victim = third.1.clone();
        let liar = Agent::new("liar", config(PathKind::ProcessCopy)).unwrap();
        let _own = liar.register(vec![0; LEN], "m").unwrap();
        let told = liar.metadata().unwrap();
        let lie = |lie: &dyn Fn(&mut Metadata)| {
            let mut said = Metadata::from_bytes(&told, TOKEN).unwrap();
            said.contact.introduction.identity = victim.contact.introduction.identity.clone();
            lie(&mut said);
            said
        };
        let private = &victim.memories[0];
        let cases = [
            lie(&|_| {}),
            lie(&|said| said.memories[0].addr = private.addr),
            lie(&|said| said.memories[0] = private.clone()),
        ];
        for said in cases {
            let asker = Agent::new("asker", config(PathKind::ProcessCopy)).unwrap();
            let why = refused(&asker, &said);
            // Where the system forbids such copies, that is the reason.
            assert!(why.contains("process copy: ") && !why.contains("deceived"), "{why}");
        }
        // In the name of the third agent, which is asked and says otherwise.
        let mut said = victim.clone();
        said.memories.truncate(1);
        said.memories[0].addr += 64;
        let asker = Agent::new("asker", config(PathKind::ProcessCopy)).unwrap();
        let why = refused(&asker, &said);
        assert!(why.contains("process copy: ") && !why.contains("deceived"), "{why}");
        assert!(third.is_untouched());
        // The truth is believed.
        said.memories[0].addr -= 64;
        let asker = Agent::new("asker", config(PathKind::ProcessCopy)).unwrap();
        match refused(&asker, &said) {
            why if why.contains("deceived") => assert!(!third.is_untouched()),
            why => eprintln!("SKIPPED: {why}"),
        }
    }

    #[test]
    fn the_descriptors_of_a_third_agent_are_not_taken_by_the_word_of_another() {
        let mut third = Third::start();
        let victim = third.1.clone();
        let liar = Agent::new("liar", config(PathKind::Mapped)).unwrap();
        let _own = liar.alloc(LEN as u64, "m").unwrap();
        let mut said = Metadata::from_bytes(&liar.metadata().unwrap(), TOKEN).unwrap();
        said.memories[0].offer = victim.memories[1].offer.clone();
        let told = said.contact.introduction.clone();
        let theirs = victim.contact.introduction.clone();
        for (identity, server) in
            [(&theirs, &theirs), (&theirs, &told), (&told, &theirs), (&told, &told)]
        {
            said.contact.introduction.identity = identity.identity.clone();
            said.contact.introduction.server = server.server.clone();
            let asker = Agent::new("asker", config(PathKind::Mapped)).unwrap();
            let why = refused(&asker, &said);
            assert!(why.contains("mapped memory: ") && !why.contains("deceived"), "{why}");
        }
        assert!(third.is_untouched());
        let mut said = victim;
        said.memories.remove(0);
        let asker = Agent::new("asker", config(PathKind::Mapped)).unwrap();
        assert!(refused(&asker, &said).contains("deceived: Ok(Done)"));
        assert!(!third.is_untouched());
    }

    #[test]
    fn many_ask_at_a_time() {
        let mut third = Third::start();
        let mut said = third.1.clone();
        let (one, count) = (said.memories.remove(1), 40);
        let asker = Agent::new("asker", config(PathKind::Mapped)).unwrap();
        said.memories = vec![one];
        let name = asker.load_metadata(&said.to_bytes(TOKEN).unwrap()).unwrap();
        let ours = asker.register(vec![0; LEN], "ours").unwrap();
        let peer = asker.inner().peer(&name).unwrap();
        let remote = asker.remote(&name, "m").unwrap();
        std::thread::scope(|scope| {
            for _ in 0..count {
                scope.spawn(|| {
                    let until = Instant::now() + SOON;
                    ask(asker.inner(), &peer, &remote.0, until).unwrap();
                });
            }
        });
        let lists = (ours.blocks(0, 64, 1).unwrap(), remote.blocks(0, 64, 1).unwrap());
        let read = asker.initialize(Op::Read, &lists.0, &lists.1).unwrap();
        assert_eq!(read.post(PostOptions::new()).unwrap(), State::Done);
        assert!(third.is_untouched());
    }
}
