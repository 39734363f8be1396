//! The accepting end of the handshake.

use super::agreed::Agreed;
use super::hello::{HELLO, HandshakeError, Hello, Offer, Stage, bad};
use super::invitations::Admission;
use std::net::IpAddr;
use warpverbs_meet::{Guest, gives_way};

/// Links that are being set up at a listener, without its sockets: `S` stands for one.
#[derive(Debug)]
pub struct Meeting<S> {
    offer: Offer,
    admission: Admission,
    pending: Vec<Pending<S>>,
}

#[derive(Debug)]
struct Pending<S> {
    token: [u8; 16],
    /// The secret with which it began.
    secret: [u8; 16],
    source: IpAddr,
    since: u64,
    peer: Offer,
    sockets: Vec<Option<S>>,
}

/// A link whose sockets are all there.
#[derive(Debug)]
pub struct Met<S> {
    /// The outcome of the handshake.
    pub agreed: Agreed,
    /// The offer of the peer.
    pub peer: Offer,
    /// The secret with which it began.
    pub secret: [u8; 16],
    /// Its sockets, in order.
    pub sockets: Vec<S>,
}

/// Links being set up at a time.
const MOST_PENDING: usize = 64;

impl<S> Meeting<S> {
    /// Of a listener that offers this to peers that know a secret.
    pub fn new(offer: Offer, admission: Admission) -> Self {
        Self { offer, admission, pending: Vec::new() }
    }

    /// A socket from `source` has sent its handshake message. Returns the answer, which `reply` is
    /// given before the link is returned, if all of its sockets are there. `random` becomes the
    /// token of a new link; `now` is any clock.
    ///
    /// # Errors
    /// The message was refused; `reply` was given the refusal.
    pub fn hello(
        &mut self,
        bytes: &[u8; HELLO],
        mut socket: S,
        source: IpAddr,
        random: [u8; 16],
        now: u64,
        reply: impl FnOnce(&mut S, &[u8; HELLO]),
    ) -> Result<Option<Met<S>>, HandshakeError> {
        let found = Hello::decode(bytes).and_then(|hello| self.place(&hello, source, random, now));
        let (stage, number, token, at) = match found {
            Ok((at, number)) => (Stage::Accepted, number, self.pending[at].token, Ok(at)),
            Err(error) => (Stage::Refused(error.reason()), 0, [0; 16], Err(error)),
        };
        // The number of sockets agreed may exceed that offered.
        let sockets = self.offer.sockets.max(number + 1);
        let answer = Hello { stage, socket: number, token, offer: Offer { sockets, ..self.offer } };
        reply(&mut socket, &answer.encode());
        let at = at?;
        let pending = &mut self.pending[at];
        pending.sockets[usize::from(number)] = Some(socket);
        if pending.sockets.iter().any(Option::is_none) {
            return Ok(None);
        }
        let Pending { peer, secret, sockets, .. } = self.pending.remove(at);
        let sockets = sockets.into_iter().flatten().collect();
        Ok(Some(Met { agreed: self.offer.agree(&peer), peer, secret, sockets }))
    }

    /// The link to which a message belongs, and the number of the socket.
    fn place(
        &mut self,
        hello: &Hello,
        source: IpAddr,
        random: [u8; 16],
        now: u64,
    ) -> Result<(usize, u16), HandshakeError> {
        match hello.stage {
            Stage::First if !self.admission.knows(&hello.token) => {
                Err(HandshakeError::UnknownToken)
            }
            Stage::First if hello.socket == 0 => {
                self.make_room()?;
                if !self.admission.take(&hello.token) {
                    return Err(HandshakeError::UnknownToken);
                }
                let sockets = self.offer.agree(&hello.offer).sockets;
                let sockets = (0..sockets).map(|_| None).collect();
                let (token, secret, peer) = (random, hello.token, hello.offer);
                let since = now;
                self.pending.push(Pending { token, secret, source, since, peer, sockets });
                Ok((self.pending.len() - 1, 0))
            }
            Stage::First => Err(bad("the first socket", hello.socket.into(), "0")),
            Stage::Join => {
                let at = self.pending.iter().position(|pending| pending.token == hello.token);
                let at = at.ok_or(HandshakeError::UnknownToken)?;
                let socket = hello.socket;
                match self.pending[at].sockets.get(usize::from(socket)) {
                    Some(None) => Ok((at, socket)),
                    Some(Some(_)) => Err(HandshakeError::Duplicate { socket }),
                    None => Err(bad("the socket", socket.into(), "less than the number agreed")),
                }
            }
            found => {
                let expected = "a first socket or a further one";
                Err(HandshakeError::Unexpected { found, expected })
            }
        }
    }

    /// Makes room for one more link. Without a secret, one that is being set up [gives way](gives_way);
    /// with one, links being set up are never given up for others.
    fn make_room(&mut self) -> Result<(), HandshakeError> {
        let pending = self.pending.iter().enumerate();
        let guests = pending.map(|(at, pending)| Guest::stranger(at, pending.source));
        match gives_way(guests, MOST_PENDING) {
            None => Ok(()),
            Some(at) if self.admission.is_open() => {
                // In order of age.
                self.pending.remove(at);
                Ok(())
            }
            Some(_) => Err(HandshakeError::Busy { most: MOST_PENDING }),
        }
    }

    /// Gives up links that began before `time`. Their sockets are dropped.
    pub fn expire(&mut self, time: u64) {
        self.pending.retain(|pending| pending.since >= time);
    }
}
