//! Whole commands.

use super::context::{AddressPath, CqContext, MkeyContext, QpContext, RmpContext};
use super::field::{check, mailbox};
use super::{Field, MailboxError, Status};
use thiserror::Error;

use opcode as op;

macro_rules! opcodes {
    ($($constant:ident = $number:literal, $name:literal, $length:literal;)*) => {
        /// Numbers of commands.
        #[allow(missing_docs)]
        pub mod opcode {
            $(pub const $constant: u16 = $number;)*
        }

        /// The name of a command in the manual, and the bytes that it has at least.
        fn known(opcode: u16) -> Option<(&'static str, usize)> {
            match opcode {
                $($number => Some(($name, $length)),)*
                _ => None,
            }
        }
    };
}

opcodes! {
    QUERY_HCA_CAP = 0x100, "QUERY_HCA_CAP", 0x10;
    CREATE_MKEY = 0x200, "CREATE_MKEY", 0x110;
    DESTROY_MKEY = 0x202, "DESTROY_MKEY", 0x10;
    CREATE_CQ = 0x400, "CREATE_CQ", 0x110;
    DESTROY_CQ = 0x401, "DESTROY_CQ", 0x10;
    CREATE_QP = 0x500, "CREATE_QP", 0x110;
    DESTROY_QP = 0x501, "DESTROY_QP", 0x10;
    RST2INIT_QP = 0x502, "RST2INIT_QP", 0x110;
    INIT2RTR_QP = 0x503, "INIT2RTR_QP", 0x110;
    RTR2RTS_QP = 0x504, "RTR2RTS_QP", 0x110;
    RTS2RTS_QP = 0x505, "RTS2RTS_QP", 0x110;
    TO_ERR_QP = 0x507, "2ERR_QP", 0x10;
    TO_RST_QP = 0x50a, "2RST_QP", 0x10;
    QUERY_QP = 0x50b, "QUERY_QP", 0x10;
    INIT2INIT_QP = 0x50e, "INIT2INIT_QP", 0x110;
    QUERY_ROCE_ADDRESS = 0x760, "QUERY_ROCE_ADDRESS", 0x10;
    CREATE_RMP = 0x90c, "CREATE_RMP", 0x110;
    MODIFY_RMP = 0x90d, "MODIFY_RMP", 0x110;
    DESTROY_RMP = 0x90e, "DESTROY_RMP", 0x10;
}

/// Byte of an answer where the number of a new object is: bits 23 to 0 of the word.
pub const ANSWER_NUMBER: usize = 8;
/// Byte of the answer to QUERY_HCA_CAP where the capabilities are.
pub const ANSWER_CAPABILITIES: usize = 0x10;
/// Byte of the answer to QUERY_QP where the context is.
pub const ANSWER_QP_CONTEXT: usize = 0x18;

/// Bytes of the longest command, without translations of a memory key.
pub const MAX_COMMAND: usize = 0x110;

/// The reason why a mailbox is not a valid command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CommandError {
    /// There is no such command here.
    #[error("command {opcode:#x} is not known")]
    Opcode {
        /// The opcode found.
        opcode: u16,
    },
    /// The mailbox is too short.
    #[error("command {opcode:#x} has {found} bytes, expected at least {expected}")]
    Length {
        /// The command.
        opcode: u16,
        /// Bytes found.
        found: usize,
        /// Bytes that it has.
        expected: usize,
    },
    /// A set bit that is not understood.
    #[error(transparent)]
    Reserved(#[from] MailboxError),
}

impl CommandError {
    /// Its status in the answer.
    pub fn status(self) -> Status {
        match self {
            Self::Opcode { .. } => Status::BadOpcode,
            Self::Length { .. } => Status::BadInputLength,
            Self::Reserved(_) => Status::BadParameter,
        }
    }
}

mailbox! {
    /// The start of every command.
    Header, 0x04 {
        opcode: u16 = (0x00, 31, 16),
        uid: u32 = (0x00, 15, 0),
    }
    /// The word behind it, of commands that come in several kinds.
    Modifier, 0x04 {
        modifier: u16 = (0x00, 15, 0),
    }
    /// The word behind the header of commands about one object, or one entry.
    Subject, 0x08 {
        number: u32 = (0x00, 23, 0),
    }
    /// The same of QUERY_ROCE_ADDRESS.
    RoceIndex, 0x08 {
        index: u16 = (0x00, 31, 16),
        port: u16 = (0x00, 3, 0),
    }
    /// A receive memory pool, and what of it is changed.
    RmpChange, 0x10 {
        /// Its state now.
        state: u32 = (0x00, 31, 28),
        number: u32 = (0x00, 23, 0),
        /// The limit is changed.
        limit: u32 = (0x0c, 0, 0),
    }
    /// Which attributes a transition changes.
    Options, 0x08 {
        mask: u32 = (0x00, 31, 0),
    }
    /// Where a queue lies.
    UmemBuffer, 0x10 {
        /// Offset in the umem.
        offset: u64 = (0x00, 63, 0),
        umem: u32 = (0x08, 31, 0),
        valid: u32 = (0x0c, 31, 31),
    }
}

/// Transitions of a QP that have a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
#[repr(u16)]
pub enum Transition {
    ResetToInit = opcode::RST2INIT_QP,
    InitToInit = opcode::INIT2INIT_QP,
    InitToRtr = opcode::INIT2RTR_QP,
    RtrToRts = opcode::RTR2RTS_QP,
    RtsToRts = opcode::RTS2RTS_QP,
}

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, clippy::large_enum_variant)]
pub enum Command {
    /// Asks for capabilities: of which kind, and whether the current ones or those possible.
    QueryHcaCap {
        kind: u16,
        current: bool,
    },
    /// Asks for an address of a port.
    QueryRoceAddress {
        index: u16,
        port: u16,
    },
    CreateCq {
        context: CqContext,
        buffer: UmemBuffer,
    },
    CreateQp {
        context: QpContext,
        path: AddressPath,
        buffer: UmemBuffer,
    },
    ModifyQp {
        transition: Transition,
        qpn: u32,
        /// Attributes that are optional in the transition, and given.
        options: u32,
        context: QpContext,
        path: AddressPath,
    },
    QpToErr {
        qpn: u32,
    },
    QpToReset {
        qpn: u32,
    },
    QueryQp {
        qpn: u32,
    },
    CreateRmp {
        context: RmpContext,
    },
    ModifyRmp {
        change: RmpChange,
        context: RmpContext,
    },
    /// The context; translations follow in the mailbox from byte 0x110 on.
    CreateMkey {
        context: MkeyContext,
        translations: u32,
    },
    /// Ends an object; the command's number says of which kind.
    Destroy {
        opcode: u16,
        number: u32,
    },
}

/// Byte of the context of a CQ, of the address path in a QP's context, and so on.
const CONTEXT: usize = 0x10;
const QP_CONTEXT: usize = 0x18;
const PATH: usize = 0x18;
const RMP_CONTEXT: usize = 0x20;
const TRANSLATIONS: Field = Field { name: "translations", at: 0x64, high: 31, low: 0 };

/// A mailbox from which pieces are taken; what is left over must be zero.
struct Taker {
    bytes: [u8; MAX_COMMAND],
}

impl Taker {
    fn take<T>(
        &mut self,
        at: usize,
        len: usize,
        parse: impl Fn(&[u8]) -> Result<T, MailboxError>,
    ) -> Result<T, MailboxError> {
        let piece = &mut self.bytes[at..at + len];
        let value = parse(piece)?;
        piece.fill(0);
        Ok(value)
    }

    fn qp_context(&mut self) -> Result<(QpContext, AddressPath), MailboxError> {
        let path = self.take(QP_CONTEXT + PATH, AddressPath::SIZE, AddressPath::parse)?;
        Ok((self.take(QP_CONTEXT, QpContext::SIZE, QpContext::parse)?, path))
    }

    fn subject(&mut self) -> Result<u32, MailboxError> {
        Ok(self.take(8, Subject::SIZE, Subject::parse)?.number)
    }
}

impl Command {
    /// The command in a mailbox. Bytes behind the command are not looked at.
    ///
    /// # Errors
    /// The error names the part that is not understood, and its place.
    pub fn parse(bytes: &[u8]) -> Result<Self, CommandError> {
        let opcode = match bytes {
            [high, low, ..] => u16::from_be_bytes([*high, *low]),
            _ => return Err(CommandError::Length { opcode: 0, found: bytes.len(), expected: 8 }),
        };
        let (_, expected) = known(opcode).ok_or(CommandError::Opcode { opcode })?;
        let Some(bytes) = bytes.get(..expected) else {
            return Err(CommandError::Length { opcode, found: bytes.len(), expected });
        };
        let mut taker = Taker { bytes: [0; MAX_COMMAND] };
        taker.bytes[..expected].copy_from_slice(bytes);
        let header = taker.take(0, Header::SIZE, Header::parse)?;
        let command = Self::take(header, &mut taker)?;
        check("rest of the command", &[], &taker.bytes)?;
        Ok(command)
    }

    fn take(header: Header, taker: &mut Taker) -> Result<Self, CommandError> {
        Ok(match header.opcode {
            op::QUERY_HCA_CAP => {
                let Modifier { modifier } = taker.take(4, Modifier::SIZE, Modifier::parse)?;
                Self::QueryHcaCap { kind: modifier >> 1, current: modifier & 1 == 1 }
            }
            op::QUERY_ROCE_ADDRESS => {
                let RoceIndex { index, port } = taker.take(8, RoceIndex::SIZE, RoceIndex::parse)?;
                Self::QueryRoceAddress { index, port }
            }
            op::CREATE_CQ => {
                let context = taker.take(CONTEXT, CqContext::SIZE, CqContext::parse)?;
                let buffer = taker.take(0x50, UmemBuffer::SIZE, UmemBuffer::parse)?;
                Self::CreateCq { context, buffer }
            }
            op::CREATE_QP => {
                let (context, path) = taker.qp_context()?;
                let buffer = taker.take(0x100, UmemBuffer::SIZE, UmemBuffer::parse)?;
                Self::CreateQp { context, path, buffer }
            }
            op::CREATE_RMP => {
                let context = taker.take(RMP_CONTEXT, RmpContext::SIZE, RmpContext::parse)?;
                Self::CreateRmp { context }
            }
            op::MODIFY_RMP => {
                let change = taker.take(8, RmpChange::SIZE, RmpChange::parse)?;
                let context = taker.take(RMP_CONTEXT, RmpContext::SIZE, RmpContext::parse)?;
                Self::ModifyRmp { change, context }
            }
            op::CREATE_MKEY => {
                let translations = TRANSLATIONS.get(&taker.bytes) as u32;
                TRANSLATIONS.set(&mut taker.bytes, 0);
                let context = taker.take(CONTEXT, MkeyContext::SIZE, MkeyContext::parse)?;
                Self::CreateMkey { context, translations }
            }
            op::QUERY_QP => Self::QueryQp { qpn: taker.subject()? },
            op::TO_ERR_QP => Self::QpToErr { qpn: taker.subject()? },
            op::TO_RST_QP => Self::QpToReset { qpn: taker.subject()? },
            op::RST2INIT_QP => Self::modify(Transition::ResetToInit, taker)?,
            op::INIT2INIT_QP => Self::modify(Transition::InitToInit, taker)?,
            op::INIT2RTR_QP => Self::modify(Transition::InitToRtr, taker)?,
            op::RTR2RTS_QP => Self::modify(Transition::RtrToRts, taker)?,
            op::RTS2RTS_QP => Self::modify(Transition::RtsToRts, taker)?,
            opcode => Self::Destroy { opcode, number: taker.subject()? },
        })
    }

    fn modify(transition: Transition, taker: &mut Taker) -> Result<Self, MailboxError> {
        let qpn = taker.subject()?;
        let options = taker.take(0x10, Options::SIZE, Options::parse)?.mask;
        let (context, path) = taker.qp_context()?;
        Ok(Self::ModifyQp { transition, qpn, options, context, path })
    }

    /// Its number.
    pub fn opcode(&self) -> u16 {
        match *self {
            Self::QueryHcaCap { .. } => op::QUERY_HCA_CAP,
            Self::QueryRoceAddress { .. } => op::QUERY_ROCE_ADDRESS,
            Self::CreateCq { .. } => op::CREATE_CQ,
            Self::CreateQp { .. } => op::CREATE_QP,
            Self::ModifyQp { transition, .. } => transition as u16,
            Self::QpToErr { .. } => op::TO_ERR_QP,
            Self::QpToReset { .. } => op::TO_RST_QP,
            Self::QueryQp { .. } => op::QUERY_QP,
            Self::CreateRmp { .. } => op::CREATE_RMP,
            Self::ModifyRmp { .. } => op::MODIFY_RMP,
            Self::CreateMkey { .. } => op::CREATE_MKEY,
            Self::Destroy { opcode, .. } => opcode,
        }
    }

    /// Its name in the manual.
    pub fn name(&self) -> &'static str {
        known(self.opcode()).map_or("command", |(name, _)| name)
    }

    /// Writes the command into `out` and says how many bytes it has.
    pub fn emit(&self, out: &mut [u8; MAX_COMMAND]) -> usize {
        *out = [0; MAX_COMMAND];
        let opcode = self.opcode();
        Header { opcode, uid: 0 }.emit(out);
        match *self {
            Self::QueryHcaCap { kind, current } => {
                Modifier { modifier: kind << 1 | u16::from(current) }.emit(&mut out[4..]);
            }
            Self::QueryRoceAddress { index, port } => RoceIndex { index, port }.emit(&mut out[8..]),
            Self::CreateCq { context, buffer } => {
                context.emit(&mut out[CONTEXT..]);
                buffer.emit(&mut out[0x50..]);
            }
            Self::CreateQp { context, path, buffer } => {
                context.emit(&mut out[QP_CONTEXT..]);
                path.emit(&mut out[QP_CONTEXT + PATH..]);
                buffer.emit(&mut out[0x100..]);
            }
            Self::ModifyQp { qpn, options, context, path, .. } => {
                Subject { number: qpn }.emit(&mut out[8..]);
                Options { mask: options }.emit(&mut out[0x10..]);
                context.emit(&mut out[QP_CONTEXT..]);
                path.emit(&mut out[QP_CONTEXT + PATH..]);
            }
            Self::CreateRmp { context } => context.emit(&mut out[RMP_CONTEXT..]),
            Self::ModifyRmp { change, context } => {
                change.emit(&mut out[8..]);
                context.emit(&mut out[RMP_CONTEXT..]);
            }
            Self::CreateMkey { context, translations } => {
                context.emit(&mut out[CONTEXT..]);
                TRANSLATIONS.set(out, translations.into());
            }
            Self::QpToErr { qpn: number }
            | Self::QpToReset { qpn: number }
            | Self::QueryQp { qpn: number }
            | Self::Destroy { number, .. } => Subject { number }.emit(&mut out[8..]),
        }
        known(opcode).map_or(MAX_COMMAND, |(_, length)| length)
    }
}
