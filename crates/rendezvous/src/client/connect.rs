//! From a name to a connection that speaks the protocol.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::protocol::{MAGIC, ReplyError, Request, read, refused};
use warpverbs_meet::{Deadline, ResolveError, Timed, is_out_of_descriptors, resolve};

/// Why there is no connection to a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "fields are named by what they are")]
pub enum ConnectError {
    /// The host's name gave no address.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// The connection was refused until the deadline.
    #[error(
        "nobody listens at {host}:{port} (tried for {waited:.1?}, {attempts} times); is rank 0 running, and does the address belong to it?"
    )]
    Refused { host: String, port: u16, waited: Duration, attempts: u32 },
    /// No connection for another reason, until the deadline.
    #[error("no connection to {host}:{port} within {waited:.1?} ({attempts} attempts): {cause}")]
    Unreachable { host: String, port: u16, waited: Duration, attempts: u32, cause: io::Error },
    /// This process cannot open a socket at all.
    #[error("no socket to connect to {host}:{port} with: {cause}")]
    NoSocket { host: String, port: u16, cause: io::Error },
    /// The store accepts no more connections.
    #[error("the store at {peer} refuses the connection: {why} (asked {attempts} times)")]
    TurnedAway { peer: SocketAddr, why: String, attempts: u32 },
    /// Something else listens there.
    #[error(
        "the peer at {peer} does not speak the store's protocol: to a ping it answered {got:#010x}, expected {expected:#010x}"
    )]
    NotAStore { peer: SocketAddr, got: u32, expected: u32 },
    /// The peer ends every connection before the handshake is over.
    #[error(
        "the peer at {peer} ended {times} connections during the handshake: it is not a store, or is stopping"
    )]
    Closed { peer: SocketAddr, times: u32 },
    /// The peer accepts connections and answers nothing.
    #[error(
        "the peer at {peer} did not answer the handshake within {waited:.1?}: its process is stopped or out of file descriptors, or it is not a store"
    )]
    Silent { peer: SocketAddr, waited: Duration },
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

/// How long a store that turns connections away is asked again: others may be leaving it.
const TURNED_AWAY: Duration = Duration::from_secs(5);

/// An attempt of this length that timed out says more than an earlier refusal.
const TELLING: Duration = Duration::from_secs(1);

/// Why one attempt failed.
enum Failed {
    /// There is no connection.
    Io(io::Error),
    /// It was closed before the handshake was over.
    Closed,
    /// The store closed it and said why.
    TurnedAway(String),
    /// Trying again makes no difference.
    ForGood(ConnectError),
}

/// Tries until a store answers or `deadline` has passed; the store may begin to listen later.
pub(super) fn connect(
    host: &str,
    port: u16,
    deadline: Deadline,
) -> Result<TcpStream, ConnectError> {
    let (mut pause, mut attempts, mut closed) = (FIRST_PAUSE, 0, 0);
    let mut failure: Option<io::Error> = None;
    let mut turned_away: Option<(Instant, ConnectError)> = None;
    loop {
        // Anew each time: the name of a host that is being set up may change its address.
        let (addrs, unresolved) = match resolve(host, port, deadline) {
            Ok(addrs) => (addrs, None),
            Err(error) if deadline.waited() > NAME => return Err(error.into()),
            Err(error) => (Vec::new(), Some(error)),
        };
        for peer in addrs {
            attempts += 1;
            let began = Instant::now();
            match attempt(peer, deadline) {
                Ok(stream) => return Ok(stream),
                // A handshake that the deadline cut short says less than an earlier refusal.
                Err(Failed::ForGood(ConnectError::Silent { .. }))
                    if turned_away.is_some() && deadline.remaining().is_none() => {}
                Err(Failed::ForGood(error)) => return Err(error),
                Err(Failed::Closed) => {
                    closed += 1;
                    if closed == CLOSED_AT_MOST {
                        return Err(ConnectError::Closed { peer, times: closed });
                    }
                }
                Err(Failed::TurnedAway(why)) => {
                    let since = turned_away.map_or(began, |(since, _)| since);
                    let error = ConnectError::TurnedAway { peer, why, attempts };
                    if since.elapsed() > TURNED_AWAY {
                        return Err(error);
                    }
                    turned_away = Some((since, error));
                }
                Err(Failed::Io(cause)) if is_out_of_descriptors(&cause) => {
                    return Err(ConnectError::NoSocket { host: host.into(), port, cause });
                }
                // An attempt that the deadline cut short does not say why the others failed.
                Err(Failed::Io(error))
                    if failure.is_some()
                        && error.kind() == io::ErrorKind::TimedOut
                        && began.elapsed() < TELLING => {}
                Err(Failed::Io(error)) => failure = Some(error),
            }
        }
        let Some(left) = deadline.remaining() else {
            let given_up = (host, port, deadline.waited(), attempts);
            return Err(match (turned_away, unresolved) {
                (Some((_, error)), _) => error,
                (None, Some(error)) => error.into(),
                (None, None) => last(given_up, failure),
            });
        };
        thread::sleep(pause.min(left));
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// The error of a deadline that passed, by the last failure that says something.
fn last(
    (host, port, waited, attempts): (&str, u16, Duration, u32),
    failure: Option<io::Error>,
) -> ConnectError {
    let host = host.to_owned();
    let cause = failure.unwrap_or_else(|| io::ErrorKind::ConnectionReset.into());
    match cause.kind() {
        io::ErrorKind::ConnectionRefused => ConnectError::Refused { host, port, waited, attempts },
        _ => ConnectError::Unreachable { host, port, waited, attempts, cause },
    }
}

fn attempt(peer: SocketAddr, deadline: Deadline) -> Result<TcpStream, Failed> {
    let left = deadline.remaining().ok_or(Failed::Io(io::ErrorKind::TimedOut.into()))?;
    let stream = warpverbs_meet::connect(peer, left.min(ATTEMPT)).map_err(Failed::Io)?;
    let shaken = Deadline::after(left.min(HANDSHAKE));
    match handshake(&mut Timed { stream: &stream, deadline: shaken }) {
        Ok((got, expected)) if got == expected => Ok(stream),
        Ok((got, expected)) => {
            Err(Failed::ForGood(ConnectError::NotAStore { peer, got, expected }))
        }
        Err(ReplyError::Refused { why }) => Err(Failed::TurnedAway(why)),
        Err(ReplyError::Io(error)) if error.kind() == io::ErrorKind::TimedOut => {
            Err(Failed::ForGood(ConnectError::Silent { peer, waited: shaken.waited() }))
        }
        Err(_) => Err(Failed::Closed),
    }
}

/// Validates and pings. Gives the reply and what it should be.
fn handshake(stream: &mut Timed<'_>) -> Result<(u32, u32), ReplyError> {
    let nonce = refused::nonce(std::process::id());
    let mut bytes = Vec::new();
    Request::<&[u8]>::Validate { magic: MAGIC }.emit(&mut bytes);
    Request::<&[u8]>::Ping { nonce }.emit(&mut bytes);
    if let Err(error) = stream.write_all(&bytes) {
        // A store that turns connections away may have said why, and closed this one, before.
        return Err(read::reason(stream).unwrap_or(error.into()));
    }
    Ok((read::word(stream)?, nonce))
}
