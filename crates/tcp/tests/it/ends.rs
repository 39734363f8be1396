//! Two ends of a link over a network made of byte queues: any number of bytes at a time, in
//! any order across sockets, with placement that takes its time.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, RngExt, SeedableRng};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use warpverbs_tcp::protocol::{
    Agreed, Due, Event, Failure, Framing, Kind, Memory, Need, Op, PeerError, PostError, Protocol,
    Refusal, Request, Source, Target,
};

pub(crate) const KEY: u32 = 77;
pub(crate) const READ_ONLY: u32 = 78;
pub(crate) const BASE: u64 = 0x10_0000;
pub(crate) const REGION: usize = 400_000;

/// The registered memory of one end.
pub(crate) struct Store {
    pub(crate) bytes: Vec<u8>,
    /// Whether the key was taken back.
    pub(crate) revoked: bool,
}

impl Memory for Store {
    fn check(&mut self, key: u32, addr: u64, len: u64, need: Need) -> Result<(), Refusal> {
        if self.revoked || ![KEY, READ_ONLY].contains(&key) {
            return Err(Refusal::UnknownKey);
        }
        if key == READ_ONLY && need == Need::Write {
            return Err(Refusal::NotAllowed);
        }
        let end = addr.checked_add(len).ok_or(Refusal::OutOfBounds)?;
        let inside = addr >= BASE && end <= BASE + self.bytes.len() as u64;
        if inside { Ok(()) } else { Err(Refusal::OutOfBounds) }
    }
}

/// One end, with everything an engine would keep.
pub(crate) struct End {
    pub(crate) link: Protocol<()>,
    pub(crate) store: Store,
    /// The memory of requests.
    pub(crate) memory: FxHashMap<Request, Vec<u8>>,
    buffers: FxHashMap<(Kind, u64), Vec<u8>>,
    /// Requests that are not complete, and the results of others.
    open: Vec<Request>,
    pub(crate) done: Vec<(Request, Result<u64, Failure>)>,
    pub(crate) events: Vec<Event>,
    /// Bytes that were read from a socket and are not where they belong yet.
    placing: Vec<(Due, Vec<u8>)>,
    /// Bytes to be sent, by socket.
    pub(crate) wires: Vec<VecDeque<u8>>,
    /// Payload bytes that a frame has put on a wire, so that "sent" can be said late.
    pub(crate) notes_in: Vec<Vec<u8>>,
}

impl End {
    pub(crate) fn new(agreed: Agreed) -> Self {
        Self {
            link: Protocol::new(agreed),
            store: Store { bytes: vec![0; REGION], revoked: false },
            memory: FxHashMap::default(),
            buffers: FxHashMap::default(),
            open: Vec::new(),
            done: Vec::new(),
            events: Vec::new(),
            placing: Vec::new(),
            wires: vec![VecDeque::new(); usize::from(agreed.sockets)],
            notes_in: Vec::new(),
        }
    }

    /// Posts a request on `bytes`.
    pub(crate) fn post(
        &mut self,
        op: Op,
        bytes: Vec<u8>,
        remote: (u32, u64),
    ) -> Result<Request, PostError> {
        let request = self.link.post(op, (), bytes.len() as u64, remote)?;
        self.memory.insert(request, bytes);
        self.open.push(request);
        Ok(request)
    }

    /// Puts the next frame of a socket on its wire.
    pub(crate) fn transmit(&mut self, socket: u16, lazy: bool) -> bool {
        let frame = self.link.next_frame(socket, &mut self.store);
        let frame = match frame {
            None if socket == 0 => self.link.update(lazy),
            frame => frame,
        };
        let Some(frame) = frame else { return false };
        self.wires[usize::from(frame.carrier)].extend(frame.header);
        if let Some(payload) = frame.payload {
            let range = payload.offset as usize..payload.offset as usize + payload.len as usize;
            let zeros;
            let bytes = match payload.source {
                Source::Request(request) => &self.memory[&request][range],
                Source::Region { addr, .. } => {
                    let from = (addr - BASE) as usize;
                    &self.store.bytes[from + range.start..from + range.end]
                }
                Source::Zeros => {
                    zeros = vec![0; payload.len as usize];
                    &zeros
                }
            };
            self.wires[usize::from(socket)].extend(bytes);
            self.link.sent(payload.kind, payload.id, payload.len.into());
        }
        true
    }

    /// Reads up to `most` bytes of a socket. Returns how many it read.
    pub(crate) fn receive(
        &mut self,
        socket: u16,
        from: &mut VecDeque<u8>,
        most: usize,
    ) -> Result<usize, PeerError> {
        if let Some(mut due) = self.link.due(socket) {
            due.len = due.len.min(most.min(from.len()) as u64);
            let bytes: Vec<u8> = from.drain(..due.len as usize).collect();
            self.link.taken(socket, due.len);
            if due.len != 0 {
                self.placing.push((due, bytes));
            }
            return Ok(due.len as usize);
        }
        if !self.link.takes_headers(socket) {
            return Ok(0);
        }
        let most = most.min(from.len());
        let bytes = &from.make_contiguous()[..most];
        let taken = self.link.feed(socket, bytes, &mut self.store)?;
        from.drain(..taken);
        Ok(taken)
    }

    /// Brings one piece of payload where it belongs.
    pub(crate) fn place(&mut self, at: usize) {
        let (due, bytes) = self.placing.swap_remove(at);
        let blank = || vec![0; due.total as usize];
        let target = match due.target {
            Target::Request(request) => self.memory.get_mut(&request).expect("posted"),
            Target::Buffer => self.buffers.entry((due.kind, due.id)).or_insert_with(blank),
            Target::Region { addr, .. } => &mut self.store.bytes[(addr - BASE) as usize..],
            Target::Discard => &mut vec![0; due.total as usize],
        };
        let offset = due.offset as usize;
        target[offset..offset + bytes.len()].copy_from_slice(&bytes);
        self.link.placed(due.kind, due.id, due.len);
    }

    pub(crate) fn placing(&self) -> usize {
        self.placing.len()
    }

    /// Takes what has happened.
    pub(crate) fn poll(&mut self) {
        while let Some(event) = self.link.poll_event() {
            match event {
                Event::Deliver { id, .. } => {
                    let bytes = self.buffers.remove(&(Kind::Message, id)).unwrap_or_default();
                    let memory = self.memory.get_mut(&Request::receive(id)).expect("posted");
                    memory[..bytes.len()].copy_from_slice(&bytes);
                    self.link.delivered(id, false);
                }
                Event::Notification { id, len } => {
                    let bytes = self.buffers.remove(&(Kind::Notification, id));
                    self.notes_in.push(bytes.unwrap_or_default());
                    self.link.consumed(len);
                }
                _ => {}
            }
            self.events.push(event);
        }
        let (protocol, done) = (&mut self.link, &mut self.done);
        self.open.retain(|request| {
            let result = protocol.take(*request);
            done.extend(result.map(|result| (*request, result)));
            result.is_none()
        });
    }

    /// Events of this kind.
    pub(crate) fn count(&self, is: impl Fn(&Event) -> bool) -> usize {
        self.events.iter().filter(|event| is(event)).count()
    }

    /// Requests with this outcome.
    pub(crate) fn done(&self, op: Op, is: impl Fn(&Result<u64, Failure>) -> bool) -> usize {
        self.done.iter().filter(|(request, result)| request.op == op && is(result)).count()
    }
}

/// Both ends. `wires` of an end lead to the other.
pub(crate) struct Pair {
    pub(crate) ends: [End; 2],
    pub(crate) rng: StdRng,
    sockets: u16,
}

impl Pair {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let sockets = rng.random_range(1..=5);
        let framing = |rng: &mut StdRng| match sockets {
            1 => Framing::Inline,
            _ => *[Framing::Inline, Framing::Separate].choose(rng).expect("two"),
        };
        let (receive, send) = (framing(&mut rng), framing(&mut rng));
        let chunk = 64 << 10;
        let (window, peer_window) = (rng.random_range(264_192..600_000), 300_000);
        let open = rng.random_range(1..=6);
        let near = Agreed { sockets, chunk, open, window, peer_window, receive, send };
        let far = Agreed {
            receive: send,
            send: receive,
            window: peer_window,
            peer_window: window,
            ..near
        };
        Self { ends: [End::new(near), End::new(far)], rng, sockets }
    }

    /// One random step of the network or of an end. Whether anything happened.
    pub(crate) fn step(&mut self, lazy: bool) -> Result<bool, PeerError> {
        let who = self.rng.random_range(0..2);
        let socket = self.rng.random_range(0..self.sockets);
        let [near, far] = &mut self.ends;
        let (from, to) = if who == 0 { (near, far) } else { (far, near) };
        match self.rng.random_range(0..4) {
            0 if from.wires.iter().all(|wire| wire.len() < 200_000) => {
                Ok(from.transmit(socket, lazy))
            }
            1 | 2 => {
                let most = match self.rng.random_range(0..3) {
                    0 => self.rng.random_range(1..100),
                    1 => self.rng.random_range(1..5000),
                    _ => usize::MAX,
                };
                let wire = &mut from.wires[usize::from(socket)];
                Ok(to.receive(socket, wire, most)? != 0)
            }
            _ if from.placing() != 0 => {
                let at = self.rng.random_range(0..from.placing());
                from.place(at);
                from.poll();
                Ok(true)
            }
            _ => {
                from.poll();
                Ok(false)
            }
        }
    }

    /// Steps until nothing happens any more.
    pub(crate) fn settle(&mut self) -> Result<(), PeerError> {
        let mut idle = 0;
        while idle < 2000 {
            idle = if self.step(idle > 200)? { 0 } else { idle + 1 };
        }
        for end in &mut self.ends {
            end.poll();
        }
        Ok(())
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.rng.fill_bytes(&mut bytes);
        bytes
    }
}
