//! Two processes: one owns memory, the other attaches it by each way, and probes it.

use rustix::net::{SocketAddrUnix, SocketFlags};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use warpverbs_dev::{Child, is_alone, say};
use warpverbs_gpu::{Gpu, GpuChoice};
use warpverbs_meet::unix;
use warpverbs_peer::descriptor::{Address, Secrets, Trust, Way, fetch};
use warpverbs_peer::{
    DescriptorServer, Identity, Introduction, Reason, Ticket, attach, read_back, write_word,
};

const LEN: u64 = 1 << 16;
/// Ends a hang: nothing that comes at all takes this long, however slow the machine is.
const SOON: Duration = Duration::from_secs(600);

pub(crate) fn simt() -> Arc<dyn Gpu> {
    warpverbs_gpu::open(GpuChoice::Simt).unwrap()
}

/// This process, as one that may take nothing out of others.
fn untrusted() -> Identity {
    Identity { pid_namespace: "pid:[1]".into(), ..Identity::of_this_process(&*simt()) }
}

fn introduce(server: &DescriptorServer) -> Introduction {
    Introduction::new(Identity::of_this_process(&*simt()), server)
}

fn soon() -> Instant {
    Instant::now() + SOON
}

/// The owner's message about its memory.
#[derive(Serialize, Deserialize)]
struct Said {
    introduction: Introduction,
    ticket: Ticket,
}

/// The part of another process: owns memory until its input ends, and answers `offset value` by
/// whether it reads that back.
#[test]
fn owner() {
    if std::env::var_os("PEER_OWNER").is_none() {
        return;
    }
    let gpu = simt();
    let segment = gpu.arena(LEN).unwrap().commit(0, LEN).unwrap();
    segment.buffer().region().write(0, b"the owner's").unwrap();
    let mut server = DescriptorServer::start().unwrap();
    let ticket = server.offer(segment.export().unwrap(), LEN).unwrap();
    let introduction = Introduction::new(Identity::of_this_process(&*gpu), &server);
    say(serde_json::to_string(&Said { introduction, ticket }).unwrap());
    for line in std::io::stdin().lines() {
        let (offset, value) = serde_json::from_str::<(u64, u64)>(&line.unwrap()).unwrap();
        let seen = read_back(&*gpu, segment.buffer(), offset, value);
        say(serde_json::to_string(&seen.map_err(|e| e.to_string())).unwrap());
    }
}

/// The owner, and the first that it says.
fn start_owner() -> (Child, Said) {
    start_owner_as(rustix::process::geteuid().as_raw())
}

fn start_owner_as(user: u32) -> (Child, Said) {
    // By this name, the user needs no right to the folders above it.
    start_owner_by(Command::new("/proc/self/exe").uid(user))
}

fn start_owner_by(command: &mut Command) -> (Child, Said) {
    let test = ["--exact", "pair::owner", "--nocapture"];
    let mut owner = Child::start(command.args(test).env("PEER_OWNER", "1"));
    let said = serde_json::from_str(&owner.said()).unwrap();
    (owner, said)
}

fn reads_back(owner: &mut Child, offset: u64, value: u64) -> Result<(), String> {
    let question = serde_json::to_string(&(offset, value)).unwrap();
    serde_json::from_str(&owner.ask(question)).unwrap()
}

#[test]
fn memory_of_another_process_is_attached_and_probed() {
    let gpu = simt();
    let (mut owner, said) = start_owner();
    let own = Identity::of_this_process(&*gpu);
    let arena = gpu.arena(1 << 24).unwrap();
    let attached = attach(&arena, 3 * LEN, &own, &said.introduction, &said.ticket, soon()).unwrap();
    assert_eq!((attached.by, attached.tried), (Way::AbstractSocket, vec![]));
    let buffer = attached.segment.buffer();
    let mut text = [0; 11];
    gpu.read(buffer, 0, &mut text).unwrap();
    assert_eq!(&text, b"the owner's");
    write_word(&*gpu, buffer, 4096, 0x1234_5678_9abc_def0, SOON).unwrap();
    reads_back(&mut owner, 4096, 0x1234_5678_9abc_def0).unwrap();
    let wrong = reads_back(&mut owner, 4096, 7).unwrap_err();
    assert!(wrong.contains("0x1234") && wrong.contains("wrote 0x7"), "{wrong}");
    assert!(write_word(&*gpu, buffer, LEN - 4, 1, SOON).is_err());
    // The memory outlives its owner.
    drop(owner);
    write_word(&*gpu, buffer, 0, 1, SOON).unwrap();
}

/// The owner cannot see the asker: the system gives it no process number of it.
#[test]
fn memory_of_a_process_in_another_pid_namespace_is_attached() {
    let contained = || {
        let mut unshare = Command::new("unshare");
        unshare.args(["--pid", "--fork", "--kill-child"]);
        unshare
    };
    if !contained().arg("true").output().is_ok_and(|made| made.status.success()) {
        return eprintln!("SKIPPED: needs the right to make namespaces of processes");
    }
    let gpu = simt();
    let (mut owner, said) = start_owner_by(contained().arg(std::env::current_exe().unwrap()));
    let own = Identity::of_this_process(&*gpu);
    assert_ne!(own.pid_namespace, said.introduction.identity.pid_namespace);
    let arena = gpu.arena(1 << 24).unwrap();
    for (n, way) in [Way::AbstractSocket, Way::PathSocket].into_iter().enumerate() {
        let owner_at = without(said.introduction.clone(), n);
        let at = n as u64 * LEN;
        let attached = attach(&arena, at, &own, &owner_at, &said.ticket, soon()).unwrap();
        assert_eq!(attached.by, way);
        write_word(&*gpu, attached.segment.buffer(), 4096, 7 + at, SOON).unwrap();
        reads_back(&mut owner, 4096, 7 + at).unwrap();
    }
}

/// An introduction of which the first `n` ways do not work.
fn without(mut introduction: Introduction, n: usize) -> Introduction {
    let server = &mut introduction.server;
    for way in [&mut server.abstract_name, &mut server.path].into_iter().take(n) {
        *way = Err("left out".to_owned());
    }
    introduction
}

#[test]
fn the_next_way_is_taken_where_one_fails_and_every_reason_is_kept() {
    let gpu = simt();
    let (_owner, said) = start_owner();
    let own = Identity::of_this_process(&*gpu);
    let by_path = without(said.introduction.clone(), 1);
    let fetched = fetch(&own, &by_path, Trust::Launch, &said.ticket, soon()).unwrap();
    assert_eq!(fetched.by, Way::PathSocket);
    assert_eq!(fetched.tried, [Reason::new("abstract socket", "the owner has none: left out")]);

    // A child may be traced by its parent, unless the system forbids it to all.
    let taken = without(said.introduction.clone(), 2);
    match fetch(&own, &taken, Trust::Launch, &said.ticket, soon()) {
        Ok(fetched) => assert_eq!((fetched.by, fetched.tried.len()), (Way::PidfdGetfd, 2)),
        Err(why) => {
            let said = Reason::list(&why);
            assert!(said.contains("right to trace"), "{said}");
            eprintln!("SKIPPED: {said}");
        }
    }
    let why = fetch(&untrusted(), &taken, Trust::Launch, &said.ticket, soon()).unwrap_err();
    assert_eq!(why.len(), 3);
    assert!(why[2].why.contains("PID namespaces differ (pid:[1], pid:["), "{}", why[2]);
    // Nothing is tried on another machine.
    let mut far = said.introduction.clone();
    far.identity.boot_id = "far".to_owned();
    let arena = gpu.arena(LEN).unwrap();
    let why = attach(&arena, 0, &own, &far, &said.ticket, soon()).unwrap_err();
    assert_eq!(why.len(), 1, "{}", Reason::list(&why));
}

/// Root may take descriptors out of the processes of all users, and by that none for a peer.
#[test]
fn processes_of_other_users_give_nothing_by_privilege() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: needs to be root");
    }
    let own = Identity::of_this_process(&*simt());
    let (_owner, said) = start_owner_as(65534);
    let why = fetch(&own, &said.introduction, Trust::Launch, &said.ticket, soon()).unwrap_err();
    let text = Reason::list(&why);
    assert!(why[..2].iter().all(|why| why.why == "the owner is another user's process"), "{text}");
    let other = format!("process {} is another user's", said.introduction.identity.pid);
    assert_eq!(why[2].why, other, "{text}");
}

#[test]
fn a_file_that_was_not_meant_is_refused() {
    let gpu = simt();
    let own = untrusted();
    let mut server = DescriptorServer::start().unwrap();
    let null: OwnedFd = File::open("/dev/null").unwrap().into();
    let ticket = server.offer(null, LEN).unwrap();
    let peer = introduce(&server);
    let other = Ticket { inode: ticket.inode + 1, ..ticket.clone() };
    let why = fetch(&own, &peer, Trust::Launch, &other, soon()).unwrap_err();
    assert!(why[..2].iter().all(|reason| reason.why.contains("another file")), "{why:?}");
    // The right file, which is no memory.
    let arena = gpu.arena(LEN).unwrap();
    let why = attach(&arena, 0, &own, &peer, &ticket, soon()).unwrap_err();
    assert!(why[0].to_string().contains("no memfd"), "{}", Reason::list(&why));
    server.withdraw(&ticket);
    let why = fetch(&own, &peer, Trust::Launch, &ticket, soon()).unwrap_err();
    assert!(why[0].why.contains("no longer offers it"), "{}", why[0]);
}

#[test]
fn strangers_get_nothing_and_keep_nobody_waiting() {
    let gpu = simt();
    let own = untrusted();
    let segment = gpu.arena(LEN).unwrap().commit(0, LEN).unwrap();
    let mut server = DescriptorServer::start().unwrap();
    let ticket = server.offer(segment.export().unwrap(), LEN).unwrap();
    let peer = introduce(&server);
    // A wrong secret.
    let mut stranger = peer.clone();
    stranger.server.ask[3] ^= 1;
    let short = Instant::now() + Duration::from_millis(200);
    let why = fetch(&own, &stranger, Trust::Launch, &ticket, short).unwrap_err();
    assert!(why[0].why.contains("grants nothing"), "{}", why[0]);
    // More than it keeps connect and say nothing; the next client is served all the same.
    let path = peer.server.path.clone().unwrap();
    let name = SocketAddrUnix::new(path.as_str()).unwrap();
    let silent = (0..200).map(|_| unix::connect(&name, SocketFlags::NONBLOCK).ok());
    let silent: Vec<_> = silent.collect();
    assert_eq!(fetch(&own, &peer, Trust::Launch, &ticket, soon()).unwrap().by, Way::AbstractSocket);
    drop(silent);
    // Its path goes with it.
    drop(server);
    assert!(!Path::new(&path).exists());
    let why = fetch(&own, &peer, Trust::Launch, &ticket, soon()).unwrap_err();
    assert!(why[0].why.contains("refused") && why[1].why.contains("No such file"), "{why:?}");
}

/// An owner that names the server, the process and the tickets of another is told apart from it.
#[test]
fn an_asker_gets_what_was_granted_to_it_and_nothing_by_the_word_of_others() {
    let own = Identity::of_this_process(&*simt());
    let (_owner, said) = start_owner();
    let secrets = Secrets::from([7; 32]);
    let nobody = Trust::Proven { secrets, process: Err("nothing is proven") };
    let why = fetch(&own, &said.introduction, nobody, &said.ticket, soon()).unwrap_err();
    let text = Reason::list(&why);
    assert!(why[..2].iter().all(|why| why.why.contains("grants nothing")), "{text}");
    assert_eq!(why[2].why, "nothing is proven", "{text}");

    let mut server = DescriptorServer::start().unwrap();
    let offer = |server: &mut DescriptorServer| {
        server.offer(File::open("/dev/null").unwrap().into(), LEN).unwrap()
    };
    let (granted, other) = (offer(&mut server), offer(&mut server));
    server.grant(secrets, std::slice::from_ref(&granted));
    let mut peer = introduce(&server);
    peer.server = peer.server.without_secrets();
    for n in [0, 1] {
        fetch(&own, &without(peer.clone(), n), nobody, &granted, soon()).unwrap();
    }
    let why = fetch(&own, &peer, nobody, &other, soon()).unwrap_err();
    assert!(why[0].why.contains("no longer offers it"), "{}", why[0]);
    let why = fetch(&untrusted(), &peer, Trust::Launch, &granted, soon()).unwrap_err();
    assert!(why[0].why.contains("grants nothing"), "{}", why[0]);
    // More askers than are kept: the first is forgotten, the last is not.
    for n in 0..2000u32 {
        let mut bytes = [1; 32];
        bytes[..4].copy_from_slice(&n.to_le_bytes());
        server.grant(Secrets::from(bytes), std::slice::from_ref(&granted));
    }
    assert!(fetch(&own, &peer, nobody, &granted, soon()).is_err());
}

/// The part of a process that is killed.
#[test]
fn killed_server() {
    if std::env::var_os("PEER_KILLED").is_some() {
        let server = DescriptorServer::start().unwrap();
        say(serde_json::to_string(server.address()).unwrap());
        let _ = std::io::stdin().read_line(&mut String::new());
    }
}

fn killed_server_in(folder: &Path) -> (Child, PathBuf) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "pair::killed_server", "--nocapture"]);
    let mut server = Child::start(command.env("PEER_KILLED", "1").env("TMPDIR", folder));
    let address: Address = serde_json::from_str(&server.said()).unwrap();
    (server, PathBuf::from(address.path.unwrap()))
}

fn files_of(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn a_killed_process_leaves_no_file_behind_once_another_starts() {
    let folder = tempfile::tempdir().unwrap();
    let start = || killed_server_in(folder.path());
    let (living, path) = start();
    let foreign = folder.path().join("warpverbs-elsewhere.sock");
    drop(mute_listener(&foreign));
    for _ in 0..3 {
        let (mut killed, its) = start();
        killed.kill();
        assert!(its.exists());
        let (after, beside) = start();
        let mut expected = vec![path.clone(), beside, foreign.clone()];
        expected.sort();
        assert_eq!(files_of(folder.path()), expected);
        assert!(after.end().success());
    }
    drop(living);
}

#[test]
fn sockets_of_earlier_starts_of_this_machine_are_removed_and_no_others() {
    use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
    let folder = tempfile::tempdir().unwrap();
    let named = |name: &str| folder.path().join(format!("warpverbs-{name}"));
    let long_ago = |path: &Path| {
        let then = Timespec { tv_sec: 1, tv_nsec: 0 };
        let times = Timestamps { last_access: then, last_modification: then };
        utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    };
    let socket = |name: &str| {
        let path = named(name);
        drop(mute_listener(&path));
        path
    };
    let random = "0123456789abcdef0123456789abcdef";
    let left = [
        socket(&format!("00112233aabb-{random}.sock")),
        socket(&format!("00112233aabb-{random}.new")),
        socket(&format!("unknown-{random}.sock")),
    ];
    left.iter().for_each(|path| long_ago(path));
    let file = named(&format!("00112233aabc-{random}.sock"));
    std::fs::write(&file, b"no socket").unwrap();
    let link = named(&format!("00112233aabd-{random}.sock"));
    let kept = [
        // Of another machine, perhaps.
        socket(&format!("00112233aabe-{random}.sock")),
        socket("00112233aabb-0123.sock"),
        socket(&format!("elsewhere-{random}.sock")),
        file,
    ];
    std::os::unix::fs::symlink(&kept[0], &link).unwrap();
    let listened = named(&format!("00112233aabf-{random}.sock"));
    let _listener = mute_listener(&listened);
    let mut kept: Vec<_> = kept.into_iter().chain([link, listened]).collect();
    kept[1..].iter().for_each(|path| long_ago(path));
    if rustix::process::geteuid().is_root() {
        let others = socket(&format!("00112233aaaa-{random}.sock"));
        std::os::unix::fs::chown(&others, Some(65534), None).unwrap();
        long_ago(&others);
        kept.push(others);
    }
    let (_living, own) = killed_server_in(folder.path());
    let mut expected: Vec<_> = kept.into_iter().chain([own]).collect();
    expected.sort();
    assert_eq!(files_of(folder.path()), expected);
}

#[test]
fn whoever_listens_at_the_name_without_the_secret_is_found_out() {
    let own = untrusted();
    let (first, mut second) =
        (DescriptorServer::start().unwrap(), DescriptorServer::start().unwrap());
    let ticket = second.offer(File::open("/dev/null").unwrap().into(), LEN).unwrap();
    // The second took the name of the first, and even knows what is asked.
    let mut peer = introduce(&second);
    peer.server.answer = first.address().answer;
    let why = fetch(&own, &peer, Trust::Launch, &ticket, soon()).unwrap_err();
    assert!(why[0].why.contains("does not know the owner's secret"), "{}", why[0]);
}

#[test]
fn a_server_that_never_answers_costs_no_more_than_the_deadline() {
    let own = untrusted();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("silent");
    let server = DescriptorServer::start().unwrap();
    let mut peer = without(introduce(&server), 2);
    // Listens and accepts nobody. It is of another kind, which is the first thing to be found.
    let _stream = UnixListener::bind(&path).unwrap();
    peer.server.path = Ok(path.to_string_lossy().into_owned());
    let ticket = Ticket { id: 0, len: LEN, raw: -1, device: 0, inode: 0 };
    let why = fetch(&own, &peer, Trust::Launch, &ticket, soon()).unwrap_err();
    assert!(why[1].why.starts_with("connect: "), "{}", why[1]);
    let path = folder.path().join("mute");
    let _mute = mute_listener(&path);
    peer.server.path = Ok(path.to_string_lossy().into_owned());
    // Without a deadline nothing would ever end it.
    let limit = Instant::now() + Duration::from_millis(300);
    let why = fetch(&own, &peer, Trust::Launch, &ticket, limit).unwrap_err();
    assert!(why[1].why.contains("no answer in time"), "{}", why[1]);
}

fn mute_listener(path: &Path) -> OwnedFd {
    unix::listen(&SocketAddrUnix::new(path).unwrap(), SocketFlags::empty()).unwrap()
}

/// In a process of its own, because it has no descriptor left.
#[test]
fn a_descriptor_lost_to_the_limit_is_told_as_such() {
    if !is_alone("pair::a_descriptor_lost_to_the_limit_is_told_as_such") {
        return;
    }
    let (_owner, said) = start_owner();
    let own = Identity::of_this_process(&*simt());
    // Room for the socket, and not for what comes by it.
    let next = File::open("/dev/null").unwrap().as_raw_fd() as u64;
    let limit = rustix::process::Rlimit { current: Some(next + 1), maximum: Some(next + 1) };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    let why = fetch(&own, &said.introduction, Trust::Launch, &said.ticket, soon()).unwrap_err();
    assert!(why[0].why.contains("MSG_CTRUNC") && why[0].why.contains("ulimit -n"), "{}", why[0]);
}
