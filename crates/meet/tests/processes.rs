//! Sockets between processes of two PID namespaces, as containers are that share a network and a user; and a
//! process that has no descriptor left.

#[path = "common/robust.rs"]
#[allow(dead_code)]
mod robust;

use rustix::net::{SocketAddrUnix, SocketFlags};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;
use std::time::Duration;
use warpverbs_meet::{Hello, Listener, unix};

const HELLO: Hello = Hello { magic: b"wvspace", version: 1 };
/// The variable that makes the test the other process, which connects to this name.
const NAME: &str = "WARPVERBS_TEST_PROCESS";

/// Runs the test `own` by `command`, with the variable.
fn passes(command: &mut Command, own: &str, name: &str) {
    let output = command.args(["--exact", own]).env(NAME, name).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// The one inside cannot see the one outside: the system gives it no process number of its peer.
#[test]
fn processes_of_two_pid_namespaces_know_each_others_user_and_pass_descriptors() {
    let own = "processes_of_two_pid_namespaces_know_each_others_user_and_pass_descriptors";
    let abstract_name = |name: &str| SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
    if let Ok(name) = std::env::var(NAME) {
        let socket = unix::connect(&abstract_name(&name), SocketFlags::empty()).unwrap();
        unix::same_user(&socket).unwrap();
        let program = File::open("/proc/self/exe").unwrap();
        return unix::send(&socket, &HELLO, &7u8, &[program]).unwrap();
    }
    let contained = || {
        let mut unshare = Command::new("unshare");
        unshare.args(["--pid", "--fork"]);
        unshare
    };
    if !contained().arg("true").output().is_ok_and(|made| made.status.success()) {
        return eprintln!("SKIPPED: needs the right to make namespaces of processes");
    }
    let name = format!("warpverbs-test-unix-{}", std::process::id());
    let listener = unix::listen(&abstract_name(&name), SocketFlags::NONBLOCK).unwrap();
    let program = std::env::current_exe().unwrap();
    passes(contained().arg(&program), own, &name);
    // It has ended, and what it sent is here.
    let socket = unix::accept(&listener, SocketFlags::NONBLOCK).unwrap();
    unix::same_user(&socket).unwrap();
    let mut got = unix::receive::<u8>(&socket, &HELLO).unwrap();
    let [fd] = <[OwnedFd; 1]>::try_from(std::mem::take(&mut got.fds)).unwrap();
    let (mut first, mut its) = ([0; 64], [0; 64]);
    File::open(program).unwrap().read_exact(&mut first).unwrap();
    File::from(fd).read_exact(&mut its).unwrap();
    assert_eq!((got.value, its), (Some(7), first));
}

/// Strangers who say nothing have all descriptors that there are; each would have its own for 5 s.
#[test]
fn strangers_keep_no_descriptor_from_a_client() {
    let own = "strangers_keep_no_descriptor_from_a_client";
    if std::env::var_os(NAME).is_none() {
        return passes(&mut Command::new(std::env::current_exe().unwrap()), own, "");
    }
    let listener = Listener::bind(([127, 0, 0, 1], 0).into()).unwrap();
    let connect = || TcpStream::connect(listener.addr()).unwrap();
    let silent: Vec<_> = (0..40).map(|_| connect()).collect();
    let mut client = connect();
    client.write_all(robust::GREETING).unwrap();
    // Two more, and the one that a listener keeps.
    let next = File::open("/dev/null").unwrap().as_raw_fd();
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = Some(next as u64 + 3);
    setrlimit(Resource::Nofile, limit).unwrap();
    listener.accept::<robust::Word>(Duration::from_secs(30)).unwrap();
    drop(silent);
}
