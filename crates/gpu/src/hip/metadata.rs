//! Metadata of a code object, on its kernels: the note `NT_AMDGPU_METADATA`, MessagePack in an ELF file.

use crate::driver::check_parameters;
use crate::{GpuError, Image};
use object::read::elf::{ElfFile64, FileHeader, SectionHeader};
use object::{Endianness, elf};
use serde::Deserialize;

/// `NT_AMDGPU_METADATA`, of the vendor "AMDGPU".
const METADATA: u32 = 32;

#[derive(Deserialize)]
struct Metadata {
    #[serde(rename = "amdhsa.kernels")]
    kernels: Vec<Kernel>,
}

#[derive(Deserialize)]
struct Kernel {
    #[serde(rename = ".name")]
    name: String,
    #[serde(rename = ".args", default)]
    args: Vec<Argument>,
}

#[derive(Deserialize)]
struct Argument {
    #[serde(rename = ".size")]
    size: usize,
    /// Those that the run time adds are `hidden_…`.
    #[serde(rename = ".value_kind")]
    kind: String,
}

/// Refuses an image with a kernel that is not in the code, or has other parameters there.
pub(crate) fn check(image: &Image, code: &[u8]) -> Result<(), GpuError> {
    let metadata = read(code).map_err(|reason| GpuError::Library {
        library: "code object",
        reason: format!("of {}: {reason}", image.name),
    })?;
    image.entries.iter().try_for_each(|entry| {
        let kernel = metadata.kernels.iter().find(|kernel| kernel.name == entry.name);
        let kernel = kernel.ok_or(GpuError::BadEntry {
            kernel: entry.name,
            what: "kernels of this name",
            declared: 1,
            compiled: 0,
        })?;
        let ours = kernel.args.iter().filter(|argument| !argument.kind.starts_with("hidden_"));
        check_parameters(entry, &ours.map(|argument| argument.size).collect::<Vec<_>>())
    })
}

fn read(code: &[u8]) -> Result<Metadata, String> {
    let file = ElfFile64::<Endianness>::parse(code).map_err(|error| error.to_string())?;
    let (header, endian) = (file.elf_header(), file.endian());
    if header.e_machine(endian) != elf::EM_AMDGPU {
        return Err(format!("it is for machine {}, expected AMD's GPUs", header.e_machine(endian)));
    }
    for section in file.elf_section_table().iter() {
        let Some(mut notes) = section.notes(endian, code).map_err(|error| error.to_string())?
        else {
            continue;
        };
        while let Some(note) = notes.next().map_err(|error| error.to_string())? {
            if note.name() == b"AMDGPU" && note.n_type(endian) == METADATA {
                return rmp_serde::from_slice(note.desc()).map_err(|error| error.to_string());
            }
        }
    }
    Err("it has no metadata".to_owned())
}
