//! Responder resources: the last READs and atomics, so that they can be answered again
//! (vol. 1, 9.7.5.1.3).

use alloc::collections::VecDeque;

use warpverbs_wire::Psn;

use super::check::Range;

/// A READ or an atomic that was executed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Replay {
    Read { first: Psn, packets: u32, range: Range },
    Atomic { psn: Psn, original: u64 },
}

#[derive(Debug)]
pub(crate) struct Replays {
    kept: VecDeque<Replay>,
    depth: usize,
}

impl Replays {
    pub(crate) fn new(depth: u8) -> Self {
        let depth = usize::from(depth);
        Self { kept: VecDeque::with_capacity(depth), depth }
    }

    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// Keeps one more and forgets the oldest if there are too many: a requester that keeps to the
    /// agreed number has its response.
    pub(crate) fn keep(&mut self, replay: Replay) {
        if self.kept.len() >= self.depth {
            self.kept.pop_front();
        }
        self.kept.push_back(replay);
    }

    /// The original value that the atomic at `at` found.
    //= [resp.atomic-replay]
    pub(crate) fn original(&self, at: Psn) -> Option<u64> {
        self.kept.iter().find_map(|replay| match *replay {
            Replay::Atomic { psn, original } if psn == at => Some(original),
            _ => None,
        })
    }

    /// The first PSN of the READ of which a repeated request at `psn` for `asked` is a part.
    //= [resp.read-replay] [resp.no-amplification]
    pub(crate) fn read(&self, psn: Psn, asked: Range, mtu: u32) -> Option<Psn> {
        self.kept.iter().find_map(|replay| match *replay {
            Replay::Read { first, packets, range } if psn.is_in_window(first, packets) => {
                let skipped = u64::from(psn.steps_from(first)) * u64::from(mtu);
                let end = skipped + u64::from(asked.len);
                let within = asked.rkey == range.rkey
                    && asked.va == range.va.wrapping_add(skipped)
                    && end <= u64::from(range.len);
                within.then_some(first)
            }
            _ => None,
        })
    }
}
