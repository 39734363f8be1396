//! Counters by HTTP: one thread, few connections, a request of bounded length and time on each.

use super::ending::{Ending, Source};
use super::request::{LONGEST, answer, decide};
use crate::AgentError;
use rustix::event::{PollFd, PollFlags};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};
use warpverbs_meet::{Arrival, Door, Guest, gives_way, poll, prepare};

/// Connections at a time. For another one the oldest of the address that has most is closed.
const MOST: usize = 16;
/// Time for a request to arrive, and again for its answer to be taken.
const LIMIT: Duration = Duration::from_secs(2);
/// Connections accepted in a turn.
const MOST_ACCEPTS: usize = 16;
/// Reads in a turn of a connection whose input is of no interest any more.
const MOST_READS: usize = 8;

enum Stage {
    /// The bytes of the request that have arrived.
    Reading(Vec<u8>),
    /// The answer, and how much of it is written.
    Writing(Vec<u8>, usize),
    /// All is written. Input is read until the other end closes: closing before would take the answer back.
    Leaving,
}

struct Visitor {
    stream: TcpStream,
    from: IpAddr,
    stage: Stage,
    until: Instant,
}

impl Visitor {
    /// Goes as far as it can without waiting; whether it stays.
    fn step(&mut self, source: &Source) -> bool {
        let step = match &mut self.stage {
            Stage::Reading(_) => self.read(source),
            Stage::Writing(..) => self.write(),
            Stage::Leaving => self.leave(),
        };
        match step {
            Ok(stays) => stays && self.until > Instant::now(),
            Err(error) => {
                let later = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted);
                later && self.until > Instant::now()
            }
        }
    }

    fn read(&mut self, source: &Source) -> io::Result<bool> {
        let Stage::Reading(bytes) = &mut self.stage else { return Ok(true) };
        loop {
            let mut more = [0; 2048];
            let room = more.len().min(LONGEST - bytes.len());
            let count = self.stream.read(&mut more[..room])?;
            bytes.extend_from_slice(&more[..count]);
            if let Some(asked) = decide(bytes) {
                self.stage = Stage::Writing(answer(&asked, source), 0);
                self.until = Instant::now() + LIMIT;
                return self.write();
            }
            if count == 0 {
                return Ok(false);
            }
        }
    }

    fn write(&mut self) -> io::Result<bool> {
        let Stage::Writing(bytes, done) = &mut self.stage else { return Ok(true) };
        while *done < bytes.len() {
            match self.stream.write(&bytes[*done..])? {
                0 => return Ok(false),
                count => *done += count,
            }
        }
        self.stream.shutdown(Shutdown::Write)?;
        self.stage = Stage::Leaving;
        self.leave()
    }

    fn leave(&mut self) -> io::Result<bool> {
        for _ in 0..MOST_READS {
            if self.stream.read(&mut [0; 4096])? == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn wants(&self) -> PollFlags {
        match self.stage {
            Stage::Writing(..) => PollFlags::OUT,
            _ => PollFlags::IN,
        }
    }
}

pub(super) struct Server {
    listener: TcpListener,
    address: SocketAddr,
    /// The oldest first.
    visitors: Vec<Visitor>,
    door: Door,
}

impl Server {
    pub(super) fn new(address: SocketAddr) -> Result<Self, AgentError> {
        let listener = warpverbs_meet::listen(address).map_err(|error| {
            let why = format!("metrics at {address}: {error}");
            AgentError::system("bind", io::Error::new(error.kind(), why))
        })?;
        let address = listener.local_addr();
        let address = address.map_err(|error| AgentError::system("listen", error))?;
        Ok(Self { listener, address, visitors: Vec::new(), door: Door::default() })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn serve(mut self, ending: &Ending, source: &Source) {
        while !ending.has_come() {
            self.wait(ending);
            self.visitors.retain_mut(|visitor| visitor.step(source));
            self.accept(source);
        }
    }

    /// Until something arrives, or a time is up.
    fn wait(&self, ending: &Ending) {
        let mut fds = vec![PollFd::new(&*ending.wake, PollFlags::IN)];
        fds.extend(self.visitors.iter().map(|one| PollFd::new(&one.stream, one.wants())));
        if self.door.closed_until().is_none() {
            fds.push(PollFd::new(&self.listener, PollFlags::IN));
        }
        let ends = self.visitors.iter().map(|one| one.until).chain(self.door.closed_until());
        let left = ends.min().map(|end| end.saturating_duration_since(Instant::now()));
        if poll(&mut fds, left).is_err() {
            // Out of memory for a moment.
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn accept(&mut self, source: &Source) {
        for _ in 0..MOST_ACCEPTS {
            match self.door.accept(&self.listener, || self.listener.accept()) {
                Arrival::Guest((stream, from)) => self.welcome(stream, from.ip(), source),
                // There is no descriptor: one of its own, or a pause.
                Arrival::Short if self.dismiss(1) => {}
                Arrival::Short => return self.door.close(),
                Arrival::Nobody | Arrival::Failed(_) => return,
            }
        }
    }

    fn welcome(&mut self, stream: TcpStream, from: IpAddr, source: &Source) {
        // One that fails already has gone.
        if stream.set_nonblocking(true).and_then(|()| prepare(&stream)).is_err() {
            return;
        }
        self.dismiss(MOST);
        let (stage, until) = (Stage::Reading(Vec::new()), Instant::now() + LIMIT);
        let mut visitor = Visitor { stream, from, stage, until };
        if visitor.step(source) {
            self.visitors.push(visitor);
        }
    }

    /// Closes one if there are so many; whether it did.
    fn dismiss(&mut self, most: usize) -> bool {
        let guests = self.visitors.iter().enumerate().map(|(at, one)| Guest {
            at,
            // One that has asked properly goes last.
            greeted: !matches!(one.stage, Stage::Reading(_)),
            address: one.from,
        });
        let Some(at) = gives_way(guests, most) else { return false };
        drop(self.visitors.remove(at));
        true
    }
}
