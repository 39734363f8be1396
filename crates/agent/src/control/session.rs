//! One connection of an agent, as the control thread serves it.

use super::Handed;
use super::alive::{Alive, Due};
use super::answer::answer;
use super::frame::{Decoder, Frame, MAGIC, VERSION, proof};
use super::inbox::Notification;
use super::link::{Link, lost};
use crate::inner::Inner;
use crate::list::Owner;
use crate::lock;
use crate::metadata::random;
use crate::peer::Peer;
use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A stranger that has not shown the token by then is cut off.
const HANDSHAKE: Duration = Duration::from_secs(10);

pub(super) enum Role {
    /// Has not said who it is.
    Stranger,
    /// Has, and has yet to show the token. `named`: it wants this agent by name.
    Greeted { from: Owner, expected: [u8; 32], named: bool },
    /// Wants whichever agent is here: it fetches or brings metadata and goes. What the same agent does
    /// by a connection of another role is none of its business.
    Asking { from: Owner },
    /// A peer that may touch memory of this agent.
    Inbound { from: Owner },
    /// A peer whose memory this agent may touch. The numbers are of memory that it has deregistered
    /// and that is being copied here.
    Outbound { peer: Arc<Peer>, busy: Vec<u32> },
}

pub(super) struct Session {
    pub(super) link: Arc<Link>,
    decoder: Decoder,
    pub(super) role: Role,
    /// By when the handshake must be over.
    until: Option<Instant>,
    /// The other end has closed.
    pub(super) ended: bool,
    alive: Alive,
}

impl Session {
    /// One that somebody else has made.
    pub(super) fn accepted(link: Arc<Link>) -> Self {
        let until = Some(Instant::now() + HANDSHAKE);
        Self::new(link, Decoder::default(), Role::Stranger, until)
    }

    /// One that another thread of this agent has made.
    pub(super) fn made(Handed { link, decoder, peer }: Handed) -> Self {
        Self::new(link, decoder, Role::Outbound { peer, busy: Vec::new() }, None)
    }

    fn new(link: Arc<Link>, decoder: Decoder, role: Role, until: Option<Instant>) -> Self {
        Self { link, decoder, role, until, ended: false, alive: Alive::new(Instant::now()) }
    }

    /// By when to look at it though nothing arrives.
    pub(super) fn look_at(&self, silence: Duration) -> Option<Instant> {
        self.until.or_else(|| (!self.link.is_lost()).then(|| self.alive.until(silence)))
    }

    /// Closes it if it is over: one made here when it is lost and nothing is copied by its means any
    /// more, another when the other end has closed.
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

    /// Sends and receives what can be.
    pub(super) fn serve(&mut self, inner: &Arc<Inner>) {
        if let Err(why) = self.link.flush() {
            self.lose(inner, &why);
        }
        let mut bytes = [0; 16 << 10];
        while !self.ended {
            match (&self.link.stream).read(&mut bytes) {
                Ok(0) => self.end(inner, "its connection ended"),
                Ok(_) if self.link.is_lost() => {}
                Ok(count) => {
                    self.alive.heard(Instant::now());
                    self.decoder.feed(&bytes[..count]);
                    self.receive(inner);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => self.end(inner, &format!("its connection broke: {error}")),
            }
        }
    }

    fn receive(&mut self, inner: &Arc<Inner>) {
        while !self.link.is_lost() {
            let handled = match self.decoder.next() {
                Ok(Some(frame)) => self.handle(inner, frame),
                Ok(None) => return,
                Err(why) => Err(why),
            };
            if let Err(why) = handled {
                tracing::warn!(peer = %self.name(), %why, "a connection is refused");
                self.link.send(&Frame::Refused { why: why.as_str().into() });
                self.lose(inner, &why);
            }
        }
    }

    fn name(&self) -> String {
        match &self.role {
            Role::Stranger => "stranger".to_owned(),
            Role::Greeted { from, .. } | Role::Asking { from } | Role::Inbound { from } => {
                from.to_string()
            }
            Role::Outbound { peer, .. } => peer.owner.to_string(),
        }
    }

    /// It is of no use any more; it stays until the other end has closed.
    fn lose(&mut self, inner: &Inner, why: &str) {
        let error = match &self.role {
            Role::Outbound { peer, .. } => {
                let error = lost(&peer.owner, why);
                peer.lose(error.clone());
                error
            }
            Role::Inbound { from } => {
                if !self.link.is_lost() {
                    inner.serving.forget(&self.link);
                }
                lost(from, why)
            }
            Role::Greeted { from, .. } | Role::Asking { from } => lost(from, why),
            Role::Stranger => lost(&inner.owner, why),
        };
        if matches!(self.role, Role::Stranger | Role::Greeted { .. } | Role::Asking { .. }) {
            // It touches no memory, so nobody waits for it.
            self.ended = true;
        }
        self.link.lose(error);
    }

    fn end(&mut self, inner: &Inner, why: &str) {
        self.lose(inner, why);
        self.ended = true;
    }

    /// What needs no news: times that have run out, copies that have ended.
    pub(super) fn settle(&mut self, inner: &Arc<Inner>) {
        // Of a connection that another thread has made, the first frames may be here already.
        if self.until.is_some_and(|until| until <= Instant::now()) {
            self.end(inner, "it has not shown the token in time");
        }
        let silence = inner.config.silence;
        // Of a stranger and of one that has greeted, `until` takes care.
        if self.until.is_none() && !self.link.is_lost() {
            match self.alive.look(Instant::now(), silence) {
                Due::Nothing => {}
                Due::Ask => self.link.send(&Frame::Ping),
                Due::Lost => self.silent(inner, silence),
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

    /// The peer has not answered. What arrived since the last look counts.
    fn silent(&mut self, inner: &Arc<Inner>, silence: Duration) {
        self.serve(inner);
        if self.alive.look(Instant::now(), silence) == Due::Lost {
            self.lose(inner, &format!("it has given no sign of life for {silence:?}"));
        }
    }

    fn handle(&mut self, inner: &Arc<Inner>, frame: Frame<'_>) -> Result<(), String> {
        match (&mut self.role, frame) {
            (Role::Stranger, Frame::Hello { magic, version, from, to, nonce }) => {
                if magic != MAGIC || version != VERSION {
                    return Err(format!("version {version}, this agent speaks {VERSION}"));
                }
                self.greet(inner, from, to, nonce)
            }
            (Role::Greeted { from, expected, named }, Frame::Auth { proof }) => {
                if proof != *expected {
                    return Err("it has another token".to_owned());
                }
                let (from, named) = (from.clone(), *named);
                self.welcome(inner, from, named);
                Ok(())
            }
            (Role::Inbound { from }, Frame::Notify { number, bytes }) => {
                take(inner, Notification { from: from.clone(), bytes: bytes.into_owned() })?;
                self.link.send(&Frame::Accepted { number });
                Ok(())
            }
            (Role::Inbound { .. }, Frame::Revoked { id }) => {
                self.link.revoked(id);
                Ok(())
            }
            (Role::Asking { .. }, Frame::Call { service, .. }) if !service.is_of_metadata() => {
                Err(format!("{service:?} is asked by a connection that wants this agent by name"))
            }
            (
                Role::Asking { from } | Role::Inbound { from },
                Frame::Call { number, service, bytes },
            ) => {
                let answer = answer(inner, &self.link, from, service, &bytes);
                let answer = answer.map(Into::into).map_err(Into::into);
                self.link.send(&Frame::Reply { number, answer });
                Ok(())
            }
            (Role::Outbound { .. }, Frame::Accepted { number }) => self.link.accepted(number),
            (Role::Outbound { .. }, Frame::Credit { count }) => {
                self.link.credit(count);
                Ok(())
            }
            (Role::Outbound { peer, busy }, Frame::Revoke { id }) => {
                peer.revoke(id);
                busy.push(id);
                Ok(())
            }
            (Role::Outbound { .. }, Frame::Reply { number, answer }) => {
                let owned = answer.map(|bytes| bytes.into_owned());
                self.link.answer(number, owned.map_err(|why| why.into_owned()));
                Ok(())
            }
            (Role::Asking { .. } | Role::Inbound { .. } | Role::Outbound { .. }, Frame::Ping) => {
                self.link.send(&Frame::Pong);
                Ok(())
            }
            // What arrives, whatever it is, is a sign of life.
            (Role::Asking { .. } | Role::Inbound { .. } | Role::Outbound { .. }, Frame::Pong) => {
                Ok(())
            }
            (Role::Inbound { .. } | Role::Outbound { .. }, Frame::Stream { id, event }) => {
                self.link.streams.event(id, event)
            }
            (Role::Outbound { .. }, Frame::Refused { why }) => Err(format!("it refuses: {why}")),
            (_, frame) => Err(format!("an unexpected message, {frame:.60?}")),
        }
    }

    fn greet(
        &mut self,
        inner: &Inner,
        from: Owner,
        to: Option<Owner>,
        nonce: [u8; 16],
    ) -> Result<(), String> {
        crate::metadata::check_name("name", &from.name)?;
        if from.name == inner.owner.name {
            return Err(format!("this agent has the name {} too", from.name));
        }
        let named = to.is_some();
        if let Some(to) = to.filter(|to| *to != inner.owner) {
            return Err(format!("this is {}, not {to}", inner.owner));
        }
        let own = random().map_err(|error| error.to_string())?;
        let (token, owner) = (&inner.config.token, inner.owner.clone());
        let expected = proof(token, b"client", [&nonce, &own], &from);
        let shown = proof(token, b"server", [&nonce, &own], &owner);
        self.link.send(&Frame::Welcome { owner, nonce: own, proof: shown });
        self.role = Role::Greeted { from, expected, named };
        Ok(())
    }

    /// The other end has the token. If it wants this agent by name, it may touch registered memory from
    /// now on.
    fn welcome(&mut self, inner: &Inner, from: Owner, named: bool) {
        self.decoder.trusted = true;
        self.until = None;
        if !named {
            self.link.send(&Frame::Ready { live: inner.live(), credits: 0 });
            self.role = Role::Asking { from };
            return;
        }
        let control = &inner.control;
        let credits = control.inbox.connected(&from, &self.link, inner.config.window);
        // Under this lock, so that no memory is deregistered after it is told and before its
        // revocation can be.
        let mut inbound = lock(&control.inbound);
        inbound.push(self.link.clone());
        self.link.send(&Frame::Ready { live: inner.live(), credits });
        drop(inbound);
        self.role = Role::Inbound { from };
    }
}

/// Puts a notification where the program will find it.
fn take(inner: &Inner, notification: Notification) -> Result<(), String> {
    let len = notification.bytes.len();
    if len > crate::AgentConfig::MAX_NOTIFICATION {
        return Err(format!("a notification of {len} bytes"));
    }
    match inner.control.inbox.push(notification, inner.config.window) {
        true => Ok(()),
        false => Err("a notification for which there is no room".to_owned()),
    }
}
