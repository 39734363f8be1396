//! Types that do too much: methods and fields of one type, over all files of its crate.

use super::allowed::Allowed;
use super::modules::{Names, Tokens, Tree, is_for_tests, skip_item, take};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::BTreeMap;
use std::path::Path;

/// Methods a type may have, those of traits apart.
const MOST_METHODS: usize = 40;
/// Named fields a type may have. One that is laid out as C does has those of the layout.
const MOST_FIELDS: usize = 20;

/// How large a type is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Size {
    methods: usize,
    fields: usize,
}

/// Checks a crate, whose folder is `krate` and whose programs and library are `trees`.
pub(super) fn check(krate: &Path, trees: &[Tree], allowed: &mut Allowed) -> usize {
    let mut found = 0;
    for ((module, name), Size { methods, fields }) in trees.iter().flat_map(sizes) {
        let place = krate.join(module.join("::")).join(name);
        for (rule, size, most) in
            [("methods", methods, MOST_METHODS), ("fields", fields, MOST_FIELDS)]
        {
            let size = if size > most { size } else { 0 };
            found += allowed.judge(rule, &place, size, || {
                format!("{rule} of one type, which may have {most}: split it along its subjects")
            });
        }
    }
    found
}

/// All types of a crate, by module and name.
fn sizes(tree: &Tree) -> BTreeMap<(Names, String), Size> {
    let mut sizes: BTreeMap<_, Size> = BTreeMap::new();
    for (module, content) in &tree.modules {
        for (path, size) in read(content.body.clone()) {
            // A type that the module defines is not imported, so its name alone says nothing.
            let named = [&["self".to_owned()], &path[..]].concat();
            let from =
                if path.first().is_some_and(|word| word == "crate") { &path } else { &named };
            let (home, rest) = tree.locate(module, from).unwrap_or((module.clone(), path));
            let Some(name) = rest.into_iter().next_back() else { continue };
            let known = sizes.entry((home, name)).or_default();
            known.methods += size.methods;
            known.fields += size.fields;
        }
    }
    sizes
}

/// The types that a module declares, and those for which it has methods, by the paths that it uses.
fn read(body: TokenStream) -> Vec<(Names, Size)> {
    let (mut found, mut tokens, mut laid_out) = (Vec::new(), body.into_iter().peekable(), false);
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(mark) if mark.as_char() == '#' => {
                laid_out |= attribute(&mut tokens).contains("repr (C");
                continue;
            }
            // The attribute stays with what comes behind its visibility.
            TokenTree::Ident(word) if word == "pub" => {
                tokens.next_if(|next| is_group(next, Delimiter::Parenthesis));
                continue;
            }
            TokenTree::Ident(word) if word == "struct" => {
                let name = tokens.next().map(|name| name.to_string());
                let fields = match until_body(&mut tokens).1 {
                    Some(body) if !laid_out => fields(body),
                    _ => 0,
                };
                found.extend(name.map(|name| (vec![name], Size { methods: 0, fields })));
            }
            // Its result may be an `impl`, too.
            TokenTree::Ident(word) if word == "fn" => drop(until_body(&mut tokens)),
            TokenTree::Ident(word) if word == "impl" => {
                let (head, body) = until_body(&mut tokens);
                if let (Some(path), Some(body)) = (of_type(head), body) {
                    found.push((path, Size { methods: methods(body), fields: 0 }));
                }
            }
            _ => {}
        }
        laid_out = false;
    }
    found
}

/// Reads an attribute behind its mark, and skips what it belongs to if that is for tests only.
fn attribute(tokens: &mut Tokens) -> String {
    let inner = take(tokens, '!');
    let text = match tokens.next() {
        Some(TokenTree::Group(attribute)) => attribute.stream().to_string(),
        _ => String::new(),
    };
    if is_for_tests(&text) && !inner {
        skip_item(tokens);
    }
    text
}

/// Tokens up to a body in braces, and that; none of a type without one.
fn until_body(tokens: &mut Tokens) -> (Vec<TokenTree>, Option<TokenStream>) {
    let mut head = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                return (head, Some(group.stream()));
            }
            TokenTree::Punct(mark) if mark.as_char() == ';' => break,
            token => head.push(token),
        }
    }
    (head, None)
}

/// The type in what stands between `impl` and the body, unless it is for a trait.
fn of_type(head: Vec<TokenTree>) -> Option<Names> {
    let (mut path, mut depth, mut ended) = (Names::new(), 0usize, false);
    let mut before = ' ';
    for token in head {
        match token {
            TokenTree::Punct(mark) => {
                match mark.as_char() {
                    '<' => depth += 1,
                    // Not the end of an arrow.
                    '>' if before != '-' => depth -= 1,
                    _ => {}
                }
                before = mark.as_char();
                continue;
            }
            TokenTree::Ident(word) if depth == 0 => match word.to_string().as_str() {
                "for" => return None,
                "where" => ended = true,
                name if !ended => path.push(name.to_owned()),
                _ => {}
            },
            _ => {}
        }
        before = ' ';
    }
    Some(path)
}

fn methods(body: TokenStream) -> usize {
    let (mut count, mut tokens) = (0, body.into_iter().peekable());
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(mark) if mark.as_char() == '#' => drop(attribute(&mut tokens)),
            TokenTree::Ident(word) if word == "fn" => count += 1,
            _ => {}
        }
    }
    count
}

/// Each has one colon that is not one half of `::`, outside of angle brackets.
fn fields(body: TokenStream) -> usize {
    let (mut count, mut tokens, mut depth) = (0, body.into_iter().peekable(), 0usize);
    while let Some(token) = tokens.next() {
        let TokenTree::Punct(mark) = token else { continue };
        match mark.as_char() {
            '#' => drop(attribute(&mut tokens)),
            ':' if !take(&mut tokens, ':') && depth == 0 => count += 1,
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            '-' => drop(take(&mut tokens, '>')),
            _ => {}
        }
    }
    count
}

fn is_group(token: &TokenTree, delimiter: Delimiter) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == delimiter)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<(String, usize, usize)> {
        let read = read(text.parse().expect("tokens")).into_iter();
        read.map(|(path, size)| (path.join("::"), size.methods, size.fields)).collect()
    }

    #[test]
    fn fields_with_a_name_are_counted_unless_their_layout_is_given() {
        let one = |name: &str, fields| vec![(name.to_owned(), 0, fields)];
        let text = "pub struct A<T: Copy> where T: Send { pub a: std::vec::Vec<T>, /// b: 1
            #[x(c: d)] pub(crate) b: fn(u8) -> Option<T>, #[cfg(test)] c: u8, d: Map<u8, fn() -> T> }";
        assert_eq!(of(text), one("A", 3));
        assert_eq!(of("struct B(u8, u8); "), one("B", 0));
        assert_eq!(of("#[repr(C)] #[derive(Copy)] pub(crate) struct C { a: u8 }"), one("C", 0));
        assert_eq!(of("#[repr(C)] enum E { A } struct D { a: u8 }"), one("D", 1));
        assert!(of("#[cfg(all(test, unix))] struct A { a: u8 }").is_empty());
    }

    #[test]
    fn methods_of_a_type_are_counted_and_those_of_traits_are_not() {
        let text = "impl<'a, T: Into<u8>, F: Fn() -> T> super::B<'a, T> where T: Send {
            const A: u8 = 1; pub fn a(&self, b: fn()) { fn inner() {} }
            /// Says fn.
            #[must_use] pub(crate) const unsafe fn b() {} #[cfg(test)] fn c() {} }";
        assert_eq!(of(text), [("super::B".to_owned(), 2, 0)]);
        assert!(of("fn a() -> impl Fn() { fn b() {} }").is_empty());
        assert!(
            of("impl<T> From<T> for A { fn from() {} } #[cfg(test)] impl A { fn a() {} }")
                .is_empty()
        );
    }

    #[test]
    fn methods_in_several_files_are_of_one_type_and_names_of_two_modules_of_two() {
        let folder = tempfile::tempdir().expect("a folder");
        let files = [
            ("lib.rs", "mod a; mod b; use a::A as B; impl B { fn one() {} }"),
            ("a.rs", "pub struct A { a: u8 } impl A { fn two() {} }"),
            (
                "b.rs",
                "struct A { a: u8, b: u8 } impl A { fn one() {} } impl crate::a::A { fn three() {} }
                mod c { use super::super::*; impl a::A { fn four() {} } }",
            ),
        ];
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).expect("a file");
        }
        let tree = Tree::read(&folder.path().join("lib.rs")).expect("modules");
        let found: Vec<_> = sizes(&tree).into_iter().collect();
        let name = |module: &str| (vec![module.to_owned()], "A".to_owned());
        let (a, b) = (Size { methods: 4, fields: 1 }, Size { methods: 1, fields: 2 });
        assert_eq!(found, [(name("a"), a), (name("b"), b)]);
    }
}
