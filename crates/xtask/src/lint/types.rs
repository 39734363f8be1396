//! Types that do too much: methods and fields of one type, over all files of its crate.

use super::allowed::Allowed;
use super::modules::{Names, Tree};
use proc_macro2::TokenStream;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use syn::{Attribute, Fields, ImplItem, Item, Meta, Type};

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
pub(super) fn check(krate: &Path, trees: &[Tree], allowed: &mut Allowed) -> io::Result<usize> {
    let mut found = 0;
    let sizes = trees.iter().map(sizes).collect::<syn::Result<Vec<_>>>();
    let sizes = sizes.map_err(|error| io::Error::other(format!("{}: {error}", krate.display())))?;
    for ((module, name), Size { methods, fields }) in sizes.into_iter().flatten() {
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
    Ok(found)
}

/// All types of a crate, by module and name.
fn sizes(tree: &Tree) -> syn::Result<BTreeMap<(Names, String), Size>> {
    let mut sizes: BTreeMap<_, Size> = BTreeMap::new();
    for (module, content) in &tree.modules {
        for (path, size) in read(content.body.clone())? {
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
    Ok(sizes)
}

/// The types that a module declares, and those for which it has methods, by the paths that it uses.
fn read(body: TokenStream) -> syn::Result<Vec<(Names, Size)>> {
    let items = syn::parse2::<syn::File>(body)?.items;
    Ok(items.into_iter().filter_map(size).collect())
}

fn size(item: Item) -> Option<(Names, Size)> {
    match item {
        Item::Struct(item) if !for_tests(&item.attrs) => {
            let fields = match &item.fields {
                Fields::Named(fields) if !has(&item.attrs, "repr", "C") => {
                    fields.named.iter().filter(|field| !for_tests(&field.attrs)).count()
                }
                _ => 0,
            };
            Some((vec![item.ident.to_string()], Size { methods: 0, fields }))
        }
        // Those of traits are not its own.
        Item::Impl(item) if item.trait_.is_none() && !for_tests(&item.attrs) => {
            let Type::Path(path) = *item.self_ty else { return None };
            let is_method =
                |item: &&ImplItem| matches!(item, ImplItem::Fn(item) if !for_tests(&item.attrs));
            let methods = item.items.iter().filter(is_method).count();
            let names = path.path.segments.iter().map(|segment| segment.ident.to_string());
            Some((names.collect(), Size { methods, fields: 0 }))
        }
        _ => None,
    }
}

/// Whether one of the attributes is `name`, and its arguments begin with these words.
fn has(attributes: &[Attribute], name: &str, start: &str) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) => list.path.is_ident(name) && list.tokens.to_string().starts_with(start),
        _ => false,
    })
}

fn for_tests(attributes: &[Attribute]) -> bool {
    has(attributes, "cfg", "test") || has(attributes, "cfg", "all (test")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<(String, usize, usize)> {
        let read = read(text.parse().expect("tokens")).expect("items").into_iter();
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
        let found: Vec<_> = sizes(&tree).expect("items").into_iter().collect();
        let name = |module: &str| (vec![module.to_owned()], "A".to_owned());
        let (a, b) = (Size { methods: 4, fields: 1 }, Size { methods: 1, fields: 2 });
        assert_eq!(found, [(name("a"), a), (name("b"), b)]);
    }
}
