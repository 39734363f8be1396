//! Metadata of a code object, on its kernels: the note `NT_AMDGPU_METADATA`, MessagePack in an ELF file.

use crate::{Entry, GpuError, Image};
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

/// The declared parameters of every kernel of an image, whose sizes the launch takes for granted, are the
/// compiled ones.
pub(crate) fn check(image: &Image, code: &[u8]) -> Result<(), GpuError> {
    let metadata = read(code).map_err(|reason| GpuError::Library {
        library: "code object",
        reason: format!("of {}: {reason}", image.name),
    })?;
    image.entries.iter().try_for_each(|entry| {
        let kernel = metadata.kernels.iter().find(|kernel| kernel.name == entry.name);
        check_kernel(entry, kernel.ok_or_else(|| bad(entry, "kernels of this name", 1, 0))?)
    })
}

fn bad(entry: &Entry, what: &'static str, declared: usize, compiled: usize) -> GpuError {
    let (declared, compiled) = (declared as u64, compiled as u64);
    GpuError::BadEntry { kernel: entry.name, what, declared, compiled }
}

fn check_kernel(entry: &Entry, kernel: &Kernel) -> Result<(), GpuError> {
    let ours = kernel.args.iter().filter(|argument| !argument.kind.starts_with("hidden_"));
    let sizes: Vec<usize> = ours.map(|argument| argument.size).collect();
    if sizes.len() != entry.params.len() {
        return Err(bad(entry, "parameters", entry.params.len(), sizes.len()));
    }
    let mut pairs = entry.params.iter().zip(&sizes);
    match pairs.find(|(declared, compiled)| declared != compiled) {
        Some((declared, compiled)) => Err(bad(entry, "bytes of a parameter", *declared, *compiled)),
        None => Ok(()),
    }
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
