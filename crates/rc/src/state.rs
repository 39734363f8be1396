//! States of a connection and the transitions between them, as a table (vol. 1, 10.3.1).

use core::fmt;

macro_rules! names {
    ($(#[$doc:meta])* $kind:ident { $($(#[$item:meta])* $name:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $kind {
            $($(#[$item])* $name,)*
        }

        impl $kind {
            /// All of them.
            pub const ALL: &[$kind] = &[$($kind::$name),*];
        }

        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $($kind::$name => stringify!($name),)*
                })
            }
        }
    };
}

names! {
    /// States of a connection. In RESET and INIT there is none yet.
    State {
        /// RTR: answers requests, sends none.
        ReadyToReceive,
        /// RTS: answers and sends.
        ReadyToSend,
        /// SQD: begins no further request and waits for those begun.
        Draining,
        /// SQD: nothing of its own is outstanding.
        Drained,
        /// ERR: neither answers nor sends; what is posted is flushed.
        Error,
    }
}

names! {
    /// Events that change the state.
    Event {
        /// The user lets requests be sent.
        Start,
        /// The user holds the send queue.
        Drain,
        /// The last outstanding request is done.
        Emptied,
        /// The user lets the send queue go on.
        Resume,
        /// A request failed at either end, or the user gives up.
        Fail,
    }
}

/// One row: in any state of `from`, `event` leads to `to`.
#[derive(Clone, Copy, Debug)]
pub struct Transition {
    /// The event.
    pub event: Event,
    /// States in which it may happen.
    pub from: &'static [State],
    /// The state that follows.
    pub to: State,
}

/// The table. A pair that is not in it is refused.
pub const TRANSITIONS: &[Transition] = {
    use State::{Drained, Draining, Error, ReadyToReceive, ReadyToSend};
    &[
        Transition { event: Event::Start, from: &[ReadyToReceive], to: ReadyToSend },
        Transition { event: Event::Drain, from: &[ReadyToSend], to: Draining },
        Transition { event: Event::Emptied, from: &[Draining], to: Drained },
        Transition { event: Event::Resume, from: &[Draining, Drained], to: ReadyToSend },
        Transition {
            event: Event::Fail,
            from: &[ReadyToReceive, ReadyToSend, Draining, Drained],
            to: Error,
        },
    ]
};

/// An event that its state does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{event} is not possible in state {state}")]
pub struct Refused {
    /// The state, which stays.
    pub state: State,
    /// The event.
    pub event: Event,
}

impl State {
    /// The state after `event`.
    ///
    /// # Errors
    /// A pair that is not in the table.
    #[inline]
    pub fn after(self, event: Event) -> Result<State, Refused> {
        (TRANSITIONS.iter())
            .find(|row| row.event == event && row.from.contains(&self))
            .map(|row| row.to)
            .ok_or(Refused { state: self, event })
    }

    /// Whether requests of the peer are answered.
    #[inline]
    pub const fn responds(self) -> bool {
        !matches!(self, State::Error)
    }

    /// Whether requests are sent, if only those begun.
    #[inline]
    pub const fn sends(self) -> bool {
        matches!(self, State::ReadyToSend | State::Draining)
    }
}

/// The table as a state diagram in Mermaid's language.
#[derive(Clone, Copy, Debug)]
pub struct Diagram;

impl fmt::Display for Diagram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "stateDiagram-v2")?;
        writeln!(f, "    [*] --> {}", State::ALL[0])?;
        for row in TRANSITIONS {
            for from in row.from {
                writeln!(f, "    {from} --> {}: {}", row.to, row.event)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every event in every state, written out apart from the table.
    #[test]
    fn all_pairs() {
        use State::{Drained, Draining, Error, ReadyToReceive, ReadyToSend};
        // Start, Drain, Emptied, Resume, Fail
        let expected = [
            (ReadyToReceive, [Some(ReadyToSend), None, None, None, Some(Error)]),
            (ReadyToSend, [None, Some(Draining), None, None, Some(Error)]),
            (Draining, [None, None, Some(Drained), Some(ReadyToSend), Some(Error)]),
            (Drained, [None, None, None, Some(ReadyToSend), Some(Error)]),
            (Error, [None; 5]),
        ];
        assert_eq!(expected.map(|(state, _)| state), *State::ALL);
        for (state, row) in expected {
            for (event, to) in Event::ALL.iter().zip(row) {
                let refused = Refused { state, event: *event };
                assert_eq!(state.after(*event), to.ok_or(refused), "{state} {event}");
            }
        }
    }

    #[test]
    fn no_pair_has_two_answers() {
        for state in State::ALL {
            for event in Event::ALL {
                let rows =
                    TRANSITIONS.iter().filter(|r| r.event == *event && r.from.contains(state));
                assert!(rows.count() <= 1, "{state} {event}");
            }
        }
    }
}
