//! Structures that kernels take or point to, as the source declares them.

use crate::error::{BuildError, Place};
use crate::scan;
use crate::signature::{Signature, comment_above, is_identifier, line_of, squeeze};
use crate::types::{Layout, Member, Structure, Type, lay_out};
use std::path::Path;

/// Every structure that `kernels` name, those inside others first. `text` is the source of `file`
/// with all it includes.
pub(crate) fn of_kernels(
    file: &Path,
    text: &str,
    kernels: &[Signature],
) -> Result<Vec<Structure>, BuildError> {
    let mut finder = Finder { text, blanked: scan::blank(text), found: Vec::new() };
    for kernel in kernels {
        for parameter in &kernel.parameters {
            if let Some(name) = parameter.ty.structure() {
                finder.find(name, 0).map_err(|reason| BuildError::Parameter {
                    place: Place { file: file.to_owned(), line: kernel.line },
                    kernel: kernel.name.clone(),
                    parameter: format!("{} {}", parameter.cpp, parameter.name),
                    reason,
                })?;
            }
        }
    }
    Ok(finder.found)
}

/// Structures within structures, at most.
const DEPTH: usize = 16;

struct Finder<'a> {
    text: &'a str,
    blanked: String,
    found: Vec<Structure>,
}

impl Finder<'_> {
    fn find(&mut self, name: &str, depth: usize) -> Result<(), &'static str> {
        if self.found.iter().any(|known| known.name == name) {
            return Ok(());
        }
        if depth > DEPTH {
            return Err("its structure contains itself");
        }
        let (at, body) = definition(&self.blanked, name)
            .ok_or("its type is not a number, a type of the library or a `struct` of this file")?;
        let doc = comment_above(self.text, line_of(self.text, at));
        let mut members = Vec::new();
        for declaration in body.split(';').map(squeeze).filter(|text| !text.is_empty()) {
            declared(&declaration, &mut members)?;
        }
        for member in &members {
            if let Some(inner) = member.ty.structure() {
                self.find(inner, depth + 1)?;
            }
        }
        let mut structure =
            Structure { name: name.to_owned(), doc, members, layout: Layout { size: 0, align: 1 } };
        structure.layout = lay_out(&mut structure.members, &self.found)
            .ok_or("its structure has a member of unknown size")?;
        self.found.push(structure);
        Ok(())
    }
}

/// Where `struct name {` stands, and what is between its brackets.
fn definition(blanked: &str, name: &str) -> Option<(usize, String)> {
    let mut from = 0;
    while let Some(found) = blanked[from..].find("struct") {
        let at = from + found;
        from = at + "struct".len();
        let rest = blanked[from..].trim_start();
        let Some(body) = rest.strip_prefix(name).map(str::trim_start) else { continue };
        let Some(body) = body.strip_prefix('{') else { continue };
        let end = body.find('}')?;
        return Some((at, body[..end].to_owned()));
    }
    None
}

/// The members that one declaration declares.
fn declared(text: &str, members: &mut Vec<Member>) -> Result<(), &'static str> {
    if text.contains(['(', '{', '=', '<', '&']) {
        return Err("its structure may have plain members only: no functions, initial values, \
                    references or templates");
    }
    let mut parts = text.split(',');
    let first = parts.next().unwrap_or_default().trim();
    let (head, first) =
        split_name(first).ok_or("each member of its structure needs a type and a name")?;
    if head.contains('*') && text.contains(',') {
        return Err("in its structure, pointers need a declaration each");
    }
    for declarator in std::iter::once(first).chain(parts) {
        let declarator = declarator.trim();
        let (name, count) = match declarator.split_once('[') {
            Some((name, count)) => (name.trim(), Some(count)),
            None => (declarator, None),
        };
        if !is_identifier(name) {
            return Err("each member of its structure needs a type and a name");
        }
        let ty = Type::parse(head)?;
        let ty = match count {
            None => ty,
            Some(count) => {
                let count = count.strip_suffix(']').and_then(|count| count.trim().parse().ok());
                Type::Array(Box::new(ty), count.ok_or("an array's length must be a plain number")?)
            }
        };
        members.push(Member { name: name.to_owned(), cpp: head.to_owned(), ty, offset: 0 });
    }
    Ok(())
}

/// `u64 words[12]` as `u64` and `words[12]`.
fn split_name(text: &str) -> Option<(&str, &str)> {
    let bracket = text.find('[').unwrap_or(text.len());
    let word = text[..bracket].trim_end();
    let start = word.rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_')? + 1;
    let head = text[..start].trim();
    (!head.is_empty()).then_some((head, &text[start..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signature::parse;

    fn structures(source: &str) -> Result<Vec<Structure>, String> {
        let file = Path::new("k.cu");
        let kernels = parse(file, source).map_err(|e| e.to_string())?;
        of_kernels(file, source, &kernels).map_err(|e| e.to_string())
    }

    #[test]
    fn members_have_the_offsets_of_the_c_abi() {
        let found = structures(
            "struct Other { u8 x; };\n// One peer.\nstruct Peer {\n  const wv::Qp* qp;  // its QP\n  \
             wv::u32 a, b;\n  u8 flag;\n  Inner inner[3];\n};\nstruct Inner { u16 s; Local l; };\n\
             WV_KERNEL(k)(const Peer* peers, Peer one) {}",
        )
        .unwrap();
        let names: Vec<_> = found.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["Inner", "Peer"]);
        assert_eq!(found[0].layout, Layout { size: 24, align: 8 });
        let offsets: Vec<_> = found[1].members.iter().map(|m| m.offset).collect();
        assert_eq!(offsets, [0, 8, 12, 16, 24]);
        assert_eq!(found[1].layout, Layout { size: 96, align: 8 });
        assert_eq!(found[1].doc, ["One peer."]);
        assert_eq!(found[1].members[0].ty.rust("g"), "g::KernelPtr<g::Qp>");
        assert_eq!(found[1].members[4].ty.rust("g"), "[Inner; 3]");
    }

    #[test]
    fn what_cannot_be_is_named() {
        for (body, want) in [
            ("u32 a = 1;", "plain members"),
            ("u32 f() const;", "plain members"),
            ("u32* a, b;", "a declaration each"),
            ("u32 a[N];", "a plain number"),
            ("u32;", "a type and a name"),
            ("Qp qp;", "by pointer"),
            ("S s;", "contains itself"),
            ("Nowhere n;", "or a `struct` of this file"),
        ] {
            let error = structures(&format!("struct S {{ {body} }};\nWV_KERNEL(k)(S* s) {{}}"));
            let error = error.unwrap_err();
            assert!(error.contains(want) && error.contains("`S* s`"), "{body}: {error}");
        }
    }
}
