//! One side's part in a case: requester or responder.

use crate::interop::case::{AREA, Case, GUARD, Group, Op, START, Twist, named};
use crate::interop::report::Outcome;
use crate::interop::side::{Address, Area, Remote, Side, Work};
use crate::interop::talk::{Part, Talk, step};
use crate::rig::pattern::pattern;
use anyhow::{Context as _, Result, ensure};
use std::time::{Duration, Instant};
use warpverbs_verbs::Status;

/// The longest wait for a completion: emulated machines are slow.
const LIMIT: Duration = Duration::from_secs(30);
/// How late a late receive is.
const LATE: Duration = Duration::from_millis(60);
/// The byte that fills memory before a case.
const BLANK: u8 = 0xa5;
/// The initial value of words, the addend, and the value they are swapped for.
const WORD: u64 = 0x0123_4567_89ab_cdef;
const ADD: u64 = 0xfedc_ba98_0000_0005;
const SWAP: u64 = 0x5555_aaaa_3333_cccc;

/// One connection's cases; `asks` is for the side that posts the work requests.
pub(crate) fn group(
    side: &mut dyn Side,
    talk: &mut Talk,
    group: &Group,
    asks: bool,
) -> Result<Vec<(Case, Outcome)>> {
    let mut rows = Vec::new();
    let connected = connect(side, talk, group, asks)?;
    let mut player = Player { side, talk, group, asks };
    for (number, case) in group.cases.iter().enumerate() {
        let outcome = match &connected {
            Ok(peer) => player.case(case, peer, number as u32)?,
            Err(error) => Err(anyhow::anyhow!("not connected: {error:#}")),
        };
        let failed = outcome.is_err();
        rows.push((*case, player.outcome(case, outcome)));
        if failed {
            // Cases after it on this connection say nothing.
            break;
        }
    }
    Ok(rows)
}

fn connect(
    side: &mut dyn Side,
    talk: &mut Talk,
    group: &Group,
    asks: bool,
) -> Result<Result<Address>> {
    let own = side.open(group);
    let own = own.map(|address| Part { address: Some(address), ..Part::default() });
    let peer = match step(talk, own)? {
        Ok((_, theirs)) => theirs.address.context("the other side has no address")?,
        Err(error) => return Ok(Err(error)),
    };
    let nobody = group.cases.iter().any(|case| case.twist == Twist::NobodyThere);
    let mut to = peer;
    if nobody && asks {
        to.qpn = peer.qpn ^ 0x5a5a5a;
    }
    let connected = side.connect(&to, group);
    Ok(step(talk, connected.map(|()| Part::default()))?.map(|_| peer))
}

struct Player<'a> {
    side: &'a mut dyn Side,
    talk: &'a mut Talk,
    group: &'a Group,
    asks: bool,
}

/// Statuses of the work requests, the time they took, and deviations.
type Ended = (Vec<String>, Duration, Vec<String>);

impl Player<'_> {
    fn outcome(&self, case: &Case, ended: Result<Ended>) -> Outcome {
        let (statuses, took, problems) = ended.unwrap_or_else(|error| {
            (vec!["not ended".into()], Duration::ZERO, vec![format!("{error:#}")])
        });
        Outcome {
            mtu: self.group.mtu,
            bytes: case.bytes,
            status: statuses.last().cloned().unwrap_or_else(|| named(Status::Success)),
            micros: took.as_micros() as u64,
            problems,
        }
    }

    /// The inner error is one of this case, of either side; the outer one ends everything.
    fn case(&mut self, case: &Case, peer: &Address, seed: u32) -> Result<Result<Ended>> {
        let prepared = self.prepare(case, seed).map(|()| Part::default());
        if let Err(error) = step(self.talk, prepared)? {
            return Ok(Err(error));
        }
        let began = Instant::now();
        let own = if self.asks { self.ask(case, peer) } else { self.receive_late(case) };
        let statuses = match step(self.talk, own.map(Part::from))? {
            Ok((own, theirs)) => {
                if self.asks {
                    own.words
                } else {
                    theirs.words
                }
            }
            Err(error) => return Ok(Err(error)),
        };
        let took = began.elapsed();
        let found =
            if self.asks { self.asked(case, seed, &statuses) } else { self.answered(case, seed) };
        Ok(step(self.talk, found.map(Part::from))?.map(|(own, theirs)| {
            let theirs = theirs.words.into_iter().map(|problem| format!("responder: {problem}"));
            (statuses, took, own.words.into_iter().chain(theirs).collect())
        }))
    }

    /// Known deviations of this responder.
    fn known(&self, case: &Case) -> Option<[String; 2]> {
        case.known_of_rxe().filter(|_| self.group.asks_rxe).map(|known| known.map(named))
    }

    fn prepare(&mut self, case: &Case, seed: u32) -> Result<()> {
        let len = case.bytes as usize * case.count as usize;
        let blank = vec![BLANK; len + 2 * GUARD];
        for area in [Area::Local, Area::Exposed] {
            self.side.write(area, START - GUARD as u64, &blank)?;
        }
        if case.twist == Twist::Beyond {
            self.side.write(Area::Exposed, AREA - (len + GUARD) as u64, &blank[..len + GUARD])?;
        }
        let words = || words(case).repeat(case.count as usize);
        match (self.asks, case.op) {
            (true, Op::Read | Op::FetchAdd | Op::CompareSwap { .. }) => {}
            (true, _) => self.side.write(Area::Local, START, &pattern(seed.into(), len))?,
            (false, Op::Read) => {
                self.side.write(Area::Exposed, START, &pattern(seed.into(), len))?
            }
            (false, Op::FetchAdd | Op::CompareSwap { .. }) => {
                self.side.write(Area::Exposed, START, &words())?;
            }
            (false, _) => {}
        }
        let late = matches!(case.twist, Twist::LateReceive | Twist::NoReceive);
        if !self.asks && !late { self.post_receives(case) } else { Ok(()) }
    }

    fn post_receives(&mut self, case: &Case) -> Result<()> {
        if !case.takes_receive() {
            return Ok(());
        }
        (0..case.count).try_for_each(|i| self.side.post_recv(case.at(i), case.receive_bytes()))
    }

    fn receive_late(&mut self, case: &Case) -> Result<Vec<String>> {
        if case.twist == Twist::LateReceive {
            std::thread::sleep(LATE);
            self.post_receives(case)?;
        }
        Ok(Vec::new())
    }

    fn ask(&mut self, case: &Case, peer: &Address) -> Result<Vec<String>> {
        let memory = match case.twist {
            Twist::BadKey => Remote { rkey: peer.exposed.rkey ^ 0x5a, ..peer.exposed },
            Twist::NotAllowed => peer.closed,
            Twist::DeadKey => peer.spare.unwrap_or(peer.exposed),
            _ => peer.exposed,
        };
        for i in 0..case.count {
            let remote = Remote { addr: memory.addr + case.remote_at(i), ..memory };
            let extra = match (case.op, peer.spare) {
                (Op::SendInval, Some(spare)) => spare.rkey,
                _ => immediate(case, i),
            };
            let operands = match case.op {
                Op::FetchAdd => [ADD, 0],
                Op::CompareSwap { .. } => [WORD, SWAP],
                _ => [0, 0],
            };
            let work =
                Work { op: case.op, local: case.at(i), bytes: case.bytes, remote, extra, operands };
            self.side.post(&work)?;
        }
        (0..case.count).map(|_| self.side.sent(LIMIT)).collect()
    }

    /// Problems that the requester finds in the end.
    fn asked(&self, case: &Case, seed: u32, statuses: &[String]) -> Result<Vec<String>> {
        let mut problems = Vec::new();
        let expected = named(case.expected());
        let known = self.known(case).map(|[status, _]| status);
        let wrong = |status: &String| *status != expected && Some(status) != known.as_ref();
        for (i, status) in statuses.iter().enumerate().filter(|(_, status)| wrong(status)) {
            problems.push(format!("work request {i} ended with {status}, not {expected}"));
        }
        let len = case.bytes as usize * case.count as usize;
        let fine = case.expected() == Status::Success;
        let arrived = match case.op {
            Op::Read if fine => pattern(seed.into(), len),
            Op::FetchAdd | Op::CompareSwap { .. } if fine => {
                words(case).repeat(case.count as usize)
            }
            Op::Read | Op::FetchAdd | Op::CompareSwap { .. } => vec![BLANK; len],
            _ => return Ok(problems),
        };
        problems.extend(self.compare(Area::Local, &arrived)?);
        Ok(problems)
    }

    /// Problems that the responder finds in the end.
    fn answered(&mut self, case: &Case, seed: u32) -> Result<Vec<String>> {
        let mut problems = Vec::new();
        if let Some(expected) = case.expected_arrival() {
            for i in 0..case.count {
                problems.extend(self.arrival(case, i, expected)?);
            }
        }
        let len = case.bytes as usize * case.count as usize;
        let blank = vec![BLANK; len];
        if case.expected() != Status::Success {
            let (area, at) = match case.twist {
                Twist::ShortReceive => (Area::Local, case.receive_bytes() as usize),
                _ => (Area::Exposed, 0),
            };
            let kept = match case.op {
                Op::Read => pattern(seed.into(), len),
                Op::FetchAdd => words(case),
                _ => blank,
            };
            problems.extend(self.compare_at(area, START + at as u64, &kept[at..])?);
            if case.twist == Twist::Beyond {
                let end = self.side.read(Area::Exposed, AREA - len as u64, len)?;
                problems.extend(differs(&end, &vec![BLANK; len], AREA - len as u64));
            }
            return Ok(problems);
        }
        let (area, expected) = match case.op {
            Op::Send | Op::SendImm | Op::SendInval => (Area::Local, pattern(seed.into(), len)),
            Op::Write | Op::WriteImm => (Area::Exposed, pattern(seed.into(), len)),
            Op::Read => (Area::Exposed, pattern(seed.into(), len)),
            Op::FetchAdd => {
                (Area::Exposed, WORD.wrapping_add(ADD).to_ne_bytes().repeat(case.count as usize))
            }
            Op::CompareSwap { hit: true } => {
                (Area::Exposed, SWAP.to_ne_bytes().repeat(case.count as usize))
            }
            Op::CompareSwap { hit: false } => {
                (Area::Exposed, words(case).repeat(case.count as usize))
            }
        };
        problems.extend(self.compare(area, &expected)?);
        Ok(problems)
    }

    /// The problem with receive `i`, if any.
    fn arrival(&mut self, case: &Case, i: u32, expected: Status) -> Result<Option<String>> {
        let Some(arrival) = self.side.arrived(LIMIT)? else {
            return Ok(Some(format!("receive {i} did not complete")));
        };
        let known = self.known(case).map(|[_, status]| status);
        if arrival.status != named(expected) && Some(&arrival.status) != known.as_ref() {
            let status = &arrival.status;
            return Ok(Some(format!("receive {i} ended with {status}, not {expected:?}")));
        }
        if expected != Status::Success {
            return Ok(None);
        }
        let imm = matches!(case.op, Op::SendImm | Op::WriteImm).then(|| immediate(case, i));
        let inval = case.op == Op::SendInval;
        let as_sent = arrival.imm == imm
            && arrival.invalidated.is_some() == inval
            && arrival.bytes == case.bytes;
        Ok((!as_sent)
            .then(|| format!("receive {i} shows {arrival:?}, expected immediate {imm:x?}")))
    }

    /// Compares a message and what lies around it.
    fn compare(&self, area: Area, expected: &[u8]) -> Result<Option<String>> {
        self.compare_at(area, START, expected)
    }

    fn compare_at(&self, area: Area, at: u64, expected: &[u8]) -> Result<Option<String>> {
        let guard = vec![BLANK; GUARD];
        let mut all = expected.to_vec();
        all.extend(&guard);
        let mut from = at;
        if at == START {
            all.splice(0..0, guard);
            from = at - GUARD as u64;
        }
        let found = self.side.read(area, from, all.len())?;
        ensure!(found.len() == all.len(), "{} bytes read of {}", found.len(), all.len());
        Ok(differs(&found, &all, from))
    }
}

fn differs(found: &[u8], expected: &[u8], from: u64) -> Option<String> {
    let at = found.iter().zip(expected).position(|(found, expected)| found != expected)?;
    let count = found.iter().zip(expected).filter(|(found, expected)| found != expected).count();
    let offset = (from + at as u64).cast_signed() - START.cast_signed();
    let (is, must) = (found[at], expected[at]);
    Some(format!("{count} bytes differ, the first at {offset}: {is:#04x}, expected {must:#04x}"))
}

fn words(case: &Case) -> Vec<u8> {
    let word = if case.op == (Op::CompareSwap { hit: false }) { !WORD } else { WORD };
    word.to_ne_bytes().into()
}

fn immediate(case: &Case, i: u32) -> u32 {
    0x8100_0000 | i << 20 | case.bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wrong_byte_is_found_with_its_place() {
        let expected = pattern(3, 5000);
        let mut found = expected.clone();
        assert_eq!(differs(&found, &expected, START), None);
        found[4096] ^= 1;
        let text = differs(&found, &expected, START).expect("a difference");
        assert!(text.starts_with("1 bytes differ, the first at 4096: "), "{text}");
        // The pattern does not repeat with the length of a packet, nor from case to case.
        assert_ne!(expected[..256], expected[1024..1280]);
        assert_ne!(expected[..256], pattern(4, 256)[..]);
    }
}
