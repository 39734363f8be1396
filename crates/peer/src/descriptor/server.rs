//! The owner's side: a thread that hands out descriptors.

use super::{Address, Answer, HELLO, Secrets, Ticket, files};
use rustix::event::{PollFd, PollFlags};
use rustix::fs::fstat;
use rustix::net::{SocketAddrUnix, SocketFlags};
use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use warpverbs_meet::unix::{self, Received};
use warpverbs_meet::{Arrival, Door, Wake, poll};

/// Askers that are connected at a time: for one more, the one that came first is cut off.
const MOST_ASKERS: usize = 64;
/// An asker that has sent no request within this time is cut off.
const PATIENCE: Duration = Duration::from_secs(2);
pub(super) const FLAGS: SocketFlags = SocketFlags::NONBLOCK;

/// Askers whose secrets are kept: for one more, those of the first are forgotten.
const MOST_GRANTS: usize = 1024;

type Offers = Arc<Mutex<Offered>>;

/// Descriptors that are handed out, and the askers that may have them.
#[derive(Debug, Default)]
struct Offered {
    descriptors: HashMap<u64, Arc<OwnedFd>>,
    /// Secrets of single askers, and what they may have.
    grants: VecDeque<(Secrets, Vec<u64>)>,
}

/// Hands out descriptors to other processes of the same user, until it is dropped.
#[derive(Debug)]
pub struct DescriptorServer {
    address: Address,
    offers: Offers,
    next: u64,
    /// Ends the thread.
    stop: Arc<Wake>,
    thread: Option<JoinHandle<()>>,
    path: Option<PathBuf>,
}

impl DescriptorServer {
    /// Starts one that offers nothing yet. Where a socket cannot be made, the [`Address`] says why.
    ///
    /// # Errors
    /// The system gives no random bytes, no thread or no descriptors.
    pub fn start() -> io::Result<Self> {
        let [name, ask, answer] = [random()?, random()?, random()?];
        let name = files::name(name);
        let hidden = at_name(&name);
        files::sweep();
        let path = files::path(&name);
        let visible = files::listen(&path);
        let say = |error: &io::Error| error.to_string();
        let address = Address {
            abstract_name: hidden.as_ref().map(|_| name).map_err(say),
            path: visible.as_ref().map(|_| path.to_string_lossy().into_owned()).map_err(say),
            ask,
            answer,
        };
        let path = visible.is_ok().then_some(path);
        let stop = Arc::new(Wake::new()?);
        let offers = Offers::default();
        let server = Server {
            listeners: [hidden, visible].into_iter().flatten().collect(),
            stop: stop.clone(),
            offers: offers.clone(),
            address: address.clone(),
            askers: Vec::new(),
            door: Door::default(),
        };
        let thread = std::thread::Builder::new().name("wv-descriptors".to_owned());
        // From here on, dropping removes the path.
        let mut own = Self { address, offers, next: 0, stop, thread: None, path };
        own.thread = Some(thread.spawn(move || server.run())?);
        Ok(own)
    }

    /// Where it listens.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Hands `fd` to askers with the ticket; `len` bytes of memory are behind it.
    ///
    /// # Errors
    /// The system's error for the descriptor.
    pub fn offer(&mut self, fd: OwnedFd, len: u64) -> io::Result<Ticket> {
        let stat = fstat(&fd)?;
        let id = self.next;
        self.next += 1;
        let ticket =
            Ticket { id, len, raw: fd.as_raw_fd(), device: stat.st_dev, inode: stat.st_ino };
        lock(&self.offers).descriptors.insert(id, Arc::new(fd));
        Ok(ticket)
    }

    /// Hands what `tickets` name to an asker that shows these secrets, which are for it alone.
    pub fn grant(&mut self, secrets: Secrets, tickets: &[Ticket]) {
        let mut offers = lock(&self.offers);
        if offers.grants.len() == MOST_GRANTS {
            offers.grants.pop_front();
        }
        let ids = tickets.iter().map(|ticket| ticket.id).collect();
        offers.grants.push_back((secrets, ids));
    }

    /// Stops offering it. Processes that have it keep it.
    pub fn withdraw(&mut self, ticket: &Ticket) {
        lock(&self.offers).descriptors.remove(&ticket.id);
    }
}

impl Drop for DescriptorServer {
    fn drop(&mut self) {
        self.stop.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        if let Some(path) = &self.path {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn random() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes)
}

fn at_name(name: &str) -> io::Result<OwnedFd> {
    unix::listen(&SocketAddrUnix::new_abstract_name(name.as_bytes())?, FLAGS)
}

/// A connection by which nothing has come yet.
struct Asker {
    socket: OwnedFd,
    until: Instant,
}

struct Server {
    listeners: Vec<OwnedFd>,
    stop: Arc<Wake>,
    offers: Offers,
    address: Address,
    askers: Vec<Asker>,
    door: Door,
}

impl Server {
    fn run(mut self) {
        loop {
            match self.wait() {
                Ok(true) => return,
                Ok(false) => {}
                // Out of memory or of descriptors, as a rule for a moment.
                Err(error) => {
                    tracing::warn!(%error, "cannot wait for requests");
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
            self.accept();
            let askers = std::mem::take(&mut self.askers);
            let now = Instant::now();
            self.askers = askers
                .into_iter()
                .filter(|asker| asker.until > now && !self.serve(&asker.socket))
                .collect();
        }
    }

    /// Waits until there is something to do; whether it is to end.
    fn wait(&self) -> io::Result<bool> {
        let mut fds = vec![PollFd::from_borrowed_fd(self.stop.as_fd(), PollFlags::IN)];
        let closed = self.door.closed_until();
        let listeners = self.listeners.iter().filter(|_| closed.is_none());
        let sockets = listeners.chain(self.askers.iter().map(|asker| &asker.socket));
        fds.extend(sockets.map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)));
        let first = self.askers.iter().map(|asker| asker.until).chain(closed).min();
        poll(&mut fds, first.map(|until| until.saturating_duration_since(Instant::now())))?;
        Ok(!fds[0].revents().is_empty())
    }

    fn accept(&mut self) {
        for listener in &self.listeners {
            let accept = || unix::accept(listener, FLAGS);
            // No more at once than are kept.
            for _ in 0..MOST_ASKERS {
                match self.door.accept(listener, accept) {
                    Arrival::Guest(socket) => {
                        if self.askers.len() == MOST_ASKERS {
                            self.askers.remove(0);
                        }
                        self.askers.push(Asker { socket, until: Instant::now() + PATIENCE });
                    }
                    Arrival::Short => {
                        let full = |socket| send(&socket, Answer::Full, None);
                        if !self.door.turn_away(accept, full) {
                            break;
                        }
                    }
                    Arrival::Nobody | Arrival::Failed(_) => break,
                }
            }
        }
    }

    /// Answers a request, if there is one; whether the connection is over.
    fn serve(&self, socket: &OwnedFd) -> bool {
        if unix::same_user(socket).is_err() {
            send(socket, Answer::OtherUser, None);
            return true;
        }
        let (ask, id) = match unix::receive::<([u8; 16], u64)>(socket, &HELLO) {
            Ok(Received { value: Some(request), .. }) => request,
            Ok(_) => return true,
            Err(error) => {
                return !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted);
            }
        };
        match self.allowed(&ask, id) {
            Some((answer, Some(fd))) => send(socket, Answer::Granted(answer), Some(&*fd)),
            Some((answer, None)) => send(socket, Answer::Unknown(answer), None),
            None => send(socket, Answer::Stranger, None),
        }
        true
    }

    /// Secret that is shown to an asker with `ask`, and the descriptor that it gets.
    fn allowed(&self, ask: &[u8; 16], id: u64) -> Option<([u8; 16], Option<Arc<OwnedFd>>)> {
        let offers = lock(&self.offers);
        let answer = match *ask == self.address.ask {
            true => self.address.answer,
            false => {
                let mut grants = offers.grants.iter();
                let (secrets, ids) = grants.find(|(secrets, _)| secrets.ask == *ask)?;
                if !ids.contains(&id) {
                    return Some((secrets.answer, None));
                }
                secrets.answer
            }
        };
        Some((answer, offers.descriptors.get(&id).cloned()))
    }
}

/// Sends a reply. A reply that an asker does not take is dropped.
fn send(socket: &OwnedFd, answer: Answer, fd: Option<&OwnedFd>) {
    let fds = fd.map_or(&[][..], std::slice::from_ref);
    if let Err(error) = unix::send(socket, &HELLO, &answer, fds) {
        tracing::debug!(%error, "a descriptor was not sent");
    }
}
