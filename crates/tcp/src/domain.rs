//! Domains: registered memory, and the listeners and connections that make links.

use super::engine::{Device, Engine};
use super::error::TcpError;
use super::keys::{Keys, RegisteredRegion};
use super::link::Link;
use super::listener::Listener;
use super::protocol::{Admission, HELLO, Hello, Invitations, Met, Offer, ReceiveWay, Stage};
use super::receive::Receive;
use socket2::SockRef;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;
use warpverbs_devmem::DeviceMemory;
use warpverbs_meet::{Deadline, Timed};
use warpverbs_mem::{Access, Region};

/// Between two attempts to reach a peer that does not listen yet.
const AGAIN: Duration = Duration::from_millis(100);
const CONNECTING: &str = "connecting";
const RESOLVING: &str = "resolving the name of the peer";

/// How a domain behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// The offer to peers: sockets, chunk, window.
    pub offer: Offer,
    /// How long a wait polls the sockets itself before it lets the system wake it.
    pub spin: Duration,
    /// Bytes asked of the system for the buffers of a socket, either direction; `None` leaves that
    /// to the system.
    pub buffer: Option<usize>,
    /// The secret that a listener asks for and that this end sends to listeners. The default, zeros,
    /// protects nothing. It is sent in the clear, so exchange it over a trusted channel.
    pub secret: [u8; 16],
    /// Pieces of messages and writes of at least this many bytes are sent without a copy
    /// (`MSG_ZEROCOPY`), until the kernel reports that it copies for this peer anyway, as over loopback.
    /// `None`, or more than a chunk: always copy.
    pub zerocopy: Option<u64>,
}

impl Default for Config {
    fn default() -> Self {
        // With one core, a polling thread keeps the peer from running.
        let alone = std::thread::available_parallelism().is_ok_and(|cores| cores.get() == 1);
        let spin = if alone { Duration::ZERO } else { Duration::from_micros(100) };
        let zerocopy = Some(Self::ZEROCOPY);
        Self { offer: Offer::default(), spin, buffer: None, secret: [0; 16], zerocopy }
    }
}

impl Config {
    /// Default of [`Config::zerocopy`]: from this length on, a send without a copy costs less than one
    /// with.
    const ZEROCOPY: u64 = 128 << 10;

    /// Sets the number of sockets of each link.
    pub fn sockets(mut self, sockets: u16) -> Self {
        self.offer.sockets = sockets;
        self
    }

    /// Sets the length of chunks, bytes.
    pub fn chunk(mut self, bytes: u32) -> Self {
        self.offer.chunk = bytes;
        self
    }

    /// Sets [`Config::zerocopy`], bytes.
    pub fn zerocopy(mut self, bytes: Option<u64>) -> Self {
        self.zerocopy = bytes;
        self
    }

    /// Sets the secret, which both ends have to know.
    pub fn secret(mut self, secret: [u8; 16]) -> Self {
        self.secret = secret;
        self
    }

    /// Sets the window: the bytes that a peer may send before they are received.
    pub fn window(mut self, bytes: u64) -> Self {
        self.offer.window = bytes;
        self
    }
}

/// Registered memory, and the links that may access it.
pub struct Domain {
    pub(super) keys: Keys,
    pub(super) config: Config,
    device: Option<DeviceMemory>,
    /// Why links receive as they do.
    why: Arc<str>,
}

impl Domain {
    /// A domain without links, which will receive into host memory.
    ///
    /// # Errors
    /// The offer breaks the limits of the handshake; the system gives no random bytes.
    pub fn new(config: Config) -> Result<Self, TcpError> {
        Self::receiving(config, Receive::default())
    }

    /// A domain whose links receive as `receive` says; [`Domain::why`] has the reason.
    ///
    /// # Errors
    /// As for [`Domain::new`].
    pub fn receiving(config: Config, receive: Receive) -> Result<Self, TcpError> {
        let (device, config, why) = match receive {
            Receive::Host(why) => (None, config, why),
            Receive::Device(device) => {
                let (way, sockets) = (ReceiveWay::DeviceMemory, config.offer.sockets);
                // Headers take a socket of their own.
                let sockets = if sockets == 1 { 2 } else { sockets };
                let offer = Offer { sockets, receive: way, ..config.offer };
                let why = device.sockets.describe().into();
                (Some(device), Config { offer, ..config }, why)
            }
        };
        // An offer that a peer would refuse is refused here.
        Hello::decode(&first(&config).encode())?;
        Ok(Self { keys: Keys::new()?, config, device, why })
    }

    /// Why links receive as they do, in one line.
    pub fn why(&self) -> &str {
        &self.why
    }

    /// Lets peers that know the key access `region` as [`Access::REMOTE_READ`] and
    /// [`Access::REMOTE_WRITE`] say.
    ///
    /// # Errors
    /// Too many keys are in use.
    pub fn register(&self, region: &Region, access: Access) -> Result<RegisteredRegion, TcpError> {
        RegisteredRegion::new(&self.keys, region, access)
    }

    /// The number of registered regions.
    pub fn registered(&self) -> usize {
        self.keys.count()
    }

    /// Waits for links at `address`; port 0 takes any free one.
    ///
    /// # Errors
    /// The system's, such as a port in use.
    pub fn listen(&self, address: SocketAddr) -> Result<Listener, TcpError> {
        Listener::bind(self, address, Admission::Secret(self.config.secret))
    }

    /// As [`Domain::listen`], for peers that have been invited: each begins one link with the
    /// secret of its invitation, [`Link::secret`].
    ///
    /// # Errors
    /// As for [`Domain::listen`].
    pub fn listen_for(
        &self,
        invitations: &Invitations,
        address: SocketAddr,
    ) -> Result<Listener, TcpError> {
        Listener::bind(self, address, Admission::Invited(invitations.clone()))
    }

    /// Connects to a listener, which has to accept within `timeout`.
    ///
    /// # Errors
    /// No process listens there; the peer speaks another protocol, refuses, or does not answer in time.
    pub fn connect(&self, address: SocketAddr, timeout: Duration) -> Result<Link, TcpError> {
        let deadline = Deadline::after(timeout);
        let offer = self.config.offer;
        let open = || self.open(address, deadline);
        let mut sockets = vec![open()?];
        say(&mut sockets[0], &first(&self.config))?;
        let answer = answer(&sockets[0], deadline)?;
        let agreed = offer.agree(&answer.offer);
        for socket in 1..agreed.sockets {
            let mut stream = open()?;
            let join = Hello { stage: Stage::Join, socket, token: answer.token, offer };
            // The numbers of the sockets agreed may exceed those offered.
            let sockets_of = Offer { sockets: agreed.sockets, ..offer };
            say(&mut stream, &Hello { offer: sockets_of, ..join })?;
            sockets.push(stream);
        }
        for socket in &sockets[1..] {
            self::answer(socket, deadline)?;
        }
        let (peer, secret) = (answer.offer, self.config.secret);
        self.begin(Met { agreed, peer, secret, sockets })
    }

    /// Connects to a host, by name or address, where a listener may begin later than this call.
    ///
    /// # Errors
    /// As for [`Domain::connect`]; no process listens there within `timeout`; the name has no address.
    pub fn reach(&self, host: &str, port: u16, timeout: Duration) -> Result<Link, TcpError> {
        let deadline = Deadline::after(timeout);
        let found = warpverbs_meet::resolve(host, port, deadline)
            .map_err(|error| TcpError::socket(RESOLVING)(io::Error::other(error.to_string())))?;
        self.reach_one(found, deadline)
    }

    /// As [`Domain::reach`], at one of these addresses. A listener may have one of several, as of IPv6
    /// and IPv4, and this host a way to one. They are tried in turns: one that does not answer leaves time for
    /// the others, and is tried again.
    fn reach_one(
        &self,
        mut addresses: Vec<SocketAddr>,
        deadline: Deadline,
    ) -> Result<Link, TcpError> {
        let mut failed = TcpError::socket(RESOLVING)(io::Error::other("the name has no address"));
        loop {
            let mut at = 0;
            while let (Some(address), Some(left)) = (addresses.get(at), deadline.remaining()) {
                let share = match addresses.len() {
                    1 => left,
                    several => (left / (several as u32 + 1)).max(AGAIN).min(left),
                };
                failed = match self.connect(*address, share) {
                    Err(TcpError::Timeout { what, .. }) => {
                        at += 1;
                        TcpError::Timeout { what, waited: deadline.timeout() }
                    }
                    Err(TcpError::Socket { what: CONNECTING, error }) => {
                        // A listener may begin there later.
                        match error.kind {
                            io::ErrorKind::ConnectionRefused | io::ErrorKind::TimedOut => at += 1,
                            _ => drop(addresses.remove(at)),
                        }
                        TcpError::Socket { what: CONNECTING, error }
                    }
                    outcome => return outcome,
                };
            }
            if addresses.is_empty() || deadline.remaining().is_none_or(|left| left <= AGAIN) {
                return Err(failed);
            }
            std::thread::sleep(AGAIN);
        }
    }

    pub(super) fn begin(&self, met: Met<TcpStream>) -> Result<Link, TcpError> {
        let (agreed, peer, secret) = (met.agreed, met.peer, met.secret);
        let device = self.device.as_ref().map(|device| {
            let receivers = met.sockets[1..].iter().map(|socket| device.sockets.receiver(socket));
            let receivers = receivers.collect::<Result<Vec<_>, _>>()?;
            Ok::<_, TcpError>(Device::new(device.gpu.clone(), device.unpack, receivers))
        });
        let engine =
            Engine::new(met, self.keys.clone(), device.transpose()?, self.config.zerocopy)?;
        // Steering has been tried by now, so the description includes its result.
        let why = self.device.as_ref().map(|device| device.sockets.describe().into());
        let (offers, why) = ([self.config.offer, peer], why.unwrap_or_else(|| self.why.clone()));
        Ok(Link::new(engine, agreed, secret, offers, why, self.config.spin))
    }

    fn open(&self, address: SocketAddr, deadline: Deadline) -> Result<TcpStream, TcpError> {
        let stream = warpverbs_meet::connect(address, left(deadline, CONNECTING)?);
        let stream = stream.map_err(TcpError::socket(CONNECTING))?;
        self.size(&stream).map_err(TcpError::socket("sizing the buffers of a socket"))?;
        Ok(stream)
    }

    /// Gives a socket buffers of the size that was asked for.
    pub(super) fn size(&self, stream: &TcpStream) -> io::Result<()> {
        let Some(bytes) = self.config.buffer else { return Ok(()) };
        let socket = SockRef::from(stream);
        socket.set_send_buffer_size(bytes)?;
        socket.set_recv_buffer_size(bytes)
    }
}

/// Waits for the peer's answer to a handshake message.
fn answer(stream: &TcpStream, deadline: Deadline) -> Result<Hello, TcpError> {
    let what = "the peer's answer to the handshake";
    let mut bytes = [0; HELLO];
    let read = Timed { stream, deadline }.read_exact(&mut bytes);
    read.map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => TcpError::Timeout { what, waited: deadline.timeout() },
        _ => TcpError::socket(what)(error),
    })?;
    Ok(Hello::decode_answer(&bytes)?)
}

fn first(config: &Config) -> Hello {
    Hello { stage: Stage::First, socket: 0, token: config.secret, offer: config.offer }
}

/// A handshake message fits the empty buffer of a new socket.
fn say(stream: &mut TcpStream, hello: &Hello) -> Result<(), TcpError> {
    stream.write_all(&hello.encode()).map_err(TcpError::socket("sending the handshake"))
}

/// The time that is left, which is not nothing.
pub(super) fn left(deadline: Deadline, what: &'static str) -> Result<Duration, TcpError> {
    deadline.remaining().ok_or(TcpError::Timeout { what, waited: deadline.timeout() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_way_there_keeps_nobody_from_the_next() {
        // Ends a hang alone.
        let long = Duration::from_secs(600);
        let [near, far] = [(); 2].map(|()| Domain::new(Config::default()).unwrap());
        let mut listener = far.listen(([127, 0, 0, 1], 0).into()).unwrap();
        let (address, closer) = (listener.address(), listener.closer().unwrap());
        // Nobody connects to a group.
        let group = SocketAddr::from(([224, 0, 0, 1], address.port()));
        std::thread::scope(|scope| {
            let accepted = scope.spawn(|| listener.accept(&far, long).map(drop));
            let reached = near.reach_one(vec![group, address], Deadline::after(long));
            reached.inspect_err(|_| closer.close()).unwrap();
            accepted.join().unwrap().unwrap();
        });
        let none = near.reach_one(vec![group], Deadline::after(long)).unwrap_err();
        assert!(matches!(none, TcpError::Socket { what: CONNECTING, .. }), "{none}");
    }

    #[test]
    fn a_silent_address_leaves_time_for_the_next() {
        let long = Duration::from_secs(12);
        let [near, far] = [(); 2].map(|()| Domain::new(Config::default()).unwrap());
        // The system takes connections, and nobody answers them.
        let mute = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let silent = mute.local_addr().unwrap();
        let mut listener = far.listen(([127, 0, 0, 1], 0).into()).unwrap();
        let (address, closer) = (listener.address(), listener.closer().unwrap());
        std::thread::scope(|scope| {
            let accepted = scope.spawn(|| listener.accept(&far, 10 * long).map(drop));
            let reached = near.reach_one(vec![silent, address], Deadline::after(long));
            reached.inspect_err(|_| closer.close()).unwrap();
            accepted.join().unwrap().unwrap();
        });
        let short = Duration::from_millis(500);
        let none = near.reach_one(vec![silent, silent], Deadline::after(short)).unwrap_err();
        let TcpError::Timeout { waited, .. } = none else { panic!("{none}") };
        assert_eq!(waited, short);
    }
}
