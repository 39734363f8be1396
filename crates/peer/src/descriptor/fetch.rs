//! The asker's side: the ways by which a descriptor may come.

use super::{Address, Answer, HELLO, Secrets, Ticket, Trust};
use crate::{Identity, Introduction, Reason};
use rustix::event::{PollFd, PollFlags};
use rustix::fs::fstat;
use rustix::net::{SocketAddrUnix, SocketFlags};
use rustix::process::{
    Pid, PidfdFlags, PidfdGetfdFlags, Resource, getrlimit, pidfd_getfd, pidfd_open,
};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use warpverbs_meet::{poll, unix};

/// How a descriptor comes from one process to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Way {
    /// By a unix socket that only has a name.
    AbstractSocket,
    /// By a unix socket in a directory.
    PathSocket,
    /// Taken out of the other process.
    PidfdGetfd,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AbstractSocket => "abstract socket",
            Self::PathSocket => "path socket",
            Self::PidfdGetfd => "pidfd_getfd",
        })
    }
}

/// A descriptor of another process.
#[derive(Debug)]
pub struct Fetched {
    /// The descriptor. Close-on-exec.
    pub fd: OwnedFd,
    /// How it came.
    pub by: Way,
    /// The ways that failed, with reasons.
    pub tried: Vec<Reason>,
}

/// Pause between attempts on a server that is busy.
const PAUSE: Duration = Duration::from_millis(1);

/// Fetches what `ticket` names from `peer`, which is believed as far as `trust` says. `own` is this
/// process.
///
/// # Errors
/// For each way, why it did not work.
pub fn fetch(
    own: &Identity,
    peer: &Introduction,
    trust: Trust<'_>,
    ticket: &Ticket,
    deadline: Instant,
) -> Result<Fetched, Vec<Reason>> {
    let mut tried = Vec::new();
    for by in [Way::AbstractSocket, Way::PathSocket, Way::PidfdGetfd] {
        // No way uses up the time of the next.
        let now = Instant::now();
        let until = now + deadline.saturating_duration_since(now) / 2;
        match fetch_by(by, own, peer, trust, ticket, until) {
            Ok(fd) => return Ok(Fetched { fd, by, tried }),
            Err(why) => tried.push(Reason::new(by.to_string(), why)),
        }
    }
    let (own, peer) = (&own.net_namespace, &peer.identity.net_namespace);
    if own != peer {
        tried[0].why += &format!("; network namespaces differ ({own}, {peer})");
    }
    Err(tried)
}

/// As [`fetch`], by one way alone.
///
/// # Errors
/// Why it did not work.
pub fn fetch_by(
    way: Way,
    own: &Identity,
    peer: &Introduction,
    trust: Trust<'_>,
    ticket: &Ticket,
    deadline: Instant,
) -> Result<OwnedFd, String> {
    let server = &peer.server;
    let secrets = match trust {
        Trust::Launch => server.secrets(),
        Trust::Proven { secrets, .. } => secrets,
    };
    let fd = match way {
        Way::AbstractSocket => ask(&abstract_socket(server)?, &secrets, ticket, deadline),
        Way::PathSocket => ask(&path_socket(server)?, &secrets, ticket, deadline),
        Way::PidfdGetfd => take(own, &peer.identity, trust, ticket),
    }?;
    is_meant(&fd, ticket).map(|()| fd)
}

fn abstract_socket(server: &Address) -> Result<SocketAddrUnix, String> {
    let name = server.abstract_name.as_ref().map_err(|why| format!("the owner has none: {why}"))?;
    SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(|errno| errno.to_string())
}

fn path_socket(server: &Address) -> Result<SocketAddrUnix, String> {
    let path = server.path.as_ref().map_err(|why| format!("the owner has none: {why}"))?;
    SocketAddrUnix::new(path.as_str()).map_err(|errno| errno.to_string())
}

/// Whether it is the owner's file. All descriptors of a GPU's driver look alike.
fn is_meant(fd: &OwnedFd, ticket: &Ticket) -> Result<(), String> {
    let stat = fstat(fd).map_err(|errno| errno.to_string())?;
    match (stat.st_dev, stat.st_ino) == (ticket.device, ticket.inode) {
        true => Ok(()),
        false => Err("another file than the owner offered".to_owned()),
    }
}

/// Asks a server, again if it was too busy.
fn ask(
    to: &SocketAddrUnix,
    secrets: &Secrets,
    ticket: &Ticket,
    deadline: Instant,
) -> Result<OwnedFd, String> {
    loop {
        match ask_once(to, secrets, ticket, deadline) {
            Ok(Some(fd)) => return Ok(fd),
            Ok(None) if Instant::now() < deadline => std::thread::sleep(PAUSE),
            Ok(None) => return Err("the owner's server is busy, or answers no request".to_owned()),
            Err(why) => return Err(why),
        }
    }
}

/// None if the server was busy.
fn ask_once(
    to: &SocketAddrUnix,
    secrets: &Secrets,
    ticket: &Ticket,
    deadline: Instant,
) -> Result<Option<OwnedFd>, String> {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, Interrupted, InvalidData, WouldBlock};
    let say = |call: &'static str| move |error: io::Error| format!("{call}: {error}");
    let socket = match unix::connect(to, SocketFlags::NONBLOCK) {
        Ok(socket) => socket,
        Err(error) if matches!(error.kind(), WouldBlock | Interrupted) => return Ok(None),
        Err(error) => return Err(say("connect")(error)),
    };
    match unix::send(&socket, &HELLO, &(secrets.ask, ticket.id), &[] as &[OwnedFd]) {
        // It may have answered before it closed the connection.
        Err(error)
            if !matches!(error.kind(), BrokenPipe | ConnectionReset | WouldBlock | Interrupted) =>
        {
            return Err(say("send")(error));
        }
        _ => {}
    }
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(left)).map_err(say("poll"))? {
            0 if left.is_zero() => return Err("no answer in time".to_owned()),
            0 => {}
            _ => break,
        }
    }
    let mut got = match unix::receive(&socket, &HELLO) {
        Ok(received) => received,
        Err(error) if matches!(error.kind(), WouldBlock | Interrupted | ConnectionReset) => {
            return Ok(None);
        }
        Err(error) if error.kind() == InvalidData => {
            return Err(format!(
                "the process that answers does not speak the owner's protocol: {error}"
            ));
        }
        Err(error) => return Err(say("recvmsg")(error)),
    };
    // Cut off by a server with too many askers.
    let Some(answer) = got.value else { return Ok(None) };
    if let Answer::Granted(shown) | Answer::Unknown(shown) = answer
        && shown != secrets.answer
    {
        return Err("the process that answers does not know the owner's secret".to_owned());
    }
    match (answer, got.fds.pop()) {
        (Answer::Granted(_), Some(fd)) if !got.truncated => Ok(Some(fd)),
        (Answer::Granted(_), _) => {
            let limit = getrlimit(Resource::Nofile).current;
            let limit = limit.map_or_else(|| "any number".to_owned(), |limit| limit.to_string());
            Err(format!(
                "the descriptor was lost on the way (MSG_CTRUNC): this process may have {limit} of \
                 them (ulimit -n)"
            ))
        }
        (Answer::Unknown(_), _) => Err("the owner no longer offers it".to_owned()),
        (Answer::OtherUser, _) => Err("the owner is another user's process".to_owned()),
        (Answer::Full, _) => Err("the owner has no file descriptor left".to_owned()),
        (Answer::Stranger, _) => {
            Err("the process that answers grants nothing to this one".to_owned())
        }
    }
}

/// Takes it out of the owner.
fn take(
    own: &Identity,
    owner: &Identity,
    trust: Trust<'_>,
    ticket: &Ticket,
) -> Result<OwnedFd, String> {
    let (ours, theirs) = (&own.pid_namespace, &owner.pid_namespace);
    if ours.is_empty() || ours != theirs {
        return Err(format!("PID namespaces differ ({ours}, {theirs})"));
    }
    if ticket.raw < 0 {
        return Err(format!("the ticket has descriptor {}, expected 0 or more", ticket.raw));
    }
    let opened;
    let process = match trust {
        Trust::Proven { process, .. } => process.map_err(str::to_owned)?,
        Trust::Launch => {
            let pid = i32::try_from(owner.pid).ok().and_then(Pid::from_raw);
            let pid = pid.ok_or_else(|| {
                format!("the owner's process number is {}, expected 1 to 2^31 - 1", owner.pid)
            })?;
            opened = pidfd_open(pid, PidfdFlags::empty())
                .map_err(|errno| format!("pidfd_open: {}", io::Error::from(errno)))?;
            // A privileged process could take descriptors of all users, and the number is only the peer's
            // claim. If another process has the number by now, its user is compared, and the descriptor's
            // inode too.
            match warpverbs_mem::same_user(owner.pid) {
                Ok(true) => opened.as_fd(),
                Ok(false) => return Err(format!("process {} is another user's", owner.pid)),
                Err(error) => return Err(format!("the user of process {}: {error}", owner.pid)),
            }
        }
    };
    pidfd_getfd(process, ticket.raw, PidfdGetfdFlags::empty()).map_err(|errno| {
        let denied = errno == rustix::io::Errno::PERM;
        let hint = if denied { " (needs the right to trace the owner)" } else { "" };
        format!("{}{hint}", io::Error::from(errno))
    })
}
