//! Two ends in one process: what one sends the other receives, in order, at once.

use super::{Arrival, Link, Seal, Sent};
use crate::Mtu;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Datagrams that wait at one end, at most; later ones are lost.
const ROOM: usize = 4096;

type Queue = Arc<Mutex<VecDeque<Vec<u8>>>>;

/// One end of a cable.
#[derive(Debug)]
pub struct Cable {
    local: SocketAddr,
    peer: SocketAddr,
    incoming: Queue,
    outgoing: Queue,
}

/// A cable between two addresses.
pub fn cable(a: SocketAddr, b: SocketAddr) -> (Cable, Cable) {
    let (to_a, to_b) = (Queue::default(), Queue::default());
    let at_a = Cable { local: a, peer: b, incoming: to_a.clone(), outgoing: to_b.clone() };
    (at_a, Cable { local: b, peer: a, incoming: to_b, outgoing: to_a })
}

impl Link for Cable {
    fn local(&self) -> SocketAddr {
        self.local
    }

    fn max_mtu(&self) -> Mtu {
        Mtu::B4096
    }

    fn send(&mut self, _now: Duration, to: SocketAddr, train: &[u8], segment: usize) -> Sent {
        if to != self.peer {
            return Sent::Lost(io::ErrorKind::HostUnreachable);
        }
        let mut queue = self.outgoing.lock().unwrap_or_else(PoisonError::into_inner);
        for datagram in train.chunks(segment.max(1)) {
            if queue.len() == ROOM {
                return Sent::Lost(io::ErrorKind::OutOfMemory);
            }
            queue.push_back(datagram.to_vec());
        }
        Sent::Taken
    }

    fn receive(&mut self, _now: Duration, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        let mut queue = self.incoming.lock().unwrap_or_else(PoisonError::into_inner);
        let batch: Vec<_> = (0..64).map_while(|_| queue.pop_front()).collect();
        drop(queue);
        let (from, seal) = (self.peer, Seal::Exact(0));
        batch.iter().for_each(|bytes| sink(Arrival { from, bytes, seal }));
        batch.len()
    }
}
