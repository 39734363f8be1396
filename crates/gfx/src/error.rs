//! Errors, as values.
use crate::target::Target;
use std::fmt;
use warpverbs_code_object::MetadataError;

/// A code object that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Not an ELF file, or a broken one.
    #[error("the code object is no ELF file that can be read")]
    Elf(#[from] object::Error),
    /// An ELF file for another machine, ABI or processor.
    #[error("the ELF file's {what} is {found:#x}; expected {expected}")]
    Kind {
        /// The field.
        what: &'static str,
        /// Its value.
        found: u64,
        /// The expected value.
        expected: &'static str,
    },
    /// A code object for another processor than the device is.
    #[error("the code object is for {found}, and the device is an emulated {device}")]
    Target {
        /// Of the code object.
        found: Target,
        /// Of the device.
        device: Target,
    },
    /// No metadata that can be read.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// A kernel whose metadata and descriptor do not fit, or that needs what is not emulated.
    #[error("kernel {kernel}: {what}")]
    Kernel {
        /// Its name.
        kernel: String,
        /// The value found, and the expected one.
        what: String,
    },
    /// A relocation that is not emulated or lies outside of the image.
    #[error("relocation of kind {kind} at {offset:#x}: {what}")]
    Relocation {
        /// `r_type`.
        kind: u32,
        /// Address in the image.
        offset: u64,
        /// Why it cannot be made.
        what: &'static str,
    },
    /// The image cannot be laid out.
    #[error("the image: {0}")]
    Image(String),
}

/// A range that cannot be registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// Empty, at 0, or beyond 48 bits of address.
    #[error("{length} bytes at {start:#x} are no range of memory below 2^48")]
    Bounds {
        /// First address.
        start: u64,
        /// Bytes.
        length: usize,
    },
    /// Part of it is registered already.
    #[error("{length} bytes at {start:#x} overlap the range at {other:#x}")]
    Overlap {
        /// First address.
        start: u64,
        /// Bytes.
        length: usize,
        /// First address of the other range.
        other: u64,
    },
}

/// The kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read.
    Load,
    /// Written.
    Store,
    /// Read and replaced in one step.
    Atomic,
}

/// An access to memory that the kernel has no right to, or an atomic one that is not aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{access:?} of {length} bytes at {address:#x}: not within a range with that right")]
pub struct MemoryFault {
    /// First address; for LDS and scratch memory the offset there.
    pub address: u64,
    /// Bytes: 1 where the address is not aligned and the bytes are accessed one by one.
    pub length: u64,
    /// The kind of access.
    pub access: Access,
}

/// Bytes that are no instruction which the emulator knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The code ends within an instruction.
    #[error("the code ends within an instruction")]
    End,
    /// The first word begins no known encoding.
    #[error("{word:#010x} begins no known encoding")]
    Encoding {
        /// First word.
        word: u32,
    },
    /// An opcode that the table does not have.
    #[error("unknown opcode {opcode:#x} of encoding {encoding} ({word:#010x})")]
    Opcode {
        /// Name in the manual: SOP2, VOP3, …
        encoding: &'static str,
        /// Number within it.
        opcode: u32,
        /// First word.
        word: u32,
    },
    /// A known opcode with an operand or modifier that is not emulated or does not exist.
    #[error("{mnemonic}: {what} ({value:#x})")]
    Operand {
        /// The instruction.
        mnemonic: &'static str,
        /// Which field, and what was expected.
        what: &'static str,
        /// Its value, or the instruction.
        value: u64,
    },
}

/// Why a wave cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// No instruction there.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// Global, LDS or scratch memory.
    #[error("{space}: {fault}")]
    Memory {
        /// `global`, `LDS` or `scratch`.
        space: &'static str,
        /// The access.
        fault: MemoryFault,
    },
    /// A buffer, or a base of scratch memory, that is not the wave's own: others are not emulated.
    #[error("scratch memory at {found:#x}; expected the wave's own, at {expected:#x}")]
    Scratch {
        /// The first two words of the descriptor, or the base.
        found: u64,
        /// The same of the wave's own.
        expected: u64,
    },
    /// `s_trap`: the kernel gave up.
    #[error("trap {0}")]
    Trap(u32),
    /// The program counter left the code.
    #[error("the program counter left the code")]
    Left,
}

/// Where a wave is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Group, counted in x first, then y and z.
    pub group: u64,
    /// Wave of the group.
    pub wave: u32,
    /// Offset in the code object's address space, as `llvm-objdump` prints it.
    pub pc: u64,
    /// The instruction as text, if it is one.
    pub instruction: String,
    /// Innermost function, file and line, if the code object says so.
    pub source: Option<String>,
    /// Lanes that are active.
    pub exec: u64,
    /// `barrier` if it waits there.
    pub waits: Option<&'static str>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "group {} wave {} at {:#x}: {}",
            self.group, self.wave, self.pc, self.instruction
        )?;
        if let Some(source) = &self.source {
            write!(f, " ({source})")?;
        }
        write!(f, ", lanes {:#x}", self.exec)?;
        self.waits.map_or(Ok(()), |what| write!(f, ", waits for {what}"))
    }
}

/// A launch that did not complete.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LaunchError {
    /// The launch does not fit the kernel or the device.
    #[error("launch of {kernel}: {what}")]
    Launch {
        /// The kernel.
        kernel: String,
        /// The value found, and the expected one.
        what: String,
    },
    /// A wave made an invalid access, ran an invalid instruction, or trapped.
    #[error("emulated {target}: {kernel} ended by an error of {place}: {cause}")]
    Fault {
        /// Of the device.
        target: Target,
        /// The kernel.
        kernel: String,
        /// The wave.
        place: Box<Place>,
        /// Why.
        cause: Cause,
    },
    /// The deadline passed, or it was stopped by its [`Stop`](crate::Stop); some of the waves that had not ended are listed.
    #[error(
        "emulated {target}: {kernel} {}; {left} waves were left, among them\n{}",
        if *stopped { "was stopped" } else { "did not end in time" },
        list(places)
    )]
    Unfinished {
        /// Of the device.
        target: Target,
        /// The kernel.
        kernel: String,
        /// Whether it was stopped.
        stopped: bool,
        /// Waves that had begun and not ended.
        left: usize,
        /// At most 16 of them.
        places: Vec<Place>,
    },
}

fn list(places: &[Place]) -> String {
    places.iter().map(|place| format!("  {place}")).collect::<Vec<_>>().join("\n")
}
