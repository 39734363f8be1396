//! Two ends of a connection and the links between them.

use std::collections::HashMap;

use warpverbs_rc::{Completion, Config, Connection, Instant, Payload, Peer, Place, Request, WrId};
use warpverbs_wire::{Checks, Envelope, Ip, Ipv4, Packet, Transport, Udp};

use super::host::Memory;
use super::link::Link;

/// One end: a connection, its memory, and the buffers of its requests.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) connection: Connection,
    pub(crate) memory: Memory,
    /// Payload to send, or space for what comes back.
    pub(crate) buffers: HashMap<WrId, Vec<u8>>,
    pub(crate) completions: Vec<Completion>,
    /// Packets that were no packets of ours: changed on the way.
    pub(crate) broken: u64,
}

impl Node {
    pub(crate) fn new(config: &Config, memory: usize) -> Self {
        let mut connection = Connection::new(config).expect("configuration in range");
        connection.start().expect("a new connection starts");
        Self {
            connection,
            memory: Memory::new(memory),
            buffers: HashMap::new(),
            completions: Vec::new(),
            broken: 0,
        }
    }

    pub(crate) fn post(&mut self, request: Request, buffer: Vec<u8>) -> bool {
        assert_eq!(request.len as usize, buffer.len());
        let accepted = self.connection.post(request).is_ok();
        if accepted {
            self.buffers.insert(request.id, buffer);
        }
        accepted
    }

    pub(crate) fn deliver(&mut self, now: u64, packet: &[u8]) {
        let Ok(Packet { transport: Transport { bth, ext, payload }, .. }) =
            Packet::parse(packet, &Checks::STRICT)
        else {
            self.broken += 1;
            return;
        };
        let (len, now) = (payload.len() as u32, Instant::from_nanos(now));
        let place = self.connection.handle_packet(now, &bth, &ext, len, &mut self.memory);
        self.place(place, payload);
        self.poll_completions();
    }

    fn place(&mut self, place: Place, payload: &[u8]) {
        match place {
            Place::Nothing => {}
            Place::Region { va, .. } => self.memory.write(va, payload),
            Place::Receive { id, offset } => self.memory.scatter(id, offset, payload),
            Place::Request { id, offset } => self.place_response(id, offset, payload),
            Place::Original { id, value } => self.place_response(id, 0, &value.to_le_bytes()),
        }
    }

    fn place_response(&mut self, id: WrId, offset: u32, payload: &[u8]) {
        let start = offset as usize;
        self.buffers.get_mut(&id).expect("a posted request")[start..start + payload.len()]
            .copy_from_slice(payload);
    }

    pub(crate) fn poll_completions(&mut self) {
        self.completions.extend(std::iter::from_fn(|| self.connection.poll_completion()));
    }

    /// The next packet as bytes.
    pub(crate) fn transmit(&mut self, now: u64) -> Option<Vec<u8>> {
        let transmit = self.connection.poll_transmit(Instant::from_nanos(now), &mut self.memory)?;
        let payload = match transmit.payload {
            Payload::Empty => &[][..],
            Payload::Request { id, offset, len } => {
                &self.buffers[&id][offset as usize..(offset + len) as usize]
            }
            Payload::Region { va, len, .. } => &self.memory.bytes[self.memory.range(va, len)],
        };
        let ip = Ip::V4(Ipv4::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into()));
        let packet = Packet {
            envelope: Envelope { ip, udp: Udp { src_port: 0xc000 } },
            transport: Transport { bth: transmit.bth, ext: transmit.ext, payload },
        };
        let mut bytes = vec![0xa5; packet.len()];
        packet.emit(&mut bytes).expect("headers and payload fit the opcode");
        Some(bytes)
    }
}

#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) now: u64,
    pub(crate) nodes: [Node; 2],
    /// `links[i]` leads away from `nodes[i]`.
    pub(crate) links: [Link; 2],
    pub(crate) processors: [Processor; 2],
}

/// Nanoseconds between two looks.
const LOOK: u64 = 2000;

/// An end's share of its host's processors.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Processor {
    /// It has none until then.
    pub(crate) from: u64,
    /// How often it has looked for packets until none were left, also on their way.
    looks: u64,
    /// When they were counted.
    counted: u64,
    /// The other end is on another host: it learns nothing of this.
    pub(crate) far: bool,
    pub(crate) ended: bool,
}

impl Processor {
    fn shown(self) -> Peer {
        match self {
            Self { far: true, .. } => Peer::Unknown,
            Self { ended: true, .. } => Peer::Ended,
            Self { looks, .. } => Peer::Looked(looks),
        }
    }

    pub(crate) fn runs(self, now: u64) -> bool {
        !self.ended && self.from <= now
    }

    /// It has looked all the time, and found nothing if nothing was on its way.
    fn count(&mut self, now: u64, found: bool) {
        self.counted = self.counted.max(self.from);
        if !self.runs(now) || found {
            self.counted = self.counted.max(now);
        }
        let looks = now.saturating_sub(self.counted) / LOOK;
        self.looks += looks;
        self.counted += looks * LOOK;
    }
}

impl Pair {
    /// Of two hosts.
    pub(crate) fn new(nodes: [Node; 2], links: [Link; 2]) -> Self {
        let processors = [Processor { far: true, ..Processor::default() }; 2];
        Self { now: 0, nodes, links, processors }
    }

    /// Sends what is to be sent, at most `burst` packets from each end.
    pub(crate) fn transmit(&mut self, burst: usize) {
        let Self { now, nodes, links, processors } = self;
        let ends = nodes.iter_mut().zip(links).zip(processors);
        for ((node, link), _) in ends.filter(|(_, processor)| processor.runs(*now)) {
            for _ in 0..burst {
                let Some(packet) = node.transmit(*now) else { break };
                link.send(*now, &packet);
            }
            node.poll_completions();
        }
    }

    /// The next moment at which a packet arrives or a timer is due.
    pub(crate) fn next_event(&self) -> Option<u64> {
        let due = (0..2).filter(|i| !self.processors[*i].ended).filter_map(|i| {
            let timer = self.nodes[i].connection.poll_timeout().map(Instant::as_nanos);
            let from = self.processors[i].from;
            let runs_again = Some(from).filter(|from| (self.now + 1..u64::MAX).contains(from));
            let events = [timer, self.links[1 - i].next_arrival(), runs_again];
            Some(events.into_iter().flatten().min()?.max(from))
        });
        due.min()
    }

    /// Everything that is due happens.
    pub(crate) fn happen(&mut self) {
        for (processor, link) in self.processors.iter_mut().zip(self.links.iter().rev()) {
            processor.count(self.now, link.next_arrival().is_some());
        }
        // As it was before the packets are received.
        let peers = [1, 0].map(|peer: usize| self.processors[peer].shown());
        for (i, peer) in peers.into_iter().enumerate() {
            if !self.processors[i].runs(self.now) {
                continue;
            }
            let (node, link) = (&mut self.nodes[i], &mut self.links[1 - i]);
            while let Some(packet) = link.arrive(self.now) {
                node.deliver(self.now, &packet);
            }
            node.connection.handle_timeout(Instant::from_nanos(self.now), peer);
            node.poll_completions();
        }
    }

    /// Runs until nothing is to happen, or `deadline`.
    pub(crate) fn drive(&mut self, deadline: u64) {
        loop {
            self.transmit(usize::MAX);
            match self.next_event() {
                Some(at) if at <= deadline => self.now = self.now.max(at),
                _ => return,
            }
            self.happen();
        }
    }
}
