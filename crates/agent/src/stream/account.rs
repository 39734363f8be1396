//! Which slots are free, as the receiver counts them. Without clock, locks and messages of the
//! network, so that a model can drive it.
//!
//! Messages are numbered from 0; message `n` lies in slot `n % slots`. The sender may send those
//! below a *limit*, which the receiver raises when slots were given back: in quarters of the ring,
//! and at once if the sender has used up its limit.
//!
//! The window of a TCP link (`warpverbs_tcp`'s `protocol/window.rs`) is another account: it sums bytes of
//! messages without a place, in order, at both ends. Here each message has a place that overtaking
//! transfers fill, and that the program gives back, in any order, and the receiver alone keeps count.

use std::collections::VecDeque;

/// The receiver's next find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// This message, of this many bytes.
    Message { number: u64, len: u64 },
    /// Nothing yet.
    Nothing,
    /// Nothing any more.
    End,
}

/// The receiver's account of its ring.
#[derive(Debug)]
pub(crate) struct Account {
    slots: u64,
    slot_bytes: u64,
    /// Messages that have been given to the program.
    taken: u64,
    /// From `taken` on, the lengths of those that have arrived. Transfers may overtake each other.
    arrived: VecDeque<Option<u64>>,
    /// How many have arrived in all.
    count: u64,
    /// Slots given back without a gap: those of messages before this number.
    returned: u64,
    /// From `returned` on, whether each was given back.
    given_back: VecDeque<bool>,
    /// The limit last sent to the sender.
    limit: u64,
    /// The number of messages, once the sender has announced it.
    end: Option<u64>,
}

impl Account {
    pub(crate) fn new(slots: u64, slot_bytes: u64) -> Self {
        Self {
            slots,
            slot_bytes,
            taken: 0,
            arrived: VecDeque::new(),
            count: 0,
            returned: 0,
            given_back: VecDeque::new(),
            limit: slots,
            end: None,
        }
    }

    /// A message is in its slot. An error says what the sender did wrong.
    pub(crate) fn filled(&mut self, number: u64, len: u64) -> Result<(), String> {
        if number < self.taken || number >= self.limit {
            return Err(format!("message {number}, expected {} to {}", self.taken, self.limit));
        }
        if len > self.slot_bytes {
            return Err(format!("a message of {len} bytes in a slot of {}", self.slot_bytes));
        }
        if self.end.is_some() {
            return Err(format!("message {number} after the end"));
        }
        // At most `slots`.
        let at = (number - self.taken) as usize;
        if at >= self.arrived.len() {
            self.arrived.resize(at + 1, None);
        }
        if self.arrived[at].is_some() {
            return Err(format!("message {number} twice"));
        }
        self.arrived[at] = Some(len);
        self.count += 1;
        Ok(())
    }

    /// The stream ends after `count` messages, all of which have been announced.
    pub(crate) fn end(&mut self, count: u64) -> Result<(), String> {
        if count != self.count || self.taken + self.arrived.len() as u64 != count {
            return Err(format!("an end after {count} messages, {} have arrived", self.count));
        }
        match self.end.replace(count) {
            None => Ok(()),
            Some(_) => Err("a second end".to_owned()),
        }
    }

    /// Takes the next message.
    pub(crate) fn take(&mut self) -> Next {
        match self.arrived.front() {
            Some(&Some(len)) => {
                self.arrived.pop_front();
                let number = self.taken;
                self.taken += 1;
                self.given_back.push_back(false);
                Next::Message { number, len }
            }
            _ if self.end == Some(self.taken) => Next::End,
            _ => Next::Nothing,
        }
    }

    /// The program gives back the slot of a message that it has taken.
    pub(crate) fn give_back(&mut self, number: u64) {
        if let Some(slot) = self.given_back.get_mut((number - self.returned) as usize) {
            *slot = true;
        }
        while self.given_back.front() == Some(&true) {
            self.given_back.pop_front();
            self.returned += 1;
        }
    }

    /// The new limit, if it is time to send it.
    pub(crate) fn raise(&mut self) -> Option<u64> {
        let limit = self.returned + self.slots;
        let more = limit - self.limit;
        // The sender has nothing under way, so it may be waiting.
        let used_up = self.count == self.limit;
        let due = more * 4 >= self.slots || (used_up && more > 0);
        (due && self.end.is_none()).then(|| {
            self.limit = limit;
            limit
        })
    }

    /// Whether the sender has used the stream.
    pub(crate) fn is_used(&self) -> bool {
        self.count > 0 || self.end.is_some()
    }

    /// Whether the program has taken everything up to the end.
    pub(crate) fn is_over(&self) -> bool {
        self.end == Some(self.taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn what_a_sender_does_wrong_is_said() {
        let mut account = Account::new(4, 100);
        account.filled(1, 100).unwrap();
        assert_eq!(account.filled(1, 5).unwrap_err(), "message 1 twice");
        assert_eq!(account.filled(4, 5).unwrap_err(), "message 4, expected 0 to 4");
        assert_eq!(
            account.filled(u64::MAX, 5).unwrap_err(),
            format!("message {}, expected 0 to 4", u64::MAX)
        );
        assert_eq!(account.filled(0, 101).unwrap_err(), "a message of 101 bytes in a slot of 100");
        assert_eq!(account.end(2).unwrap_err(), "an end after 2 messages, 1 have arrived");
        assert_eq!(account.take(), Next::Nothing);
        account.filled(0, 0).unwrap();
        assert_eq!(account.take(), Next::Message { number: 0, len: 0 });
        assert_eq!(account.filled(0, 1).unwrap_err(), "message 0, expected 1 to 4");
        account.end(2).unwrap();
        assert_eq!(account.end(2).unwrap_err(), "a second end");
        assert_eq!(account.filled(2, 1).unwrap_err(), "message 2 after the end");
        assert_eq!(account.take(), Next::Message { number: 1, len: 100 });
        assert_eq!(account.take(), Next::End);
    }

    #[test]
    fn room_is_told_in_quarters_and_at_once_to_a_sender_that_has_none() {
        let mut account = Account::new(16, 1);
        let take = |account: &mut Account, number| {
            account.filled(number, 1).unwrap();
            assert_eq!(account.take(), Next::Message { number, len: 1 });
            account.give_back(number);
            account.raise()
        };
        let told: Vec<_> = (0..8).map(|number| take(&mut account, number)).collect();
        let (no, first, second) = (None, Some(20), Some(24));
        assert_eq!(told, [no, no, no, first, no, no, no, second]);
        // One that has filled all its slots is told of the first that is free.
        for number in 8..24 {
            account.filled(number, 1).unwrap();
        }
        assert_eq!(account.take(), Next::Message { number: 8, len: 1 });
        assert_eq!(account.raise(), None);
        account.give_back(8);
        assert_eq!(account.raise(), Some(25));
        assert_eq!(account.raise(), None);
    }

    proptest! {
        /// A sender that goes by its limit, transfers that overtake each other, a program that gives
        /// slots back in any order: no slot is filled that is in use, messages come in order, and
        /// when nothing is under way and all slots are free, the sender may go on.
        #[test]
        fn no_slot_is_overwritten_and_nobody_waits_for_ever(
            slots in 1u64..20,
            steps in prop::collection::vec((0u8..4, any::<prop::sample::Index>()), 1..400),
        ) {
            let mut account = Account::new(slots, 1 << 20);
            let (mut next, mut limit, mut taken) = (0u64, slots, 0u64);
            let mut under_way = BTreeSet::new();
            let mut held = BTreeSet::new();
            // Slots from being written until they are given back, by message.
            let mut in_use = BTreeMap::new();
            let tell = |account: &mut Account, limit: &mut u64| {
                if let Some(told) = account.raise() {
                    assert!(told > *limit);
                    *limit = told;
                }
            };
            let pick = |set: &BTreeSet<u64>, index: &prop::sample::Index| {
                (!set.is_empty()).then(|| *index.get(&set.iter().copied().collect::<Vec<_>>()))
            };
            for (step, index) in &steps {
                match step {
                    0 if next < limit => {
                        prop_assert_eq!(in_use.insert(next % slots, next), None);
                        under_way.insert(next);
                        next += 1;
                    }
                    1 => if let Some(number) = pick(&under_way, index) {
                        under_way.remove(&number);
                        account.filled(number, number).unwrap();
                        tell(&mut account, &mut limit);
                    },
                    2 => match account.take() {
                        Next::Message { number, len } => {
                            prop_assert_eq!((number, len), (taken, taken));
                            taken += 1;
                            held.insert(number);
                        }
                        Next::Nothing => prop_assert!(taken == next || under_way.contains(&taken)),
                        Next::End => prop_assert!(false, "no end was said"),
                    },
                    _ => if let Some(number) = pick(&held, index) {
                        held.remove(&number);
                        prop_assert_eq!(in_use.remove(&(number % slots)), Some(number));
                        account.give_back(number);
                        tell(&mut account, &mut limit);
                    },
                }
            }
            for number in under_way {
                account.filled(number, number).unwrap();
                tell(&mut account, &mut limit);
            }
            while let Next::Message { number, .. } = account.take() {
                held.insert(number);
            }
            for number in held {
                account.give_back(number);
                tell(&mut account, &mut limit);
            }
            prop_assert!(next < limit, "sent {}, limit {}", next, limit);
            account.end(next).unwrap();
            prop_assert_eq!(account.take(), Next::End);
        }
    }
}
