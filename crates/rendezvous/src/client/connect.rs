//! From a name to a connection that speaks the protocol.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use crate::protocol::{MAGIC, Request};
use crate::resolve::resolve;
use crate::socket::{Timed, prepare};
use crate::{Deadline, ResolveError};

/// Why there is no connection to a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The host's name gave no address.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// Nobody listens there, and nobody began to before the deadline.
    #[error(
        "nobody listens at {host}:{port} (tried for {waited:.1?}, {attempts} times); is rank 0 running, and does the address belong to it?"
    )]
    Refused {
        /// Host as given.
        host: String,
        /// Port as given.
        port: u16,
        /// How long it was tried.
        waited: Duration,
        /// How often it was tried.
        attempts: u32,
    },
    /// No connection for another reason, until the deadline.
    #[error("no connection to {host}:{port} within {waited:.1?} ({attempts} attempts): {cause}")]
    Unreachable {
        /// Host as given.
        host: String,
        /// Port as given.
        port: u16,
        /// How long it was tried.
        waited: Duration,
        /// How often it was tried.
        attempts: u32,
        /// What the last attempt gave.
        cause: io::Error,
    },
    /// Somebody else listens there.
    #[error("the peer at {peer} does not speak the store's protocol: to a ping it {answer}")]
    NotAStore {
        /// Its address.
        peer: SocketAddr,
        /// What it did.
        answer: Answer,
    },
}

/// What a peer did that is no store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Answer {
    /// Sent other bytes.
    #[error("answered {got:#010x}, expected {expected:#010x}")]
    Bytes {
        /// The first four.
        got: u32,
        /// What a store would have sent.
        expected: u32,
    },
    /// Ended the connection.
    #[error("ended the connection")]
    Closed,
    /// Nothing, within this time.
    #[error("said nothing for {0:.1?}")]
    Silent(Duration),
}

/// Pause before the second attempt; each further one is twice as long, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long a single address may take, so that a dead one does not keep us from the next.
const ATTEMPT: Duration = Duration::from_secs(10);

/// How long a peer may take to answer the handshake: a store that all ranks reach at once is slow.
const HANDSHAKE: Duration = Duration::from_secs(30);

/// How long a name may have no address: that of a host that is being set up comes late, that of one
/// that is misspelt never.
const NAME: Duration = Duration::from_secs(15);

/// How often a peer may end the connection within the handshake before it counts as no store: a
/// store that is just going down does so as well.
const CLOSED_AT_MOST: u32 = 3;

/// Tries until a store answers or `deadline` has passed; the store may begin to listen later.
pub(super) fn connect(
    host: &str,
    port: u16,
    deadline: Deadline,
) -> Result<TcpStream, ConnectError> {
    let (mut pause, mut attempts, mut closed) = (FIRST_PAUSE, 0, 0);
    let mut failure: Option<io::Error> = None;
    loop {
        // Anew each time: the name of a host that is being set up may change its address.
        let (addrs, unresolved) = match resolve(host, port, deadline) {
            Ok(addrs) => (addrs, None),
            Err(error) if deadline.waited() > NAME => return Err(error.into()),
            Err(error) => (Vec::new(), Some(error)),
        };
        for addr in addrs {
            attempts += 1;
            match attempt(addr, deadline) {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(answer)) => {
                    closed += u32::from(answer == Answer::Closed);
                    if answer != Answer::Closed || closed == CLOSED_AT_MOST {
                        return Err(ConnectError::NotAStore { peer: addr, answer });
                    }
                }
                // An attempt that the deadline cut short does not say why the others failed.
                Err(error) if failure.is_some() && error.kind() == io::ErrorKind::TimedOut => {}
                Err(error) => failure = Some(error),
            }
        }
        let Some(left) = deadline.remaining() else {
            if let Some(error) = unresolved {
                return Err(error.into());
            }
            let (host, waited) = (host.to_owned(), deadline.waited());
            let cause = failure.unwrap_or_else(|| io::ErrorKind::ConnectionReset.into());
            return Err(match cause.kind() {
                io::ErrorKind::ConnectionRefused => {
                    ConnectError::Refused { host, port, waited, attempts }
                }
                _ => ConnectError::Unreachable { host, port, waited, attempts, cause },
            });
        };
        thread::sleep(pause.min(left));
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn attempt(addr: SocketAddr, deadline: Deadline) -> io::Result<Result<TcpStream, Answer>> {
    let left = deadline.remaining().ok_or(io::ErrorKind::TimedOut)?;
    let stream = TcpStream::connect_timeout(&addr, left.min(ATTEMPT))?;
    // The kernel may connect a socket to itself where nobody listens on an ephemeral port.
    if stream.local_addr()? == stream.peer_addr()? {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    prepare(&stream)?;
    let shaken = Deadline::after(left.min(HANDSHAKE));
    match handshake(&mut Timed { stream: &stream, deadline: shaken }) {
        Ok((got, expected)) if got == expected => Ok(Ok(stream)),
        Ok((got, expected)) => Ok(Err(Answer::Bytes { got, expected })),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => {
            Ok(Err(Answer::Silent(shaken.waited())))
        }
        Err(_) => Ok(Err(Answer::Closed)),
    }
}

/// Validates and pings. Gives the reply and what it should be.
fn handshake(stream: &mut Timed<'_>) -> io::Result<(u32, u32)> {
    let nonce = std::process::id();
    let mut bytes = Vec::new();
    Request::<&[u8]>::Validate { magic: MAGIC }.emit(&mut bytes);
    Request::<&[u8]>::Ping { nonce }.emit(&mut bytes);
    stream.write_all(&bytes)?;
    let mut reply = [0; 4];
    stream.read_exact(&mut reply)?;
    Ok((u32::from_le_bytes(reply), nonce))
}
