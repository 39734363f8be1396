//! Mailboxes of firmware commands, as DevX users send them: bytes and values.
//!
//! A command is a big-endian mailbox: opcode, modifier, and what the command has. Fields are named
//! by the byte of their big-endian word and their bits in it. [`Command::parse`] refuses a set bit
//! that no field has, since it asks for something that is not understood.

mod caps;
mod command;
mod context;
mod field;

pub use caps::{
    ATOMIC, AtomicCaps, CapabilityKind, GENERAL, GeneralCaps, ROCE, RoceCaps, capabilities,
};
pub use command::{
    ANSWER_CAPABILITIES, ANSWER_NUMBER, ANSWER_QP_CONTEXT, Command, CommandError, MAX_COMMAND,
    RmpChange, Transition, UmemBuffer, opcode,
};
pub use context::{AddressPath, CqContext, MkeyContext, QpContext, RmpContext, RoceAddress};
pub use field::{Field, MailboxError};

/// Status of a command, in the first byte of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// Done.
    Ok = 0,
    /// An error of the firmware.
    Internal = 1,
    /// There is no such command.
    BadOpcode = 2,
    /// A field has a value that is not possible, or a reserved bit is set.
    BadParameter = 3,
    /// The device's state does not allow it.
    BadSystemState = 4,
    /// There is no object of this number.
    BadResource = 5,
    /// The object is in use.
    Busy = 6,
    /// A limit is reached.
    Limit = 8,
    /// The object's state does not allow it.
    BadResourceState = 9,
    /// An index that the device does not have.
    BadIndex = 0xa,
    /// The device has no more of what is asked for.
    NoResources = 0xf,
    /// The QP's state does not allow it.
    BadQpState = 0x10,
    /// The input is not as long as the command.
    BadInputLength = 0x50,
    /// The output does not hold the answer.
    BadOutputLength = 0x51,
}

impl Status {
    const ALL: [Self; 14] = [
        Self::Ok,
        Self::Internal,
        Self::BadOpcode,
        Self::BadParameter,
        Self::BadSystemState,
        Self::BadResource,
        Self::Busy,
        Self::Limit,
        Self::BadResourceState,
        Self::BadIndex,
        Self::NoResources,
        Self::BadQpState,
        Self::BadInputLength,
        Self::BadOutputLength,
    ];

    /// Status and syndrome at the start of an answer; no status if the value is not known, or the
    /// answer has none.
    pub fn parse(answer: &[u8]) -> (Option<Self>, u32) {
        let Some(&[status, _, _, _, a, b, c, d]) = answer.get(..8) else { return (None, 0) };
        let known = Self::ALL.into_iter().find(|known| *known as u8 == status);
        (known, u32::from_be_bytes([a, b, c, d]))
    }

    /// Writes status and syndrome at the start of an answer of at least eight bytes; a shorter one
    /// is left as it is.
    pub fn emit(self, syndrome: u32, answer: &mut [u8]) {
        if let Some(head) = answer.get_mut(..8) {
            head[..4].copy_from_slice(&[self as u8, 0, 0, 0]);
            head[4..].copy_from_slice(&syndrome.to_be_bytes());
        }
    }
}
