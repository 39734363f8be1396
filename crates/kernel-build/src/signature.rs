//! `WV_KERNEL(name)(parameters)` and `WV_SAFE_KERNEL(name)(parameters)` signatures.

use crate::emit;
use crate::error::{BuildError, Place};
use crate::scan;
use crate::types::Type;
use std::path::Path;

/// A kernel's signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Signature {
    pub(crate) name: String,
    pub(crate) line: usize,
    /// The comment right above, a line each.
    pub(crate) doc: Vec<String>,
    pub(crate) parameters: Vec<Parameter>,
    /// Declared by `WV_SAFE_KERNEL`.
    pub(crate) safe: bool,
}

/// One parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parameter {
    pub(crate) name: String,
    /// The type as written.
    pub(crate) cpp: String,
    pub(crate) ty: Type,
    /// Text of its `WV_COUNT`.
    pub(crate) count: Option<String>,
}

const KERNEL: &str = "WV_KERNEL";
const SAFE_KERNEL: &str = "WV_SAFE_KERNEL";

/// All kernels that `source` defines.
pub(crate) fn parse(file: &Path, source: &str) -> Result<Vec<Signature>, BuildError> {
    let blanked = scan::blank(source);
    let mut kernels: Vec<Signature> = Vec::new();
    let mut from = 0;
    while let Some(found) = blanked[from..].find("WV_") {
        let at = from + found;
        let safe = blanked[at..].starts_with(SAFE_KERNEL);
        if !safe && !blanked[at..].starts_with(KERNEL) {
            from = at + "WV_".len();
            continue;
        }
        from = at + if safe { SAFE_KERNEL.len() } else { KERNEL.len() };
        if is_part_of_word(&blanked, at, from) || is_directive(&blanked, at) {
            continue;
        }
        let mut cursor = Cursor { file, text: &blanked, at: from };
        let kernel = cursor.kernel(source, at, safe)?;
        from = cursor.at;
        let launcher = emit::launcher_name(&kernel.name);
        if kernels.iter().any(|known| emit::launcher_name(&known.name) == launcher) {
            let place = Place { file: file.to_owned(), line: kernel.line };
            return Err(BuildError::Duplicate { place, kernel: kernel.name, launcher });
        }
        kernels.push(kernel);
    }
    Ok(kernels)
}

fn is_part_of_word(text: &str, start: usize, end: usize) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text[..start].ends_with(word) || text[end..].starts_with(word)
}

fn is_directive(text: &str, at: usize) -> bool {
    let line = text[..at].rsplit('\n').next().unwrap_or_default();
    line.trim_start().starts_with('#')
}

pub(crate) fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// The `//` lines directly above the line that holds `at`.
pub(crate) fn comment_above(source: &str, line: usize) -> Vec<String> {
    let above: Vec<&str> = source.lines().take(line - 1).collect();
    let comment = above.iter().rev().map_while(|l| l.trim_start().strip_prefix("//"));
    let mut doc: Vec<String> = comment.map(|l| l.trim().to_owned()).collect();
    doc.reverse();
    doc
}

struct Cursor<'a> {
    file: &'a Path,
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn kernel(&mut self, source: &str, at: usize, safe: bool) -> Result<Signature, BuildError> {
        let line = line_of(self.text, at);
        let name = self.parenthesised("(name) after WV_KERNEL")?.trim();
        if !is_identifier(name) {
            return Err(self.syntax(line, "the kernel's name, an identifier", name));
        }
        let list_line = line_of(self.text, self.at);
        let list = self.parenthesised("(parameters) after WV_KERNEL(name)")?;
        let mut parameters = Vec::new();
        if !matches!(list.trim(), "" | "void") {
            for text in split_outside_brackets(list) {
                let place = Place { file: self.file.to_owned(), line: list_line };
                let known = parameter(text).and_then(|known| contract(known, safe));
                parameters.push(known.map_err(|reason| {
                    let (kernel, parameter) = (name.to_owned(), squeeze(text));
                    BuildError::Parameter { place, kernel, parameter, reason }
                })?);
            }
        }
        self.body()?;
        let doc = comment_above(source, line);
        Ok(Signature { name: name.to_owned(), line, doc, parameters, safe })
    }

    fn parenthesised(&mut self, expected: &'static str) -> Result<&'a str, BuildError> {
        let rest = self.rest();
        let line = line_of(self.text, self.at);
        let found = || rest.chars().take_while(|c| *c != '\n').take(40).collect::<String>();
        let inner = rest.strip_prefix('(').ok_or_else(|| self.syntax(line, expected, &found()))?;
        let Some(end) = closing(inner) else {
            return Err(self.syntax(line, "`)` before any `{` or `;`", &found()));
        };
        self.at = self.text.len() - inner.len() + end + 1;
        Ok(&inner[..end])
    }

    fn body(&mut self) -> Result<(), BuildError> {
        let rest = self.rest();
        if rest.starts_with('{') {
            return Ok(());
        }
        let found: String = rest.chars().take_while(|c| *c != '\n').take(40).collect();
        Err(self.syntax(line_of(self.text, self.at), "the kernel's body, `{`", &found))
    }

    fn rest(&mut self) -> &'a str {
        let rest = self.text[self.at..].trim_start();
        self.at = self.text.len() - rest.len();
        rest
    }

    fn syntax(&self, line: usize, expected: &'static str, found: &str) -> BuildError {
        let place = Place { file: self.file.to_owned(), line };
        BuildError::Syntax { place, expected, found: found.to_owned() }
    }
}

/// Where the bracket that was open before `text` closes.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' if depth == 0 => return Some(at),
            ')' => depth -= 1,
            '{' | ';' => return None,
            _ => {}
        }
    }
    None
}

/// Parts between commas that no bracket encloses.
fn split_outside_brackets(list: &str) -> Vec<&str> {
    let mut depth = 0;
    let parts = list.split(|c: char| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth == 0
    });
    parts.collect()
}

fn parameter(text: &str) -> Result<Parameter, &'static str> {
    let (text, count) = match text.split_once("WV_COUNT") {
        None => (text, None),
        Some((before, after)) => {
            let count = after.trim().strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
            (before, Some(squeeze(count.ok_or("WV_COUNT(elements) stands last")?)))
        }
    };
    if text.contains('&') {
        return Err("a kernel cannot take references");
    }
    if text.contains('[') {
        return Err("write an array parameter as a pointer");
    }
    if text.contains(['<', '=', '(']) {
        return Err("neither templates nor default values are possible here");
    }
    let text = squeeze(text);
    let cpp = text.trim_end_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
    let name = &text[cpp.len()..];
    let cpp = cpp.trim();
    if cpp.is_empty() || !is_identifier(name) {
        return Err("it needs a type and a name");
    }
    if matches!(name, "self" | "Self" | "super" | "crate") {
        return Err("Rust cannot have a field of this name");
    }
    let ty = Type::parse(cpp)?;
    Ok(Parameter { name: name.to_owned(), cpp: cpp.to_owned(), ty, count })
}

/// In a safe kernel, and there alone, every pointer says how many elements are touched. A queue
/// pair and a heap are always one.
fn contract(parameter: Parameter, safe: bool) -> Result<Parameter, &'static str> {
    let needs = match &parameter.ty {
        Type::Pointer(to) => !to.is_handle(),
        _ => false,
    };
    match (&parameter.count, safe && needs) {
        (None, true) => Err("a pointer of a safe kernel needs WV_COUNT(elements that it touches)"),
        (Some(_), false) if safe => {
            Err("WV_COUNT is for pointers other than handles (`const Qp*`)")
        }
        (Some(_), false) => Err("WV_COUNT is for the pointers of a WV_SAFE_KERNEL"),
        _ => Ok(parameter),
    }
}

/// One space for every run of white space, none at the ends.
pub(crate) fn squeeze(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

pub(crate) fn is_identifier(word: &str) -> bool {
    let mut chars = word.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

pub(crate) fn is_rust_keyword(word: &str) -> bool {
    const KEYWORDS: &str = " abstract as async await become box break const continue crate do dyn \
        else enum extern false final fn for gen if impl in let loop macro match mod move mut \
        override priv pub ref return self Self static struct super trait true try type typeof \
        unsafe unsized use virtual where while yield ";
    KEYWORDS.contains(&format!(" {word} "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(source: &str) -> Result<Vec<Signature>, String> {
        parse(Path::new("k.cu"), source).map_err(|e| e.to_string())
    }

    #[test]
    fn signatures_are_read_with_their_comments() {
        let source = "#define X WV_KERNEL\n// WV_KERNEL(no)()\n\n// Counts\n// lanes.\n\
            WV_KERNEL(count_lanes)(const wv::Qp* __restrict__ qp,\n  u64 const n, float x) {\n}\n\
            WV_KERNEL( none )( void )\n{ }";
        let kernels = parsed(source).unwrap();
        assert_eq!(kernels.len(), 2);
        assert_eq!((kernels[0].name.as_str(), kernels[0].line), ("count_lanes", 6));
        assert_eq!(kernels[0].doc, ["Counts", "lanes."]);
        let of = |i: usize| {
            let p: &Parameter = &kernels[0].parameters[i];
            (p.name.as_str(), p.cpp.as_str(), p.ty.clone())
        };
        let qp = Type::Pointer(Box::new(Type::Library("Qp")));
        assert_eq!(of(0), ("qp", "const wv::Qp* __restrict__", qp));
        assert_eq!(of(1), ("n", "u64 const", Type::Scalar("u64")));
        assert_eq!(of(2), ("x", "float", Type::Scalar("f32")));
        assert_eq!((kernels[1].name.as_str(), kernels[1].parameters.len()), ("none", 0));
    }

    #[test]
    fn safe_kernels_say_what_they_touch() {
        let source = "WV_SAFE_KERNEL(k)(const Qp* qp, u32* out WV_COUNT(2 * (n + 1)), u32 n) {}";
        let kernels = parsed(source).unwrap();
        let counts: Vec<_> = kernels[0].parameters.iter().map(|p| p.count.as_deref()).collect();
        assert_eq!(counts, [None, Some("2 * (n + 1)"), None]);
        assert!(kernels[0].safe && !parsed("WV_KERNEL(k)() {}").unwrap()[0].safe);
    }

    #[test]
    fn every_number_has_its_size() {
        let list: Vec<String> = crate::types::SCALARS
            .iter()
            .enumerate()
            .map(|(i, (cpp, _))| format!("{cpp} p{i}"))
            .collect();
        let kernels = parsed(&format!("WV_KERNEL(k)({}) {{}}", list.join(", "))).unwrap();
        let sizes: Vec<_> =
            kernels[0].parameters.iter().map(|p| p.ty.layout(&[]).unwrap().size).collect();
        assert_eq!(sizes, [1, 2, 4, 8, 4, 8, 4, 8, 1, 2, 4, 8, 4, 8, 4, 8]);
    }

    #[test]
    fn what_cannot_be_is_named_with_its_place() {
        for (source, want) in [
            ("\nWV_KERNEL(k)(u32** b) {}", "k.cu:2: parameter `u32** b` of kernel k: a pointer to"),
            ("WV_KERNEL(k)(Qp qp) {}", "by pointer, as `const Qp*`"),
            ("WV_KERNEL(k)(Qp* qp) {}", "read-only"),
            ("WV_KERNEL(k)(Heap heap) {}", "by pointer, as `const Qp*`"),
            ("WV_KERNEL(k)(Heap* heap) {}", "read-only"),
            ("WV_KERNEL(k)(Status s) {}", "by pointer"),
            ("WV_SAFE_KERNEL(k)(u32* out) {}", "needs WV_COUNT"),
            ("WV_SAFE_KERNEL(k)(u32 n WV_COUNT(1)) {}", "for pointers other than"),
            ("WV_KERNEL(k)(u32* out WV_COUNT(1)) {}", "pointers of a WV_SAFE_KERNEL"),
            ("WV_SAFE_KERNEL(k)(u32* WV_COUNT(1) out) {}", "stands last"),
            ("WV_KERNEL(k)(Foo& f) {}", "references"),
            ("WV_KERNEL(k)(int a[3]) {}", "as a pointer"),
            ("WV_KERNEL(k)(u32) {}", "a type and a name"),
            ("WV_KERNEL(k)(u32 \u{e9}) {}", "a type and a name"),
            ("WV_KERNEL(k)(u32 \u{e9}n) {}", "fixed-width"),
            ("WV_KERNEL(k)(unsigned int n) {}", "fixed-width"),
            ("WV_KERNEL(k)(u32* self) {}", "field of this name"),
            ("WV_KERNEL(k)(V<u32> v) {}", "templates"),
            ("WV_KERNEL(k)(u32 n);", "the kernel's body, `{`, found \";\""),
            ("WV_KERNEL(3)() {}", "an identifier"),
            ("WV_KERNEL(k) {}", "(parameters)"),
            ("WV_KERNEL(k)(u32 n", "`)`"),
            ("WV_KERNEL(a_b)() {}\nWV_KERNEL(aB)() {}", "k.cu:2: kernel aB has the same launcher"),
        ] {
            let error = parsed(source).unwrap_err();
            assert!(error.contains(want), "{source}: {error}");
        }
    }
}
