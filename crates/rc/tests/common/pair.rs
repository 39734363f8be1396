//! Two ends of a connection and the links between them.

use std::collections::HashMap;

use warpverbs_rc::{Completion, Config, Connection, Instant, Payload, Place, Request, WrId};
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
}

impl Pair {
    /// Sends what is to be sent, at most `burst` packets from each end.
    pub(crate) fn transmit(&mut self, burst: usize) {
        for (node, link) in self.nodes.iter_mut().zip(&mut self.links) {
            for _ in 0..burst {
                let Some(packet) = node.transmit(self.now) else { break };
                link.send(self.now, &packet);
            }
            node.poll_completions();
        }
    }

    /// The next moment at which a packet arrives or a timer is due.
    pub(crate) fn next_event(&self) -> Option<u64> {
        let arrivals = self.links.iter().filter_map(Link::next_arrival);
        let timers = (self.nodes.iter()).filter_map(|node| node.connection.poll_timeout());
        arrivals.chain(timers.map(Instant::as_nanos)).min()
    }

    /// Everything that is due happens.
    pub(crate) fn happen(&mut self) {
        for (from, link) in self.links.iter_mut().enumerate() {
            let node = &mut self.nodes[1 - from];
            while let Some(packet) = link.arrive(self.now) {
                node.deliver(self.now, &packet);
            }
        }
        for node in &mut self.nodes {
            node.connection.handle_timeout(Instant::from_nanos(self.now));
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
