//! Any control data, and any use of what comes of it: the body of the fuzz target
//! `devmem_control`, also run by the ordinary tests.

use super::kernel::message;
use arbitrary::{Arbitrary, Unstructured};
use std::collections::BTreeMap;
use warpverbs_devmem::receive::{Incoming, Limits, Message};
use warpverbs_devmem::{Fragment, Source};

const TOKENS: u32 = 64;
const LANDING: u64 = 10_000;
/// Id and size of each dmabuf.
const BINDINGS: [(u32, u64); 2] = [(1, 1 << 16), (2, u64::MAX)];

#[derive(Arbitrary, Debug)]
enum Piece {
    /// In numbers that often fit.
    Dmabuf {
        offset: u16,
        size: u16,
        token: u8,
        second: bool,
    },
    /// In any numbers.
    Wide {
        offset: u64,
        size: u32,
        token: u32,
        id: u32,
    },
    Linear {
        size: u16,
    },
    Bytes(Vec<u8>),
}

#[derive(Arbitrary, Debug)]
enum Step {
    Receive {
        pieces: Vec<Piece>,
        bytes: Option<u32>,
        truncated: bool,
        most: u16,
    },
    GiveBack {
        index: u8,
        bytes: u16,
    },
    /// Not a fragment that was received.
    GiveBackWrong {
        token: Option<u32>,
        offset: u64,
        len: u64,
    },
    Return {
        freed: u16,
    },
}

/// Outcome of a script.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) fragments: usize,
    pub(crate) refused: usize,
    pub(crate) returned: u64,
}

struct Script {
    incoming: Incoming,
    holding: Vec<Fragment>,
    /// Bytes of each token that are held, as this model counts them.
    held: BTreeMap<u32, u64>,
    failed: bool,
    outcome: Outcome,
}

pub(crate) fn exercise(data: &[u8]) -> Outcome {
    let mut input = Unstructured::new(data);
    let limits = Limits { landing: LANDING, tokens: TOKENS, watermark: 8 };
    let mut incoming = Incoming::new(limits);
    BINDINGS.iter().for_each(|(id, size)| incoming.bind(*id, *size));
    let (holding, held) = (Vec::new(), BTreeMap::new());
    let mut script = Script { incoming, holding, held, failed: false, outcome: Outcome::default() };
    while !input.is_empty() {
        let Ok(step) = Step::arbitrary(&mut input) else { break };
        script.step(step);
        assert_eq!(script.incoming.ledger().held(), script.held.len() as u64);
        assert!(script.incoming.ledger().unreturned() <= TOKENS.into());
    }
    script.outcome
}

impl Script {
    fn step(&mut self, step: Step) {
        match step {
            Step::Receive { pieces, bytes, truncated, most } => {
                let (control, sum) = control(&pieces);
                let bytes = bytes.map_or(sum, u64::from).max(1);
                self.receive(Message { bytes, control: &control, truncated }, most.into());
            }
            Step::GiveBack { index, bytes } => {
                let Some(index) = usize::from(index).checked_rem(self.holding.len()) else {
                    return;
                };
                self.give_back(index, bytes.into());
            }
            Step::GiveBackWrong { token, offset, len } => {
                let is_held = token.is_some_and(|token| self.held.contains_key(&token));
                if !is_held && len > LANDING {
                    let wrong = Fragment { at: 0, len, source: Source::Plain, offset, token };
                    assert!(self.incoming.give_back(&[wrong]).is_err());
                }
            }
            Step::Return { freed } => {
                let ledger = self.incoming.ledger_mut();
                let asked: u32 = ledger.batch().iter().map(|range| range.token_count).sum();
                let freed = u32::from(freed) % (asked + 2);
                let right = freed <= asked && (freed > 0 || asked == 0);
                let before = ledger.unreturned();
                assert_eq!(ledger.returned(freed).is_ok(), right);
                let expected = if right { before - u64::from(freed) } else { before };
                assert_eq!(ledger.unreturned(), expected);
                self.outcome.returned += before - expected;
            }
        }
    }

    fn receive(&mut self, message: Message<'_>, most: u64) {
        let (first, position) = (self.holding.len(), self.incoming.position());
        let room = self.incoming.room(most);
        assert!(room.offset + room.len <= LANDING && room.len <= most);
        match self.incoming.received(message, &mut self.holding) {
            Err(_) => {
                assert_eq!((first, position), (self.holding.len(), self.incoming.position()));
                self.failed = true;
                self.outcome.refused += 1;
            }
            Ok(()) => {
                assert!(!self.failed, "nothing is received after an error");
                let mut at = position;
                for fragment in &self.holding[first..] {
                    assert_eq!(fragment.at, at);
                    assert!(fragment.len > 0);
                    at += fragment.len;
                    check(fragment, room.offset, room.len);
                    if let Some(token) = fragment.token {
                        assert!(token < TOKENS);
                        assert_eq!(self.held.insert(token, fragment.len), None);
                    }
                }
                assert_eq!(at, position + message.bytes);
                self.outcome.fragments += self.holding.len() - first;
            }
        }
    }

    fn give_back(&mut self, index: usize, bytes: u64) {
        let mut fragment = self.holding.swap_remove(index);
        let len = bytes.clamp(1, fragment.len);
        self.incoming.give_back(&[Fragment { len, ..fragment }]).expect("held");
        if let Some(token) = fragment.token {
            *self.held.get_mut(&token).expect("held") -= len;
            self.held.retain(|_, left| *left > 0);
        }
        fragment.at += len;
        fragment.offset += len;
        fragment.len -= len;
        if fragment.len > 0 {
            self.holding.push(fragment);
        }
    }
}

/// A fragment is inside of its memory.
fn check(fragment: &Fragment, offset: u64, room: u64) {
    let (start, size) = match fragment.source {
        Source::Dmabuf(id) => {
            (0, BINDINGS.iter().find(|(known, _)| *known == id).expect("a known dmabuf").1)
        }
        Source::Linear | Source::Plain => (offset, room),
    };
    assert!(fragment.offset >= start);
    let end = fragment.offset.checked_add(fragment.len).expect("no wrap");
    assert!(end - start <= size, "{fragment:?}");
    assert_eq!(fragment.token.is_some(), matches!(fragment.source, Source::Dmabuf(_)));
}

/// The control data, and the bytes that it announces.
fn control(pieces: &[Piece]) -> (Vec<u8>, u64) {
    let (mut bytes, mut sum) = (Vec::new(), 0u64);
    for piece in pieces {
        match piece {
            Piece::Dmabuf { offset, size, token, second } => {
                let words = [
                    u64::from(*offset),
                    u64::from(*size),
                    u64::from(token % TOKENS as u8),
                    1 + u64::from(*second),
                ];
                bytes.extend(message(79, words));
                sum += words[1];
            }
            Piece::Wide { offset, size, token, id } => {
                let words = [*offset, u64::from(*size), u64::from(*token), u64::from(*id)];
                bytes.extend(message(79, words));
                sum += words[1];
            }
            Piece::Linear { size } => {
                bytes.extend(message(78, [0, u64::from(*size), 0, 0]));
                sum += u64::from(*size);
            }
            Piece::Bytes(any) => bytes.extend(any),
        }
    }
    (bytes, sum)
}
