//! PyTorch's own store at the other end. `WARPVERBS_PYTHON` names a Python that can import torch;
//! without one the tests say that they are skipped. `WARPVERBS_REQUIRE_TORCH` makes that a failure.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use warpverbs_rendezvous::{Client, ClientError, Deadline, Limits, World, WorldConfig};

use crate::{PATIENCE, dial, free_port, serve};

/// Importing torch alone takes seconds, and many on a machine that is busy.
const IMPORT: Duration = Duration::from_secs(180);

fn script() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/torch/peer.py")
}

fn python() -> String {
    std::env::var("WARPVERBS_PYTHON").unwrap_or_else(|_| "python3".into())
}

/// The version of torch, or why there is none. Asked once: importing it is slow.
fn version() -> &'static Result<String, String> {
    static VERSION: OnceLock<Result<String, String>> = OnceLock::new();
    VERSION.get_or_init(|| {
        let python = python();
        let output = Command::new(&python).arg(script()).arg("import").output();
        let output = output.map_err(|error| format!("{python}: {error}"))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
        }
        let text = String::from_utf8_lossy(&output.stderr);
        let last = text.lines().last().unwrap_or("no output");
        Err(format!("{python}: {last} (WARPVERBS_PYTHON names another)"))
    })
}

/// False, said loudly, if there is no torch.
fn torch(test: &str) -> bool {
    let line = match version() {
        Ok(version) => format!("{test}: against torch {version}\n"),
        Err(reason) => {
            assert!(std::env::var_os("WARPVERBS_REQUIRE_TORCH").is_none(), "{test}: {reason}");
            format!("SKIPPED {test}: {reason}\n")
        }
    };
    // Past the test harness, which keeps the output of tests that pass.
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    version().is_ok()
}

/// A Python that says lines.
struct Peer {
    child: Child,
    lines: Receiver<String>,
}

impl Peer {
    fn start(arguments: &[String]) -> Peer {
        let mut child = Command::new(python())
            .arg(script())
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || {
            stdout.lines().map_while(Result::ok).try_for_each(|l| sender.send(l))
        });
        Peer { child, lines }
    }

    /// The rest of the next line, which begins with `word`.
    fn says(&self, word: &str) -> String {
        let line = self.lines.recv_timeout(IMPORT).expect("a line from Python");
        line.strip_prefix(word).unwrap_or_else(|| panic!("expected {word}: {line}")).trim().into()
    }

    fn next(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"next\n").unwrap();
    }

    fn ends(mut self) {
        assert_eq!(self.lines.recv_timeout(IMPORT).ok(), None, "Python has more to say");
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // A test that fails does not leave its peer behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn torch_clients_meet_our_server() {
    if !torch("torch_clients_meet_our_server") {
        return;
    }
    let servers = [serve(Limits::default()), serve(Limits::default())];
    let ports = servers.each_ref().map(|server| server.local_addr().port().to_string());
    let peer = Peer::start(&[&["clients".to_owned()][..], &ports].concat());
    peer.says("exercised True");
    peer.says("exercised False");
    peer.ends();
    for server in servers {
        let faults = server.take_faults();
        assert!(faults.is_empty(), "{faults:?}");
    }
}

#[test]
fn a_torch_rank_joins_our_world() {
    if !torch("a_torch_rank_joins_our_world") {
        return;
    }
    let port = free_port();
    let peer = Peer::start(&["rank".into(), port.to_string()]);
    let config = WorldConfig::at(0, 2, "127.0.0.1", port).job("torch").timeout(IMPORT);
    let mut world = World::join(&config).unwrap();
    let all = world.exchange("handle", b"from rust").unwrap();
    assert_eq!(all, [b"from rust".to_vec(), b"from python".to_vec()]);
    world.leave().unwrap();
    assert_eq!(peer.says("met"), "from rust");
    peer.ends();
}

#[test]
fn our_clients_meet_torch_servers() {
    if !torch("our_clients_meet_torch_servers") {
        return;
    }
    let ports = [free_port(), free_port()].map(|port| port.to_string());
    let mut peer = Peer::start(&[&["servers".to_owned()][..], &ports].concat());
    for _libuv in [true, false] {
        let port = peer.says("port").parse().unwrap();
        exercise(&mut dial(port, PATIENCE).unwrap());
        peer.next();
        let port = peer.says("port").parse().unwrap();
        let mut worker = dial(port, PATIENCE).unwrap();
        worker.join_workers().unwrap();
        assert_eq!(worker.get("met").unwrap(), b"1");
        drop(worker);
        peer.next();
    }
    peer.ends();
}

/// Every call of ours against a store of PyTorch.
fn exercise(client: &mut Client) {
    let all: Vec<u8> = (0..=255).collect();
    client.multi_set(&[("a", b"1"), ("b", b"")]).unwrap();
    client.set("from rust", &all).unwrap();
    assert_eq!(client.get("from python").unwrap(), b"hello");
    assert_eq!(client.multi_get(&["b", "a"]).unwrap(), [vec![], b"1".to_vec()]);
    assert_eq!(client.add("n", 5).unwrap(), 5);
    assert_eq!(client.add("n", -7).unwrap(), -2);
    assert_eq!(client.compare_set("c", b"", b"x").unwrap(), b"x");
    assert_eq!(client.compare_set("c", b"y", b"z").unwrap(), b"x");
    client.append("c", b"+").unwrap();
    assert_eq!(client.get("c").unwrap(), b"x+");
    assert_eq!(client.present(&["a", "z"]).unwrap(), [true, false]);
    assert!(client.check(&["a", "b"]).unwrap());
    let short = || Deadline::after(Duration::from_millis(150));
    let error = client.wait(&["a", "z"], short()).unwrap_err();
    assert!(matches!(&error, ClientError::Missing { missing, .. } if *missing == ["z"]), "{error}");
    assert!(client.delete_key("c").unwrap() && !client.delete_key("c").unwrap());
    assert_eq!(client.num_keys().unwrap(), 5);
    client.set("done", b"1").unwrap();
}
