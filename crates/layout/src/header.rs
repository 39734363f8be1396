//! A table as a C++ header.

use crate::table::{Constant, Enumeration, Field, Item, Part, Structure, Value, Word};
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
        let structures = items.iter().any(|item| matches!(item, Item::Structure(_)));
        if structures {
            f.write_str("#define WV_AT(type, field, at) \\\n")?;
            f.write_str("  static_assert(WV_OFFSETOF(type, field) == at, #type \".\" #field)\n\n")?;
        }
        for (index, item) in items.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { "\n" })?;
            match item {
                Item::Structure(structure) => write!(f, "{structure}")?,
                Item::Enumeration(enumeration) => write!(f, "{enumeration}")?,
                Item::Word(word) => write!(f, "{word}")?,
                Item::Constants(all) => all.iter().try_for_each(|one| write!(f, "{one}"))?,
            }
        }
        f.write_str(if structures { "\n#undef WV_AT\n" } else { "" })?;
        writeln!(f, "\n}}  // namespace {namespace}")
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

/// How many elements a field has.
enum Count<'a> {
    One,
    Number(usize),
    Name(&'a str),
}

/// The type of a field in C++, and the length if it is an array of them.
fn cpp(field: &Field) -> (&str, Count<'_>) {
    let Field { ty, offset, size, .. } = *field;
    // `[u8; 2]` is `u8 name[2]`.
    let array = ty.strip_prefix('[').and_then(|ty| ty.strip_suffix(']')?.split_once("; "));
    if let Some((ty, count)) = array {
        return (ty, Count::Name(count));
    }
    // In the byte order of the NIC; bytes where no integer of C++ may lie.
    let integer = match ty {
        "U16<BE>" | "U16<LE>" => "u16",
        "U32<BE>" | "U32<LE>" => "u32",
        "U64<BE>" | "U64<LE>" => "u64",
        "Be24" => "",
        _ => return (ty, Count::One),
    };
    match integer.is_empty() || offset % size != 0 {
        true => ("u8", Count::Number(size)),
        false => (integer, Count::One),
    }
}

fn declare(f: &mut Formatter<'_>, field: &Field) -> fmt::Result {
    let (ty, count) = cpp(field);
    let Field { name, doc, .. } = field;
    match count {
        Count::One => beside(f, "  ", doc, format_args!("{ty} {name};")),
        Count::Number(count) => beside(f, "  ", doc, format_args!("{ty} {name}[{count}];")),
        Count::Name(count) => beside(f, "  ", doc, format_args!("{ty} {name}[{}];", Small(count))),
    }
}

impl Display for Constant {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { name, ty, doc, value } = self;
        let name = Small(name);
        match *value < 1 << 16 {
            true => beside(f, "", doc, format_args!("constexpr {ty} {name} = {value};")),
            false => beside(f, "", doc, format_args!("constexpr {ty} {name} = {value:#x};")),
        }
    }
}

impl Display for Enumeration {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { name, doc, repr, values } = self;
        comment(f, "", doc)?;
        writeln!(f, "enum class {name} : {repr} {{")?;
        for Value { name, doc, number } in *values {
            beside(f, "  ", doc, format_args!("{} = {number},", Small(name)))?;
        }
        f.write_str("};\n")
    }
}

impl Display for Word {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { name, doc, raw, repr, extra, set, parts } = self;
        comment(f, "", doc)?;
        write!(f, "struct [[nodiscard]] {name} {{\n  {repr} {raw} = 0;\n\n")?;
        write!(f, "  static WV_HD constexpr {name} of(")?;
        for (index, Part { name, ty, .. }) in parts.iter().enumerate() {
            let (comma, default) = if index == 0 { ("", "") } else { (", ", " = 0") };
            write!(f, "{comma}{ty} {name}{default}")?;
        }
        writeln!(f, ") {{\n    {repr} word = {set:#x};")?;
        for Part { name, first, .. } in *parts {
            writeln!(f, "    word |= static_cast<{repr}>({name}) << {first};")?;
        }
        writeln!(f, "    return {name}{{word}};\n  }}")?;
        if let Some(extra) = extra {
            writeln!(f, "  {extra}")?;
        }
        for Part { name, ty, doc, first, mask } in *parts {
            comment(f, "  ", doc)?;
            writeln!(f, "  WV_HD constexpr {ty} {name}() const {{")?;
            writeln!(f, "    return static_cast<{ty}>({raw} >> {first} & {mask:#x});\n  }}")?;
        }
        f.write_str("};\n")
    }
}

/// A name of Rust, `LikeThis` or `LIKE_THIS`, as C++ has it: `like_this`.
struct Small<'a>(&'a str);

impl Display for Small<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut inside = false;
        for c in self.0.chars() {
            if c.is_ascii_uppercase() && inside {
                f.write_str("_")?;
            }
            inside = c.is_ascii_lowercase();
            write!(f, "{}", c.to_ascii_lowercase())?;
        }
        Ok(())
    }
}

/// A line of code, with its comment behind it if there is room for it, else above it.
fn beside(
    f: &mut Formatter<'_>,
    indent: &str,
    doc: &[&str],
    code: fmt::Arguments<'_>,
) -> fmt::Result {
    let mut length = Length(indent.len());
    fmt::write(&mut length, code)?;
    match *doc {
        [line] if length.0 + "  //".len() + line.len() <= COLUMNS => {
            write!(f, "{indent}{code}  //")?;
            plain(f, line)?;
            f.write_str("\n")
        }
        _ => {
            comment(f, indent, doc)?;
            writeln!(f, "{indent}{code}")
        }
    }
}

/// How long a text is that is written to it.
struct Length(usize);

impl fmt::Write for Length {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 += text.len();
        Ok(())
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
