//! The tables of `docs/uverbs.md` are those of the schema.

use std::fmt::Write as _;
use std::path::PathBuf;
use warpverbs_uverbs::WRITE_COMMANDS;
use warpverbs_uverbs::schema::{Access, Attr, Kind, OBJECTS};

const START: &str = "<!-- the tables below are made from the schema -->\n";

fn carried(attr: &Attr) -> String {
    let bytes = |min: u16, max: u16, grows: bool| match (min, max) {
        (min, u16::MAX) => format!("{min} bytes or more"),
        (min, max) if min == max && grows => format!("{min} bytes or more"),
        (min, max) if min == max => format!("{min} bytes"),
        (min, max) => format!("{min} or {max} bytes"),
    };
    match attr.kind {
        Kind::In { min, max, grows } => format!("in, {}", bytes(min, max, grows)),
        Kind::Out { min, max, grows } => format!("out, {}", bytes(min, max, grows)),
        Kind::Object(class, Access::New) => format!("new {class:?}"),
        Kind::Object(class, Access::Use) => format!("{class:?}"),
        Kind::Object(class, Access::Destroy) => format!("{class:?}, destroyed"),
        Kind::Descriptor => "descriptor".into(),
    }
}

fn tables() -> String {
    let mut out = START.to_owned();
    out += "\n| call | attribute | number | carries | |\n|---|---|---|---|---|\n";
    let mut refused = Vec::new();
    for object in OBJECTS {
        for method in object.methods {
            let name = object.call(method);
            let Some(attrs) = method.attrs else {
                refused.push(format!("`{name}`"));
                continue;
            };
            for (i, attr) in attrs.iter().enumerate() {
                let call = match i {
                    0 => format!("`{name}` ({:#x}.{:#x})", object.id, method.id),
                    _ => String::new(),
                };
                let optional = if attr.mandatory { "" } else { "optional" };
                let short = attr.name.split_once("_ATTR_").map_or(attr.name, |(_, short)| short);
                let carries = carried(attr);
                writeln!(out, "| {call} | `{short}` | {:#x} | {carries} | {optional} |", attr.id)
                    .unwrap();
            }
        }
    }
    writeln!(out, "\nRefused with EPROTONOSUPPORT: {}.\n", refused.join(", ")).unwrap();
    out += "| wrapped command | number | bytes in, at least | bytes out, at least |\n|---|---|---|---|\n";
    let mut refused = Vec::new();
    for command in WRITE_COMMANDS {
        match command.sizes {
            Some((input, output)) => {
                let (name, id) = (command.short_name(), command.id);
                writeln!(out, "| `{name}` | {id:#x} | {input} | {output} |").unwrap();
            }
            None => refused.push(format!("`{}`", command.short_name())),
        }
    }
    writeln!(out, "\nRefused with EOPNOTSUPP: {}.", refused.join(", ")).unwrap();
    out
}

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/uverbs.md")
}

/// `WARPVERBS_BLESS` writes the tables anew.
#[test]
fn the_document_has_the_tables_of_the_schema() {
    let document = std::fs::read_to_string(path()).unwrap();
    let at = document.find(START).expect("the line before the tables");
    let (prose, found) = document.split_at(at);
    if std::env::var_os("WARPVERBS_BLESS").is_some() {
        return std::fs::write(path(), format!("{prose}{}", tables())).unwrap();
    }
    for (found, expected) in found.lines().zip(tables().lines()) {
        assert_eq!(found, expected, "WARPVERBS_BLESS writes the tables anew");
    }
    assert_eq!(found.lines().count(), tables().lines().count());
}
