//! Mailboxes of firmware commands, as DevX users send them: bytes and values.
//!
//! A command is a big-endian mailbox: opcode, modifier, and what the command has. Fields are named
//! by the byte of their big-endian word and their bits in it. [`Command::parse`] refuses a set bit
//! that no field has, since it asks for something that is not understood.

mod caps;
mod command;
mod context;
mod field;

pub use caps::{ATOMIC, CapabilityKind, Claim, GENERAL, capabilities};
pub use command::{Command, CommandError, MAX_COMMAND, Transition, UmemBuffer, opcode};
pub use context::{AddressPath, CqContext, MkeyContext, QpContext, RmpContext, RoceAddress};
pub use field::{Field, MailboxError};

/// Status of a command, in the first byte of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// Done.
    Ok = 0,
    /// There is no such command.
    BadOpcode = 2,
    /// A field has a value that is not possible, or a reserved bit is set.
    BadParameter = 3,
    /// There is no object of this number.
    BadResource = 5,
    /// A limit is reached.
    Limit = 8,
    /// The object's state does not allow it.
    BadResourceState = 9,
    /// The input is not as long as the command.
    BadInputLength = 0x50,
    /// The output does not hold the answer.
    BadOutputLength = 0x51,
}

impl Status {
    /// Writes status and syndrome at the start of an answer of at least eight bytes; a shorter one
    /// is left as it is.
    pub fn emit(self, syndrome: u32, answer: &mut [u8]) {
        if let Some(head) = answer.get_mut(..8) {
            head[..4].copy_from_slice(&[self as u8, 0, 0, 0]);
            head[4..].copy_from_slice(&syndrome.to_be_bytes());
        }
    }
}
