//! Ranks that do not come, or are not who they should be.

use crate::dist::ranks::{Job, PATIENCE, Rank, all_fail, free_port};
use std::net::{TcpListener, UdpSocket};
use warpverbs::transport::{Access, Context, EndpointConfig};
use warpverbs_rendezvous::{Flags, Limits, RankInfo, Server, World, WorldConfig};

/// The flags of a job of which the test plays a rank, and what its ranks say of them.
const FLAGS: [&str; 12] = ["-b", "8", "-e", "64", "-f", "4", "-n", "4", "-w", "1", "-q", "1"];
const PLAN: &[u8] = b"dist_write -b 8 -e 64 -f 4 -n 4 -w 1 -q 1";

/// This test as a rank of `job`.
fn join(job: &Job, rank: u32) -> World {
    let flags = Flags {
        rank: Some(rank),
        world_size: Some(job.size),
        master_addr: Some("127.0.0.1".into()),
        master_port: Some(job.port),
        ..Flags::default()
    };
    World::join(&WorldConfig::new(&RankInfo::from_env(&flags).expect("flags"))).expect("a world")
}

#[test]
fn a_rank_that_never_comes_is_named() {
    let job = Job::new("ranks dist_write", 3, &["--wait", "2"]);
    let there = vec![job.start(0), job.start(1)];
    all_fail(there, &["1 of 3 ranks: 2"]);
    let job = Job::new("ranks dist_write", 2, &["--wait", "2"]);
    let nobody = format!("nobody listens at 127.0.0.1:{}", job.port);
    let rank = job.start(1).end();
    rank.failed(&[&nobody]);
    rank.failed(&["is rank 0 running"]);
}

#[test]
fn a_rank_killed_while_all_connect_is_named() {
    // After it has joined, after the flags were compared, after memory was exchanged.
    for steps in 0..3 {
        let job = Job::new("ranks dist_write", 3, &FLAGS);
        let others = vec![job.start(0), job.start(1)];
        let mut world = join(&job, 2);
        if steps > 0 {
            world.exchange("plan", PLAN).expect("plans");
        }
        if steps > 1 {
            let regions = lists(&[&[&region()], &[&region()], &[]]);
            world.exchange("regions", &regions).expect("regions");
        }
        drop(world);
        all_fail(others, &["rank 2 is gone: its connection to the store ended"]);
    }
}

/// A rank's bytes for each rank, as they travel.
fn lists(of_rank: &[&[&[u8]]]) -> Vec<u8> {
    serde_json::to_vec(of_rank).expect("JSON")
}

fn region() -> Vec<u8> {
    let nic = Context::new().and_then(|context| context.open("soft")).expect("a NIC");
    let region = nic.alloc_host(64, Access::LOCAL_WRITE | Access::REMOTE_WRITE).expect("memory");
    region.remote().to_bytes()
}

#[test]
fn handles_of_another_version_and_garbage_are_refused_by_name() {
    let nic = Context::new().and_then(|context| context.open("soft")).expect("a NIC");
    let endpoint = nic.endpoint(&EndpointConfig::host()).expect("an endpoint");
    let good = endpoint.handle().to_bytes();
    let mut newer = good.clone();
    newer[4] = 9;
    let cases: [(Vec<u8>, &str); 4] = [
        (lists(&[&[&newer], &[]]), "endpoint handle of version 9, this program reads"),
        (lists(&[&[&good[..20]], &[]]), "endpoint handle of 20 bytes, expected 56"),
        (lists(&[&[&good, &good], &[]]), "rank 1 sent 2 endpoints, expected 1"),
        (vec![1, 0, 0, 0, 255], "rank 1 sent something else (endpoints)"),
    ];
    for (handles, told) in cases {
        let job = Job::new("ranks dist_write", 2, &FLAGS);
        let other = job.start(0);
        let mut world = join(&job, 1);
        world.exchange("plan", PLAN).expect("plans");
        let regions = lists(&[&[&region()], &[]]);
        world.exchange("regions", &regions).expect("regions");
        world.exchange("endpoints", &handles).expect("endpoints");
        let heard = world.barrier("connected").expect_err("rank 0 does not come");
        assert!(heard.to_string().starts_with("rank 0 failed: "), "{heard}");
        drop(world);
        let ended = other.end();
        ended.failed(&[told]);
        ended.failed(&["rank 1"]);
    }
}

#[test]
fn ranks_with_other_flags_are_told_which() {
    let job = Job::new("ranks dist_write", 2, &FLAGS);
    let flags = FLAGS.map(|flag| if flag == "4" { "5" } else { flag }).to_vec();
    let more = Job { flags, ..job.clone() };
    all_fail(vec![job.start(0), more.start(1)], &["started with `dist_write"]);
}

#[test]
fn a_wrong_world_size_ends_all() {
    for wrong in [0, 1] {
        let job = Job::new("ranks dist_write", 2, &[]);
        let other = Job { size: 3, ..job.clone() };
        let ranks =
            [0, 1].map(|rank| if rank == wrong { other.start(rank) } else { job.start(rank) });
        all_fail(ranks.into(), &["ranks, another rank for one of"]);
    }
}

#[test]
fn two_processes_of_one_rank_end_all() {
    let job = Job::new("ranks dist_atomic", 3, &[]);
    let ranks = vec![job.start(0), job.start(1), job.start(1)];
    all_fail(ranks, &["rank 1 of job \"default\", generation 0, has joined already"]);
}

#[test]
fn a_store_of_another_version_is_refused() {
    let server = Server::bind(([127, 0, 0, 1], 0).into(), Limits::default()).expect("a store");
    let port = server.local_addr().port();
    let limits = Limits::default();
    let mut client = warpverbs_rendezvous::Client::connect("127.0.0.1", port, PATIENCE, limits)
        .expect("a connection");
    client.set("warpverbs/default/0/world", b"2 two ranks").expect("a key");
    let job = Job { port, ..Job::new("ranks dist_write", 2, &[]) };
    job.start(1).end().failed(&["mixed versions"]);
}

#[test]
fn a_port_in_use_is_said() {
    let taken = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = taken.local_addr().expect("its address").port();
    let job = Job { port, ..Job::new("ranks dist_write", 2, &["--wait", "2"]) };
    job.start(0).end().failed(&["is in use by another process"]);
    // Somebody accepts, but never answers.
    job.start(1).end().failed(&["did not answer the handshake"]);

    let taken = UdpSocket::bind(("127.0.0.1", 0)).expect("a port");
    let port = taken.local_addr().expect("its address").port().to_string();
    let job = Job::new("ranks dist_write", 2, &[]);
    let mut second = job.command(1);
    second.args(["--udp-port", &port]);
    let told = format!("cannot open a link at 127.0.0.1:{port}");
    all_fail(vec![job.start(0), Rank::start(second)], &[&told]);
}

#[test]
fn a_wrong_address_is_said() {
    let at = |rank: &str, address: &str| {
        let mut command = crate::common::example("ranks dist_write");
        command.args(["--gpu", "simt", "--wait", "2", "--rank", rank, "--world-size", "2"]);
        command.args(["--master-addr", address, "--master-port", &free_port().to_string()]);
        Rank::start(command)
    };
    // Of a network for documentation.
    at("0", "198.51.100.7").end().failed(&["is not an address of this machine"]);
    at("1", "no such host").end().failed(&["no such host"]);
    at("0", "").end().failed(&["has no address"]);
}
