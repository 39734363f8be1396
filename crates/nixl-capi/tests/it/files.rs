//! Files as the far side of transfers, and what is known of them.

use crate::bed::{
    BACKEND, Bed, INVALID_PARAM, NOT_FOUND, at, call, end, last_error, made, ok, run, seeded,
    string, text,
};
use rand::Rng;
use std::collections::BTreeMap;
use std::ffi::{CString, c_char};
use std::fs;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::ptr;

const FILE: u64 = 4;
const LEN: usize = 300_000;

fn with_files(name: &str) -> Bed {
    let mut rng = seeded();
    let bed = Bed::new(name, LEN, &mut rng);
    let params = made("nixl_capi_create_params", &[]);
    let backend = made("nixl_capi_create_backend", &[bed.agent, text(c"POSIX"), params]);
    ok("nixl_capi_destroy_params", &[params]);
    ok("nixl_capi_destroy_backend", &[backend]);
    bed
}

#[test]
fn bytes_go_to_a_file_and_back() {
    let mut bed = with_files("files");
    let file = tempfile::tempfile().unwrap();
    let fd = file.as_raw_fd() as u64;
    let memory = bed.reg(0, LEN);
    ok("nixl_capi_register_mem", &[bed.agent, memory, 0]);
    let reg = made("nixl_capi_create_reg_dlist", &[FILE]);
    ok("nixl_capi_reg_dlist_add_desc", &[reg, 0, LEN as u64, fd, 0, 0]);
    ok("nixl_capi_register_mem", &[bed.agent, reg, 0]);

    // Three blocks, whose order in the file is another.
    let local = bed.list(&[(0, 100_000), (100_000, 100_000), (200_000, 100_000)]);
    let remote = made("nixl_capi_create_xfer_dlist", &[FILE]);
    for offset in [200_000, 0, 100_000] {
        ok("nixl_capi_xfer_dlist_add_desc", &[remote, offset, 100_000, fd]);
    }
    let (mut put, mut get) = (0_u64, 0_u64);
    for (op, request) in [(1, &mut put), (0, &mut get)] {
        let peer = text(c"files");
        let args = [bed.agent, op, local, remote, peer, at(request), 0];
        ok("nixl_capi_create_xfer_req", &args);
    }
    assert_eq!(run(bed.agent, put, 0), 0, "{}", last_error());
    let original = bed.memory.clone();
    let expected = [&original[100_000..], &original[..100_000]].concat();
    let mut found = vec![0; LEN];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut found, 0).unwrap();
    assert!(found == expected, "other bytes in the file than those that were written");

    seeded().fill_bytes(&mut found);
    std::os::unix::fs::FileExt::write_all_at(&file, &found, 0).unwrap();
    bed.memory.fill(0);
    assert_eq!(run(bed.agent, get, 0), 0, "{}", last_error());
    let expected = [&found[200_000..], &found[..200_000]].concat();
    assert!(bed.memory == expected, "other bytes than those of the file");

    // The backend of files moved them.
    let backend = made("nixl_capi_query_xfer_backend", &[bed.agent, get]);
    let (mut mems, mut params) = (0_u64, 0_u64);
    let args = [bed.agent, backend, at(&mut mems), at(&mut params)];
    ok("nixl_capi_get_backend_params", &args);
    assert_eq!(made("nixl_capi_mem_list_get", &[mems, 1]), FILE);
    end(bed.agent, put);
    end(bed.agent, get);
    ok("nixl_capi_deregister_mem", &[bed.agent, reg, 0]);
    assert_eq!(call("nixl_capi_deregister_mem", &[bed.agent, reg, 0]), NOT_FOUND);
    ok("nixl_capi_deregister_mem", &[bed.agent, memory, 0]);
}

/// All parameters of an answer.
fn params(answers: u64, index: u64) -> BTreeMap<String, String> {
    let params = made("nixl_capi_query_resp_list_get_params", &[answers, index]);
    let iter = made("nixl_capi_params_create_iterator", &[params]);
    let (mut found, mut more) = (BTreeMap::new(), 1_u8);
    while more != 0 {
        let (mut key, mut value) = (ptr::null::<c_char>(), ptr::null::<c_char>());
        let args = [iter, at(&mut key), at(&mut value), at(&mut more)];
        ok("nixl_capi_params_iterator_next", &args);
        found.insert(string(key), string(value));
    }
    ok("nixl_capi_params_destroy_iterator", &[iter]);
    ok("nixl_capi_destroy_params", &[params]);
    found
}

#[test]
fn files_that_exist_are_known() {
    let bed = with_files("asks");
    let folder = tempfile::tempdir().unwrap();
    let list = made("nixl_capi_create_reg_dlist", &[FILE]);
    for (name, len) in [("one", Some(17)), ("none", None), ("two", Some(0))] {
        let path = folder.path().join(name);
        if let Some(len) = len {
            fs::write(&path, vec![0; len]).unwrap();
        }
        let path = CString::new(path.as_os_str().as_bytes()).unwrap();
        let args = [list, 0, 1024, 0, text(&path), path.as_bytes().len() as u64];
        ok("nixl_capi_reg_dlist_add_desc", &args);
    }
    let answers = made("nixl_capi_create_query_resp_list", &[]);
    for _ in 0..2 {
        ok("nixl_capi_query_mem", &[bed.agent, list, answers, 0]);
        assert_eq!(made("nixl_capi_query_resp_list_size", &[answers]), 3);
    }
    let has = |index| made("nixl_capi_query_resp_list_has_value", &[answers, index]);
    assert_eq!([has(0), has(1), has(2)], [1, 0, 1]);
    assert_eq!((&*params(answers, 0)["size"], &*params(answers, 2)["size"]), ("17", "0"));
    let mut none = 0_u64;
    for index in [1, 3] {
        let args = [answers, index, at(&mut none)];
        assert_eq!(call("nixl_capi_query_resp_list_get_params", &args), INVALID_PARAM);
    }
    let args = [answers, 3, at(&mut none)];
    assert_eq!(call("nixl_capi_query_resp_list_has_value", &args), INVALID_PARAM);
    let memory = made("nixl_capi_create_reg_dlist", &[0]);
    assert_eq!(call("nixl_capi_query_mem", &[bed.agent, memory, answers, 0]), BACKEND);
    ok("nixl_capi_destroy_query_resp_list", &[answers]);
}
