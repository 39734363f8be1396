//! Lists of descriptors, beside vectors that have the same done to them.

use crate::bed::{INVALID_PARAM, at, call, last_error, made, ok, seeded, string, text};
use rand::RngExt;
use std::ptr;

const KINDS: [&str; 6] = ["DRAM", "VRAM", "BLOCK", "OBJECT", "FILE", "UNKNOWN"];

#[test]
fn kinds_have_names_and_numbers() {
    for (number, name) in KINDS.iter().enumerate() {
        let mut found = ptr::null();
        ok("nixl_capi_mem_type_to_string", &[number as u64, at(&mut found)]);
        assert_eq!(string(found), *name);
        for what in ["xfer", "reg"] {
            let list = made(&format!("nixl_capi_create_{what}_dlist"), &[number as u64]);
            let get = format!("nixl_capi_{what}_dlist_get_type");
            assert_eq!(made(&get, &[list]), number as u64);
            ok(&format!("nixl_capi_destroy_{what}_dlist"), &[list]);
        }
    }
    let mut result = 0_u64;
    for create in
        ["create_xfer_dlist", "create_reg_dlist", "create_remote_dlist", "mem_type_to_string"]
    {
        for number in [6, 1 << 20, u64::from(u32::MAX)] {
            let create = format!("nixl_capi_{create}");
            assert_eq!(call(&create, &[number, at(&mut result)]), INVALID_PARAM, "{create}");
            assert!(last_error().contains(&number.to_string()), "{}", last_error());
        }
    }
}

#[test]
fn lists_of_any_length_are_as_vectors_are() {
    let mut rng = seeded();
    for what in ["xfer", "reg"] {
        let list = made(&format!("nixl_capi_create_{what}_dlist"), &[0]);
        let name = |call: &str| format!("nixl_capi_{what}_dlist_{call}");
        let mut count = 0_u64;
        for _ in 0..2000 {
            match rng.random_range(0..20) {
                0 => {
                    ok(&name("clear"), &[list]);
                    count = 0;
                }
                1 => {
                    count = rng.random_range(0..50);
                    ok(&name("resize"), &[list, count]);
                }
                2 => ok(&name("trim"), &[list]),
                3..6 => {
                    let index = rng.random_range(0..60);
                    let status = call(&name("rem_desc"), &[list, index]);
                    assert_eq!(status, if index < count { 0 } else { INVALID_PARAM });
                    count -= u64::from(index < count);
                }
                _ => {
                    ok(&name("add_desc"), &[list, rng.random(), 16, 0, text(c"meta"), 4]);
                    count += 1;
                }
            }
            assert_eq!(made(&name("desc_count"), &[list]), count);
            assert_eq!(made(&name("is_empty"), &[list]), u64::from(count == 0));
            if what == "xfer" {
                assert_eq!(made(&name("len"), &[list]), count);
            }
        }
        // -1, as C passes it.
        assert_eq!(call(&name("rem_desc"), &[list, u64::from(u32::MAX)]), INVALID_PARAM);
        assert_eq!(call(&name("resize"), &[list, u64::MAX]), INVALID_PARAM);
        assert_eq!(made(&name("desc_count"), &[list]), count);
        ok(&name("print"), &[list]);
        ok(&format!("nixl_capi_destroy_{what}_dlist"), &[list]);
    }
}

#[test]
fn lists_of_unknown_memory_do_nothing() {
    let agent = made("nixl_capi_create_agent", &[text(c"unknown")]);
    let list = made("nixl_capi_create_reg_dlist", &[5]);
    assert_eq!(call("nixl_capi_register_mem", &[agent, list, 0]), INVALID_PARAM);
    assert!(last_error().contains("unknown kind"), "{}", last_error());
    ok("nixl_capi_destroy_reg_dlist", &[list]);
    ok("nixl_capi_destroy_agent", &[agent]);
}
