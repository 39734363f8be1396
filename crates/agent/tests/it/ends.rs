//! Ends of agents, and of their memory, under a transfer, on every path: the peer is lost because its agent
//! ends, the agent of the transfer ends, or the peer takes its memory back. When the transfer is over, or
//! its agent is dropped, no byte lands any more and none is read: what both ends have put there since
//! stays.

use crate::bed::{SOON, by};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use warpverbs_agent::{
    Agent, AgentConfig, AgentError, Op, PathKind, PostOptions, Registration, State, Transfer,
};
use warpverbs_dev::{Child, say};
use warpverbs_mem::Region;

const LEN: usize = 12 << 20;
/// Looked at in one piece, which stays in the cache.
const PART: usize = 64 << 10;
const ROUNDS: u64 = 6;
/// Looks at memory after a transfer was over.
const LOOKS: usize = 4;
/// How often a long list has the whole memory.
const TIMES: usize = 64;

fn config(path: PathKind) -> AgentConfig {
    by(path).silence(SOON)
}

fn random(seed: u64) -> Vec<u8> {
    warpverbs_dev::pattern(LEN, seed)
}

fn holds(region: &Region, expected: &[u8]) -> bool {
    let mut found = vec![0; PART];
    expected.chunks(PART).enumerate().all(|(at, part)| {
        let found = &mut found[..part.len()];
        region.read((at * PART) as u64, found).unwrap();
        found == part
    })
}

/// The agent whose memory is used. The memory outlives it.
struct Owner {
    agent: Option<Agent>,
    memory: Option<Registration>,
    region: Region,
    /// The bytes that were put there last, and the next.
    filled: Vec<u8>,
    next: Vec<u8>,
}

impl Owner {
    fn new(path: PathKind) -> Self {
        let agent = Agent::new("target", config(path)).unwrap();
        let memory = match path {
            PathKind::Mapped => agent.alloc(LEN as u64, "memory").unwrap(),
            _ => agent.register(vec![0; LEN], "memory").unwrap(),
        };
        let region = memory.buffer().region().clone();
        Self {
            agent: Some(agent),
            memory: Some(memory),
            region,
            filled: vec![0; LEN],
            next: Vec::new(),
        }
    }

    fn obey(&mut self, command: &str) -> String {
        let (verb, seed) = command.split_once(' ').unwrap_or((command, "0"));
        let seed = seed.parse().unwrap();
        match verb {
            "address" => return self.agent.as_ref().unwrap().address().to_string(),
            "end" => self.agent = None,
            "prepare" => self.next = random(seed),
            "fill" => {
                self.filled = std::mem::take(&mut self.next);
                self.region.write(0, &self.filled).unwrap();
            }
            "holds" => return holds(&self.region, &self.filled).to_string(),
            // Once a transfer has begun to write there.
            "back" => {
                let (before, start) = (&self.filled[..64], Instant::now());
                let mut now = before.to_vec();
                while now == before {
                    assert!(start.elapsed() < SOON, "nothing is written");
                    self.region.read(0, &mut now).unwrap();
                }
                self.memory = None;
            }
            _ => panic!("{command}"),
        }
        "done".to_owned()
    }
}

/// It is in a process of its own where the path needs that.
enum Target {
    Here(Owner),
    There(Child),
}

impl Target {
    fn new(path: PathKind) -> Self {
        match path {
            PathKind::ProcessCopy => Self::There(Child::of_test("ends::target", "AGENT_ENDS", 1)),
            _ => Self::Here(Owner::new(path)),
        }
    }

    fn ask(&mut self, command: impl Into<String>) -> String {
        match self {
            Self::Here(owner) => owner.obey(&command.into()),
            Self::There(child) => child.ask(command.into()),
        }
    }

    /// Its memory, where that is in this process.
    fn region(&self) -> Option<Region> {
        match self {
            Self::Here(owner) => Some(owner.region.clone()),
            Self::There(_) => None,
        }
    }

    fn address(&mut self) -> SocketAddr {
        self.ask("address").parse().unwrap()
    }
}

/// The part of another process.
#[test]
fn target() {
    if std::env::var_os("AGENT_ENDS").is_some() {
        let mut owner = Owner::new(PathKind::ProcessCopy);
        for command in std::io::stdin().lines() {
            say(owner.obey(&command.unwrap()));
        }
    }
}

struct Rig {
    agent: Agent,
    ours: Registration,
    here: Region,
    target: Target,
}

impl Rig {
    fn new(path: PathKind) -> Self {
        let mut target = Target::new(path);
        let agent = Agent::new("initiator", config(path)).unwrap();
        let ours = agent.register(vec![0; LEN], "ours").unwrap();
        agent.fetch_metadata(target.address(), SOON).unwrap();
        let here = ours.buffer().region().clone();
        Self { agent, ours, here, target }
    }

    /// Of the whole memory, in blocks, several times: the end comes in the middle of it.
    fn transfer(&self, op: Op, block: usize, times: usize) -> Transfer {
        let remote = self.agent.remote("target", "memory").unwrap();
        let (block, count) = (block as u64, (LEN / block) as u64);
        let here: Vec<_> = (0..count).map(|at| at * block).collect();
        let there: Vec<_> = here.iter().rev().copied().collect();
        let here = self.ours.blocks_at(&here.repeat(times), block).unwrap();
        let there = remote.blocks_at(&there.repeat(times), block).unwrap();
        self.agent.transfer(op, &here, &there).unwrap()
    }
}

/// New bytes at both ends, of an ended transfer, stay. Those of the target are prepared.
fn nothing_moves(here: &Region, target: &mut Target, new: &[u8], what: &str) {
    here.write(0, new).unwrap();
    target.ask("fill");
    for _ in 0..LOOKS {
        assert!(holds(here, new), "{what}: bytes landed here");
        assert_eq!(target.ask("holds"), "true", "{what}: bytes landed there");
    }
}

/// Which of the two agents ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ending {
    Peer,
    Own,
}

fn over(transfer: &Transfer) -> Result<State, AgentError> {
    let over = transfer.post(PostOptions::new()).and_then(|_| transfer.wait(SOON));
    assert!(transfer.state().is_terminal());
    over
}

/// Posts transfers whose agent, or whose peer's, ends at a random moment.
fn ends(path: PathKind, ending: Ending) {
    let mut numbers = StdRng::seed_from_u64(warpverbs_dev::seed());
    let mut early = 0;
    for round in 0..2 * ROUNDS {
        let op = if round % 2 == 0 { Op::Write } else { Op::Read };
        let block = [4 << 10, 64 << 10, LEN][(round / 2 % 3) as usize];
        let mut rig = Rig::new(path);
        // Connections are made by this.
        assert_eq!(over(&rig.transfer(op, block, 1)).unwrap(), State::Done);
        let transfer = rig.transfer(op, block, 16);
        let seed = numbers.random::<u64>() >> 8;
        rig.here.write(0, &random(seed)).unwrap();
        rig.target.ask(format!("prepare {}", seed + 1));
        rig.target.ask("fill");
        rig.target.ask(format!("prepare {}", seed + 2));
        let micros = numbers.random_range(0..4000);
        let what = format!("{path}, {op:?}, {ending:?} end, round {round}, blocks of {block}");
        let Rig { agent, ours: _ours, here, mut target } = rig;
        let (new, there) = ([seed + 3, seed + 4].map(random), target.region());
        let ended = std::thread::scope(|scope| {
            let posting = scope.spawn(|| {
                let ended = over(&transfer);
                // At once, though the other agent is not quite gone.
                if ending == Ending::Peer {
                    here.write(0, &new[0]).unwrap();
                    there.iter().for_each(|there| there.write(0, &new[1]).unwrap());
                    for _ in 0..LOOKS {
                        assert!(holds(&here, &new[0]), "{what}: bytes landed here");
                        let stay = there.iter().all(|there| holds(there, &new[1]));
                        assert!(stay, "{what}: bytes landed there");
                    }
                }
                ended
            });
            // Any moment will do: it is drawn.
            std::thread::sleep(Duration::from_micros(micros));
            match ending {
                Ending::Own => {
                    drop(agent);
                    nothing_moves(&here, &mut target, &new[0], &what);
                }
                Ending::Peer => drop(target.ask("end")),
            }
            posting.join().unwrap()
        });
        target.ask(format!("prepare {}", seed + 5));
        nothing_moves(&here, &mut target, &new[1], &what);
        early += usize::from(ended.is_err());
        match ended {
            Ok(state) => assert_eq!(state, State::Done, "{what}"),
            Err(AgentError::PeerLost { .. } | AgentError::Deregistered { .. }) => {}
            // The peer's end may be gone before its connection.
            Err(AgentError::Path { .. }) if ending == Ending::Peer => {}
            Err(error) => panic!("{what}: {error}"),
        }
    }
    println!("{path}, {ending:?}: {early} of {} ended early", 2 * ROUNDS);
}

macro_rules! on_every_path {
    ($($name:ident: $path:ident,)*) => {
        $(mod $name {
            use super::*;

            #[test]
            fn nothing_moves_once_the_peer_is_lost() {
                ends(PathKind::$path, Ending::Peer);
            }

            #[test]
            fn nothing_moves_once_the_agent_is_dropped() {
                ends(PathKind::$path, Ending::Own);
            }
        })*
    };
}

on_every_path! {
    same_process: SameProcess,
    mapped: Mapped,
    process_copy: ProcessCopy,
    network: Network,
    tcp: Tcp,
}

/// The rest of a long copy stops when the owner takes its memory back.
#[test]
fn memory_that_is_taken_back_ends_copies_of_the_cpu() {
    let seed = warpverbs_dev::seed() >> 8;
    for path in [PathKind::Mapped, PathKind::ProcessCopy] {
        // The news may come when all has been copied.
        let ended = (0..20).any(|_| {
            let mut rig = Rig::new(path);
            let write = rig.transfer(Op::Write, LEN, TIMES);
            rig.target.ask(format!("prepare {seed}"));
            rig.target.ask("fill");
            rig.target.ask(format!("prepare {}", seed + 1));
            rig.here.write(0, &random(seed + 2)).unwrap();
            let new = random(seed + 3);
            let target = &mut rig.target;
            let ended = std::thread::scope(|scope| {
                let posting = scope.spawn(|| over(&write));
                target.ask("back");
                posting.join().unwrap()
            });
            nothing_moves(&rig.here, &mut rig.target, &new, &path.to_string());
            match ended {
                Ok(_) => false,
                Err(AgentError::Deregistered { .. }) => true,
                Err(error) => panic!("{path}: {error}"),
            }
        });
        assert!(ended, "{path}: the copy goes on");
    }
}
