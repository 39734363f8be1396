//! Sizes and offsets of every structure, by the Rust compiler and by the C compiler.
//!
//! `fields.rs` lists names. For each of them this module writes what Rust says and a line of C
//! that prints what the header says.

mod mlx5;
mod vendor;

use crate::tools::{cc, run, scratch, verbs_h};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::mem::offset_of;
use std::process::Command;

/// A structure or union as Rust has it.
struct Layout {
    /// `struct` or `union`.
    word: &'static str,
    name: &'static str,
    size: usize,
    align: usize,
    /// Name, offset, and the Rust name of the type if C has none for it, else `_`.
    fields: Vec<(&'static str, usize, &'static str)>,
}

macro_rules! layouts {
    ($($word:ident $name:ident { $($field:ident: $kind:tt,)* })*) => {
        vec![$(Layout {
            word: stringify!($word),
            name: stringify!($name),
            size: size_of::<warpverbs_verbs::sys::$name>(),
            align: align_of::<warpverbs_verbs::sys::$name>(),
            fields: vec![$((
                stringify!($field),
                offset_of!(warpverbs_verbs::sys::$name, $field),
                stringify!($kind),
            )),*],
        }),*]
    };
}

fn layouts() -> Vec<Layout> {
    include!("fields.rs")
}

/// How C writes a value of a type, and how far its fields lie beyond that value's first byte: not
/// at 0 for anonymous members, which C reaches through what they are a member of.
#[derive(Clone)]
struct Place {
    value: String,
    beyond: usize,
    anonymous: bool,
}

/// The lines of Rust, and the program that prints the same lines if C agrees.
fn compare(layouts: &[Layout]) -> (String, String) {
    let mut places: BTreeMap<&str, Place> = BTreeMap::new();
    let mut ours = String::new();
    let mut program =
        "#include <infiniband/verbs.h>\n#include <stdio.h>\nint main(void) {\n".to_owned();
    for Layout { word, name, size, align, fields } in layouts {
        if !name.contains("__bindgen_ty") {
            let value = format!("(*({word} {name} *)0)");
            places.insert(name, Place { value, beyond: 0, anonymous: false });
        }
        // A nested type comes after the one it is in.
        let place = places.get(name).unwrap_or_else(|| panic!("{name} is in nothing")).clone();
        let value = &place.value;
        if !place.anonymous {
            writeln!(ours, "{name} {size} {align}").unwrap();
            let print =
                format!("\"{name} %zu %zu\\n\", sizeof{value}, _Alignof(__typeof__{value})");
            writeln!(program, "printf({print});").unwrap();
        }
        for (field, offset, kind) in fields {
            let anonymous = field.starts_with("__bindgen_anon");
            // Words that Rust reserves end in `_` there.
            let member = format!("{value}.{}", field.trim_end_matches('_'));
            let beyond = place.beyond + offset;
            if *kind != "_" {
                let next = match anonymous {
                    true => Place { value: value.clone(), beyond, anonymous },
                    false => Place { value: format!("({member})"), beyond: 0, anonymous },
                };
                places.insert(kind, next);
            }
            if !anonymous {
                writeln!(ours, "{name}.{field} {beyond}").unwrap();
                let at = format!("(char *)&{member} - (char *)&{value}");
                writeln!(program, "printf(\"{name}.{field} %zu\\n\", (size_t)({at}));").unwrap();
            }
        }
    }
    (ours, program + "return 0; }\n")
}

/// The version of rdma-core that the declarations were made from, as pkg-config counts.
const VERSION: &str = "1.14.44.0";

/// Whether the installed headers are those, or cannot be asked. Newer ones have structures that
/// have grown: at their ends, and `verbs_context` at its beginning.
fn same_headers() -> bool {
    let out = Command::new("pkg-config").args(["--modversion", "libibverbs"]).output();
    let found = out.map(|out| String::from_utf8_lossy(&out.stdout).trim().to_owned());
    match found {
        Ok(found) if !found.is_empty() && found != VERSION => {
            eprintln!("PARTLY SKIPPED: headers are {found}, not {VERSION}: no sizes are compared");
            false
        }
        _ => true,
    }
}

fn output_of(name: &str, program: String) -> String {
    let dir = scratch(name);
    let (unit, binary) = (dir.join("unit.c"), dir.join("program"));
    std::fs::write(&unit, program).expect("write");
    run(cc().args(["-w", "-o"]).arg(&binary).arg(unit));
    let out = String::from_utf8(run(&mut Command::new(&binary)).stdout).expect("text");
    std::fs::remove_dir_all(dir).expect("remove");
    out
}

fn assert_same(ours: &str, theirs: &str, compared: impl Fn(&str) -> bool) {
    for (ours, theirs) in ours.lines().zip(theirs.lines()).filter(|(ours, _)| compared(ours)) {
        assert_eq!(ours, theirs, "Rust, then C");
    }
    assert_eq!(ours.lines().count(), theirs.lines().count());
}

#[test]
fn both_compilers_agree_on_every_field() {
    if !verbs_h() {
        return;
    }
    let layouts = layouts();
    let fields: usize = layouts.iter().map(|layout| layout.fields.len()).sum();
    assert!(layouts.len() > 50 && fields > 400, "{} structures, {fields} fields", layouts.len());
    let (ours, program) = compare(&layouts);
    let strict = same_headers();
    let may_differ = |line: &str| !line.contains('.') || line.starts_with("verbs_context");
    assert_same(&ours, &output_of("layout", program), |line| strict || !may_differ(line));
}

#[test]
fn both_compilers_agree_on_every_constant() {
    if !verbs_h() {
        return;
    }
    let mut ours = String::new();
    let mut program =
        "#include <infiniband/verbs.h>\n#include <stdio.h>\nint main(void) {\n".to_owned();
    for line in include_str!("../../../src/sys/bindings.rs").lines() {
        // `pub const NAME: kind = value;`
        let Some(rest) = line.strip_prefix("pub const ") else { continue };
        let (name, rest) = rest.split_once(": ").expect(line);
        let value = rest.split_once(" = ").expect(line).1.trim_end_matches(';');
        writeln!(ours, "{name} {value}").unwrap();
        writeln!(program, "printf(\"{name} %lld\\n\", (long long){name});").unwrap();
    }
    assert!(ours.lines().count() > 150, "{ours}");
    assert_same(&ours, &output_of("constants", program + "return 0; }\n"), |_| true);
}
