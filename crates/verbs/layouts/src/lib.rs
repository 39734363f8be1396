//! The declarations of libibverbs that this project checks in, against those of `ibverbs-sys`, which bindgen makes of
//! another rdma-core when it is built. Sizes, alignments, offsets and constants must be the same; structures that the
//! newer rdma-core has lengthened must have what we know of them as their beginning.
#![cfg(test)]

#[allow(dead_code, non_camel_case_types, non_snake_case, non_upper_case_globals, unreachable_pub)]
#[path = "../../src/sys/bindings.rs"]
mod ours;

/// Structures that rdma-core 55 has lengthened since 44: speeds beyond 8 bits, FLUSH. Callers tell libibverbs how long
/// theirs is (`ibv_query_port`), or get it from libibverbs and never see its end (`ibv_qp_ex`).
const GROWN: [&str; 2] = ["ibv_port_attr", "ibv_qp_ex"];

/// A structure or union, or one of its fields, on both sides.
struct Pair {
    name: &'static str,
    /// Size and alignment.
    ours: [usize; 2],
    theirs: [usize; 2],
    /// Name, our offset, theirs.
    fields: Vec<(&'static str, usize, usize)>,
}

macro_rules! layouts {
    ($($word:ident $name:ident { $($field:ident: $kind:tt,)* })*) => {
        vec![$(Pair {
            name: stringify!($name),
            ours: [size_of::<ours::$name>(), align_of::<ours::$name>()],
            theirs: [size_of::<ibverbs_sys::$name>(), align_of::<ibverbs_sys::$name>()],
            fields: vec![$((
                stringify!($field),
                std::mem::offset_of!(ours::$name, $field),
                std::mem::offset_of!(ibverbs_sys::$name, $field),
            )),*],
        }),*]
    };
}

#[test]
fn every_structure_is_laid_out_alike() {
    let pairs: Vec<Pair> = include!(concat!(env!("OUT_DIR"), "/structures.rs"));
    let (mut fields, mut wrong) = (0, Vec::new());
    for Pair { name, ours, theirs, fields: list } in &pairs {
        let grown = GROWN.contains(name);
        let same_size = if grown { ours[0] < theirs[0] } else { ours[0] == theirs[0] };
        if !same_size || ours[1] != theirs[1] {
            wrong.push(format!(
                "{name}: size and alignment {ours:?}, theirs {theirs:?}, grown: {grown}"
            ));
        }
        for (field, ours, theirs) in list {
            fields += 1;
            if ours != theirs {
                wrong.push(format!("{name}.{field} lies at {ours}, theirs at {theirs}"));
            }
        }
    }
    println!("{} structures, {fields} fields; longer in theirs: {}", pairs.len(), GROWN.join(", "));
    assert!(pairs.len() > 50 && fields > 350, "{} structures, {fields} fields", pairs.len());
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Theirs is written by hand, with fields that cannot be named from here; those that can are compared.
#[test]
fn a_work_completion_is_laid_out_alike() {
    use std::mem::offset_of;
    type Theirs = ibverbs_sys::ibv_wc;
    type Ours = ours::ibv_wc;
    assert_eq!(size_of::<Ours>(), size_of::<Theirs>());
    assert_eq!(offset_of!(Ours, __bindgen_anon_1), offset_of!(Theirs, imm_data));
    assert_eq!(offset_of!(Ours, qp_num), offset_of!(Theirs, qp_num));
    assert_eq!(offset_of!(Ours, src_qp), offset_of!(Theirs, src_qp));
    assert_eq!(offset_of!(Ours, wc_flags), offset_of!(Theirs, wc_flags));
    assert_eq!(offset_of!(Ours, pkey_index), offset_of!(Theirs, pkey_index));
    assert_eq!(offset_of!(Ours, slid), offset_of!(Theirs, slid));
    assert_eq!(offset_of!(Ours, sl), offset_of!(Theirs, sl));
    assert_eq!(offset_of!(Ours, dlid_path_bits), offset_of!(Theirs, dlid_path_bits));
}

#[test]
fn every_constant_has_the_same_value() {
    let all: &[(&str, i64, i64)] = &include!(concat!(env!("OUT_DIR"), "/constants.rs"));
    let wrong: Vec<_> = all.iter().filter(|(_, ours, theirs)| ours != theirs).collect();
    println!("{} constants", all.len());
    assert!(all.len() > 150, "{} constants", all.len());
    assert!(wrong.is_empty(), "name, ours, theirs: {wrong:#?}");
}
