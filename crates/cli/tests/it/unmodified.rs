//! `warpverbs run`: Debian's own programs of libibverbs and perftest, as they are.

mod bells;
mod children;
mod conform;
mod consume;
mod direct;
mod direct_bnxt;
mod direct_ionic;
mod direct_vendor;
mod hosts;
mod nvshmem;
mod own;
mod payload;
mod pyverbs;
mod ucx;
mod unmapped;

use crate::common::{PATIENCE, fails, finish, free_port, kill, output, program, text};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The library, which cargo builds because this crate's tests depend on it.
fn library() -> PathBuf {
    let folder = Path::new(env!("CARGO_BIN_EXE_warpverbs")).parent().unwrap();
    folder.join("deps/libwarpverbs_preload.so")
}

/// Whether the programs are here.
fn ready() -> bool {
    static READY: OnceLock<bool> = OnceLock::new();
    *READY.get_or_init(|| {
        let found = ["ibv_devinfo", "ibv_rc_pingpong", "ib_write_bw"]
            .iter()
            .all(|name| Path::new("/usr/bin").join(name).exists());
        if !found {
            skip("needs the packages ibverbs-utils, ibverbs-providers and perftest");
        }
        found
    })
}

/// Says why a test has nothing to do. Where all that tests need is to be here, it fails.
fn skip(reason: &str) {
    assert!(std::env::var_os("WARPVERBS_REQUIRE_RDMA_CORE").is_none(), "{reason}");
    eprintln!("SKIPPED: {reason}");
}

/// The folder of a build of rdma-core that takes the place of the system's.
fn built() -> Option<PathBuf> {
    std::env::var_os("WARPVERBS_RDMA_CORE").map(PathBuf::from)
}

/// `warpverbs run` with the words of `line`, on the system's rdma-core or that of the folder which
/// `WARPVERBS_RDMA_CORE` names.
fn run(line: &str) -> Command {
    let mut command = program(&format!("run {line}"));
    if let Some(folder) = built() {
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", folder.join("bin").display()));
        command.env("LD_LIBRARY_PATH", folder.join("lib"));
        // Without their endings, which have the number of libibverbs' private interface.
        let drivers = devices().iter().map(|device| folder.join(format!("lib/lib{device}")));
        command.env("IBV_DRIVERS", std::env::join_paths(drivers).unwrap());
    }
    command.env("WARPVERBS_PRELOAD", library()).env_remove("WARPVERBS_LINK").stdin(Stdio::null());
    command
}

/// Kinds of devices: those whose libraries are here. Debian 12 has two.
fn devices() -> &'static [&'static str] {
    static DEVICES: OnceLock<Vec<&str>> = OnceLock::new();
    DEVICES.get_or_init(|| {
        let (folder, before, behind) = match built() {
            Some(folder) => (folder.join("lib"), "lib", "-rdmav"),
            None => (PathBuf::from("/etc/libibverbs.d"), "", ".driver"),
        };
        let files = fs::read_dir(folder).into_iter().flatten().flatten();
        let names: Vec<_> = files.map(|file| file.file_name()).collect();
        let is_here = |device: &&str| {
            let start = format!("{before}{device}{behind}");
            names.iter().any(|name| name.to_string_lossy().starts_with(&start))
        };
        ["mlx5", "bnxt_re", "ionic"].into_iter().filter(is_here).collect()
    })
}

/// Whether a device, or its library, has SRQs.
fn has_srqs(device: &str) -> bool {
    device != "ionic"
}

/// As [`run`], with a device of this kind.
fn run_on(device: &str) -> impl Fn(&str) -> Command {
    move |line| run(&format!("--device {device} {line}"))
}

/// The first device of a kind.
fn first(device: &str) -> &'static str {
    match device {
        "mlx5" => "mlx5_0",
        "bnxt_re" => "bnxt_re0",
        _ => "ionic_0",
    }
}

/// perftest gives up where other programs disturb it while it measures the processor's clock.
fn is_disturbed(output: &Output) -> bool {
    !output.status.success() && text(&output.stderr).contains("Correlation coefficient")
}

fn succeeds(line: &str) -> String {
    let output = output(run(line));
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{line}: {stdout}{stderr}");
    stdout
}

/// Runs a program that says "done" and nothing else; its standard error.
fn done(command: Command) -> String {
    let line = format!("{command:?}");
    let output = output(command);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    let done = output.status.success() && stdout == "done\n";
    assert!(done, "{line}: {} {stdout}{stderr}", output.status);
    stderr
}

/// Whether somebody listens on a port of TCP in the network of this process.
fn is_listening(process: u32, port: u16) -> bool {
    let wanted = format!(":{port:04X}");
    ["tcp", "tcp6"].iter().any(|table| {
        let table = format!("/proc/{process}/net/{table}");
        let table = fs::read_to_string(table).unwrap_or_default();
        // The table of a busy machine is long, and most often the port is not there at all.
        table.lines().filter(|line| line.contains(&wanted)).any(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words.get(1).is_some_and(|local| local.ends_with(&wanted))
                && words.get(3) == Some(&"0A")
        })
    })
}

/// Each doorbell of a program that ran with `--verbose`, and said this, was taken for what it was.
fn rings_queues_alone(said: &str) {
    assert!(!said.contains("stores to doorbell pages"), "{said}");
}

/// Starts the server of a pair of programs by `run`, and waits until it listens.
fn server_in(line: &str, port: u16, run: impl Fn(&str) -> Command) -> Child {
    let mut command = run(&format!("--verbose -- {line} -p {port}"));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let end = Instant::now() + PATIENCE;
    while !is_listening(child.id(), port) {
        let ended = child.try_wait().unwrap();
        if ended.is_some() || Instant::now() > end {
            kill(&mut child);
            let output = child.wait_with_output().unwrap();
            panic!("{line} does not listen: {}{}", text(&output.stdout), text(&output.stderr));
        }
        // Leaves the processor to the program.
        std::thread::sleep(Duration::from_millis(5));
    }
    child
}

/// Runs a program with itself in another process; what the client said.
fn pair(line: &str) -> String {
    pair_in(line, run)
}

/// As [`pair`], started by `run`.
fn pair_in(line: &str, run: impl Fn(&str) -> Command) -> String {
    text(&pair_with(line, &run, &run, "localhost").stdout)
}

/// As [`pair`], the server with a device of the first kind, the client of the second.
fn pair_of((server, client): (&str, &str), line: &str) -> String {
    text(&pair_with(line, run_on(server), run_on(client), "localhost").stdout)
}

/// Runs a program with itself, each side started by its own, the server on `host`; the client's end.
fn pair_with(
    line: &str,
    server: impl Fn(&str) -> Command,
    client: impl Fn(&str) -> Command,
    host: &str,
) -> Output {
    let run = || {
        let port = free_port();
        let server = server_in(line, port, &server);
        let server = std::thread::spawn(move || finish(server));
        let client = output(client(&format!("--verbose -- {line} -p {port} {host}")));
        (client, server.join().unwrap())
    };
    let (mut client, mut server) = run();
    let mut again = 3;
    while again > 0 && (is_disturbed(&client) || is_disturbed(&server)) {
        (client, server) = run();
        again -= 1;
    }
    for (side, output) in [("client", &client), ("server", &server)] {
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{line}, {side}: {stdout}{stderr}");
        rings_queues_alone(&stderr);
    }
    client
}

#[test]
fn a_device_is_found_that_says_what_it_is() {
    if !ready() {
        return;
    }
    let said = succeeds("-- ibv_devinfo -v");
    for line in ["hca_id:\tmlx5_0", "WARPVERBS_SOFT", "PORT_ACTIVE (4)", "Ethernet", "0.1.0000"] {
        assert!(said.contains(line), "{line} is not in {said}");
    }
    assert!(said.contains("GID[  0]"), "{said}");
    let said = succeeds("--nics 2 --mtu 1024 -- ibv_devinfo");
    for line in ["mlx5_0", "mlx5_1", "active_mtu:\t\t1024 (3)"] {
        assert!(said.contains(line), "{line} is not in {said}");
    }
    for (device, first, second, vendor, version) in [
        ("bnxt_re", "hca_id:\tbnxt_re0", "hca_id:\tbnxt_re1", "0x14e4", "0.1.0.0"),
        ("ionic", "hca_id:\tionic_0", "hca_id:\tionic_1", "0x1dd8", "0.1.0000"),
    ] {
        if !devices().contains(&device) {
            continue;
        }
        let said = succeeds(&format!("--device {device} --nics 2 -- ibv_devinfo -v"));
        for line in [first, second, "WARPVERBS_SOFT", vendor, version] {
            assert!(said.contains(line), "{line} is not in {said}");
        }
    }
}

#[test]
fn two_processes_play_ping_pong() {
    if !ready() {
        return;
    }
    for &server in devices() {
        for &client in devices() {
            let pair = |line| pair_of((server, client), line);
            // The contents of every message are checked.
            let said = pair("ibv_rc_pingpong -g 0 -n 200 -c");
            assert!(said.contains("200 iters"), "{said}");
            pair("ibv_rc_pingpong -g 0 -n 20 -s 100000 -m 4096 -c");
            // Completion events instead of polling. libionic arms with the next post or poll, and a server does
            // neither before it waits.
            if server != "ionic" {
                pair("ibv_rc_pingpong -g 0 -n 200 -c -e");
            }
            let said = pair("ibv_ud_pingpong -g 0 -n 200 -c");
            assert!(said.contains("200 iters"), "{said}");
            if has_srqs(server) && has_srqs(client) {
                let said = pair("ibv_srq_pingpong -g 0 -n 200 -q 4");
                assert!(said.contains("200 iters"), "{said}");
            }
        }
    }
}

#[test]
fn perftest_measures() {
    if !ready() {
        return;
    }
    for &device in devices() {
        measures((device, device));
    }
    for &one in devices() {
        for &other in devices().iter().filter(|other| **other != one) {
            for line in [
                "ib_write_bw -x 0 -n 100",
                "ib_send_bw -x 0 -n 100 -e",
                "ib_atomic_lat -x 0 -n 100",
                "ib_send_lat -c UD -x 0 -n 100",
            ] {
                assert!(pair_of((one, other), line).contains("#bytes"), "{one}, {other}, {line}");
            }
        }
    }
    // Datagrams, and shared memory without them, instead of what the two find out.
    for &device in devices() {
        for link in ["udp", "shm"] {
            for line in ["ib_write_bw -x 0 -n 100 -s 65536", "ib_atomic_lat -x 0 -n 100"] {
                let run = run_on(device);
                let said = pair_in(line, |line| run(&format!("--link {link} {line}")));
                assert!(said.contains("#bytes"), "{line} over {link}: {said}");
            }
        }
    }
}

fn measures(devices: (&str, &str)) {
    for line in [
        "ib_write_bw -x 0 -n 100 -s 65536",
        "ib_write_lat -x 0 -n 50 -I 64",
        "ib_read_bw -x 0 -n 100 -s 4096",
        "ib_send_bw -x 0 -n 100 -q 8",
        "ib_atomic_bw -x 0 -n 100",
        "ib_send_bw -x 0 -n 100 --use-srq",
        "ib_send_bw -x 0 -n 100 -e",
        "ib_send_bw -c UD -x 0 -n 100",
        "ib_write_bw -x 0 -n 20 -a",
        // In cycles: otherwise both measure the processor's clock again at each of the 23 sizes.
        "ib_write_lat -x 0 -n 20 -a -C",
        "ib_read_lat -x 0 -n 100",
        "ib_send_lat -x 0 -n 100",
        "ib_atomic_lat -x 0 -n 100",
        "ib_write_bw -x 0 -n 100 -b -l 4",
        // More QPs than doorbell registers: some share one.
        "ib_read_bw -x 0 -n 20 -q 17",
        "ib_send_bw -x 0 -n 20 -q 17 --use-srq",
        "ib_write_bw -x 0 -n 5 -t 5 -q 600 -s 4096",
    ] {
        if line.contains("--use-srq") && !has_srqs(devices.0) {
            continue;
        }
        let said = pair_of(devices, line);
        assert!(said.contains("#bytes"), "{devices:?}, {line}: {said}");
    }
}

#[test]
fn the_link_that_was_taken_is_said() {
    if !ready() {
        return;
    }
    for (link, expected, other) in [
        ("udp", "mlx5_0: UDP at 127.", "shared memory"),
        ("auto", "mlx5_0: shared memory at 127.", "mlx5_0: UDP at"),
    ] {
        let run = |line: &str| run(&format!("--link {link} {line}"));
        let client = pair_with("ib_write_bw -x 0 -n 100", run, run, "localhost");
        let said = text(&client.stderr);
        assert!(said.contains(expected) && !said.contains(other), "--link {link}: {said}");
    }
}

/// Either end, at any moment after the two have met: while they exchange addresses, make queues, or
/// write to each other.
#[test]
fn a_peer_that_is_killed_ends_the_other() {
    if !ready() {
        return;
    }
    let seed = std::process::id();
    let rounds = devices().iter().flat_map(|device| [(device, true), (device, false)].repeat(2));
    for (round, (device, kills_server)) in (0..).zip(rounds) {
        let port = free_port();
        let line = "ib_write_bw -x 0 -b -D 100";
        let run = run_on(device);
        let server = server_in(line, port, &run);
        let line = format!("-- {line} -p {port} localhost");
        let mut client = run(&line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // The server listens no more once the client has connected.
        let end = Instant::now() + PATIENCE;
        while is_listening(server.id(), port) {
            assert!(Instant::now() < end && client.try_wait().unwrap().is_none());
            // Leaves the processor to the program.
            std::thread::sleep(Duration::from_millis(5));
        }
        let moment = seed.wrapping_add(round).wrapping_mul(2_654_435_761) >> 16;
        // Any moment will do: it is drawn.
        std::thread::sleep(Duration::from_millis(u64::from(moment % 400)));
        let (mut killed, left) = if kills_server { (server, client) } else { (client, server) };
        kill(&mut killed);
        assert_eq!(killed.wait().unwrap().code(), Some(128 + 9), "round {round}, seed {seed}");
        let output = finish(left);
        let said = text(&output.stdout);
        assert!(!output.status.success(), "round {round}, seed {seed}: {said}");
    }
}

#[test]
fn what_is_not_modelled_is_refused_by_name() {
    if !ready() {
        return;
    }
    let refusals = [
        ("mlx5", "ibv_uc_pingpong", "mlx5_0: QP.CREATE: EOPNOTSUPP: a QP of type 3"),
        ("bnxt_re", "ibv_uc_pingpong", "bnxt_re0: QP.CREATE: EOPNOTSUPP: a QP of type 3"),
    ];
    for (device, program, expected) in refusals {
        // Later versions of libbnxt_re do not even ask for what is not of theirs.
        let asks = device != "bnxt_re" || built().is_none();
        if !devices().contains(&device) || !asks {
            continue;
        }
        let output = output(run_on(device)(&format!("--verbose -- {program} -g 0")));
        let stderr = text(&output.stderr);
        assert!(!output.status.success() && stderr.contains(expected), "{stderr}");
    }
}

#[test]
fn a_program_ends_as_it_would() {
    if !ready() {
        return;
    }
    let mut command = run("--");
    command.args(["sh", "-c", "exit 7"]);
    assert_eq!(output(command).status.code(), Some(7));
    let mut command = run("--");
    command.args(["sh", "-c", "kill -TERM $$"]);
    assert_eq!(output(command).status.code(), Some(128 + 15));
    assert_eq!(output(run("-- true")).status.signal(), None);
}

#[test]
fn wrong_words_are_refused() {
    fails("run --nics 4 -- true", &["1..=3"]);
    fails("run --device mlx4 -- true", &["mlx5, bnxt_re, ionic"]);
    fails("run --device bnxt_re --consume -- true", &["--consume", "bnxt_re"]);
    fails("run --mtu 1000 -- true", &["256, 512, 1024, 2048 or 4096"]);
    fails(
        "run --library /nowhere.so -- true",
        &["/nowhere.so", "cargo build -p warpverbs-preload"],
    );
    if ready() {
        let library = library().display().to_string();
        fails(&format!("run --library {library} -- /nowhere/program"), &["/nowhere/program"]);
    }
}
