//! One connection of an agent, as the control thread serves it.
//!
//! In each turn of the control thread a bounded number of bytes is read from a connection and a bounded
//! number of frames is handled; the rest waits for the next turn. While answers to an asking end are
//! unsent, nothing is read from it. The end that made a connection always reads, so the two never wait
//! for each other.

use super::frame::{Frame, Longest, Service, check_protocol};
use super::handshake::{self, Key, same};
use super::inbox::{FULL, Notification, Put};
use super::link::{Link, lost};
use super::remote::Remote;
use super::services::Services;
use super::shared::Handed;
use crate::lock;
use crate::metadata::random;
use crate::names::Owner;
use crate::tally;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use warpverbs_meet::{Alive, Due, Frames, Guest};

/// A connection whose maker has not authenticated after this time is closed.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// While more bytes than this are unsent to an asking peer, nothing is read from it.
const UNSENT: usize = 64 << 10;

/// The share of a turn that one connection may take.
struct Budget {
    reads: u32,
    frames: u32,
    /// Frames that need work beyond this connection.
    calls: u32,
}

impl Budget {
    fn of(role: &Role) -> Self {
        match role {
            Role::Stranger { .. } | Role::Greeted { .. } => Self { reads: 1, frames: 2, calls: 0 },
            _ => Self { reads: 16, frames: 128, calls: 2 },
        }
    }

    fn is_spent(&self) -> bool {
        self.frames == 0
    }

    /// Charges a frame.
    fn spend(&mut self, frame: &Frame<'_>) {
        self.frames -= 1;
        if matches!(frame, Frame::Call { .. }) {
            self.calls = self.calls.saturating_sub(1);
            if self.calls == 0 {
                self.frames = 0;
            }
        }
    }
}

pub(super) enum Role {
    /// Not authenticated: only the address of the other end is known.
    Stranger { address: IpAddr },
    /// It has sent a `Hello` with the key, which may be a replay; its `Auth` is due. `named`: it asks for
    /// this agent by name.
    Greeted { address: IpAddr, from: Owner, nonces: [[u8; 16]; 2], named: bool },
    /// A one-shot connection that fetches or brings metadata. It does not affect other connections of
    /// the same agent.
    Asking { from: Owner },
    /// A peer that may touch memory of this agent.
    Inbound { from: Owner },
    /// A peer whose memory this agent may touch. `busy`: numbers of memory that it has deregistered and
    /// that is still being copied here.
    Outbound { peer: Arc<dyn Remote>, busy: Vec<u32> },
}

pub(super) struct Session {
    pub(super) link: Arc<Link>,
    decoder: Frames,
    pub(super) role: Role,
    /// The deadline of the handshake.
    until: Option<Instant>,
    /// The other end has closed.
    pub(super) ended: bool,
    alive: Alive,
}

impl Session {
    /// An accepted connection, not yet authenticated.
    pub(super) fn accepted(link: Arc<Link>, address: IpAddr) -> Self {
        let until = Some(Instant::now() + HANDSHAKE);
        Self::new(link, Frames::new(Longest::Stranger.bytes()), Role::Stranger { address }, until)
    }

    /// A connection that another thread of this agent has made.
    pub(super) fn made(Handed { link, decoder, peer }: Handed) -> Self {
        Self::new(link, decoder, Role::Outbound { peer, busy: Vec::new() }, None)
    }

    fn new(link: Arc<Link>, decoder: Frames, role: Role, until: Option<Instant>) -> Self {
        Self { link, decoder, role, until, ended: false, alive: Alive::new(Instant::now()) }
    }

    /// This connection as one that may be closed for a new one; `None` once it is authenticated.
    pub(super) fn guest(&self, at: usize) -> Option<Guest> {
        match self.role {
            Role::Stranger { address } => Some(Guest::stranger(at, address)),
            Role::Greeted { address, .. } => Some(Guest { at, greeted: true, address }),
            _ => None,
        }
    }

    /// When to serve it although nothing arrives.
    pub(super) fn look_at(&self, silence: Duration) -> Option<Instant> {
        self.until.or_else(|| (!self.link.is_lost()).then(|| self.alive.until(silence)))
    }

    /// Whether to serve it although nothing arrives.
    pub(super) fn is_pending(&self) -> bool {
        !self.link.is_lost() && !self.is_paused() && self.decoder.is_ready()
    }

    /// Whether the other end has to read before anything more is read from it.
    fn is_paused(&self) -> bool {
        let most = match self.role {
            Role::Outbound { .. } => return false,
            Role::Inbound { .. } => UNSENT,
            _ => 0,
        };
        self.link.unsent() > most && !self.link.is_lost()
    }

    /// Whether bytes are read when they arrive.
    pub(super) fn reads(&self) -> bool {
        !self.ended && !self.is_paused()
    }

    /// Bytes of memory for received and for unsent data.
    pub(super) fn held(&self) -> usize {
        self.decoder.held() + self.link.unsent()
    }

    /// Whether it may be closed: one made here once it is lost and no copy uses it, another once the
    /// other end has closed.
    pub(super) fn is_closed(&self) -> bool {
        let over = match &self.role {
            Role::Outbound { peer, .. } => self.link.is_lost() && peer.is_idle(),
            _ => self.ended,
        };
        if over {
            self.link.close();
        }
        over
    }

    /// Sends and receives as much as its budget allows.
    pub(super) fn serve(&mut self, services: &dyn Services) {
        self.link.flush();
        let mut budget = Budget::of(&self.role);
        self.receive(services, &mut budget);
        while self.reads() && !budget.is_spent() && budget.reads > 0 {
            budget.reads -= 1;
            match self.decoder.read(&self.link.stream) {
                Ok(0) => self.end(services, "its connection ended"),
                // Input of a lost connection is discarded.
                Ok(_) if self.link.is_lost() => self.decoder.skip(usize::MAX),
                Ok(_) => {
                    self.alive.heard(Instant::now());
                    self.receive(services, &mut budget);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => self.end(services, &format!("its connection broke: {error}")),
            }
        }
    }

    fn receive(&mut self, services: &dyn Services, budget: &mut Budget) {
        while !self.link.is_lost() && !self.is_paused() && !budget.is_spent() {
            let handled = match Frame::next(&mut self.decoder) {
                Ok(Some(frame)) => {
                    budget.spend(&frame);
                    self.handle(services, frame)
                }
                Ok(None) => return,
                Err(why) => Err(why),
            };
            if let Err(why) = handled {
                match self.role {
                    Role::Stranger { .. } => {
                        tracing::debug!(%why, "an unauthenticated connection is refused")
                    }
                    _ => tracing::warn!(peer = %self.name(), %why, "a connection is refused"),
                }
                self.link.send(&Frame::Refused { why: why.as_str().into() });
                self.lose(services, &why);
            }
        }
    }

    fn name(&self) -> String {
        match &self.role {
            Role::Stranger { address } => format!("unauthenticated peer at {address}"),
            Role::Greeted { from, .. } | Role::Asking { from } | Role::Inbound { from } => {
                from.to_string()
            }
            Role::Outbound { peer, .. } => peer.owner().to_string(),
        }
    }

    /// Marks the connection as lost: nothing more is sent. If the other end may access memory, it stays
    /// until that end has closed.
    pub(super) fn lose(&mut self, services: &dyn Services, why: &str) {
        let error = match &self.role {
            Role::Outbound { peer, .. } => {
                let error = lost(peer.owner(), why);
                peer.lose(error.clone());
                error
            }
            Role::Inbound { from } => {
                if !self.link.is_lost() {
                    services.lost(&self.link);
                    services.control().inbox.disconnected(from, self.link.id);
                }
                lost(from, why)
            }
            Role::Greeted { from, .. } | Role::Asking { from } => lost(from, why),
            Role::Stranger { .. } => lost(&services.control().own.owner, why),
        };
        if !matches!(self.role, Role::Inbound { .. } | Role::Outbound { .. }) {
            // It accesses no memory, so it need not be waited for.
            self.ended = true;
        }
        self.link.lose(error);
    }

    fn end(&mut self, services: &dyn Services, why: &str) {
        self.lose(services, why);
        self.ended = true;
    }

    /// Checks what no message announces: expired deadlines, and copies that have ended.
    pub(super) fn settle(&mut self, services: &dyn Services) {
        // Of a connection that another thread has made, the first frames may be here already.
        if self.until.is_some_and(|until| until <= Instant::now()) {
            self.end(services, "it did not authenticate in time");
        }
        let answer = match self.role {
            Role::Asking { .. } => Longest::Metadata.bytes(),
            _ => Longest::Peer.bytes(),
        };
        if self.link.is_unread(answer) && !self.link.is_lost() {
            let unsent = self.link.unsent();
            self.lose(services, &format!("{unsent} bytes wait for it to read"));
        }
        let silence = services.control().settings.silence;
        // Unauthenticated connections have `until` as their deadline.
        if self.until.is_none() && !self.link.is_lost() {
            match self.alive.look(Instant::now(), silence) {
                Due::Nothing => {}
                Due::Ask => self.link.send(&Frame::Ping),
                Due::Lost => self.silent(services, silence),
            }
        }
        let link = &self.link;
        if let Role::Outbound { peer, busy } = &mut self.role {
            busy.retain(|&id| {
                let idle = peer.is_idle_at(id);
                if idle {
                    link.send(&Frame::Revoked { id });
                }
                !idle
            });
        }
    }

    /// The peer has not answered. Bytes that arrived since the last look count.
    fn silent(&mut self, services: &dyn Services, silence: Duration) {
        self.serve(services);
        if !self.link.is_lost() && self.alive.look(Instant::now(), silence) == Due::Lost {
            self.lose(services, &format!("it has given no sign of life for {silence:?}"));
        }
    }

    fn handle(&mut self, services: &dyn Services, frame: Frame<'_>) -> Result<(), String> {
        match (&mut self.role, frame) {
            (Role::Stranger { .. }, Frame::Hello { magic, version, from, to, nonce, proof }) => {
                check_protocol(magic, version)?;
                self.greet(services, (from, to), nonce, proof)
            }
            (Role::Greeted { .. }, Frame::Auth { proof, identity }) => {
                self.admit(services, proof, identity)
            }
            (Role::Inbound { from }, Frame::Notify { number, bytes }) => {
                let arrived = Notification { from: from.clone(), bytes: bytes.into_owned() };
                let answer = take(services, &self.link, (number, arrived))?;
                self.link.send(&answer);
                Ok(())
            }
            (Role::Inbound { .. }, Frame::Revoked { id }) => {
                self.link.revoked(id);
                Ok(())
            }
            (Role::Asking { .. }, Frame::Call { service, .. }) if !service.is_of_metadata() => {
                Err(format!("the call {service:?} needs a connection whose Hello names this agent"))
            }
            (
                Role::Asking { from } | Role::Inbound { from },
                Frame::Call { number, service, bytes },
            ) => answer(services, &self.link, from, (number, service), &bytes),
            (Role::Outbound { .. }, Frame::Accepted { number }) => {
                let sent = &services.control().tally.notifications_sent;
                self.link.accepted(number, || tally::count(sent))
            }
            (Role::Outbound { .. }, Frame::Declined { number, why }) => {
                self.link.declined(number, why.into_owned())
            }
            (Role::Outbound { .. }, Frame::Credit { count }) => {
                self.link.credit(count);
                Ok(())
            }
            (Role::Outbound { peer, busy }, Frame::Revoke { id }) => {
                peer.revoke(id);
                if !busy.contains(&id) {
                    busy.push(id);
                }
                Ok(())
            }
            (Role::Outbound { .. }, Frame::Reply { number, answer }) => {
                let owned = answer.map(|bytes| bytes.into_owned());
                self.link.answer(number, owned.map_err(|why| why.into_owned()));
                Ok(())
            }
            (Role::Asking { .. } | Role::Inbound { .. } | Role::Outbound { .. }, Frame::Ping) => {
                // Unsent bytes already give the peer a reason to answer.
                if self.link.unsent() == 0 {
                    self.link.send(&Frame::Pong);
                }
                Ok(())
            }
            // Any frame that arrives is a sign of life.
            (Role::Asking { .. } | Role::Inbound { .. } | Role::Outbound { .. }, Frame::Pong) => {
                Ok(())
            }
            (Role::Inbound { .. } | Role::Outbound { .. }, Frame::Stream { id, event }) => {
                self.link.streams.event(id, event)
            }
            (Role::Outbound { .. }, Frame::Refused { why }) => {
                Err(format!("it refuses: {}", warpverbs_meet::printable(&why)))
            }
            (_, frame) => Err(format!("unexpected message {frame:.60?}")),
        }
    }

    fn greet(
        &mut self,
        services: &dyn Services,
        (from, to): (Owner, Option<Owner>),
        nonce: [u8; 16],
        knock: [u8; 32],
    ) -> Result<(), String> {
        let Role::Stranger { address } = self.role else { return Ok(()) };
        crate::metadata::check_name("name", &from.name)?;
        let (me, own) = (&services.control().own, &services.control().own.owner);
        if from.name == own.name {
            return Err(format!("this agent has the name {} too", from.name));
        }
        let named = to.is_some();
        if let Some(to) = to.filter(|to| to != own) {
            return Err(format!("this is {own}, not {to}"));
        }
        let key = me.key_of_connection(named).ok_or(NO_TOKEN)?;
        if !same(&key.knock(&nonce, &from), &knock) {
            return Err(differ(named).to_owned());
        }
        if !named && !services.control().settings.serves_metadata {
            return Err(NOT_SERVED.to_owned());
        }
        let nonces = [nonce, random().map_err(|error| error.to_string())?];
        let proof = key.proof(handshake::Role::Accepter, nonces.each_ref(), own);
        self.link.send(&Frame::Welcome { owner: own.clone(), nonce: nonces[1], proof });
        self.role = Role::Greeted { address, from, nonces, named };
        Ok(())
    }

    /// Admits an end that has proven the key. If it asks for this agent by name, it may access registered
    /// memory from now on.
    fn admit(
        &mut self,
        services: &dyn Services,
        proof: [u8; 32],
        identity: [u8; 32],
    ) -> Result<(), String> {
        let Role::Greeted { from, nonces, named, .. } = &self.role else { return Ok(()) };
        let (from, nonces, named, control) =
            (from.clone(), nonces.each_ref(), *named, services.control());
        let key = control.own.key_of_connection(named).ok_or(NO_TOKEN)?;
        if !same(&key.proof(handshake::Role::Maker, nonces, &from), &proof) {
            return Err(differ(named).to_owned());
        }
        // If the maker's metadata is loaded here, its own key is known and is checked.
        if let Some(secret) = services.secret_of(&from) {
            let own = Key::of_agent(&control.own.token, &secret);
            if !same(&own.proof(handshake::Role::Identity, nonces, &from), &identity) {
                return Err(format!("authentication failed: it is not {from}"));
            }
        }
        if !named {
            self.decoder.longest = Longest::Metadata.bytes();
            self.link.send(&Frame::Ready { live: Vec::new(), credits: 0 });
            (self.until, self.role) = (None, Role::Asking { from });
            return Ok(());
        }
        let credits = control.inbox.connected(&from, &self.link, control.settings.window);
        self.decoder.longest = Longest::Peer.bytes();
        // Under this lock, so that no memory is deregistered between its announcement and the time when a
        // revocation reaches this connection.
        let mut inbound = lock(&control.inbound);
        inbound.push((from.clone(), self.link.clone()));
        self.link.send(&Frame::Ready { live: services.live(), credits });
        drop(inbound);
        (self.until, self.role) = (None, Role::Inbound { from });
        Ok(())
    }
}

/// An address alone authenticates no peer: it must prove that it knows the token.
const NO_TOKEN: &str =
    "no token is set, so metadata does not travel by address; AgentConfig::token sets one";

const NOT_SERVED: &str =
    "this agent does not exchange metadata by address (AgentConfig::serve_metadata)";

fn differ(named: bool) -> &'static str {
    match named {
        true => "authentication failed: tokens differ, or the metadata is not of this agent",
        false => "authentication failed: tokens differ",
    }
}

fn answer(
    services: &dyn Services,
    link: &Arc<Link>,
    from: &Owner,
    (number, service): (u64, Service),
    bytes: &[u8],
) -> Result<(), String> {
    let answer = services.answer(link, from, service, bytes);
    let answer = answer.as_ref().map(|bytes| bytes[..].into()).map_err(|why| why.as_str().into());
    link.send(&Frame::Reply { number, answer });
    Ok(())
}

/// Puts a notification into the inbox; returns the answer to its sender.
fn take(
    services: &dyn Services,
    link: &Link,
    (number, arrived): (u64, Notification),
) -> Result<Frame<'static>, String> {
    let (len, most) = (arrived.bytes.len(), crate::AgentConfig::MAX_NOTIFICATION);
    if len > most {
        return Err(format!("a notification of {len} bytes, expected at most {most}"));
    }
    let (inbox, tally) = (&services.control().inbox, &services.control().tally);
    match inbox.push(arrived, link.id) {
        Put::Taken => {
            tally::count(&tally.notifications_received);
            Ok(Frame::Accepted { number })
        }
        Put::Full => {
            tally::count(&tally.notifications_declined);
            Ok(Frame::Declined { number, why: FULL.into() })
        }
        Put::Beyond => Err("a notification beyond the credits of this connection".to_owned()),
    }
}
