//! A connection: requester and responder behind one set of methods.

use warpverbs_wire::{Bth, Extension, Psn};

use crate::requester::Requester;
use crate::responder::Responder;
use crate::{
    Completion, Config, ConfigError, Event, Host, Instant, Peer, Place, PostError, Refused,
    Request, State, Stats, Status, Transmit, WrId,
};

/// Why a connection was not started. Nothing has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// An attribute is out of range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The connection was started before.
    #[error(transparent)]
    State(#[from] Refused),
}

/// One end of a reliable connection.
///
/// Methods are of four kinds:
/// * getters;
/// * `handle_*`: a packet has arrived, or time has passed;
/// * commands of the user: [`start`](Self::start), [`post`](Self::post),
///   [`receive_available`](Self::receive_available), [`drain`](Self::drain), …
/// * `poll_*`: packets to send, completions, timers.
///
/// **Mutate, then drain.** After any `handle_*` or command: do what the returned [`Place`] says,
/// call [`poll_completion`](Self::poll_completion) until `None`,
/// [`poll_transmit`](Self::poll_transmit) until `None` or as long as the link takes packets, and
/// call [`handle_timeout`](Self::handle_timeout) at [`poll_timeout`](Self::poll_timeout). Several
/// packets may be handled before the rest is drained; then their acknowledgements coalesce.
#[derive(Debug)]
pub struct Connection {
    config: Config,
    state: State,
    requester: Requester,
    responder: Responder,
    stats: Stats,
    /// Which half sends next while both have something to send.
    turn: Turn,
}

/// Requests and responses take turns of several packets each: those of one kind are often of one
/// length, which links send together. Requests begin, since what follows them is shorter.
#[derive(Clone, Copy, Debug)]
struct Turn {
    responses: bool,
    left: u8,
}

impl Turn {
    const PACKETS: u8 = 16;
    const FIRST: Turn = Turn { responses: false, left: Turn::PACKETS };

    /// A packet left, a response or not.
    #[inline]
    fn took(&mut self, response: bool) {
        if self.responses != response {
            *self = Turn { responses: response, left: Turn::PACKETS };
        }
        self.left -= 1;
        if self.left == 0 {
            *self = Turn { responses: !response, left: Turn::PACKETS };
        }
    }
}

impl Connection {
    /// A connection in [`State::ReadyToReceive`]. Allocates all memory that it will ever use.
    ///
    /// # Errors
    /// An attribute out of range.
    pub fn new(config: &Config) -> Result<Connection, ConfigError> {
        config.check()?;
        Ok(Connection {
            config: *config,
            state: State::ReadyToReceive,
            requester: Requester::new(config),
            responder: Responder::new(config),
            stats: Stats::default(),
            turn: Turn::FIRST,
        })
    }

    /// The attributes it was made with.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Its state.
    pub const fn state(&self) -> State {
        self.state
    }

    /// PSN of the next packet that is sent for the first time, and of the next one expected.
    pub fn psns(&self) -> (Psn, Psn) {
        (self.requester.flight.next_psn(), self.responder.expected())
    }

    /// Counters since the connection was made.
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Lets requests be sent.
    ///
    /// # Errors
    /// Any state but [`State::ReadyToReceive`].
    pub fn start(&mut self) -> Result<(), Refused> {
        self.on(Event::Start)
    }

    /// Lets requests be sent, with attributes that were not known before: those of the responder
    /// and of the path stay as they were, all others are taken from `config`.
    ///
    /// # Errors
    /// An attribute out of range; any state but [`State::ReadyToReceive`].
    pub fn start_with(&mut self, config: &Config) -> Result<(), StartError> {
        config.check()?;
        self.on(Event::Start)?;
        let Config { dest_qpn, mtu, rq_psn, min_rnr_timer, max_dest_rd_atomic, .. } = self.config;
        let fixed = Config { dest_qpn, mtu, rq_psn, min_rnr_timer, max_dest_rd_atomic, ..*config };
        self.requester = Requester::new(&fixed);
        self.config = fixed;
        Ok(())
    }

    /// Applies the attributes that may change while it works: `min_rnr_timer`, `timeout`,
    /// `retry`, `rnr_retry` and `max_rd_atomic`. Timers that run go on; counters begin anew.
    ///
    /// # Errors
    /// An attribute out of range; nothing is changed then.
    pub fn modify(&mut self, config: &Config) -> Result<(), ConfigError> {
        config.check()?;
        let Config { min_rnr_timer, timeout, retry, rnr_retry, max_rd_atomic, .. } = *config;
        let attributes = Config { min_rnr_timer, timeout, retry, rnr_retry, ..self.config };
        self.config = Config { max_rd_atomic, ..attributes };
        self.requester.modify(&self.config);
        self.responder.modify(&self.config);
        Ok(())
    }

    /// Holds the send queue: requests not yet begun wait until [`resume`](Self::resume).
    ///
    /// # Errors
    /// Any state but [`State::ReadyToSend`].
    pub fn drain(&mut self) -> Result<(), Refused> {
        self.on(Event::Drain)?;
        self.requester.ask_again();
        self.settle();
        Ok(())
    }

    /// Lets the send queue go on.
    ///
    /// # Errors
    /// Any state but [`State::Draining`] and [`State::Drained`].
    pub fn resume(&mut self) -> Result<(), Refused> {
        self.on(Event::Resume)
    }

    /// Gives up: everything posted is flushed.
    pub fn fail(&mut self) {
        self.requester.fail(None);
        self.responder.fail();
        self.settle();
    }

    /// The user cannot gather or place the payload of a posted request: it fails with `status`
    /// as soon as everything before it is complete, and the rest is flushed. Unknown requests are
    /// ignored.
    pub fn fail_request(&mut self, id: WrId, status: Status) {
        self.requester.fail_pending(id, status);
        self.settle();
    }

    /// The user could not place or gather the payload of the peer's request at `psn`, and no
    /// answer for it or for a later one has left: the peer gets a remote operational error, and the
    /// connection fails.
    pub fn fail_response(&mut self, psn: Psn) {
        self.responder.fail_response(psn);
        self.settle();
    }

    /// Takes a request. It is flushed in [`State::Error`] and waits in [`State::Draining`] and
    /// [`State::Drained`].
    ///
    /// # Errors
    /// The request is malformed, the queue is full, or the connection is not started.
    #[inline]
    pub fn post(&mut self, request: Request) -> Result<(), PostError> {
        match self.state {
            State::ReadyToReceive => Err(PostError::NotStarted),
            _ => self.requester.post(request),
        }
    }

    /// A receive was posted after [`Host::receive`] had found none.
    pub fn receive_available(&mut self) {
        self.responder.receive_available();
    }

    /// The peer's last credits were zero: call [`receive_available`](Self::receive_available) once
    /// there is a receive.
    #[inline]
    pub fn awaits_receives(&self) -> bool {
        self.responder.awaits_receives()
    }

    /// A packet of this service for this connection whose opcode is reserved, which a parser
    /// refuses; checked otherwise like those for [`handle_packet`](Self::handle_packet).
    pub fn handle_reserved(&mut self, psn: Psn, host: &mut impl Host) {
        if self.state.responds() {
            self.responder.handle_reserved(psn, host, &mut self.stats);
            self.settle();
        }
    }

    /// A packet for this connection: the address, the partition and the ICRC were checked, and
    /// the extension headers are those of the opcode. `payload_len` is without pad.
    // Always: its arguments stay in registers.
    #[inline(always)]
    pub fn handle_packet(
        &mut self,
        now: Instant,
        bth: &Bth,
        ext: &Extension,
        payload_len: u32,
        host: &mut impl Host,
    ) -> Place {
        // A datagram is none of a connection's packets.
        if !self.state.responds() || bth.opcode.is_datagram() {
            return Place::Nothing;
        }
        let place = if bth.opcode.is_response() {
            self.requester.handle_response(now, bth, ext, payload_len, &mut self.stats)
        } else {
            self.responder.handle_request(bth, ext, payload_len, host, &mut self.stats)
        };
        self.settle();
        place
    }

    /// Changes [`Config::window_bytes`]: what receivers can hold is shared with other connections.
    #[inline]
    pub fn limit_bytes(&mut self, bytes: u64) {
        self.requester.flight.limit_bytes(bytes);
    }

    /// Whether packets are sent and not answered.
    #[inline]
    pub fn is_outstanding(&self) -> bool {
        self.requester.flight.is_outstanding()
    }

    /// Time has passed; harmless at any moment. The caller first asks for the peer's state, then
    /// handles everything that has arrived, then calls this: answers from before the peer was asked
    /// have been seen.
    pub fn handle_timeout(&mut self, now: Instant, peer: Peer) {
        if self.state.responds() {
            self.requester.handle_timeout(now, peer, &mut self.stats);
            self.settle();
        }
    }

    /// The next packet to send. Its payload is to be gathered before the next call; if that fails,
    /// [`fail_request`](Self::fail_request).
    ///
    /// In [`State::Error`] there may still be answers to what was executed before the failure.
    pub fn poll_transmit(&mut self, now: Instant, host: &mut impl Host) -> Option<Transmit> {
        if self.turn.responses
            && let Some(transmit) = self.poll_response(host)
        {
            return Some(transmit);
        }
        let responses_first = self.turn.responses;
        let request = self.poll_request(now);
        if request.is_some() || responses_first {
            return request;
        }
        self.poll_response(host)
    }

    /// Whether there may be responses to send.
    #[inline]
    pub fn has_responses(&self) -> bool {
        !self.responder.is_idle()
    }

    fn poll_response(&mut self, host: &mut impl Host) -> Option<Transmit> {
        if self.responder.is_idle() {
            return None;
        }
        let transmit = self.responder.poll_transmit(host, &mut self.stats);
        self.settle();
        if transmit.is_some() {
            self.turn.took(true);
        }
        transmit
    }

    /// As [`poll_transmit`](Self::poll_transmit), of requests alone: all that there is unless the
    /// connection [`has_responses`](Self::has_responses).
    // Always: the packet stays in registers.
    #[inline(always)]
    pub fn poll_request(&mut self, now: Instant) -> Option<Transmit> {
        if !self.state.sends() {
            return None;
        }
        let draining = self.state == State::Draining;
        let transmit = self.requester.poll_transmit(now, draining, &mut self.stats);
        match transmit {
            Some(_) => self.turn.took(false),
            None => self.turn = Turn::FIRST,
        }
        transmit
    }

    /// When to call [`handle_timeout`](Self::handle_timeout); `None` is never.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.requester.retry.next_timer()
    }

    /// The next request or receive that is done.
    #[inline]
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.responder.poll_completion().or_else(|| self.requester.poll_completion())
    }

    /// Takes requests that are done, in their order: those that [`poll_completion`] would return
    /// next, as far as they succeeded. How many.
    ///
    /// [`poll_completion`]: Self::poll_completion
    #[inline]
    pub fn take_done(&mut self) -> usize {
        self.requester.take_done()
    }

    #[inline]
    fn on(&mut self, event: Event) -> Result<(), Refused> {
        self.state = self.state.after(event)?;
        Ok(())
    }

    /// Brings the state up to date with both halves: either's failure is the connection's.
    #[inline]
    fn settle(&mut self) {
        let failed = self.requester.has_failed() || self.responder.has_failed();
        if failed && self.on(Event::Fail).is_ok() {
            self.requester.fail(None);
            self.responder.fail();
        }
        if self.state == State::Draining && !self.requester.flight.is_outstanding() {
            // The table has this pair.
            let _ = self.on(Event::Emptied);
        }
    }
}
