//! A code object: the ELF file of one compilation, checked, with its kernels, before it has an address.
use crate::error::LoadError;
use crate::target::Target;
use object::elf::{EM_AMDGPU, PF_X};
use object::read::elf::{ElfFile64, FileHeader};
use object::{
    Endianness, Object, ObjectSegment, ObjectSymbol, ObjectSymbolTable, RelocationFlags,
    RelocationTarget, SegmentFlags,
};
use std::ops::Range;
use warpverbs_code_object::{Argument, Kernel as Metadata};

/// More than any code object of ours by far, and little enough to lay out what a hostile one asks for.
const IMAGE_AT_MOST: u64 = 1 << 28;
const ELFOSABI_AMDGPU_HSA: u8 = 64;
const R_AMDGPU_ABS64: u32 = 3;
const R_AMDGPU_RELATIVE64: u32 = 13;
/// The ELF file's ABI version of code object v5; v6 only adds generic targets.
const ABI_V5: u8 = 3;
const ABI_V6: u8 = 4;

/// A code object, as `clang --offload-arch=gfx942 --no-gpu-bundle-output` writes it.
#[derive(Clone, Debug)]
pub struct CodeObject {
    pub(crate) target: Target,
    kernels: Vec<Kernel>,
    /// Segments laid out from address 0, before relocation.
    pub(crate) image: Vec<u8>,
    /// Addresses of instructions.
    pub(crate) code: Range<u64>,
    /// The offset of 8 bytes, and their value relative to the image's address.
    pub(crate) relocations: Vec<(u64, u64)>,
    /// The file, for its line table.
    pub(crate) file: std::sync::Arc<[u8]>,
}

/// A kernel, as its metadata and descriptor have it.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Name, arguments and needs.
    pub metadata: Metadata,
    pub(crate) descriptor: u64,
    pub(crate) entry: u64,
    /// Bits 0 to 6 of the descriptor's properties: which user SGPRs there are.
    pub(crate) user: u16,
    /// Group numbers x, y, z, the word about the group, and the offset of the wave's scratch memory, that follow the
    /// user SGPRs.
    pub(crate) group_ids: [bool; 5],
}

impl CodeObject {
    /// Reads and checks `bytes`, an ELF file.
    ///
    /// # Errors
    /// [`LoadError`] for anything that is not a code object for a [`Target`], or that is broken.
    pub fn parse(bytes: &[u8]) -> Result<CodeObject, LoadError> {
        let elf = ElfFile64::<Endianness>::parse(bytes)?;
        let target = check_kind(&elf)?;
        let (image, code) = layout(&elf)?;
        let symbol = |name: &str| elf.dynamic_symbols().find(|symbol| symbol.name() == Ok(name));
        let kernels = warpverbs_code_object::kernels(bytes)?.into_iter().map(|note| {
            let address = symbol(&note.symbol).map(|symbol| symbol.address());
            kernel(note, target, address, &image, &code)
        });
        let kernels = kernels.collect::<Result<_, _>>()?;
        let relocations = relocations(&elf, image.len() as u64)?;
        Ok(CodeObject { target, kernels, image, code, relocations, file: bytes.into() })
    }

    /// The processor that it is for.
    pub fn target(&self) -> Target {
        self.target
    }

    /// All kernels, in the order of the metadata.
    pub fn kernels(&self) -> &[Kernel] {
        &self.kernels
    }

    /// The kernel of that name.
    pub fn kernel(&self, name: &str) -> Option<&Kernel> {
        self.kernels.iter().find(|kernel| kernel.metadata.name == name)
    }

    /// The address of the code and its bytes, for callers that decode all of it.
    pub fn code(&self) -> (u64, &[u8]) {
        (self.code.start, &self.image[self.code.start as usize..self.code.end as usize])
    }
}

fn check_kind(elf: &ElfFile64<'_, Endianness>) -> Result<Target, LoadError> {
    let (header, endian) = (elf.elf_header(), elf.endian());
    let kind = |what, found: u64, expected| Err(LoadError::Kind { what, found, expected });
    let ident = header.e_ident();
    if header.e_machine(endian) != EM_AMDGPU {
        return kind("machine", header.e_machine(endian).into(), "0xe0 (AMDGPU)");
    }
    if ident.os_abi != ELFOSABI_AMDGPU_HSA || ident.data != object::elf::ELFDATA2LSB {
        return kind("OS ABI", ident.os_abi.into(), "0x40 (HSA), little-endian");
    }
    if ident.abi_version != ABI_V5 && ident.abi_version != ABI_V6 {
        return kind("ABI version", ident.abi_version.into(), "3 or 4 (code object v5 or v6)");
    }
    let machine = header.e_flags(endian) & 0xff;
    let known = Target::ALL.into_iter().find(|target| target.machine() == machine);
    known.map_or_else(|| kind("processor", machine.into(), "0x3f (gfx90a) or 0x4c (gfx942)"), Ok)
}

fn layout(elf: &ElfFile64<'_, Endianness>) -> Result<(Vec<u8>, Range<u64>), LoadError> {
    let wrong = |what: &str| LoadError::Image(what.into());
    let ends = elf.segments().map(|segment| segment.address().checked_add(segment.size()));
    let size = ends.max_by_key(|end| end.unwrap_or(u64::MAX)).flatten().unwrap_or(0);
    if size == 0 || size > IMAGE_AT_MOST {
        return Err(wrong(&format!("{size} bytes, expected 1 to {IMAGE_AT_MOST}")));
    }
    let (mut image, mut code) = (vec![0; size as usize], None);
    for segment in elf.segments() {
        let (start, length) = (segment.address() as usize, segment.size() as usize);
        let data = segment.data()?;
        let data = &data[..length.min(data.len())];
        image[start..start + data.len()].copy_from_slice(data);
        if matches!(segment.flags(), SegmentFlags::Elf { p_flags } if p_flags & PF_X != 0) {
            if code.is_some() || start % 4 != 0 {
                return Err(wrong("more than one segment of code, or one not aligned to 4 bytes"));
            }
            code = Some(start as u64..(start + data.len()) as u64);
        }
    }
    Ok((image, code.ok_or_else(|| wrong("no segment of code"))?))
}

fn relocations(elf: &ElfFile64<'_, Endianness>, image: u64) -> Result<Vec<(u64, u64)>, LoadError> {
    let mut all = Vec::new();
    for (offset, relocation) in elf.dynamic_relocations().into_iter().flatten() {
        let RelocationFlags::Elf { r_type } = relocation.flags() else { continue };
        let wrong = |what| LoadError::Relocation { kind: r_type, offset, what };
        let base = match (r_type, relocation.target()) {
            (R_AMDGPU_RELATIVE64, _) => 0,
            (R_AMDGPU_ABS64, RelocationTarget::Symbol(index)) => {
                let table =
                    elf.dynamic_symbol_table().ok_or_else(|| wrong("no dynamic symbols"))?;
                let symbol = table.symbol_by_index(index)?;
                if symbol.is_undefined() {
                    return Err(wrong("of a symbol that is not defined"));
                }
                symbol.address()
            }
            _ => return Err(wrong("expected R_AMDGPU_RELATIVE64 or R_AMDGPU_ABS64")),
        };
        if offset.checked_add(8).is_none_or(|end| end > image) {
            return Err(wrong("outside of the image"));
        }
        all.push((offset, base.wrapping_add_signed(relocation.addend())));
    }
    Ok(all)
}

/// The descriptor is 64 bytes, little-endian; LLVM's AMDGPU usage guide calls it the kernel descriptor.
fn kernel(
    note: Metadata,
    target: Target,
    address: Option<u64>,
    image: &[u8],
    code: &Range<u64>,
) -> Result<Kernel, LoadError> {
    let name = note.name.clone();
    let wrong = |what: String| LoadError::Kernel { kernel: name.clone(), what };
    let descriptor = address.ok_or_else(|| wrong(format!("no symbol {}", note.symbol)))?;
    let bytes = (usize::try_from(descriptor).ok())
        .and_then(|start| image.get(start..start.checked_add(64)?))
        .ok_or_else(|| {
            wrong(format!("its descriptor at {descriptor:#x} is outside of the image"))
        })?;
    let word =
        |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let offset = u64::from(word(16)) | u64::from(word(20)) << 32;
    let entry = descriptor.wrapping_add(offset);
    if !code.contains(&entry) || !entry.is_multiple_of(4) {
        return Err(wrong(format!("its entry at {entry:#x} is outside of the code")));
    }
    if (word(0), word(4)) != (note.lds, note.scratch) {
        return Err(wrong("descriptor and metadata differ in LDS or scratch memory".into()));
    }
    check_needs(&note, target, word(48), word(52), word(56)).map_err(wrong)?;
    for Argument { offset, size, .. } in &note.arguments {
        if offset.checked_add(*size).is_none_or(|end| end > note.kernarg_size) {
            let buffer = note.kernarg_size;
            return Err(wrong(format!(
                "an argument of {size} bytes at {offset} in a buffer of {buffer}"
            )));
        }
    }
    Ok(Kernel {
        metadata: note,
        descriptor,
        entry,
        user: word(56) as u16 & 0x7f,
        group_ids: [7, 8, 9, 10, 0]
            .map(|bit| word(52) >> bit & 1 != 0 && (bit != 0 || target == Target::Gfx90a)),
    })
}

/// Checks that the emulator has what the kernel needs. The words are those of the descriptor at 48, 52 and 56.
fn check_needs(
    note: &Metadata,
    target: Target,
    rsrc1: u32,
    rsrc2: u32,
    properties: u32,
) -> Result<(), String> {
    let known_bits = match target {
        Target::Gfx90a => USER_KNOWN | USER_SCRATCH,
        Target::Gfx942 => USER_KNOWN,
    };
    let (preload, lanes) = (properties >> 16, note.lanes);
    let properties = properties as u16;
    if lanes != 64 || preload != 0 || properties & 0x7f & !known_bits != 0 {
        return Err(format!(
            "{lanes} lanes, properties {properties:#x}, {preload:#x} preloaded; expected 64, bits of {known_bits:#x}, 0"
        ));
    }
    let user = USER_SIZES.iter().enumerate().filter(|(bit, _)| properties >> bit & 1 != 0);
    let (user, count) = (user.map(|(_, size)| size).sum::<u16>(), (rsrc2 >> 1 & 0x1f) as u16);
    if count != user {
        return Err(format!("{count} user SGPRs; its properties say {user}"));
    }
    // Rounding to nearest and even, denormal numbers kept, a clamp of NaN to 0, and IEEE 754's quiet NaNs.
    let mode = rsrc1 >> 12 & 0xaff;
    if mode != 0xaf0 {
        return Err(format!("floating-point mode {mode:#x}; expected 0xaf0"));
    }
    if note.lds > 1 << 16
        || note.scratch > 1 << 20
        || note.kernarg_size > 1 << 16
        || note.block_at_most > 1024
    {
        return Err(
            "it needs more than 64 KiB of LDS or arguments, 1 MiB of scratch, or 1024 threads"
                .into(),
        );
    }
    Ok(())
}

/// The SGPRs that each bit of the properties asks for, in order.
pub(crate) const USER_SIZES: [u16; 7] = [4, 2, 2, 2, 2, 2, 1];
/// Those that are emulated: dispatch packet, kernel arguments, dispatch number.
const USER_KNOWN: u16 = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 6;
/// The descriptor and the base of scratch memory, where it is not architected.
const USER_SCRATCH: u16 = 1 << 0 | 1 << 5;
