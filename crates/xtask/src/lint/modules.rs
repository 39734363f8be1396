//! The modules of a program or library, file by file, as its source declares them, and what each of
//! them names of the others.
//!
//! Tokens are read, not types: names that a macro makes are not seen, nor methods.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::iter::Peekable;
use std::path::{Path, PathBuf};

/// Re-exports that are followed, one after the other.
const MOST_HOPS: u32 = 8;

/// Names, joined by `::` in the source.
pub(super) type Names = Vec<String>;
type Tokens = Peekable<proc_macro2::token_stream::IntoIter>;

/// One module, in a file of its own or inside one.
#[derive(Default)]
pub(super) struct Module {
    /// Its file, by its place in [`Tree::files`].
    pub(super) file: usize,
    /// Names that it defines.
    pub(super) items: BTreeSet<String>,
    /// Paths of its `use` declarations, by the name that each gets here.
    pub(super) imports: BTreeMap<String, Names>,
    /// The modules of which it takes everything.
    pub(super) globs: Vec<Names>,
    /// Paths that it uses, without those that it only passes on by `pub use`.
    pub(super) uses: Vec<Names>,
    /// All that it has, modules inside of it as well.
    pub(super) body: TokenStream,
}

#[derive(Default)]
pub(super) struct Tree {
    pub(super) files: Vec<PathBuf>,
    pub(super) modules: BTreeMap<Names, Module>,
}

impl Tree {
    /// The modules of the library and the program in a crate's folder.
    pub(super) fn of_crate(folder: &Path) -> io::Result<Vec<Self>> {
        let roots = ["lib.rs", "main.rs"].map(|name| folder.join("src").join(name));
        roots.iter().filter(|root| root.exists()).map(|root| Self::read(root)).collect()
    }

    /// The modules of `root`, such as a `lib.rs`, without those for tests.
    pub(super) fn read(root: &Path) -> io::Result<Self> {
        let mut tree = Self::default();
        tree.file(root, Vec::new(), root.parent().unwrap_or(Path::new("")))?;
        Ok(tree)
    }

    /// Reads the file of module `name`, whose own modules lie in `folder`.
    fn file(&mut self, path: &Path, name: Names, folder: &Path) -> io::Result<()> {
        let text = std::fs::read_to_string(path)?;
        let tokens: TokenStream = text
            .parse()
            .map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?;
        self.files.push(path.into());
        let file = self.files.len() - 1;
        self.module(tokens, &name, file, folder)
    }

    fn module(
        &mut self,
        body: TokenStream,
        name: &Names,
        file: usize,
        folder: &Path,
    ) -> io::Result<()> {
        let mut module = Module { file, body: body.clone(), ..Module::default() };
        let mut children = Vec::new();
        module.walk(body, &mut Some(&mut children));
        self.modules.insert(name.clone(), module);
        for Child { name: own, body, path } in children {
            let name = [&name[..], std::slice::from_ref(&own)].concat();
            match body {
                Some(body) => self.module(body, &name, file, &folder.join(&own))?,
                None => {
                    let beside = self.files[file].parent().unwrap_or(Path::new("")).to_path_buf();
                    let named = path.map(|path| beside.join(path));
                    let plain = folder.join(&own).with_extension("rs");
                    let path = match named {
                        Some(path) => path,
                        None if plain.exists() => plain,
                        None => folder.join(&own).join("mod.rs"),
                    };
                    // A module of another platform may have no file here.
                    if path.exists() {
                        self.file(&path, name, &folder.join(&own))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// A file, as seen from the root.
    pub(super) fn name(&self, file: usize) -> &Path {
        let path = &self.files[file];
        let root = self.files[0].parent().unwrap_or(Path::new(""));
        path.strip_prefix(root).unwrap_or(path)
    }

    /// The module in which what `path` names for module `at` is defined, and what is left of the path
    /// there. Nothing, if it is of another crate.
    pub(super) fn locate(&self, at: &Names, path: &[String]) -> Option<(Names, Names)> {
        self.locate_within(at, path, MOST_HOPS)
    }

    fn locate_within(&self, at: &Names, path: &[String], hops: u32) -> Option<(Names, Names)> {
        let hops = hops.checked_sub(1)?;
        let (first, mut rest) = path.split_first()?;
        let mut base = match first.as_str() {
            "crate" => Names::new(),
            "self" => at.clone(),
            "super" => at.split_last()?.1.to_vec(),
            name if self.modules.contains_key(&child(at, name)) => child(at, name),
            name => {
                let import = self.modules.get(at)?.imports.get(name)?;
                // `use rdma::Op` names another crate.
                let is_foreign = import.first() == Some(first);
                return (!is_foreign)
                    .then(|| self.locate_within(at, &[import, rest].concat(), hops))?;
            }
        };
        while let Some((next, further)) = rest.split_first() {
            match next.as_str() {
                "super" => drop(base.pop()),
                name if self.modules.contains_key(&child(&base, name)) => base = child(&base, name),
                _ => break,
            }
            rest = further;
        }
        let passed_on = self.passed_on(&base, rest, hops);
        Some(passed_on.unwrap_or((base, rest.to_vec())))
    }

    /// Where a module has from what it does not define itself.
    fn passed_on(&self, at: &Names, path: &[String], hops: u32) -> Option<(Names, Names)> {
        let (name, rest) = path.split_first()?;
        let module = self.modules.get(at)?;
        if module.items.contains(name) {
            return None;
        }
        if let Some(import) = module.imports.get(name) {
            return self.locate_within(at, &[import, rest].concat(), hops);
        }
        module.globs.iter().find_map(|glob| {
            let (from, _) =
                self.locate_within(at, glob, hops).filter(|(_, left)| left.is_empty())?;
            if self.modules.contains_key(&child(&from, name)) {
                return self.locate_within(&from, path, hops);
            }
            match self.modules.get(&from)?.items.contains(name) {
                true => Some((from, path.to_vec())),
                false => self.passed_on(&from, path, hops.checked_sub(1)?),
            }
        })
    }
}

fn child(at: &[String], name: &str) -> Names {
    at.iter().cloned().chain([name.to_owned()]).collect()
}

/// A module that another one declares.
struct Child {
    name: String,
    /// Unless it is in a file of its own.
    body: Option<TokenStream>,
    /// The value of `#[path]`.
    path: Option<String>,
}

impl Module {
    /// Reads tokens; at a module's own level, where `children` is given, also what it declares.
    fn walk(&mut self, tokens: TokenStream, children: &mut Option<&mut Vec<Child>>) {
        let mut tokens = tokens.into_iter().peekable();
        let (mut public, mut path) = (false, None);
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Punct(mark) if mark.as_char() == '#' => {
                    let inner = take(&mut tokens, '!');
                    let Some(TokenTree::Group(attribute)) = tokens.next() else { continue };
                    let text = attribute.stream().to_string();
                    if is_for_tests(&text) && !inner {
                        skip_item(&mut tokens);
                    }
                    if let Some(value) = text.strip_prefix("path = ") {
                        path = Some(value.trim_matches('"').to_owned());
                    }
                    continue;
                }
                TokenTree::Ident(word) => match word.to_string().as_str() {
                    "pub" => {
                        public = true;
                        // As in `pub(crate)`; of a tuple's field it is a type, which names nothing new.
                        if let Some(TokenTree::Group(group)) = tokens.peek()
                            && group.delimiter() == Delimiter::Parenthesis
                        {
                            tokens.next();
                        }
                        continue;
                    }
                    "use" => self.import(use_tree(&mut tokens), public),
                    "mod" if children.is_some() => {
                        self.child(&mut tokens, path.take(), children);
                    }
                    "struct" | "enum" | "trait" | "fn" | "const" | "static" | "type" | "union"
                        if children.is_some() =>
                    {
                        if let Some(TokenTree::Ident(name)) = tokens.peek() {
                            self.items.insert(name.to_string());
                        }
                    }
                    first => self.path(first.to_owned(), &mut tokens),
                },
                TokenTree::Group(group) => self.walk(group.stream(), &mut None),
                _ => {}
            }
            public = false;
        }
    }

    /// The rest of a path, if it is one.
    fn path(&mut self, first: String, tokens: &mut Tokens) {
        let mut path = vec![first];
        while take(tokens, ':') {
            if !take(tokens, ':') {
                break;
            }
            match tokens.peek() {
                Some(TokenTree::Ident(name)) => path.push(name.to_string()),
                _ => break,
            }
            tokens.next();
        }
        if path.len() > 1 {
            self.uses.push(path);
        }
    }

    fn import(&mut self, tree: Vec<(Names, String)>, public: bool) {
        for (path, name) in tree {
            match name.as_str() {
                "*" => self.globs.push(path.clone()),
                _ => drop(self.imports.insert(name, path.clone())),
            }
            if !public {
                self.uses.push(path);
            }
        }
    }

    fn child(
        &mut self,
        tokens: &mut Tokens,
        path: Option<String>,
        children: &mut Option<&mut Vec<Child>>,
    ) {
        let Some(TokenTree::Ident(name)) = tokens.next() else { return };
        let body = match tokens.next() {
            Some(TokenTree::Group(group)) => Some(group.stream()),
            _ => None,
        };
        if let Some(children) = children {
            children.push(Child { name: name.to_string(), body, path });
        }
    }
}

/// Takes a mark, if it comes next.
fn take(tokens: &mut Tokens, mark: char) -> bool {
    tokens.next_if(|token| matches!(token, TokenTree::Punct(p) if p.as_char() == mark)).is_some()
}

/// Whether an attribute, without its brackets, leaves what it belongs to out of all but tests.
fn is_for_tests(attribute: &str) -> bool {
    ["cfg (test)", "cfg (all (test"].iter().any(|start| attribute.starts_with(start))
}

/// Skips what an attribute belongs to: up to a semicolon or the end of a body.
fn skip_item(tokens: &mut Tokens) {
    for token in tokens {
        match token {
            TokenTree::Punct(mark) if mark.as_char() == ';' || mark.as_char() == ',' => return,
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => return,
            _ => {}
        }
    }
}

/// The paths of a `use` declaration, each with the name that it gets here, up to a comma or the end.
fn use_tree(tokens: &mut Tokens) -> Vec<(Names, String)> {
    let (mut path, mut name) = (Names::new(), None);
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(mark) if mark.as_char() == ';' || mark.as_char() == ',' => break,
            TokenTree::Punct(mark) if mark.as_char() == '*' => name = Some("*".to_owned()),
            TokenTree::Ident(word) if word == "as" => {
                name = tokens.next().map(|token| token.to_string());
            }
            TokenTree::Ident(word) => path.push(word.to_string()),
            TokenTree::Group(group) => {
                let mut inner = group.stream().into_iter().peekable();
                let mut all = Vec::new();
                while inner.peek().is_some() {
                    all.extend(use_tree(&mut inner).into_iter().map(|(rest, name)| {
                        // `self` in braces is the module before them.
                        let rest = rest.into_iter().filter(|word| word != "self");
                        let path: Names = path.iter().cloned().chain(rest).collect();
                        let last = path.last().cloned().unwrap_or_default();
                        (path, if name == "self" { last } else { name })
                    }));
                }
                tokens.next();
                return all;
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
    let last = path.last().cloned().unwrap_or_default();
    vec![(path, name.unwrap_or(last))]
}
