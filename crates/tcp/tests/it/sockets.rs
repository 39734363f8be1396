//! Links over real sockets, both ends in one process.

use crate::modelled::Model;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use warpverbs_devmem::UnpackWay;
use warpverbs_mem::testing::{LazyCopier, LazyMemory};
use warpverbs_mem::{Access, HostBuf, Region};
use warpverbs_tcp::protocol::{
    Cut, HELLO, HandshakeError, Header, Hello, Kind, Offer, PeerError, PostError, Refusal, Stage,
};
use warpverbs_tcp::{Config, Domain, Link, Listener, Receive, RemoteKey, Request, TcpError};

/// Ends a hang: nothing that comes at all takes this long, however slow the machine is.
pub(crate) const LONG: Duration = Duration::from_secs(600);
pub(crate) const LOCAL: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

pub(crate) struct Pair {
    pub(crate) ends: [Domain; 2],
    pub(crate) near: Link,
    pub(crate) far: Link,
    /// The receiver of payload at each end, unless its sockets receive.
    models: [Option<Model>; 2],
}

pub(crate) fn connect(ends: [Domain; 2], models: [Option<Model>; 2]) -> Pair {
    let mut listener = ends[1].listen(LOCAL).unwrap();
    let address = listener.address();
    let (near, far) = std::thread::scope(|scope| {
        let far = scope.spawn(|| listener.accept(&ends[1], LONG).unwrap());
        (ends[0].connect(address, LONG).unwrap(), far.join().unwrap())
    });
    Pair { ends, near, far, models }
}

/// A link whose ends receive into host memory.
pub(crate) fn plain(config: &Config) -> Pair {
    connect([(); 2].map(|()| Domain::new(config.clone()).unwrap()), [None, None])
}

/// Links whose ends receive into host memory, into modelled device memory at the far end, at
/// the near end, and at both.
pub(crate) fn pairs(config: &Config) -> impl Iterator<Item = Pair> {
    let ways = [
        [None, None],
        [None, Some(UnpackWay::Auto)],
        [Some(UnpackWay::Kernel), None],
        [Some(UnpackWay::CopyEngine), Some(UnpackWay::Host)],
    ];
    ways.into_iter().enumerate().map(move |(seed, ways)| {
        let models =
            [0, 1].map(|end| ways[end].map(|_| Model::new((seed * 200 + end * 100) as u64)));
        let ends = [0, 1].map(|end| match (&models[end], ways[end]) {
            (Some(model), Some(way)) => {
                // The system does not wake anybody for packets of the model.
                let mut config = config.clone();
                config.spin = LONG;
                Domain::receiving(config, Receive::Device(model.device(way))).unwrap()
            }
            _ => Domain::new(config.clone()).unwrap(),
        });
        connect(ends, models)
    })
}

impl Pair {
    /// Waits until every page that the model's kernels gave out has come back to them.
    pub(crate) fn settle(&self) {
        let began = Instant::now();
        while !self.models.iter().flatten().all(Model::all_free) {
            let _ = (self.near.progress(), self.far.progress());
            assert!(began.elapsed() < LONG, "tokens are not returned");
        }
        self.models.iter().flatten().for_each(Model::check);
    }
}

pub(crate) fn pattern(seed: usize, len: usize) -> Vec<u8> {
    warpverbs_dev::pattern(len, seed as u64)
}

/// Random bytes. The seed is printed.
pub(crate) fn random(len: usize) -> Vec<u8> {
    warpverbs_dev::pattern(len, warpverbs_dev::seed())
}

pub(crate) fn filled(bytes: &[u8]) -> Region {
    let region = HostBuf::region(bytes.len()).unwrap();
    region.write(0, bytes).unwrap();
    region
}

pub(crate) fn bytes_of(region: &Region) -> Vec<u8> {
    let mut bytes = vec![0; region.len()];
    region.read(0, &mut bytes).unwrap();
    bytes
}

/// Drives both ends until an operation of one is complete.
pub(crate) fn drive(one: &Link, other: &Link, operation: Request) -> Result<u64, TcpError> {
    let began = Instant::now();
    loop {
        if let Some(bytes) = one.test(operation)? {
            return Ok(bytes);
        }
        let _ = other.progress();
        assert!(began.elapsed() < LONG, "no result after {LONG:?}");
    }
}

#[test]
fn messages_of_every_length_arrive_over_any_number_of_sockets() {
    let lengths = [0, 1, 8, 63, 4096, 16_384, 16_385, 65_536, 65_537, 300_000, 5 << 20];
    for sockets in [1, 2, 5] {
        for pair in pairs(&Config::default().sockets(sockets).chunk(128 << 10)) {
            for posted_first in [true, false] {
                for (seed, len) in lengths.into_iter().enumerate() {
                    let (from, to) =
                        (filled(&pattern(seed, len)), HostBuf::region(len + 5).unwrap());
                    let receive = || pair.far.irecv(&to).unwrap();
                    let first = posted_first.then(receive);
                    let sent = pair.near.isend(&from).unwrap();
                    for _ in 0..20 {
                        pair.far.progress().unwrap();
                    }
                    let received = first.unwrap_or_else(receive);
                    assert_eq!(drive(&pair.far, &pair.near, received), Ok(len as u64));
                    assert_eq!(drive(&pair.near, &pair.far, sent), Ok(len as u64));
                    let bytes = bytes_of(&to);
                    assert!(bytes[..len] == pattern(seed, len), "{len} bytes, {sockets} sockets");
                    assert_eq!(bytes[len..], [0; 5], "{len} bytes, {sockets} sockets");
                }
            }
            pair.settle();
        }
    }
}

/// Both directions at once from two threads, more than any buffer holds.
#[test]
fn both_directions_flow_at_once() {
    for pair in pairs(&Config::default().sockets(3)) {
        const COUNT: usize = 16;
        let run = |link: &Link, seed: usize| {
            let len = |i: usize| [3usize << 20, 100, 200_000, 65_000][i % 4];
            let receives: Vec<_> = (0..COUNT)
                .map(|i| {
                    let to = HostBuf::region(len(i)).unwrap();
                    (link.irecv(&to).unwrap(), to)
                })
                .collect();
            let send = |i| link.isend(&filled(&pattern(seed + i, len(i)))).unwrap();
            let sends: Vec<_> = (0..COUNT).map(send).collect();
            for (i, (receive, to)) in receives.into_iter().enumerate() {
                assert_eq!(link.wait(receive, LONG), Ok(len(i) as u64));
                assert!(bytes_of(&to) == pattern(1000 - seed + i, len(i)), "message {i}");
            }
            for send in sends {
                link.wait(send, LONG).unwrap();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| run(&pair.far, 1000));
            run(&pair.near, 0);
        });
        close(pair);
    }
}

fn close(pair: Pair) {
    pair.settle();
    std::thread::scope(|scope| {
        let far = scope.spawn(|| pair.far.close(LONG));
        assert_eq!(pair.near.close(LONG), Ok(()));
        assert_eq!(far.join().unwrap(), Ok(()));
    });
}

/// Memory that only a copy engine reaches, whose copies take a few polls.
#[test]
fn device_memory_goes_through_bounce_buffers() {
    for sockets in [1, 4] {
        for pair in pairs(&Config::default().sockets(sockets).chunk(64 << 10)) {
            let copier = Arc::new(LazyCopier::default());
            copier.pace(3);
            // As the copy engine reaches it, and as the test sees it.
            let device = |len| LazyMemory::regions(len, 0, &copier).unwrap();
            for (seed, len) in [8, 5000, 65_537, 1 << 20, (3 << 20) + 11].into_iter().enumerate() {
                let ((from, here), (to, there)) = (device(len), device(len));
                here.write(0, &pattern(seed, len)).unwrap();
                let received = pair.far.irecv(&to).unwrap();
                let sent = pair.near.isend(&from).unwrap();
                assert_eq!(drive(&pair.far, &pair.near, received), Ok(len as u64));
                assert_eq!(drive(&pair.near, &pair.far, sent), Ok(len as u64));
                assert!(bytes_of(&there) == pattern(seed, len), "{len} bytes sent");
                // Written and read back, from one device memory to another.
                let access = Access::REMOTE_READ | Access::REMOTE_WRITE;
                let registered = pair.ends[1].register(&to, access).unwrap();
                here.write(0, &pattern(seed + 50, len)).unwrap();
                let written = pair.near.write(&from, registered.remote()).unwrap();
                assert_eq!(drive(&pair.near, &pair.far, written), Ok(len as u64));
                assert!(bytes_of(&there) == pattern(seed + 50, len), "{len} bytes written");
                let (back, seen) = device(len);
                let read = pair.near.read(&back, registered.remote()).unwrap();
                assert_eq!(drive(&pair.near, &pair.far, read), Ok(len as u64));
                assert!(bytes_of(&seen) == pattern(seed + 50, len), "{len} bytes read");
            }
            // Before its receive.
            let ((from, here), (to, there)) = (device(9), device(9));
            here.write(0, b"untimely!").unwrap();
            let sent = pair.near.isend(&from).unwrap();
            drive(&pair.near, &pair.far, sent).unwrap();
            pair.far.progress().unwrap();
            let received = pair.far.irecv(&to).unwrap();
            assert_eq!(drive(&pair.far, &pair.near, received), Ok(9));
            assert_eq!(bytes_of(&there), b"untimely!");
            // An engine that fails: the receive says so, and the link lives.
            let (broken, _) = device(100_000);
            let received = pair.far.irecv(&broken).unwrap();
            let sent = pair.near.isend(&filled(&[1; 100_000])).unwrap();
            copier.break_down();
            let failed = drive(&pair.far, &pair.near, received);
            assert!(matches!(failed, Err(TcpError::Memory(_))), "{failed:?}");
            assert_eq!(drive(&pair.near, &pair.far, sent), Ok(100_000));
            let (from, to) = (filled(b"alive"), HostBuf::region(5).unwrap());
            let received = pair.far.irecv(&to).unwrap();
            pair.near.isend(&from).unwrap();
            assert_eq!(drive(&pair.far, &pair.near, received), Ok(5));
            pair.settle();
        }
    }
}

#[test]
fn one_sided_accesses_need_the_right_key() {
    for pair in pairs(&Config::default()) {
        let Pair { ends, near, far, .. } = &pair;
        let memory = filled(&pattern(1, 100_000));
        let registered = ends[1].register(&memory, Access::REMOTE_READ).unwrap();
        let remote = RemoteKey::from_bytes(&registered.remote().to_bytes()).unwrap();
        assert_eq!(remote, registered.remote());
        let here = HostBuf::region(1000).unwrap();
        let drive = |posted: Result<Request, TcpError>| drive(near, far, posted?);
        assert_eq!(drive(near.read(&here, remote.at(500))), Ok(1000));
        assert!(bytes_of(&here) == pattern(1, 100_000)[500..1500]);
        let refused = |refusal| Err(TcpError::Refused(refusal));
        assert_eq!(drive(near.write(&here, remote)), refused(Refusal::NotAllowed));
        assert_eq!(drive(near.read(&here, remote.at(99_001))), refused(Refusal::OutOfBounds));
        let before = RemoteKey { addr: remote.addr - 1, ..remote };
        assert_eq!(drive(near.read(&here, before)), refused(Refusal::OutOfBounds));
        let guessed = RemoteKey { key: remote.key ^ 1, ..remote };
        assert_eq!(drive(near.read(&here, guessed)), refused(Refusal::UnknownKey));
        let last = RemoteKey { addr: u64::MAX - 5, ..remote };
        let wraps = PostError::Wraps { addr: u64::MAX - 5, len: 1000 };
        assert_eq!(drive(near.read(&here, last)), Err(TcpError::Post(wraps)));
        drop(registered);
        assert_eq!(drive(near.read(&here, remote)), refused(Refusal::UnknownKey));
        assert!(bytes_of(&memory) == pattern(1, 100_000), "a refused write touched memory");
        pair.settle();
    }
}

/// A key of memory that was deregistered is refused for ever, though others are made and given up: none
/// of them is kept.
#[test]
fn keys_are_given_up_with_their_registrations() {
    let Pair { ends, near, far, .. } = plain(&Config::default());
    let (memory, here) = (HostBuf::region(1000).unwrap(), HostBuf::region(1000).unwrap());
    let register = || ends[1].register(&memory, Access::REMOTE_READ).unwrap();
    let stale = register().remote();
    let held = register();
    for _ in 0..10_000 {
        assert_ne!(register().remote().key, held.remote().key);
        assert_eq!(ends[1].registered(), 1);
    }
    let read = |remote| drive(&near, &far, near.read(&here, remote)?);
    assert_eq!(read(stale), Err(TcpError::Refused(Refusal::UnknownKey)));
    assert_eq!(read(held.remote()), Ok(1000));
}

#[test]
fn a_notification_comes_after_the_writes_before_it() {
    for pair in pairs(&Config::default().sockets(4)) {
        let Pair { ends, near, far, .. } = &pair;
        let memory = HostBuf::region(4 << 20).unwrap();
        let registered = ends[1].register(&memory, Access::REMOTE_WRITE).unwrap();
        for round in 0..4 {
            let from = filled(&pattern(round, 4 << 20));
            let written = near.write(&from, registered.remote()).unwrap();
            near.notify(format!("round {round}").as_bytes()).unwrap();
            let note = loop {
                near.progress().unwrap();
                if let Some(note) = far.poll_notification().unwrap() {
                    break note;
                }
            };
            assert_eq!(note, format!("round {round}").as_bytes());
            assert!(bytes_of(&memory) == pattern(round, 4 << 20), "round {round}");
            assert_eq!(drive(near, far, written), Ok(4 << 20));
        }
        let long = PostError::NotificationTooLong { len: 65_537, most: 65_536 };
        assert_eq!(near.notify(&[0; 65_537]), Err(TcpError::Post(long)));
        // More than the window holds: the sender waits for the receiver, and nothing is lost.
        let notes: Vec<_> = (0..300).map(|i| near.notify(&pattern(i, 65_536)).unwrap()).collect();
        for i in 0..300 {
            let note = loop {
                near.progress().unwrap();
                if let Some(note) = far.poll_notification().unwrap() {
                    break note;
                }
            };
            assert!(note == pattern(i, 65_536), "notification {i}");
        }
        for note in notes {
            assert_eq!(drive(near, far, note), Ok(65_536));
        }
        pair.settle();
    }
}

#[test]
fn a_message_longer_than_its_receive_is_discarded() {
    for pair in pairs(&Config::default()) {
        let Pair { near, far, .. } = &pair;
        for len in [100usize, 1 << 20] {
            let to = filled(&vec![9; len - 1]);
            let received = far.irecv(&to).unwrap();
            near.isend(&filled(&vec![1; len])).unwrap();
            let (len, capacity) = (len as u64, to.len() as u64);
            let error = TcpError::TooLong { len, capacity };
            assert_eq!(drive(far, near, received), Err(error));
            assert!(bytes_of(&to).iter().all(|byte| *byte == 9));
            let after = HostBuf::region(3).unwrap();
            let received = far.irecv(&after).unwrap();
            near.isend(&filled(b"yes")).unwrap();
            assert_eq!(drive(far, near, received), Ok(3));
        }
        pair.settle();
    }
}

#[test]
fn waits_end_and_operations_go_on() {
    for pair in pairs(&Config::default()) {
        let Pair { near, far, .. } = &pair;
        let to = HostBuf::region(8).unwrap();
        let received = far.irecv(&to).unwrap();
        let late = far.wait(received, Duration::from_millis(30));
        assert!(matches!(late, Err(TcpError::Timeout { .. })), "{late:?}");
        near.isend(&filled(b"tardily.")).unwrap();
        assert_eq!(far.wait(received, LONG), Ok(8));
        assert_eq!(bytes_of(&to), b"tardily.");
        assert_eq!(far.test(received), Err(TcpError::UnknownRequest));
        pair.settle();
    }
}

/// A peer that closes after what it sent: that arrives, and everything else fails.
#[test]
fn a_closed_link_delivers_what_was_sent() {
    for pair in pairs(&Config::default()) {
        let Pair { ends, near, far, .. } = pair;
        let to = HostBuf::region(3 << 20).unwrap();
        let remote = ends[0].register(&to, Access::REMOTE_READ).unwrap().remote();
        let received = [far.irecv(&to).unwrap(), far.irecv(&to).unwrap()];
        near.isend(&filled(&pattern(4, 3 << 20))).unwrap();
        std::thread::scope(|scope| {
            let closing = scope.spawn(|| near.close(LONG));
            assert_eq!(far.wait(received[0], LONG), Ok(3 << 20));
            assert!(bytes_of(&to) == pattern(4, 3 << 20));
            assert_eq!(far.wait(received[1], LONG), Err(TcpError::Closed));
            assert_eq!(far.wait_notification(LONG), Err(TcpError::Closed));
            let read = far.read(&to, remote).and_then(|read| far.wait(read, LONG));
            assert_eq!(read, Err(TcpError::Closed));
            far.close(LONG).unwrap();
            assert_eq!(closing.join().unwrap(), Ok(()));
        });
    }
}

/// A peer that is dropped: an error of every operation, at once.
#[test]
fn a_lost_peer_is_an_error_of_everything() {
    let much = filled(&pattern(0, 64 << 20));
    for pair in pairs(&Config::default().sockets(3)) {
        let Pair { near, far, .. } = pair;
        let to = HostBuf::region(1 << 20).unwrap();
        let received = near.irecv(&to).unwrap();
        let sent = near.isend(&much).unwrap();
        drop(far);
        for operation in [received, sent] {
            let error = near.wait(operation, LONG).unwrap_err();
            assert!(error.ends_link(), "{error}");
        }
        assert!(near.isend(&to).unwrap_err().ends_link());
        assert!(near.close(LONG).unwrap_err().ends_link());
    }
}

/// A socket that speaks the handshake and then whatever a test says.
pub(crate) fn raw(listener: &mut Listener, domain: &Domain) -> (TcpStream, Link) {
    let mut stream = TcpStream::connect(listener.address()).unwrap();
    let offer = Offer { sockets: 1, ..Offer::default() };
    let hello = Hello { stage: Stage::First, socket: 0, token: [0; 16], offer };
    stream.write_all(&hello.encode()).unwrap();
    let link = listener.accept(domain, LONG).unwrap();
    let mut answer = [0; HELLO];
    stream.read_exact(&mut answer).unwrap();
    Hello::decode_answer(&answer).unwrap();
    (stream, link)
}

#[test]
fn a_hostile_peer_ends_its_link_only() {
    let domain = Domain::new(Config::default()).unwrap();
    let mut listener = domain.listen(LOCAL).unwrap();
    // A connection that says nothing, or something else, holds up nobody.
    let _silent = TcpStream::connect(listener.address()).unwrap();
    let mut web = TcpStream::connect(listener.address()).unwrap();
    web.write_all(&[b'G'; HELLO]).unwrap();
    let (mut stream, link) = raw(&mut listener, &domain);
    stream.write_all(&[0x17; 64]).unwrap();
    let error = link.serve(LONG, || false).unwrap_err();
    assert_eq!(error, TcpError::Peer(PeerError::NotAHeader { first: 0x17 }));
    // The peer is told that it was at fault.
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let goodbye = Header::decode(bytes.as_slice().try_into().unwrap()).unwrap();
    assert_eq!((goodbye.kind, goodbye.status), (Kind::Close, 1));
    let (stream, link) = raw(&mut listener, &domain);
    let to = HostBuf::region(8).unwrap();
    let received = link.irecv(&to).unwrap();
    drop(stream);
    let cut = Cut { socket: 0, missing: 0 };
    assert_eq!(link.wait(received, LONG), Err(TcpError::Cut(cut)));
    let refused = listener.last_refused().unwrap().to_string();
    assert!(refused.contains("magic \"GGGGGGGG\""), "{refused}");
}

#[test]
fn nobody_there_and_nonsense_are_typed_errors() {
    let domain = Domain::new(Config::default()).unwrap();
    let unused = std::net::TcpListener::bind(LOCAL).unwrap().local_addr().unwrap();
    let error = domain.connect(unused, LONG).unwrap_err();
    assert!(matches!(error, TcpError::Socket { what: "connecting", .. }), "{error}");
    let other = std::net::TcpListener::bind(LOCAL).unwrap();
    let address = other.local_addr().unwrap();
    // It accepts, by the system's queue, and says nothing.
    let silent = domain.connect(address, Duration::from_millis(50)).unwrap_err();
    assert!(matches!(silent, TcpError::Timeout { .. }), "{silent}");
    let bad = Domain::new(Config::default().sockets(0)).map(|_| ()).unwrap_err();
    assert!(matches!(bad, TcpError::Handshake(HandshakeError::BadField { .. })), "{bad}");
    let mut listener = domain.listen(LOCAL).unwrap();
    let nobody = listener.accept(&domain, Duration::from_millis(20)).unwrap_err();
    assert!(matches!(nobody, TcpError::Timeout { .. }), "{nobody}");
    let short = RemoteKey::from_bytes(&[0; 19]).unwrap_err();
    assert_eq!(short, TcpError::NotRemoteKey { len: 19, expected: 20 });
}

#[test]
fn a_link_that_another_thread_aborts_fails_what_waits_and_touches_nothing() {
    for pair in pairs(&Config::default()) {
        let Pair { ends, near, far, .. } = pair;
        let memory = HostBuf::region(4 << 20).unwrap();
        let registered = ends[1].register(&memory, Access::REMOTE_READ).unwrap();
        let into = HostBuf::region(4 << 20).unwrap();
        // Nobody serves it at the other end.
        let read = near.read(&into, registered.remote()).unwrap();
        std::thread::scope(|scope| {
            let serving = scope.spawn(|| near.serve(LONG, || false));
            near.abort();
            assert_eq!(serving.join().unwrap(), Err(TcpError::Aborted));
        });
        assert_eq!(near.wait(read, LONG), Err(TcpError::Aborted));
        assert_eq!(near.isend(&into).unwrap_err(), TcpError::Aborted);
        let gone = far.serve(LONG, || false).unwrap_err();
        assert!(gone.ends_link(), "{gone}");
        assert_eq!(bytes_of(&into), vec![0; 4 << 20]);
    }
}

#[test]
fn a_listener_is_closed_by_another_thread_while_it_waits() {
    let domain = Domain::new(Config::default()).unwrap();
    let mut listener = domain.listen(LOCAL).unwrap();
    let closer = listener.closer().unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| listener.accept(&domain, LONG).map(drop));
        closer.close();
        let closed = waiting.join().unwrap().unwrap_err();
        assert!(matches!(closed, TcpError::Socket { what: "accepting", .. }), "{closed}");
    });
}
