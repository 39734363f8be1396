//! UDP sockets, in batches, with segmentation by the kernel where it can.

use super::descriptors::own;
use super::port::Place;
use super::shm::Shm;
use super::udp_option::{NoChecksum, set_no_checksum};
use super::{Arrival, Link, Peer, QpnPart, ROCE_PORT, Seal, Sent, TrainLimits};
use crate::{LinkError, Mtu};
use nix::sys::socket::{setsockopt, sockopt};
use quinn_udp::{RecvMeta, Transmit, UdpSocketState};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

/// Bytes asked of the kernel for either direction; it may grant less.
const BUFFER: usize = 8 << 20;
/// Room for one datagram, or for what the kernel joined of several.
const RECEIVE: usize = 1 << 16;
/// Of these at a time: they should stay in the cache until they are looked at.
const BATCH: usize = 8;
/// After this many receives in a row that found something, everything that lay there before was read.
const LOADED: u32 = 64;
/// Before it is asked again whether a peer is on this host.
const PAUSE: Duration = Duration::from_secs(1);

/// How a UDP link is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpConfig {
    /// Address and port to bind to: an address of one interface. Port 0 takes any free port.
    pub bind: SocketAddr,
    /// The largest path MTU. `None`: the largest whose packets fit the MTU of the interface that
    /// has the address, as Linux reports it: 4096 on the loopback interface and where jumbo frames of
    /// 4200 bytes or more are on, 1024 on an ordinary Ethernet; 1024 if it is unknown. The
    /// network between two hosts must carry packets of the smaller of both MTUs.
    pub max_mtu: Option<Mtu>,
    /// NICs of other processes of this host and user may have the same address and port, up to 64,
    /// if they share it as well: the QP number in a packet says whose it is.
    pub shared: bool,
}

impl UdpConfig {
    /// Port 4791 at `address`.
    pub fn new(address: IpAddr) -> Self {
        Self::at(SocketAddr::new(address, ROCE_PORT))
    }

    /// An address and port that no other NIC shares.
    pub fn at(bind: SocketAddr) -> Self {
        Self { bind, max_mtu: None, shared: false }
    }
}

/// A bound socket.
#[derive(Debug)]
pub struct Udp {
    socket: UdpSocket,
    state: UdpSocketState,
    local: SocketAddr,
    max_mtu: Mtu,
    window: usize,
    buffers: Box<[u8]>,
    metas: [RecvMeta; BATCH],
    place: Option<Place>,
    /// With the peers on this host. `None`: the system has refused it, and their silence is loss.
    meeting: Option<Shm>,
    /// Receives in a row that found something.
    found: u32,
}

impl Udp {
    /// Binds.
    ///
    /// # Errors
    /// "Any" as address; what the system refuses, such as a port in use.
    pub fn bind(config: &UdpConfig) -> Result<Self, LinkError> {
        let UdpConfig { bind, max_mtu, shared } = *config;
        if bind.ip().is_unspecified() || bind.ip().is_multicast() {
            return Err(LinkError::UnspecifiedAddress { addr: bind });
        }
        let opened = match shared {
            false => open(bind).map(|opened| (opened, None)),
            true => share(bind),
        };
        let opened = opened.map_err(|error| LinkError::open(bind, &error));
        let ((socket, state, local), place) = opened?;
        let part = place.as_ref().map(Place::part);
        let meeting = Shm::beside_udp(local, part);
        let meeting = meeting.inspect_err(|error| tracing::info!(%error, "peers are not watched"));
        let granted = state.recv_buffer_size((&socket).into()).unwrap_or(RECEIVE);
        Ok(Self {
            socket,
            state,
            local,
            max_mtu: max_mtu.unwrap_or_else(|| super::interface::path_mtu(bind.ip())),
            // The kernel counts its own records as well: up to one and a half times what
            // connections count for a packet.
            window: granted / 3 * 2,
            buffers: vec![0; RECEIVE * BATCH].into(),
            metas: [RecvMeta::default(); BATCH],
            place,
            meeting: meeting.ok(),
            found: 0,
        })
    }
}

/// A socket, what it can do, and where it is.
type Opened = (UdpSocket, UdpSocketState, SocketAddr);

fn open(bind: SocketAddr) -> io::Result<Opened> {
    let socket = Socket::new(Domain::for_address(bind), Type::DGRAM, Some(Protocol::UDP))?;
    if bind.is_ipv6() {
        // Other RoCEv2 NICs send none: the ICRC is check enough.
        set_no_checksum(&socket, NoChecksum::Received)?;
    }
    socket.bind(&bind.into())?;
    prepare(socket)
}

/// A place at the port of `bind`, or at a free one.
fn share(bind: SocketAddr) -> io::Result<(Opened, Option<Place>)> {
    let bind = match bind.port() {
        0 => UdpSocket::bind(bind)?.local_addr()?,
        _ => bind,
    };
    let place = Place::take(bind)?;
    let opened = prepare(place.socket()?)?;
    // The system would join datagrams for different parts.
    setsockopt(&opened.0, sockopt::UdpGroSegment, &false)?;
    Ok((opened, Some(place)))
}

fn prepare(socket: Socket) -> io::Result<Opened> {
    // A buffer size that the kernel does not grant costs speed only.
    let _ = socket.set_recv_buffer_size(BUFFER);
    let _ = socket.set_send_buffer_size(BUFFER);
    let socket = UdpSocket::from(own(socket.into()));
    // Also sets non-blocking, don't-fragment, and joining on arrival.
    let state = UdpSocketState::new((&socket).into())?;
    let local = socket.local_addr()?;
    Ok((socket, state, local))
}

impl Link for Udp {
    fn local(&self) -> SocketAddr {
        self.local
    }

    fn max_mtu(&self) -> Mtu {
        self.max_mtu
    }

    fn window_bytes(&self) -> usize {
        self.window
    }

    fn train_limits(&self) -> TrainLimits {
        let bytes = warpverbs_wire::Envelope::MAX_DATAGRAM;
        TrainLimits { segments: self.state.max_gso_segments().max(1), bytes }
    }

    fn describe(&self) -> String {
        match self.qpn_part() {
            None => format!("UDP at {}", self.local),
            Some(part) => format!("UDP at {}, shared, place {}", self.local, part.index()),
        }
    }

    fn qpn_part(&self) -> Option<QpnPart> {
        self.place.as_ref().map(Place::part)
    }

    fn send(&mut self, _now: Duration, to: SocketAddr, train: &[u8], segment: usize) -> Sent {
        let transmit = Transmit {
            destination: to,
            ecn: None,
            contents: train,
            segment_size: (segment < train.len()).then_some(segment),
            src_ip: None,
        };
        match self.state.try_send((&self.socket).into(), &transmit) {
            Ok(()) => Sent::Taken,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Sent::Blocked,
            Err(error) => Sent::Lost(error.kind()),
        }
    }

    fn meet(&mut self, now: Duration, to: SocketAddr, part: QpnPart) {
        if let Some(meeting) = &mut self.meeting {
            meeting.meet_at(now, to, part, PAUSE);
        }
    }

    fn peer(&mut self, now: Duration, to: SocketAddr, part: QpnPart) -> Peer {
        let meeting = self.meeting.as_mut();
        meeting.map_or(Peer::Unknown, |meeting| meeting.peer_at(now, to, part, PAUSE))
    }

    fn receive(&mut self, now: Duration, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        let received = {
            let mut chunks = self.buffers.chunks_exact_mut(RECEIVE);
            let mut slices: [IoSliceMut<'_>; BATCH] =
                std::array::from_fn(|_| IoSliceMut::new(chunks.next().unwrap_or_default()));
            self.state.recv((&self.socket).into(), &mut slices, &mut self.metas)
        };
        // Errors are those of datagrams sent earlier, or that there is nothing.
        let filled = received.unwrap_or(0);
        let seal = if self.local.is_ipv4() { Seal::HiddenId } else { Seal::Exact(0) };
        let mut datagrams = 0;
        for (buffer, meta) in self.buffers.chunks_exact(RECEIVE).zip(&self.metas[..filled]) {
            let bytes = &buffer[..meta.len.min(RECEIVE)];
            if bytes.is_empty() {
                // A datagram without bytes is one that was taken from the socket: more may follow.
                sink(Arrival { from: meta.addr, bytes, seal });
                datagrams += 1;
            }
            for bytes in bytes.chunks(meta.stride.max(1)) {
                sink(Arrival { from: meta.addr, bytes, seal });
                datagrams += 1;
            }
        }
        self.found = if datagrams > 0 { (self.found + 1) % LOADED } else { 0 };
        if let Some(meeting) = &mut self.meeting {
            meeting.tend(now, self.found > 0);
        }
        datagrams
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    /// Loopback delivers before `send_to` returns, so nothing is waited for.
    #[test]
    fn datagrams_without_bytes_are_counted() {
        let bind = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut udp = Udp::bind(&UdpConfig::at(bind)).unwrap();
        let peer = UdpSocket::bind(bind).unwrap();
        for _ in 0..3 * BATCH {
            peer.send_to(&[], udp.local()).unwrap();
        }
        peer.send_to(b"after them", udp.local()).unwrap();
        let (mut lens, mut calls) = (Vec::new(), 0);
        while udp.receive(Duration::ZERO, &mut |arrival| lens.push(arrival.bytes.len())) > 0 {
            calls += 1;
        }
        assert_eq!(lens, [vec![0; 3 * BATCH], vec![10]].concat());
        assert!(calls >= 4, "{calls} calls for {} datagrams", lens.len());
    }
}
