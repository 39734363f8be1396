//! Handshakes without sockets: what is agreed, and what is refused.

use std::net::IpAddr;
use warpverbs_meet::HelloError;
use warpverbs_tcp::protocol::{
    Admission, Framing, HELLO, HandshakeError, Hello, Invitations, Meeting, NotAccepted, Offer,
    ReceiveWay, Stage, VERSION,
};

/// The secret of the listener.
const SECRET: [u8; 16] = [0xa5; 16];

fn first(offer: Offer) -> [u8; HELLO] {
    Hello { stage: Stage::First, socket: 0, token: SECRET, offer }.encode()
}

fn join(socket: u16, token: [u8; 16]) -> [u8; HELLO] {
    let offer = Offer { sockets: 8, ..Offer::default() };
    Hello { stage: Stage::Join, socket, token, offer }.encode()
}

/// A listener that keeps the answers.
struct Listener {
    meeting: Meeting<&'static str>,
    answers: Vec<Result<Hello, HandshakeError>>,
}

impl Listener {
    fn new(offer: Offer) -> Self {
        Self::admitting(offer, Admission::Secret(SECRET))
    }

    fn admitting(offer: Offer, admission: Admission) -> Self {
        Self { meeting: Meeting::new(offer, admission), answers: Vec::new() }
    }

    fn hello(
        &mut self,
        bytes: &[u8; HELLO],
        name: &'static str,
    ) -> Result<Option<Vec<&'static str>>, HandshakeError> {
        self.hello_from([10, 0, 0, 1], bytes, name)
    }

    fn hello_from(
        &mut self,
        source: impl Into<IpAddr>,
        bytes: &[u8; HELLO],
        name: &'static str,
    ) -> Result<Option<Vec<&'static str>>, HandshakeError> {
        let answers = &mut self.answers;
        let random = [answers.len() as u8 + 1; 16];
        let met = self.meeting.hello(bytes, name, source.into(), random, 0, |_, answer| {
            answers.push(Hello::decode_answer(answer));
        })?;
        Ok(met.map(|met| met.sockets))
    }
}

#[test]
fn only_who_knows_the_secret_begins_a_link() {
    let mut listener = Listener::new(Offer { sockets: 1, ..Offer::default() });
    let offer = Offer::default();
    for wrong in [[0; 16], [0xa4; 16]] {
        let hello = Hello { stage: Stage::First, socket: 0, token: wrong, offer };
        let refused = listener.hello(&hello.encode(), "stranger");
        assert_eq!(refused, Err(HandshakeError::UnknownToken));
    }
    // Nor does the secret lead to a link that is being set up.
    assert_eq!(listener.hello(&join(1, SECRET), "thief"), Err(HandshakeError::UnknownToken));
    assert_eq!(listener.hello(&first(offer), "peer"), Ok(Some(vec!["peer"])));
}

#[test]
fn an_invitation_is_for_one_link() {
    let invitations = Invitations::default();
    let admission = Admission::Invited(invitations.clone());
    let mut listener = Listener::admitting(Offer { sockets: 2, ..Offer::default() }, admission);
    let hello = first(Offer::default());
    assert_eq!(listener.hello(&hello, "early"), Err(HandshakeError::UnknownToken));
    invitations.add(SECRET);
    assert_eq!(listener.hello(&hello, "peer0"), Ok(None));
    // In the middle of the handshake already.
    assert!(!invitations.revoke(&SECRET));
    assert_eq!(listener.hello(&hello, "again"), Err(HandshakeError::UnknownToken));
    assert_eq!(listener.hello(&join(1, [2; 16]), "peer1"), Ok(Some(vec!["peer0", "peer1"])));
    assert_eq!(listener.hello(&hello, "again"), Err(HandshakeError::UnknownToken));
    invitations.add(SECRET);
    assert!(invitations.revoke(&SECRET));
    assert_eq!(listener.hello(&hello, "revoked"), Err(HandshakeError::UnknownToken));
}

/// Where anybody may connect, one host does not keep the others out, however many addresses it has.
#[test]
fn the_source_of_a_flood_loses_its_own() {
    let (two, open) = (Offer { sockets: 2, ..Offer::default() }, [0; 16]);
    let hello = Hello { stage: Stage::First, socket: 0, token: open, offer: two }.encode();
    let (peer, other) = ([10, 0, 0, 2], [10, 0, 0, 4]);
    let host = |_| IpAddr::from([10, 0, 0, 3]);
    let subnet = |n| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, n]);
    let floods: [&dyn Fn(u16) -> IpAddr; 2] = [&host, &subnet];
    for flood in floods {
        let mut listener = Listener::admitting(two, Admission::Secret(open));
        assert_eq!(listener.hello_from(peer, &hello, "peer0"), Ok(None));
        for n in 0..200 {
            assert_eq!(listener.hello_from(flood(n), &hello, "flood"), Ok(None), "{n}");
        }
        assert_eq!(listener.hello_from(other, &hello, "other0"), Ok(None));
        let joined = listener.hello_from(peer, &join(1, [1; 16]), "peer1");
        assert_eq!(joined, Ok(Some(vec!["peer0", "peer1"])));
        let joined = listener.hello_from(other, &join(1, [202; 16]), "other1");
        assert_eq!(joined, Ok(Some(vec!["other0", "other1"])));
    }
}

#[test]
fn sockets_find_their_link_in_any_order() {
    let mut listener = Listener::new(Offer { sockets: 3, ..Offer::default() });
    assert_eq!(listener.hello(&first(Offer { sockets: 8, ..Offer::default() }), "a0"), Ok(None));
    assert_eq!(listener.hello(&first(Offer { sockets: 2, ..Offer::default() }), "b0"), Ok(None));
    assert_eq!(listener.hello(&join(2, [1; 16]), "a2"), Ok(None));
    assert_eq!(listener.hello(&join(1, [2; 16]), "b1"), Ok(Some(vec!["b0", "b1"])));
    assert_eq!(listener.hello(&join(1, [1; 16]), "a1"), Ok(Some(vec!["a0", "a1", "a2"])));
    let refused = listener.hello(&join(1, [1; 16]), "late");
    assert_eq!(refused, Err(HandshakeError::UnknownToken));
    let last = listener.answers.pop().unwrap();
    assert_eq!(last, Err(HandshakeError::Refused(NotAccepted::UnknownToken)));
    assert!(listener.answers.iter().all(Result::is_ok));
}

#[test]
fn sockets_of_nobody_are_refused() {
    let mut listener = Listener::new(Offer { sockets: 3, ..Offer::default() });
    listener.hello(&first(Offer { sockets: 3, ..Offer::default() }), "a0").unwrap();
    let foreign = listener.hello(&join(1, [9; 16]), "foreign");
    assert_eq!(foreign, Err(HandshakeError::UnknownToken));
    let twice = listener.hello(&join(0, [1; 16]), "twice");
    assert_eq!(twice, Err(HandshakeError::Duplicate { socket: 0 }));
    let mut far = Hello { stage: Stage::Join, socket: 7, token: [1; 16], offer: Offer::default() };
    far.offer.sockets = 9;
    let beyond = listener.hello(&far.encode(), "beyond");
    assert!(matches!(beyond, Err(HandshakeError::BadField { value: 7, .. })), "{beyond:?}");
    listener.meeting.expire(1);
    assert_eq!(listener.hello(&join(1, [1; 16]), "late"), Err(HandshakeError::UnknownToken));
    for n in 0..64 {
        assert_eq!(listener.hello(&first(Offer::default()), "many"), Ok(None), "{n}");
    }
    let busy = listener.hello(&first(Offer::default()), "one more");
    assert_eq!(busy, Err(HandshakeError::Busy { most: 64 }));
}

#[test]
fn other_protocols_versions_and_values_are_refused() {
    let good = first(Offer::default());
    let with = |at: usize, bytes: &[u8]| {
        let mut message = good;
        message[at..at + bytes.len()].copy_from_slice(bytes);
        Hello::decode(&message)
    };
    let http = with(0, b"GET / HT");
    let other = HelloError::Program { found: b"GET / HT".into(), expected: b"WVDEV\r\n\x1a" };
    assert_eq!(http, Err(other.into()));
    let newer = with(8, &[9, 1]);
    let version = HelloError::Version { found: 0x109, expected: VERSION };
    assert_eq!(newer, Err(version.into()));
    let fields: [(usize, &[u8]); 11] = [
        (10, &[0]),
        (10, &[5]),
        (11, &[1]),
        (12, &[9]),
        (14, &[0, 0]),
        (14, &[65, 0]),
        (16, &[0, 0, 0, 0]),
        (20, &[0, 0, 0, 0]),
        (24, &[0; 8]),
        (33, &[0]),
        (33, &[1]),
    ];
    for (at, bytes) in fields {
        let refused = with(at, bytes);
        assert!(matches!(refused, Err(HandshakeError::BadField { .. })), "{at}: {refused:?}");
    }
    // Any byte changed is refused or read back as it is.
    for at in 0..HELLO {
        for value in 0..=255 {
            if let Ok(hello) = with(at, &[value])
                && !(34..48).contains(&at)
            {
                assert_eq!(hello.encode()[at], value, "byte {at}");
            }
        }
    }
}

#[test]
fn ends_of_different_abilities_agree_from_both_sides() {
    let device = Offer {
        sockets: 4,
        receive: ReceiveWay::DeviceMemory,
        window: 1 << 20,
        ..Offer::default()
    };
    let host = Offer { sockets: 1, chunk: 1 << 17, open: 9, ..Offer::default() };
    let (near, far) = (device.agree(&host), host.agree(&device));
    assert_eq!((near.receive, near.send), (Framing::Separate, Framing::Inline));
    assert_eq!((far.receive, far.send), (Framing::Inline, Framing::Separate));
    assert_eq!((near.sockets, far.sockets), (2, 2), "headers need a socket of their own");
    assert_eq!((near.chunk, near.open), (1 << 17, 9));
    assert_eq!((far.chunk, far.open), (1 << 17, 9));
    assert_eq!((near.window, near.peer_window), (far.peer_window, far.window));
}
