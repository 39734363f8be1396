//! Calls that no program should make.

use crate::bed::{
    BACKEND, Bed, INVALID_PARAM, NOT_FOUND, at, call, has, is_stub, last_error, made, ok, seeded,
    text,
};
use crate::table::{self, FUNCTIONS};

#[test]
fn all_functions_are_there() {
    for (name, _) in FUNCTIONS {
        assert!(has(name), "{name}");
    }
    assert!(!is_stub());
}

#[test]
fn every_function_refuses_null_and_zeros() {
    for (name, _) in FUNCTIONS {
        assert_eq!(call(name, &[]), INVALID_PARAM, "{name}");
        let why = last_error();
        assert!(why.starts_with(&format!("{name}: ")), "{name}: {why}");
        assert!(why.contains("null"), "{name}: {why}");
    }
}

/// One handle of each type that is the first parameter of some function, but requests.
fn one_of_each(agent: u64) -> Vec<(u64, &'static str)> {
    let strings = made("nixl_capi_get_available_plugins", &[agent]);
    let (mut kinds, mut params) = (0_u64, 0_u64);
    let args = [agent, text(c"UCX"), at(&mut kinds), at(&mut params)];
    ok("nixl_capi_get_plugin_params", &args);
    vec![
        (agent, table::AGENT),
        (strings, table::STRINGS),
        (kinds, table::KINDS),
        (params, table::PARAMS),
        (made("nixl_capi_params_create_iterator", &[params]), table::ITER),
        (made("nixl_capi_create_backend", &[agent, text(c"UCX"), params]), table::BACKEND),
        (made("nixl_capi_create_opt_args", &[]), table::OPTIONS),
        (made("nixl_capi_create_xfer_dlist", &[0]), table::XFER),
        (made("nixl_capi_create_reg_dlist", &[0]), table::REG),
        (made("nixl_capi_create_remote_dlist", &[1]), table::REMOTE),
        (made("nixl_capi_create_notif_map", &[]), table::NOTIFS),
        (made("nixl_capi_create_query_resp_list", &[]), table::ANSWERS),
    ]
}

#[test]
fn handles_of_other_types_and_freed_ones_are_refused_and_live_on() {
    let agent = made("nixl_capi_create_agent", &[text(c"misuse")]);
    let handles = one_of_each(agent);
    for (name, expected) in FUNCTIONS.into_iter().filter(|(_, first)| *first != table::NONE) {
        for (handle, of) in handles.iter().filter(|(_, of)| *of != expected) {
            assert_eq!(call(name, &[*handle]), INVALID_PARAM, "{name} of {of}");
            let why = last_error();
            assert!(why.ends_with(&format!("is {of}, expected {expected}")), "{name}: {why}");
        }
    }
    // Nothing of it was freed; and all of it is freed once.
    let free: Vec<_> =
        FUNCTIONS.into_iter().filter(|(name, _)| name.contains("_destroy_")).collect();
    for (handle, of) in handles.iter().rev() {
        let (destroy, _) = free.iter().find(|(_, first)| first == of).unwrap();
        ok(destroy, &[*handle]);
        for (name, _) in FUNCTIONS.into_iter().filter(|(_, first)| first == of) {
            assert_eq!(call(name, &[*handle]), INVALID_PARAM, "{name} of what is freed");
            let why = last_error();
            assert!(why.contains("was freed or never given"), "{name}: {why}");
        }
    }
}

#[test]
fn what_looks_like_a_pointer_is_not_followed() {
    for handle in [1, 16, 0x7fff_0000_0000, u64::MAX] {
        for (name, _) in FUNCTIONS.into_iter().filter(|(_, first)| *first != table::NONE) {
            assert_eq!(call(name, &[handle]), INVALID_PARAM, "{name}");
        }
    }
}

#[test]
fn texts_that_are_none_are_refused() {
    let agent = made("nixl_capi_create_agent", &[text(c"texts")]);
    let mut result = 0_u64;
    let wrong = text(c"\xff\xfe");
    for (name, args) in [
        ("nixl_capi_create_agent", [wrong, at(&mut result), 0, 0]),
        ("nixl_capi_invalidate_remote_md", [agent, wrong, 0, 0]),
        ("nixl_capi_check_remote_md", [agent, wrong, 0, 0]),
        ("nixl_capi_agent_make_connection", [agent, wrong, 0, 0]),
        ("nixl_capi_gen_notif", [agent, wrong, 0, 0]),
    ] {
        assert_eq!(call(name, &args), INVALID_PARAM, "{name}");
        assert!(last_error().contains("utf-8"), "{name}: {}", last_error());
    }
    assert_eq!(call("nixl_capi_create_agent", &[text(c""), at(&mut result)]), BACKEND);
    assert_eq!(result, 0);
    ok("nixl_capi_destroy_agent", &[agent]);
}

#[test]
fn views_are_refused_with_the_reason() {
    let mut rng = seeded();
    let mut bed = Bed::registered("views", 4096, &mut rng);
    let peer = Bed::registered("peer", 4096, &mut rng);
    let (list, remote) = (bed.list(&[(0, 64)]), made("nixl_capi_create_remote_dlist", &[0]));
    let mut view = 0_u64;
    let prepare =
        |view: &mut u64| call("nixl_capi_prep_mem_view_remote", &[bed.agent, remote, at(view), 0]);
    ok("nixl_capi_remote_dlist_add_desc", &[remote, 4096, 64, 0, 0]);
    assert_eq!(prepare(&mut view), NOT_FOUND);
    ok("nixl_capi_remote_dlist_add_desc", &[remote, 4096, 64, 0, text(c"peer")]);
    assert_eq!(prepare(&mut view), NOT_FOUND);
    bed.load(&peer);
    for (name, list) in
        [("nixl_capi_prep_mem_view_local", list), ("nixl_capi_prep_mem_view_remote", remote)]
    {
        assert_eq!(call(name, &[bed.agent, list, at(&mut view), 0]), BACKEND);
        assert!(last_error().contains("views for kernels are not here"), "{}", last_error());
        assert_eq!(call(name, &[bed.agent, list, 0, 0]), INVALID_PARAM);
    }
    assert_eq!(view, 0);
    assert_eq!(call("nixl_capi_release_mem_view", &[bed.agent, list]), INVALID_PARAM);
    ok("nixl_capi_destroy_remote_dlist", &[remote]);
    ok("nixl_capi_destroy_xfer_dlist", &[list]);
}
