//! A table as a C++ header.

use crate::{Enumeration, Field, Item, Structure};
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
    /// What it declares.
    pub items: &'static [Item],
}

impl Display for Header {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { path: _, table, namespace, includes, items } = self;
        writeln!(f, "// Generated from crates/{table}, which is what to edit.\n#pragma once\n")?;
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
        fields.iter().try_for_each(|field| write!(f, "{field}"))?;
        f.write_str("};\n")?;
        writeln!(f, "static_assert(sizeof({name}) == {size} && alignof({name}) == {align}, \"{name}\");")?;
        fields.iter().try_for_each(|field| {
            writeln!(f, "WV_AT({name}, {}, {});", field.name, field.offset)
        })
    }
}

impl Display for Field {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { name, ty, doc, offset: _ } = self;
        // `[u8; 2]` is `u8 name[2]`.
        let array = ty.strip_prefix('[').and_then(|ty| ty.strip_suffix(']')?.split_once("; "));
        let (ty, count) = array.unwrap_or((ty, ""));
        let brackets = if count.is_empty() { 0 } else { count.len() + 2 };
        let declared = 2 + ty.len() + 1 + name.len() + brackets + 1;
        let beside = match doc {
            [line] if declared + " //".len() + line.len() <= COLUMNS => Some(line),
            _ => None,
        };
        if beside.is_none() {
            comment(f, "  ", doc)?;
        }
        write!(f, "  {ty} {name}")?;
        if !count.is_empty() {
            write!(f, "[{count}]")?;
        }
        match beside {
            Some(line) => {
                f.write_str(";  //")?;
                plain(f, line)?;
                f.write_str("\n")
            }
            None => f.write_str(";\n"),
        }
    }
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
