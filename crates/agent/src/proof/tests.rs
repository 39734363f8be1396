//! Lies that are not believed, between three processes.

use super::*;
use crate::metadata::Metadata;
use crate::{Agent, AgentConfig, Op, PathKind, PostOptions, State};
use std::process::Command;
use std::time::Duration;
use warpverbs_dev::{Child, say};

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
    say(said);
    for line in std::io::stdin().lines() {
        line.unwrap();
        let mut found = [vec![0; LEN], vec![0; LEN]];
        private.read(0, &mut found[0]).unwrap();
        shared.read(0, &mut found[1]).unwrap();
        say(found.iter().all(|found| *found == bytes));
    }
}

struct Third(Child, Metadata);

impl Third {
    fn start() -> Self {
        Self::by(Child::of_test("proof::tests::third", "AGENT_THIRD", 1))
    }

    fn by(mut child: Child) -> Self {
        let said = child.said();
        let byte = |at: usize| u8::from_str_radix(&said[at..at + 2], 16).unwrap();
        let bytes: Vec<u8> = (0..said.len()).step_by(2).map(byte).collect();
        Self(child, Metadata::from_bytes(&bytes, TOKEN).unwrap())
    }

    fn is_untouched(&mut self) -> bool {
        self.0.ask("") == "true"
    }
}

/// The answer of `asker` to `said`: the reasons against any path, or an agent that was deceived.
fn refused(asker: &Agent, said: &Metadata) -> String {
    let name = asker.load_metadata(&said.to_bytes(TOKEN).unwrap()).unwrap();
    let ours = asker.register(vec![0x5a; LEN], "ours").unwrap();
    let remote = asker.remote(&name, "m").unwrap();
    let lists = (ours.blocks(0, 64, 1).unwrap(), remote.blocks(0, 64, 1).unwrap());
    match asker.transfer(Op::Write, &lists.0, &lists.1) {
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

/// As containers are that share a network and a user: no process is proven, and the descriptor comes all the same.
#[test]
fn memory_of_an_agent_in_another_pid_namespace_is_mapped() {
    let contained = || {
        let mut unshare = Command::new("unshare");
        unshare.args(["--pid", "--fork", "--kill-child"]);
        unshare
    };
    if !contained().arg("true").output().is_ok_and(|made| made.status.success()) {
        return eprintln!("SKIPPED: needs the right to make namespaces of processes");
    }
    let mut command = contained();
    command.arg(std::env::current_exe().unwrap());
    command.args(["--exact", "proof::tests::third", "--nocapture"]).env("AGENT_THIRD", "1");
    let mut third = Third::by(Child::start(&mut command));
    let private = third.1.clone();
    let asker = Agent::new("asker", config(PathKind::ProcessCopy)).unwrap();
    let why = refused(&asker, &private);
    assert!(why.contains("process copy: the peer is in pid:["), "{why}");
    let mut shared = private;
    shared.memories.remove(0);
    let asker = Agent::new("asker", config(PathKind::Mapped)).unwrap();
    let written = refused(&asker, &shared);
    assert!(written.contains("deceived: Ok(Done)"), "{written}");
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
    let peer = asker.shared.peers.peer(&name).unwrap();
    let remote = asker.remote(&name, "m").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(|| {
                let own = &asker.shared.router.owner;
                let deadline = Deadline::after(SOON);
                peer.prover.ask(own, &peer.asked(), &remote.0, &deadline).unwrap();
            });
        }
    });
    let lists = (ours.blocks(0, 64, 1).unwrap(), remote.blocks(0, 64, 1).unwrap());
    let read = asker.transfer(Op::Read, &lists.0, &lists.1).unwrap();
    assert_eq!(read.post(PostOptions::new()).unwrap(), State::Done);
    assert!(third.is_untouched());
}
