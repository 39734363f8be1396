//! The server: it offers its memory, answers where the operation needs an answer, and checks what
//! arrived.

use super::messages::{Group, Measure, Message, Part, Setup};
use super::pair::{PairEnd, explained};
use super::side::{NicArgs, Role, Side};
use super::timed;
use super::watch::Watch;
use crate::rig::ends::AtPort;
use crate::rig::plan::{Op, word};
use crate::rig::talk::{Talk, only};
use anyhow::{Result, bail, ensure};
use std::time::Duration;

/// How long the client's first message may take.
const PROMPT: Duration = Duration::from_secs(10);
/// How long the client may be busy between two messages.
const BETWEEN: Duration = Duration::from_secs(60);

pub(super) fn follow(
    op: Op,
    AtPort { udp_port, own }: &AtPort<NicArgs>,
    talk: &mut Talk<Message>,
) -> Result<()> {
    let found = talk.recv("setup", PROMPT)?;
    let setup = only!(talk, found, "setup", Message::Setup(setup) => setup);
    check(op, &setup)?;
    let side = Side::open(Role::Server, setup, (own, (talk.local_ip()?, *udp_port)), None)?;
    talk.send(Message::Ready)?;
    let mut pairs = Vec::new();
    loop {
        let mut fruitless = 0u32;
        let message = talk.wait("part", BETWEEN, || {
            side.engine.turn(fruitless);
            fruitless = fruitless.saturating_add(1);
        })?;
        match message {
            Message::Group(group) => {
                // The old ones make room first.
                drop(std::mem::take(&mut pairs));
                pairs = meet(&side, talk, &group)?;
            }
            Message::Part(part) => {
                measure(&side, talk, &pairs, &part)
                    .map_err(|error| explained(error, &side, &pairs))?;
            }
            Message::End => return Ok(()),
            other => return Err(talk.out_of_turn(other, "group, part or end").into()),
        }
    }
}

/// A client's request is checked as the command line is: it comes from outside.
fn check(op: Op, setup: &Setup) -> Result<()> {
    let (ours, theirs) = (word(op), word(setup.op));
    ensure!(ours == theirs, "this server measures {ours}, the client {theirs}");
    super::request::check_setup(setup)?;
    Ok(())
}

fn meet(side: &Side, talk: &mut Talk<Message>, group: &Group) -> Result<Vec<PairEnd>> {
    super::request::check_group(group)?;
    let mut pairs = side.pairs(group.qps, group.max_bytes)?;
    side.connect(&mut pairs, &group.ends)?;
    let ends = pairs.iter().map(PairEnd::end).collect();
    talk.send(Message::Group(Group { ends, ..*group }))?;
    Ok(pairs)
}

fn measure(side: &Side, talk: &mut Talk<Message>, pairs: &[PairEnd], part: &Part) -> Result<()> {
    let Some(first) = pairs.first() else { bail!("a part without queue pairs") };
    ensure!(
        (1..=first.main.len() as u64).contains(&part.bytes),
        "a part of {} bytes, at most {} were announced",
        part.bytes,
        first.main.len()
    );
    let pairs = match part.measure {
        Measure::Latency => &pairs[..1],
        Measure::Bandwidth => pairs,
    };
    pairs.iter().try_for_each(|pair| pair.prepare(part))?;
    talk.send(Message::Go)?;
    let mut watch = Watch::new(side, talk);
    let (mine, message) = match (part.measure, side.setup.op) {
        (Measure::Latency, Op::Write | Op::Send) => {
            let (turns, message) = timed::answer(side, first, part, &mut watch)?;
            (Some(vec![turns]), message)
        }
        (Measure::Bandwidth, Op::Send) => {
            let (counts, message) = timed::receive(pairs, part, &mut watch)?;
            (Some(counts), message)
        }
        _ => (None, idle(&mut watch)?),
    };
    let counts = only!(talk, message, "stop", Message::Stop(counts) => counts);
    ensure!(counts.len() == pairs.len(), "{} counts, expected {}", counts.len(), pairs.len());
    if let Some(mine) = mine {
        ensure!(mine == counts, "{mine:?} messages arrived, {counts:?} were sent");
    }
    pairs.iter().zip(&counts).try_for_each(|(pair, count)| pair.verify(part, *count))?;
    Ok(talk.send(Message::Verified)?)
}

/// Runs the engine until the client sends a message.
fn idle(watch: &mut Watch<'_>) -> Result<Message> {
    loop {
        if let Some(message) = watch.pause()? {
            return Ok(message);
        }
    }
}
