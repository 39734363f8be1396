//! A table as a C++ header.

use crate::{Enumeration, Field, Item, Part, Structure, Word};
use core::fmt::{self, Display, Formatter};

/// Columns of a line of the generated header.
const COLUMNS: usize = 100;

/// A generated header.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// Where it is, under `kernels/include/warpverbs`.
    pub path: &'static str,
    /// The file with its table, under `crates`.
    pub table: &'static str,
    /// Its namespace.
    pub namespace: &'static str,
    /// The headers that it includes.
    pub includes: &'static [&'static str],
    /// Its declarations.
    pub items: &'static [Item],
}

impl Display for Header {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { path: _, table, namespace, includes, items } = self;
        writeln!(f, "// Generated from crates/{table}.\n#pragma once\n")?;
        for include in *includes {
            writeln!(f, "#include \"warpverbs/{include}\"")?;
        }
        writeln!(f, "\nnamespace {namespace} {{\n")?;
        f.write_str("#define WV_AT(type, field, at) \\\n")?;
        f.write_str("  static_assert(WV_OFFSETOF(type, field) == at, #type \".\" #field)\n")?;
        for item in *items {
            f.write_str("\n")?;
            match item {
                Item::Structure(structure) => write!(f, "{structure}")?,
                Item::Enumeration(enumeration) => write!(f, "{enumeration}")?,
                Item::Word(word) => write!(f, "{word}")?,
            }
        }
        writeln!(f, "\n#undef WV_AT\n\n}}  // namespace {namespace}")
    }
}

impl Display for Structure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { name, doc, size, align, aligned, extra, fields } = self;
        comment(f, "", doc)?;
        match aligned {
            true => writeln!(f, "struct alignas({align}) {name} {{")?,
            false => writeln!(f, "struct {name} {{")?,
        }
        if let Some(extra) = extra {
            writeln!(f, "  {extra}\n")?;
        }
        each(fields, 0, &mut |field, _| declare(f, field))?;
        f.write_str("};\n")?;
        write!(f, "static_assert(sizeof({name}) == {size}")?;
        if *align > 1 {
            write!(f, " && alignof({name}) == {align}")?;
        }
        writeln!(f, ", \"{name}\");")?;
        each(fields, 0, &mut |field, at| writeln!(f, "WV_AT({name}, {}, {at});", field.name))
    }
}

/// Calls `body` with every field and its offset; of those that stand for others, with these.
fn each(
    fields: &[Field],
    start: usize,
    body: &mut dyn FnMut(&Field, usize) -> fmt::Result,
) -> fmt::Result {
    fields.iter().try_for_each(|field| match field.inner {
        Some(Item::Structure(inner)) => each(inner.fields, start + field.offset, body),
        _ => body(field, start + field.offset),
    })
}

/// The type of a field in C++, and the length if it is an array of them.
fn cpp(field: &Field) -> (&str, usize) {
    let Field { ty, offset, size, .. } = *field;
    // `[u8; 2]` is `u8 name[2]`.
    let array = ty.strip_prefix('[').and_then(|ty| ty.strip_suffix(']')?.split_once("; "));
    if let Some((ty, count)) = array {
        return (ty, count.parse().unwrap_or(0));
    }
    // In the byte order of the NIC; bytes where no integer of C++ may lie.
    let integer = match ty {
        "U16<BE>" => "u16",
        "U32<BE>" => "u32",
        "U64<BE>" => "u64",
        "Be24" => "",
        _ => return (ty, 0),
    };
    match integer.is_empty() || offset % size != 0 {
        true => ("u8", size),
        false => (integer, 0),
    }
}

fn declare(f: &mut Formatter<'_>, field: &Field) -> fmt::Result {
    let (ty, count) = cpp(field);
    let brackets = if count == 0 { 0 } else { 2 + count.ilog10() as usize + 1 };
    let declared = 2 + ty.len() + 1 + field.name.len() + brackets + 1;
    let beside = match field.doc {
        [line] if declared + "  //".len() + line.len() <= COLUMNS => Some(line),
        _ => None,
    };
    if beside.is_none() {
        comment(f, "  ", field.doc)?;
    }
    write!(f, "  {ty} {}", field.name)?;
    if count != 0 {
        write!(f, "[{count}]")?;
    }
    if let Some(line) = beside {
        f.write_str(";  //")?;
        plain(f, line)?;
        return f.write_str("\n");
    }
    f.write_str(";\n")
}

impl Display for Enumeration {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { name, doc, repr, values } = self;
        comment(f, "", doc)?;
        writeln!(f, "enum class {name} : {repr} {{")?;
        for value in *values {
            comment(f, "  ", value.doc)?;
            f.write_str("  ")?;
            value.name.chars().try_for_each(|c| write!(f, "{}", c.to_ascii_lowercase()))?;
            writeln!(f, " = {},", value.value)?;
        }
        f.write_str("};\n")
    }
}

impl Display for Word {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { name, doc, set, parts } = self;
        comment(f, "", doc)?;
        write!(f, "struct {name} {{\n  u64 raw;\n\n  static WV_HD constexpr {name} of(")?;
        for (index, Part { name, ty, .. }) in parts.iter().enumerate() {
            write!(f, "{}{ty} {name}", if index == 0 { "" } else { ", " })?;
        }
        writeln!(f, ") {{\n    u64 word = {set:#x}ull;")?;
        for Part { name, first, .. } in *parts {
            writeln!(f, "    word |= static_cast<u64>({name}) << {first};")?;
        }
        writeln!(f, "    return {name}{{word}};\n  }}")?;
        for Part { name, ty, doc, first, mask } in *parts {
            comment(f, "  ", doc)?;
            writeln!(f, "  WV_HD constexpr {ty} {name}() const {{")?;
            writeln!(f, "    return static_cast<{ty}>(raw >> {first} & {mask:#x}ull);\n  }}")?;
        }
        f.write_str("};\n")
    }
}

/// Lines of documentation as a comment.
fn comment(f: &mut Formatter<'_>, indent: &str, doc: &[&str]) -> fmt::Result {
    for line in doc {
        write!(f, "{indent}//")?;
        plain(f, line)?;
        f.write_str("\n")?;
    }
    Ok(())
}

/// A line of documentation without the brackets of links.
fn plain(f: &mut Formatter<'_>, line: &str) -> fmt::Result {
    for (index, part) in line.split("[`").enumerate() {
        f.write_str(if index == 0 { "" } else { "`" })?;
        for (index, part) in part.split("`]").enumerate() {
            f.write_str(if index == 0 { "" } else { "`" })?;
            f.write_str(part)?;
        }
    }
    Ok(())
}
