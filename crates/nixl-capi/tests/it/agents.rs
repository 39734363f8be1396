//! Agents, what they register, and how they know each other.

use crate::bed::{
    BACKEND, Bed, DRAM, INVALID_PARAM, NOT_FOUND, SOON, at, call, given, last_error, made, ok,
    seeded, text,
};
use rand::Rng;
use std::time::Instant;

/// The header's structure, which a program fills in.
#[repr(C)]
struct Config {
    enable_prog_thread: bool,
    enable_listen_thread: bool,
    listen_port: i32,
    thread_sync: u32,
    num_workers: u32,
    pthr_delay_us: u64,
    lthr_delay_us: u64,
    capture_telemetry: bool,
}

fn config(listen_port: i32) -> Config {
    Config {
        enable_prog_thread: true,
        enable_listen_thread: true,
        listen_port,
        thread_sync: 1,
        num_workers: 1,
        pthr_delay_us: 0,
        lthr_delay_us: 100_000,
        capture_telemetry: true,
    }
}

#[test]
fn agents_are_made_with_and_without_a_configuration() {
    let mut agent = 0_u64;
    for port in [-1, 65_536] {
        let mut wrong = config(port);
        let args = [text(c"port"), at(&mut wrong), at(&mut agent)];
        assert_eq!(call("nixl_capi_create_configured_agent", &args), INVALID_PARAM);
        assert!(last_error().contains(&port.to_string()), "{}", last_error());
    }
    let mut free = config(0);
    ok("nixl_capi_create_configured_agent", &[text(c"a"), at(&mut free), at(&mut agent)]);
    let other = made("nixl_capi_create_agent", &[text(c"b")]);
    assert_ne!(agent, other);
    ok("nixl_capi_destroy_agent", &[agent]);
    ok("nixl_capi_destroy_agent", &[other]);
}

#[test]
fn memory_is_registered_wherever_it_begins_and_only_if_it_is_there() {
    let mut rng = seeded();
    let mut bed = Bed::new("registers", 1 << 16, &mut rng);
    let mut lists = Vec::new();
    for (offset, len) in [(0, 1 << 16), (3, 5), (4095, 8193), (17, 1)] {
        let list = bed.reg(offset, len);
        assert_eq!(call("nixl_capi_deregister_mem", &[bed.agent, list, 0]), NOT_FOUND);
        ok("nixl_capi_register_mem", &[bed.agent, list, 0]);
        lists.push(list);
    }
    let beyond = made("nixl_capi_create_reg_dlist", &[DRAM]);
    ok("nixl_capi_reg_dlist_add_desc", &[beyond, bed.addr(), 64, 0, 0, 0]);
    ok("nixl_capi_reg_dlist_add_desc", &[beyond, 4096, 64, 0, 0, 0]);
    assert_eq!(call("nixl_capi_register_mem", &[bed.agent, beyond, 0]), INVALID_PARAM);
    assert!(last_error().contains("not mapped for reading and writing"), "{}", last_error());
    let huge = bed.reg(0, 1 << 46);
    assert_eq!(call("nixl_capi_register_mem", &[bed.agent, huge, 0]), INVALID_PARAM);
    for list in lists {
        ok("nixl_capi_deregister_mem", &[bed.agent, list, 0]);
        assert_eq!(call("nixl_capi_deregister_mem", &[bed.agent, list, 0]), NOT_FOUND);
        ok("nixl_capi_destroy_reg_dlist", &[list]);
    }
    ok("nixl_capi_destroy_reg_dlist", &[beyond]);
    ok("nixl_capi_destroy_reg_dlist", &[huge]);
}

#[test]
fn nothing_is_registered_without_a_backend() {
    let agent = made("nixl_capi_create_agent", &[text(c"without")]);
    let mut memory = [0_u8; 64];
    let list = made("nixl_capi_create_reg_dlist", &[DRAM]);
    ok("nixl_capi_reg_dlist_add_desc", &[list, at(&mut memory), 64, 0, 0, 0]);
    assert_eq!(call("nixl_capi_register_mem", &[agent, list, 0]), NOT_FOUND);
    assert!(last_error().contains("no backend was created"), "{}", last_error());
    ok("nixl_capi_destroy_agent", &[agent]);
}

#[test]
fn metadata_make_agents_known_until_they_are_forgotten() {
    let mut rng = seeded();
    let (one, mut two) =
        (Bed::registered("m1", 4096, &mut rng), Bed::registered("m2", 4096, &mut rng));
    let check = |list: u64| call("nixl_capi_check_remote_md", &[one.agent, text(c"m2"), list]);
    let (inside, outside) = (two.list(&[(0, 64), (4000, 96)]), two.list(&[(4000, 97)]));
    assert_eq!(check(0), NOT_FOUND);
    assert_eq!(check(inside), NOT_FOUND);
    one.load(&two);
    assert_eq!((check(0), check(inside), check(outside)), (0, 0, NOT_FOUND));
    ok("nixl_capi_agent_make_connection", &[one.agent, text(c"m2"), 0]);
    assert_eq!(call("nixl_capi_agent_make_connection", &[one.agent, text(c"m3"), 0]), NOT_FOUND);
    ok("nixl_capi_invalidate_remote_md", &[one.agent, text(c"m2")]);
    assert_eq!(check(0), NOT_FOUND);
    assert_eq!(call("nixl_capi_invalidate_remote_md", &[one.agent, text(c"m2")]), NOT_FOUND);

    let mut junk = [0_u8; 300];
    rng.fill_bytes(&mut junk);
    let mut name = 0_u64;
    let args = [one.agent, at(&mut junk), 300, at(&mut name)];
    assert_eq!(call("nixl_capi_load_remote_md", &args), BACKEND);
    let args = [one.agent, at(&mut junk), 0, at(&mut name)];
    assert_eq!(call("nixl_capi_load_remote_md", &args), INVALID_PARAM);
    assert_eq!(name, 0);

    // A part names what is in its list alone.
    let mut other = vec![0_u8; 4096];
    let more = made("nixl_capi_create_reg_dlist", &[DRAM]);
    ok("nixl_capi_reg_dlist_add_desc", &[more, at(&mut other[0]), 4096, 0, 0, 0]);
    assert_eq!(call("nixl_capi_register_mem", &[two.agent, more, 0]), 0);
    let part = given("nixl_capi_get_local_partial_md", &[two.agent, more], &[0]);
    one.load_bytes(&part, c"m2");
    assert_eq!((check(0), check(inside)), (0, NOT_FOUND));
    ok("nixl_capi_deregister_mem", &[two.agent, more, 0]);
    for list in [inside, outside] {
        ok("nixl_capi_destroy_xfer_dlist", &[list]);
    }
    ok("nixl_capi_destroy_reg_dlist", &[more]);
}

#[test]
fn metadata_travel_by_an_address() {
    let mut rng = seeded();
    let sender = Bed::registered("sender", 4096, &mut rng);
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let mut receiver = 0_u64;
    let mut config = config(port.into());
    let args = [text(c"receiver"), at(&mut config), at(&mut receiver)];
    ok("nixl_capi_create_configured_agent", &args);
    let options = made("nixl_capi_create_opt_args", &[]);
    // Without an address there must be a store.
    assert_eq!(call("nixl_capi_send_local_md", &[sender.agent, options]), INVALID_PARAM);
    ok("nixl_capi_opt_args_set_ip_addr", &[options, text(c"127.0.0.1")]);
    ok("nixl_capi_opt_args_set_port", &[options, port.into()]);
    let until = |agent: u64, name: u64, expected: i32| {
        let end = Instant::now() + SOON;
        while call("nixl_capi_check_remote_md", &[agent, name, 0]) != expected {
            assert!(Instant::now() < end, "{}", last_error());
        }
    };
    ok("nixl_capi_send_local_md", &[sender.agent, options]);
    until(receiver, text(c"sender"), 0);
    ok("nixl_capi_fetch_remote_md", &[sender.agent, text(c"receiver"), options]);
    until(sender.agent, text(c"receiver"), 0);
    ok("nixl_capi_invalidate_local_md", &[sender.agent, options]);
    until(receiver, text(c"sender"), NOT_FOUND);
    ok("nixl_capi_destroy_agent", &[receiver]);
    ok("nixl_capi_destroy_opt_args", &[options]);
}
