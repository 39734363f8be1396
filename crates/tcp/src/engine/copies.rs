//! Copies under way, and what follows them.

use super::{Class, Engine, bounce};
use crate::error::TcpError;
use crate::protocol::Kind;
use warpverbs_devmem::receive::Fragment;
use warpverbs_mem::{Pending, Region};

/// A copy between a bounce buffer and memory of a device.
pub(super) struct Copying {
    pub(super) copy: Pending,
    pub(super) then: Then,
}

/// What follows a copy.
pub(super) enum Then {
    /// Bytes of a chunk are where they belong.
    Place { kind: Kind, id: u64, len: u64, buffer: Region },
    /// Bytes of a chunk that lay in a fragment are where they belong.
    Fragment { kind: Kind, id: u64, socket: u16, part: Fragment },
    /// A message that came before its receive is where it belongs.
    Deliver(u64),
}

impl Engine {
    pub(super) fn finish_copies(&mut self) -> Result<bool, TcpError> {
        let before = self.copies.len();
        while let Some(first) = self.copies.front() {
            let outcome = match first.copy.is_done() {
                Ok(false) => break,
                Ok(true) => None,
                Err(error) => Some(error),
            };
            let Some(Copying { then, .. }) = self.copies.pop_front() else { break };
            let failed = outcome.is_some();
            self.memory_error = self.memory_error.take().or(outcome);
            match then {
                Then::Deliver(id) => self.protocol.delivered(id, failed),
                Then::Place { kind, id, len, buffer } => {
                    self.copied(kind, id, len, failed);
                    self.bounce.give_back(buffer);
                }
                Then::Fragment { kind, id, socket, part } => {
                    self.copied(kind, id, part.len, failed);
                    if let Some(device) = &mut self.device {
                        device.give_back(socket, part)?;
                    }
                }
            }
        }
        Ok(self.copies.len() != before)
    }

    fn copied(&mut self, kind: Kind, id: u64, len: u64, failed: bool) {
        match failed {
            false => self.protocol.placed(kind, id, len),
            true => self.protocol.misplaced(kind, id, len),
        }
    }

    /// Copies a message that came before its receive.
    pub(super) fn deliver(&mut self, id: u64, len: u64) {
        let buffer = self.unbuffer(Kind::Message, id);
        let Some(memory) = self.memory_of(Class::Receive, id) else { return };
        match bounce::start(&memory, 0, &buffer, 0, len as usize) {
            Ok(None) => self.protocol.delivered(id, false),
            Ok(Some(copy)) => self.copies.push_back(Copying { copy, then: Then::Deliver(id) }),
            Err(error) => {
                self.memory_error.get_or_insert(error);
                self.protocol.delivered(id, true);
            }
        }
    }
}
