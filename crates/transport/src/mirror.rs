//! The numbers that the device headers and Rust both define are the same, and neither side knows one
//! that the other does not.

use crate::post::protocol::OFFERED;
use crate::{Outcome, WaitFor};
use std::collections::BTreeMap;
use std::fmt::Debug;
use warpverbs_mlx5::export::{CqMode, SCRATCH_SLOTS};
use warpverbs_mlx5::opcode::{CqeOpcode, SendOpcode};
use warpverbs_mlx5::syndrome::Syndrome;

fn header(name: &str) -> String {
    let path = format!("{}/../../kernels/include/warpverbs/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    text.lines().map(|line| line.split("//").next().unwrap_or("").to_owned() + "\n").collect()
}

fn number(text: &str) -> u32 {
    let text = text.trim().trim_end_matches('u');
    match (text.strip_prefix("0x"), text.split_once("<<")) {
        (Some(hex), _) => u32::from_str_radix(hex, 16),
        (_, Some((one, shift))) => return number(one) << number(shift),
        _ => text.parse(),
    }
    .unwrap_or_else(|e| panic!("{text:?}: {e}"))
}

/// `snake_case` as Rust names a variant.
fn camel(name: &str) -> String {
    let word = |word: &str| word[..1].to_uppercase() + &word[1..];
    name.split('_').map(word).collect()
}

/// Value to name, of every enumerator.
fn enumerators(file: &str, name: &str) -> BTreeMap<u32, String> {
    let text = header(file);
    let start = text.find(&format!("enum class {name} ")).unwrap_or_else(|| panic!("no {name}"));
    let body = text[start..].split(['{', '}']).nth(1).expect("a body");
    let each = body.split(',').filter(|part| !part.trim().is_empty());
    let values: BTreeMap<u32, String> = each
        .map(|part| {
            let (name, value) = part.split_once('=').expect("every enumerator has its value");
            (number(value), camel(name.trim()))
        })
        .collect();
    assert!(values.len() > 1, "{name}");
    values
}

/// Name of a variant, without its fields; `None` for one that is unknown.
fn variant(value: impl Debug) -> Option<String> {
    let text = format!("{value:?}");
    let name = text.split(['(', ' ']).next().unwrap_or_default();
    (name != "Unknown").then(|| name.to_owned())
}

fn same(file: &str, name: &str, of: impl Fn(u8) -> Option<String>) {
    let mut values = enumerators(file, name);
    if file == "status.h" {
        // Success is no outcome and nothing to wait for in Rust.
        assert!(values.remove(&0).is_some());
    }
    for value in 0..=255u8 {
        let (cpp, rust) = (values.get(&value.into()).cloned(), of(value));
        assert_eq!(cpp, rust, "{name} {value:#x}: in the header, and in Rust");
    }
}

#[test]
fn enums_of_the_device_headers_are_those_of_rust() {
    same("status.h", "outcome", |v| variant(Outcome::from_code(v.into())));
    same("status.h", "wait_for", |v| variant(WaitFor::from_code(v.into())));
    same("mlx5/opcode.h", "opcode", |v| variant(SendOpcode::from_value(v)));
    same("mlx5/opcode.h", "cqe_opcode", |v| {
        if v < 16 { variant(CqeOpcode::from_nibble(v)) } else { None }
    });
    same("mlx5/opcode.h", "syndrome", |v| variant(Syndrome::from_value(v)));
    let modes = [CqMode::Ring, CqMode::Collapsed];
    let modes = modes.map(|mode| (mode as u32, format!("{mode:?}")));
    assert_eq!(enumerators("layout/qp.h", "cq_mode"), BTreeMap::from(modes));
}

#[test]
fn constants_of_the_device_headers_are_those_of_rust() {
    for (file, name, value) in [
        ("impl/publish.h", "u32 token_offered", OFFERED),
        ("impl/publish.h", "u32 most_passes", 64),
        ("qp.h", "u32 scratch_slots", SCRATCH_SLOTS as u32),
    ] {
        let text = header(file);
        let found = text.split_once(&format!("constexpr {name} = ")).expect(name).1;
        assert_eq!(number(found.split(';').next().expect("a value")), value, "{name}");
    }
}
