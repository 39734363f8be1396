//! The metadata of a code object for AMD's GPUs, which compilers put into an ELF file as a note in MessagePack: each
//! kernel's name, arguments and needs.
#![forbid(unsafe_code)]

use object::Endianness;
use object::elf::{EM_AMDGPU, PT_NOTE};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use serde::Deserialize;

/// `NT_AMDGPU_METADATA`, the type of the note of the vendor `AMDGPU`.
const METADATA: u32 = 32;

/// A file without metadata that can be read.
#[derive(Debug, thiserror::Error)]
pub enum MetadataError {
    /// Not an ELF file, or a broken one.
    #[error("the code object is no ELF file that can be read")]
    Elf(#[from] object::Error),
    /// An ELF file for another machine.
    #[error("the ELF file's machine is {0:#x}; expected 0xe0 (AMDGPU)")]
    Machine(u16),
    /// No note with metadata.
    #[error("the code object has no note of the name AMDGPU and type 32")]
    Missing,
    /// A note that is no MessagePack, or lacks what every kernel has.
    #[error("the metadata note: {0}")]
    Format(String),
    /// A note whose meaning may be another one.
    #[error("the metadata note has version {major}.{minor}; expected 1")]
    Version {
        /// Major version.
        major: u32,
        /// Minor version.
        minor: u32,
    },
}

#[derive(Deserialize)]
struct Note {
    #[serde(rename = "amdhsa.version")]
    version: (u32, u32),
    #[serde(rename = "amdhsa.kernels")]
    kernels: Vec<Kernel>,
}

/// A kernel.
#[derive(Clone, Debug, Deserialize)]
pub struct Kernel {
    /// The function's name.
    #[serde(rename = ".name")]
    pub name: String,
    /// The symbol of its descriptor.
    #[serde(rename = ".symbol")]
    pub symbol: String,
    /// Its arguments, those that the run time adds behind those of the source.
    #[serde(rename = ".args", default)]
    pub arguments: Vec<Argument>,
    /// Bytes of the buffer of arguments.
    #[serde(rename = ".kernarg_segment_size")]
    pub kernarg_size: u32,
    /// Bytes of LDS of each group, without what a launch adds.
    #[serde(rename = ".group_segment_fixed_size")]
    pub lds: u32,
    /// Bytes of scratch memory of each lane.
    #[serde(rename = ".private_segment_fixed_size")]
    pub scratch: u32,
    /// Lanes of a wave.
    #[serde(rename = ".wavefront_size")]
    pub lanes: u32,
    /// Threads that a group has at most.
    #[serde(rename = ".max_flat_workgroup_size")]
    pub block_at_most: u32,
    /// Whether it calls functions whose need of scratch memory the compiler does not know.
    #[serde(rename = ".uses_dynamic_stack", default)]
    pub dynamic_stack: bool,
}

impl Kernel {
    /// The arguments that the source declares; the others are the run time's to supply.
    pub fn explicit(&self) -> impl Iterator<Item = &Argument> {
        self.arguments.iter().filter(|argument| argument.hidden().is_none())
    }

    /// Bytes of the buffer that the explicit arguments take.
    pub fn explicit_size(&self) -> u32 {
        let ends = self.explicit().map(|argument| argument.offset.saturating_add(argument.size));
        ends.max().unwrap_or(0)
    }
}

/// One argument of a kernel. Arguments are packed into one buffer, each at its offset, little-endian.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Argument {
    /// As the source has it; empty where the compiler left it out.
    #[serde(rename = ".name", default)]
    pub name: String,
    /// Byte offset in the buffer.
    #[serde(rename = ".offset")]
    pub offset: u32,
    /// Bytes.
    #[serde(rename = ".size")]
    pub size: u32,
    /// `by_value`, `global_buffer`, …; `hidden_…` of those that the run time adds.
    #[serde(rename = ".value_kind")]
    pub kind: String,
}

impl Argument {
    /// The value that the run time is to supply, `block_count_x` and the like; nothing for an argument of the source.
    pub fn hidden(&self) -> Option<&str> {
        self.kind.strip_prefix("hidden_")
    }
}

/// The kernels of `code`, a code object, in the order of its metadata.
///
/// # Errors
/// [`MetadataError`] for a file that is no code object of AMD's, or whose note cannot be read.
pub fn kernels(code: &[u8]) -> Result<Vec<Kernel>, MetadataError> {
    let file = ElfFile64::<Endianness>::parse(code)?;
    let (header, endian) = (file.elf_header(), file.endian());
    if header.e_machine(endian) != EM_AMDGPU {
        return Err(MetadataError::Machine(header.e_machine(endian)));
    }
    let read = rmp_serde::from_slice(note(&file, code)?);
    let read = read.map_err(|error| MetadataError::Format(error.to_string()));
    let Note { version: (major, minor), kernels } = read?;
    if major == 1 { Ok(kernels) } else { Err(MetadataError::Version { major, minor }) }
}

fn note<'a>(file: &ElfFile64<'_, Endianness>, code: &'a [u8]) -> Result<&'a [u8], MetadataError> {
    let endian = file.endian();
    let headers = file.elf_program_headers().iter();
    for header in headers.filter(|header| header.p_type(endian) == PT_NOTE) {
        let Some(mut notes) = header.notes(endian, code)? else { continue };
        while let Some(note) = notes.next()? {
            if note.name() == b"AMDGPU" && note.n_type(endian) == METADATA {
                return Ok(note.desc());
            }
        }
    }
    Err(MetadataError::Missing)
}
