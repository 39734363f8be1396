//! Parameters, plugins, options.

use crate::bed::{
    BACKEND, Bed, INVALID_PARAM, NOT_FOUND, at, call, given, last_error, made, ok, seeded, string,
    text,
};
use rand::{Rng, RngExt};
use std::collections::BTreeMap;
use std::ffi::{CString, c_char};
use std::ptr;

/// All parameters, by an iterator; the texts are read after the last step.
fn all(params: u64) -> BTreeMap<String, String> {
    let iter = made("nixl_capi_params_create_iterator", &[params]);
    let mut found = Vec::new();
    loop {
        let (mut key, mut value) = (ptr::null::<c_char>(), ptr::null::<c_char>());
        let mut has_next = 2_u8;
        let args = [iter, at(&mut key), at(&mut value), at(&mut has_next)];
        ok("nixl_capi_params_iterator_next", &args);
        if key.is_null() {
            assert_eq!(has_next, 0);
            break;
        }
        found.push((key, value));
        // An iterator does not see later changes.
        ok("nixl_capi_params_add", &[params, text(c"zzz"), text(c"late")]);
    }
    let pairs = found.iter().map(|(key, value)| (string(*key), string(*value))).collect();
    ok("nixl_capi_params_destroy_iterator", &[iter]);
    pairs
}

#[test]
fn parameters_are_a_map() {
    let mut rng = seeded();
    let params = made("nixl_capi_create_params", &[]);
    assert_eq!(made("nixl_capi_params_is_empty", &[params]), 1);
    assert_eq!(all(params), BTreeMap::new());
    let mut model = BTreeMap::new();
    for _ in 0..100 {
        let (key, value) = (rng.random_range(0..40).to_string(), rng.random::<u64>().to_string());
        let (c_key, c_value) = (CString::new(&*key).unwrap(), CString::new(&*value).unwrap());
        ok("nixl_capi_params_add", &[params, text(&c_key), text(&c_value)]);
        model.insert(key, value);
    }
    assert_eq!(made("nixl_capi_params_is_empty", &[params]), 0);
    assert_eq!(all(params), model);
    ok("nixl_capi_destroy_params", &[params]);
}

#[test]
fn plugins_and_backends_say_what_they_take() {
    let agent = made("nixl_capi_create_agent", &[text(c"plugins")]);
    let list = made("nixl_capi_get_available_plugins", &[agent]);
    let count = made("nixl_capi_string_list_size", &[list]);
    let name = |index| {
        let mut name = ptr::null();
        ok("nixl_capi_string_list_get", &[list, index, at(&mut name)]);
        string(name)
    };
    let names: Vec<_> = (0..count).map(name).collect();
    assert_eq!(names, ["UCX", "POSIX"]);
    let mut end = ptr::null::<c_char>();
    assert_eq!(call("nixl_capi_string_list_get", &[list, count, at(&mut end)]), INVALID_PARAM);
    ok("nixl_capi_destroy_string_list", &[list]);

    let (mut mems, mut params) = (0_u64, 0_u64);
    let nobody = [agent, text(c"NOBODY"), at(&mut mems), at(&mut params)];
    assert_eq!(call("nixl_capi_get_plugin_params", &nobody), BACKEND);
    assert!(last_error().contains("UCX, POSIX"), "{}", last_error());
    ok("nixl_capi_get_plugin_params", &[agent, text(c"UCX"), at(&mut mems), at(&mut params)]);
    let kinds = made("nixl_capi_mem_list_size", &[mems]);
    let kind = |index| made("nixl_capi_mem_list_get", &[mems, index]);
    assert_eq!((0..kinds).map(kind).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(made("nixl_capi_mem_list_is_empty", &[mems]), 0);
    let mut no_kind = 0_u64;
    assert_eq!(call("nixl_capi_mem_list_get", &[mems, kinds, at(&mut no_kind)]), INVALID_PARAM);
    ok("nixl_capi_destroy_mem_list", &[mems]);

    // A backend has its plugin's parameters and those that it was given.
    ok("nixl_capi_params_add", &[params, text(c"num_threads"), text(c"3")]);
    let backend = made("nixl_capi_create_backend", &[agent, text(c"UCX"), params]);
    let mut twice = 0_u64;
    let again = [agent, text(c"UCX"), params, at(&mut twice)];
    assert_eq!(call("nixl_capi_create_backend", &again), BACKEND);
    let (mut mems, mut found) = (0_u64, 0_u64);
    ok("nixl_capi_get_backend_params", &[agent, backend, at(&mut mems), at(&mut found)]);
    assert_eq!(all(found)["num_threads"], "3");
    for (destroy, handle) in [
        ("nixl_capi_destroy_mem_list", mems),
        ("nixl_capi_destroy_params", found),
        ("nixl_capi_destroy_params", params),
        ("nixl_capi_destroy_backend", backend),
        ("nixl_capi_destroy_agent", agent),
    ] {
        ok(destroy, &[handle]);
    }
}

#[test]
fn options_give_back_what_they_were_given() {
    let mut rng = seeded();
    let options = made("nixl_capi_create_opt_args", &[]);
    for what in ["notif_msg", "custom_param"] {
        let (set, get) =
            (format!("nixl_capi_opt_args_set_{what}"), format!("nixl_capi_opt_args_get_{what}"));
        assert_eq!(given(&get, &[options], &[]), b"");
        for len in [1_usize, 7, 4096, 0] {
            let mut blob = vec![0; len];
            rng.fill_bytes(&mut blob);
            ok(&set, &[options, blob.as_ptr().expose_provenance() as u64, len as u64]);
            assert_eq!(given(&get, &[options], &[]), blob);
        }
        ok(&set, &[options, 0, 0]);
        assert_eq!(call(&set, &[options, 0, 1]), INVALID_PARAM);
        assert_eq!(call(&set, &[options, at(&mut [0_u8; 1]), u64::MAX]), INVALID_PARAM);
    }
    for what in ["has_notif", "skip_desc_merge"] {
        for value in [1, 0, 1] {
            ok(&format!("nixl_capi_opt_args_set_{what}"), &[options, value]);
            assert_eq!(made(&format!("nixl_capi_opt_args_get_{what}"), &[options]), value);
        }
    }
    ok("nixl_capi_opt_args_set_ip_addr", &[options, text(c"127.0.0.1")]);
    ok("nixl_capi_opt_args_set_port", &[options, 8888]);
    ok("nixl_capi_destroy_opt_args", &[options]);
}

#[test]
fn backends_of_others_and_for_other_memory_are_refused() {
    let mut rng = seeded();
    let mut one = Bed::registered("one", 4096, &mut rng);
    let other = Bed::registered("other", 4096, &mut rng);
    let options = made("nixl_capi_create_opt_args", &[]);
    ok("nixl_capi_opt_args_add_backend", &[options, other.backend]);
    let list = one.reg(0, 64);
    assert_eq!(call("nixl_capi_register_mem", &[one.agent, list, options]), INVALID_PARAM);
    assert!(last_error().contains("another agent's"), "{}", last_error());
    // Of several, those of the agent count.
    ok("nixl_capi_opt_args_add_backend", &[options, one.backend]);
    ok("nixl_capi_register_mem", &[one.agent, list, options]);
    ok("nixl_capi_deregister_mem", &[one.agent, list, options]);
    let files = made("nixl_capi_create_reg_dlist", &[4]);
    assert_eq!(call("nixl_capi_register_mem", &[one.agent, files, options]), NOT_FOUND);
    assert!(last_error().contains("takes FILE_SEG"), "{}", last_error());
    let (mut mems, mut params) = (0_u64, 0_u64);
    let args = [one.agent, other.backend, at(&mut mems), at(&mut params)];
    assert_eq!(call("nixl_capi_get_backend_params", &args), BACKEND);
    for (destroy, handle) in [
        ("nixl_capi_destroy_reg_dlist", list),
        ("nixl_capi_destroy_reg_dlist", files),
        ("nixl_capi_destroy_opt_args", options),
    ] {
        ok(destroy, &[handle]);
    }
}
