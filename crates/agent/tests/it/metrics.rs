//! Counters in files and by HTTP, also to those who ask badly.

use crate::bed::SOON;
use crate::exposition::Page;
use rand::{Rng, RngExt, SeedableRng, rngs::StdRng};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use warpverbs_agent::{Agent, AgentConfig, AgentError, MetricsTo};

const GET: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n";

fn with(name: &str, to: MetricsTo) -> Result<Agent, AgentError> {
    Agent::new(name, AgentConfig::default().metrics(to))
}

fn served(name: &str) -> (Agent, SocketAddr) {
    let agent = with(name, MetricsTo::http((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let address = agent.metrics_address().unwrap();
    (agent, address)
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream
}

/// All that the other end sends until it closes.
fn rest(mut stream: TcpStream) -> String {
    let mut text = String::new();
    match stream.read_to_string(&mut text) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("{error}"),
    }
    text
}

fn ask(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = connect(address);
    stream.write_all(request).unwrap();
    rest(stream)
}

/// The content of a good answer.
fn page(answer: &str) -> Page {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("\r\nContent-Type: text/plain; version=0.0.4"), "{head}");
    assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head}");
    Page::read(body)
}

/// A folder that goes away with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("wv-metrics-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn names(&self) -> Vec<String> {
        let all = std::fs::read_dir(&self.0).unwrap();
        all.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn read(path: &Path) -> Page {
    Page::read(&std::fs::read_to_string(path).unwrap())
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + SOON;
    while !is_so() {
        assert!(Instant::now() < end, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn two_agents_of_a_process_are_served_at_addresses_of_their_own_until_they_end() {
    let (a, at_a) = served("a");
    let (b, at_b) = served("b");
    assert_ne!(at_a, at_b);
    let memory = b.register(vec![1; 5000], "memory").unwrap();
    assert_eq!(page(&ask(at_a, GET)).sum("registered_bytes", &[("agent", "a")]), 0.0);
    assert_eq!(page(&ask(at_b, GET)).sum("registered_bytes", &[("agent", "b")]), 5000.0);
    drop(memory);
    assert_eq!(page(&ask(at_b, GET)).sum("registered_bytes", &[("agent", "b")]), 0.0);
    // One that waits does not hold up the end.
    let silent = connect(at_a);
    let began = Instant::now();
    drop(a);
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(rest(silent), "");
    assert!(TcpStream::connect(at_a).is_err(), "nobody listens any more");
    page(&ask(at_b, GET));
}

#[test]
fn a_port_that_is_taken_is_an_error_or_where_that_is_wished_a_warning() {
    let (_a, taken) = served("a");
    let refused = with("b", MetricsTo::http(taken)).unwrap_err().to_string();
    assert!(refused.contains(&taken.to_string()), "{refused}");
    let b = with("b", MetricsTo::http(taken).optional()).unwrap();
    assert_eq!(b.metrics_address(), None);
    assert!(page(&ask(taken, GET)).sum("peers", &[("agent", "a")]) == 0.0);
}

#[test]
fn what_is_no_request_for_metrics_gets_a_status() {
    let (_agent, at) = served("a");
    let long = [b"GET /metrics HTTP/1.0\r\nX: ".to_vec(), vec![b'x'; 1 << 20]].concat();
    let cases: [(&[u8], &str); 6] = [
        (b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", "404 Not Found"),
        (b"GET /metrics/../../etc/passwd HTTP/1.1\r\nHost: here\r\n\r\n", "404 Not Found"),
        (b"DELETE /metrics HTTP/1.1\r\nHost: here\r\n\r\n", "405 Method Not Allowed"),
        (b"GET /metrics HTTP/1.1\r\n\r\n", "400 Bad Request"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", "400 Bad Request"),
        (b"\r\n\r\n", "400 Bad Request"),
    ];
    for (request, status) in cases {
        let answer = ask(at, request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{answer}");
    }
    // Part of a long one: all of it need not be taken.
    let mut stream = connect(at);
    stream.write_all(&long[..64 << 10]).unwrap();
    let answer = rest(stream);
    assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{answer}");
    let mut stream = connect(at);
    let _ = stream.write_all(&long);
    rest(stream);
    let head = ask(at, b"HEAD /metrics HTTP/1.1\r\nHost: here\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    // In pieces, and by an end that says no more afterwards.
    let mut stream = connect(at);
    for part in GET.chunks(7) {
        stream.write_all(part).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    stream.shutdown(Shutdown::Write).unwrap();
    page(&rest(stream));
}

#[test]
fn garbage_is_survived() {
    let seed = std::env::var("WARPVERBS_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or_else(rand::random);
    println!("WARPVERBS_SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let (_agent, at) = served("a");
    for _ in 0..200 {
        let mut bytes = vec![0; rng.random_range(0..12_000)];
        rng.fill_bytes(&mut bytes);
        if rng.random() {
            let at = rng.random_range(0..=bytes.len());
            bytes.splice(at..at, *b"\r\n\r\n");
        }
        let mut stream = connect(at);
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let answer = rest(stream);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400 "), "{answer}");
    }
    page(&ask(at, GET));
}

#[test]
fn a_request_that_takes_long_ends_after_two_seconds() {
    let (_agent, at) = served("a");
    let began = Instant::now();
    let mut slow = connect(at);
    let drip = std::thread::spawn(move || {
        // A byte now and then does not extend it.
        while slow.write_all(b"x").is_ok() && began.elapsed() < SOON {
            std::thread::sleep(Duration::from_millis(100));
        }
        began.elapsed()
    });
    page(&ask(at, GET));
    assert!(began.elapsed() < Duration::from_secs(2), "others are not held up");
    let took = drip.join().unwrap();
    assert!(took >= Duration::from_secs(2) && took < SOON, "{took:?}");
}

#[test]
fn many_connections_keep_nobody_out() {
    let (agent, at) = served("a");
    let idle: Vec<TcpStream> = (0..200).map(|_| connect(at)).collect();
    for _ in 0..20 {
        page(&ask(at, GET));
    }
    // The agent itself is not delayed.
    let began = Instant::now();
    let memory = agent.register(vec![1; 64], "memory").unwrap();
    drop(memory);
    assert!(began.elapsed() < Duration::from_secs(1));
    // Few are held at a time: the others are closed before their 2 s are over.
    let is_closed = |mut stream: &TcpStream| {
        stream.set_nonblocking(true).unwrap();
        !stream.read(&mut [0; 8]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    };
    assert!(idle.iter().filter(|stream| is_closed(stream)).count() >= 184);
}

#[test]
fn a_file_is_replaced_as_a_whole_until_the_agent_ends() {
    let folder = Folder::new("whole");
    let path = folder.0.join("agent.prom");
    let to = MetricsTo::file(&path).every(Duration::from_millis(10));
    let agent = with("a", to).unwrap();
    assert_eq!(agent.metrics_file(), Some(&*path));
    assert_eq!(read(&path).sum("registrations", &[("agent", "a")]), 0.0);
    let memory = agent.register(vec![1; 77], "memory").unwrap();
    // Whenever it is read, all of it is there: the reader checks the end.
    until("the file", || read(&path).sum("registered_bytes", &[]) == 77.0);
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(200) {
        assert_eq!(read(&path).kinds.len(), 16);
    }
    agent.notify("a", b"last", SOON).unwrap();
    drop(agent);
    assert_eq!(read(&path).sum("notifications_sent_total", &[]), 1.0, "the last state stays");
    assert_eq!(folder.names(), ["agent.prom"]);
    drop(memory);
}

#[test]
fn the_names_of_files_have_the_process_and_the_agent() {
    let folder = Folder::new("names");
    let to = || MetricsTo::file(folder.0.join("x-{pid}-{agent}.prom"));
    let first = with("a/b ../c", to()).unwrap();
    let second = with("second_-", to()).unwrap();
    let name = |agent: &Agent| {
        agent.metrics_file().unwrap().file_name().unwrap().to_str().unwrap().to_owned()
    };
    let pid = std::process::id();
    assert_eq!(name(&first), format!("x-{pid}-a%2Fb%20%2E%2E%2Fc.prom"));
    assert_eq!(name(&second), format!("x-{pid}-second_-.prom"));
    assert_eq!(folder.names().len(), 2);
    drop((first, second));
    assert_eq!(folder.names(), [""; 0], "no later agent would replace them");
}

#[test]
fn a_file_that_cannot_be_written_is_an_error_or_where_that_is_wished_a_warning() {
    let folder = Folder::new("refused");
    let path = folder.0.join("agent.prom");
    let first = with("a", MetricsTo::file(&path)).unwrap();
    let shared = with("b", MetricsTo::file(&path)).unwrap_err();
    assert!(matches!(shared, AgentError::Config { field: "metrics", .. }), "{shared}");
    assert_eq!(with("b", MetricsTo::file(&path).optional()).unwrap().metrics_file(), None);
    drop(first);
    drop(with("b", MetricsTo::file(&path)).unwrap());
    let nowhere = with("c", MetricsTo::file(folder.0.join("no/such/folder.prom"))).unwrap_err();
    assert!(matches!(nowhere, AgentError::System { .. }), "{nowhere}");
    let zero = MetricsTo::file(&path).every(Duration::ZERO);
    let wrong = with("d", zero).unwrap_err();
    assert!(matches!(wrong, AgentError::Config { .. }), "{wrong}");
    // A folder that goes away later costs the file alone.
    let gone = Folder::new("gone");
    let to = MetricsTo::file(gone.0.join("x.prom")).every(Duration::from_millis(10));
    let agent = with("e", to).unwrap();
    drop(gone);
    std::thread::sleep(Duration::from_millis(50));
    agent.notify("e", b"it works", SOON).unwrap();
}
