//! Writes what is compared: every structure and every constant of the checked-in declarations, but for those that
//! `ibverbs-sys` has none of.

use std::fmt::Write as _;
use std::{env, fs, path::Path};

const DECLARATIONS: &str = "../src/sys/bindings.rs";
const FIELDS: &str = "../tests/it/layout/fields.rs";

/// Structures that `ibverbs-sys` leaves out, or writes by hand (`ibv_wc`, see src/lib.rs).
const NO_STRUCTURES: [&str; 3] = ["verbs_context", "ibv_wc", "ibv_wc__bindgen_ty_1"];

/// Enumerations that it has as a module each, and those that it has as a structure around a number.
const MODULES: [&str; 6] = [
    "ibv_port_state",
    "ibv_qp_state",
    "ibv_qp_type",
    "ibv_wc_opcode",
    "ibv_wc_status",
    "ibv_wr_opcode",
];
const WRAPPED: [&str; 4] = [
    "ibv_access_flags",
    "ibv_qp_attr_mask",
    "ibv_send_flags",
    "ibv_wc_flags",
];

/// Constants that it leaves out: those of another header.
const NO_CONSTANTS: [&str; 4] = [
    "IB_UVERBS_ACCESS_OPTIONAL_FIRST",
    "IB_UVERBS_ACCESS_OPTIONAL_LAST",
    "IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH",
    "IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE",
];

fn main() {
    for path in [DECLARATIONS, FIELDS] {
        println!("cargo::rerun-if-changed={path}");
    }
    let declarations = fs::read_to_string(DECLARATIONS).expect(DECLARATIONS);
    let fields = fs::read_to_string(FIELDS).expect(FIELDS);
    let out = env::var_os("OUT_DIR").expect("cargo sets it");
    let out = Path::new(&out);
    fs::write(out.join("structures.rs"), structures(&fields)).expect("written");
    fs::write(out.join("constants.rs"), constants(&declarations)).expect("written");
}

/// The list of fields, a macro call, less what cannot be compared.
fn structures(fields: &str) -> String {
    let compared = |line: &&str| {
        let name = line.split_whitespace().nth(1).unwrap_or_default();
        !NO_STRUCTURES.contains(&name)
    };
    fields.lines().filter(compared).map(|line| format!("{line}\n")).collect()
}

/// A list of names with both values.
fn constants(declarations: &str) -> String {
    let mut out = "[\n".to_owned();
    for line in declarations.lines() {
        // `pub const NAME: kind = value;`
        let Some(rest) = line.strip_prefix("pub const ") else { continue };
        let (name, rest) = rest.split_once(": ").expect(line);
        let kind = rest.split_once(" = ").expect(line).0;
        if NO_CONSTANTS.contains(&name) {
            continue;
        }
        let theirs = if MODULES.contains(&kind) {
            format!("{kind}::{name}")
        } else if WRAPPED.contains(&kind) {
            format!("{kind}::{name}.0")
        } else {
            name.to_owned()
        };
        writeln!(out, "({name:?}, ours::{name} as i64, ibverbs_sys::{theirs} as i64),")
            .expect("a string");
    }
    out + "]\n"
}
