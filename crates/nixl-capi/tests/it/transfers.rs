//! Bytes from one agent to another, in one process.

use crate::bed::{
    BACKEND, Bed, IN_PROGRESS, INVALID_PARAM, NO_TELEMETRY, NOT_FOUND, at, call, end, last_error,
    made, ok, run, seeded, text,
};
use rand::seq::SliceRandom;
use rand::{Rng, RngExt};

const READ: u64 = 0;
const WRITE: u64 = 1;

fn pair(len: usize, names: [&str; 2]) -> (Bed, Bed) {
    let mut rng = seeded();
    let here = Bed::registered(names[0], len, &mut rng);
    let there = Bed::registered(names[1], len, &mut rng);
    here.load(&there);
    (here, there)
}

fn with_notification(bytes: &mut [u8]) -> u64 {
    let options = made("nixl_capi_create_opt_args", &[]);
    let len = bytes.len() as u64;
    ok("nixl_capi_opt_args_set_notif_msg", &[options, at(&mut bytes[0]), len]);
    ok("nixl_capi_opt_args_set_has_notif", &[options, 1]);
    options
}

/// A transfer of all of both lists.
fn create(op: u64, here: &Bed, local: u64, there: &Bed, remote: u64, options: u64) -> u64 {
    let mut request = 0_u64;
    let peer = text(&there.name);
    let args = [here.agent, op, local, remote, peer, at(&mut request), options];
    ok("nixl_capi_create_xfer_req", &args);
    request
}

#[test]
fn a_whole_transfer_writes_notifies_and_reads_back() {
    let (mut here, mut there) = pair(1 << 20, ["w1", "w2"]);
    let mut message = *b"all \0 is there";
    let options = with_notification(&mut message);
    let mut blocks: Vec<_> = (0..64).map(|at| (at * 16_384 + 5, 9000 + at)).collect();
    let local = here.list(&blocks);
    blocks.reverse();
    let mut lens: Vec<_> = blocks.iter().map(|(_, len)| *len).collect();
    lens.reverse();
    let places: Vec<_> = blocks.iter().zip(&lens).map(|((at, _), len)| (*at, *len)).collect();
    let remote = there.list(&places);
    let mut expected = there.memory.clone();
    for (at, (to, len)) in places.iter().enumerate() {
        let from = at * 16_384 + 5;
        expected[*to..to + len].copy_from_slice(&here.memory[from..from + len]);
    }
    let request = create(WRITE, &here, local, &there, remote, options);
    assert_eq!(call("nixl_capi_get_xfer_status", &[here.agent, request]), BACKEND);
    assert!(last_error().contains("NIXL_ERR_NOT_POSTED"), "{}", last_error());
    assert_eq!(run(here.agent, request, 0), 0, "{}", last_error());
    assert!(there.memory == expected, "other bytes than those that were written");
    assert_eq!(there.notified(1), [("w1".to_owned(), message.to_vec())]);

    // Once more, with another notification.
    let mut other = *b"again";
    let again = with_notification(&mut other);
    assert_eq!(run(here.agent, request, again), 0, "{}", last_error());
    assert_eq!(there.notified(1), [("w1".to_owned(), other.to_vec())]);
    end(here.agent, request);

    let original = here.memory.clone();
    seeded().fill_bytes(&mut here.memory);
    let scrambled = here.memory.clone();
    let request = create(READ, &here, local, &there, remote, 0);
    assert_eq!(run(here.agent, request, 0), 0, "{}", last_error());
    let mut expected = scrambled;
    for (from, len) in (0..64).map(|at| (at * 16_384 + 5, 9000 + at)) {
        expected[from..from + len].copy_from_slice(&original[from..from + len]);
    }
    assert!(here.memory == expected, "other bytes than those that were read");
    end(here.agent, request);
    for list in [local, remote] {
        ok("nixl_capi_destroy_xfer_dlist", &[list]);
    }
    ok("nixl_capi_destroy_opt_args", &[options]);
    ok("nixl_capi_destroy_opt_args", &[again]);
}

#[test]
fn prepared_lists_move_the_blocks_of_their_indices() {
    const COUNT: usize = 500;
    let (mut here, mut there) = pair(COUNT * 64, ["p1", "p2"]);
    let mut rng = seeded();
    let blocks: Vec<_> = (0..COUNT).map(|at| (at * 64, 64)).collect();
    let (local, remote) = (here.list(&blocks), there.list(&blocks));
    let prepare = |name: u64, list: u64| {
        let mut prepared = 0_u64;
        ok("nixl_capi_prep_xfer_dlist", &[here.agent, name, list, at(&mut prepared), 0]);
        prepared
    };
    let (mine, theirs) = (prepare(text(c""), local), prepare(text(c"p2"), remote));
    ok("nixl_capi_destroy_xfer_dlist", &[local]);
    ok("nixl_capi_destroy_xfer_dlist", &[remote]);
    let shuffled = |rng: &mut rand::rngs::StdRng| {
        let mut all: Vec<i32> = (0..COUNT as i32).collect();
        all.shuffle(rng);
        all.truncate(COUNT / 2);
        all
    };
    let (mut from, mut to) = (shuffled(&mut rng), shuffled(&mut rng));
    let mut request = 0_u64;
    let count = from.len() as u64;
    let mut make = |op, from: &mut [i32], to: &mut [i32], counts: [u64; 2]| {
        let (from, to) = (at(&mut from[0]), at(&mut to[0]));
        let out = at(&mut request);
        let args = [here.agent, op, mine, from, counts[0], theirs, to, counts[1], out, 0];
        (call("nixl_capi_make_xfer_req", &args), request)
    };
    for (wrong, counts) in [(-1, [count; 2]), (COUNT as i32, [count; 2]), (0, [count, count - 1])] {
        let mut indices = from.clone();
        indices[3] = wrong;
        assert_eq!(make(WRITE, &mut indices, &mut to, counts), (INVALID_PARAM, 0), "{wrong}");
    }
    assert_eq!(make(2, &mut from, &mut to, [count; 2]), (INVALID_PARAM, 0));
    let (status, request) = make(WRITE, &mut from, &mut to, [count; 2]);
    assert_eq!(status, 0, "{}", last_error());
    let mut expected = there.memory.clone();
    for (from, to) in from.iter().zip(&to) {
        let (from, to) = (*from as usize * 64, *to as usize * 64);
        expected[to..to + 64].copy_from_slice(&here.memory[from..from + 64]);
    }
    // Freed before the transfer runs.
    for prepared in [mine, theirs] {
        ok("nixl_capi_release_xfer_dlist_handle", &[here.agent, prepared]);
        let again = [here.agent, prepared];
        assert_eq!(call("nixl_capi_release_xfer_dlist_handle", &again), INVALID_PARAM);
    }
    assert_eq!(run(here.agent, request, 0), 0, "{}", last_error());
    assert!(there.memory == expected, "other blocks than those of the indices");
    let backend = made("nixl_capi_query_xfer_backend", &[here.agent, request]);
    let (mut mems, mut params) = (0_u64, 0_u64);
    let args = [here.agent, backend, at(&mut mems), at(&mut params)];
    ok("nixl_capi_get_backend_params", &args);
    end(here.agent, request);
}

#[test]
fn what_cannot_be_transferred_is_refused() {
    let (mut here, mut there) = pair(4096, ["r1", "r2"]);
    let (one, two) = (here.list(&[(0, 64)]), there.list(&[(0, 64), (64, 64)]));
    let (short, outside) = (there.list(&[(0, 63)]), there.list(&[(4095, 64)]));
    let mut request = 0_u64;
    for (remote, peer, why) in [
        (two, c"r2", "expected as many"),
        (short, c"r2", "63"),
        (outside, c"r2", "NIXL_ERR_NOT_FOUND"),
        (short, c"r3", "r3"),
    ] {
        let args = [here.agent, WRITE, one, remote, text(peer), at(&mut request), 0];
        assert_eq!(call("nixl_capi_create_xfer_req", &args), BACKEND);
        assert!(last_error().contains(why), "{why}: {}", last_error());
    }
    let prepare = |name, list, request: &mut u64| {
        call("nixl_capi_prep_xfer_dlist", &[here.agent, name, list, at(request), 0])
    };
    assert_eq!(prepare(text(c"r3"), one, &mut request), NOT_FOUND);
    assert_eq!(prepare(text(c"r2"), outside, &mut request), NOT_FOUND);
    assert_eq!(request, 0);
    for list in [one, two, short, outside] {
        ok("nixl_capi_destroy_xfer_dlist", &[list]);
    }
}

#[test]
fn costs_are_told_to_those_who_asked_for_them() {
    let (mut here, mut there) = pair(4096, ["c1", "c2"]);
    let (local, remote) = (here.list(&[(0, 4096)]), there.list(&[(0, 4096)]));
    let request = create(WRITE, &here, local, &there, remote, 0);
    let (mut duration, mut margin, mut method) = (0_i64, -1_i64, 9_u32);
    let places = [at(&mut duration), at(&mut margin), at(&mut method)];
    let args = [&[here.agent, request, 0], &places[..]].concat();
    ok("nixl_capi_estimate_xfer_cost", &args);
    assert!(duration > 0 && margin >= 0 && method <= 1, "{duration} {margin} {method}");
    assert_eq!(run(here.agent, request, 0), 0);
    let mut cost = [0_u64; 5];
    let args = [here.agent, request, at(&mut cost)];
    assert_eq!(call("nixl_capi_get_xfer_telemetry", &args), NO_TELEMETRY);
    assert_eq!(cost, [0; 5]);
    end(here.agent, request);
    ok("nixl_capi_destroy_xfer_dlist", &[local]);
    ok("nixl_capi_destroy_xfer_dlist", &[remote]);
}

#[test]
fn notifications_are_kept_until_the_map_is_cleared() {
    let (here, there) = pair(64, ["n1", "n2"]);
    let mut rng = seeded();
    let map = made("nixl_capi_create_notif_map", &[]);
    let mut sent = Vec::new();
    for _ in 0..200 {
        let mut bytes = vec![0; rng.random_range(0..100)];
        rng.fill_bytes(&mut bytes);
        let data = bytes.as_ptr().expose_provenance() as u64;
        let args = [here.agent, text(c"n2"), data, bytes.len() as u64, 0];
        ok("nixl_capi_gen_notif", &args);
        sent.push(("n1".to_owned(), bytes));
        if rng.random_range(0..50) == 0 {
            ok("nixl_capi_get_notifs", &[there.agent, map, 0]);
        }
    }
    ok("nixl_capi_get_notifs", &[there.agent, map, 0]);
    assert_eq!(crate::bed::notifs(map), sent);
    let mut place = [0_u64; 2];
    let (data, len) = (at(&mut place[0]), at(&mut place[1]));
    for (name, index) in [(c"n1", 200), (c"n3", 0)] {
        let args = [map, text(name), index, data, len];
        assert_eq!(call("nixl_capi_notif_map_get_notif", &args), INVALID_PARAM);
    }
    assert_eq!(call("nixl_capi_notif_map_get_agent_at", &[map, 1, data]), INVALID_PARAM);
    let size = [map, text(c"n3"), data];
    assert_eq!(call("nixl_capi_notif_map_get_notifs_size", &size), INVALID_PARAM);
    ok("nixl_capi_notif_map_clear", &[map]);
    assert_eq!(made("nixl_capi_notif_map_size", &[map]), 0);
    assert_eq!(call("nixl_capi_gen_notif", &[here.agent, text(c"n3"), 0, 0, 0]), NOT_FOUND);
    ok("nixl_capi_destroy_notif_map", &[map]);
}

#[test]
fn an_agent_is_its_own_peer() {
    let mut rng = seeded();
    let mut bed = Bed::registered("self", 8192, &mut rng);
    let (local, remote) = (bed.list(&[(0, 4096)]), bed.list(&[(4096, 4096)]));
    let mut request = 0_u64;
    let args = [bed.agent, WRITE, local, remote, text(c"self"), at(&mut request), 0];
    ok("nixl_capi_create_xfer_req", &args);
    let status = run(bed.agent, request, 0);
    assert_ne!(status, IN_PROGRESS);
    assert_eq!(status, 0, "{}", last_error());
    assert!(bed.memory[..4096] == bed.memory[4096..], "not copied");
    end(bed.agent, request);
    ok("nixl_capi_destroy_xfer_dlist", &[local]);
    ok("nixl_capi_destroy_xfer_dlist", &[remote]);
}
