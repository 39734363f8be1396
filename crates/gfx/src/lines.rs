//! Lines of the source, where a code object says which.
use addr2line::gimli::{Dwarf, EndianSlice, LittleEndian};
use object::{Object, ObjectSection};

/// `function at file:line` of an address, for the innermost function; nothing without debug information.
pub(crate) fn source(file: &[u8], address: u64) -> Option<String> {
    let elf = object::File::parse(file).ok()?;
    let section = |name: &str| {
        elf.section_by_name(name).and_then(|section| section.data().ok()).unwrap_or_default()
    };
    let dwarf = Dwarf::load(|id| {
        Ok::<_, addr2line::gimli::Error>(EndianSlice::new(section(id.name()), LittleEndian))
    });
    let context = addr2line::Context::from_dwarf(dwarf.ok()?).ok()?;
    let frame = context.find_frames(address).skip_all_loads().ok()?.next().ok()??;
    let location = frame.location?;
    let function = frame.function.and_then(|function| Some(function.raw_name().ok()?.into_owned()));
    Some(format!("{} at {}:{}", function.unwrap_or_default(), location.file?, location.line?))
}
