//! A link that writes what a capture would show.
//!
//! The classic format of pcap, nanoseconds, link type 101 (packets begin with the IP header). What
//! a socket hides is filled in: TTL 64 and the identification that explains the ICRC. The UDP
//! destination port is always 4791, as the ICRC has it, whatever port the link uses.

use super::{Arrival, Link, QpnPart, Seal, Sent};
use crate::Mtu;
use std::fmt;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::Duration;
use warpverbs_wire::{Envelope, Ip, Udp};

/// Nanosecond stamps, native order.
const MAGIC: u32 = 0xa1b2_3c4d;
const LINK_TYPE_RAW: u32 = 101;
const SNAP: u32 = 65535;

/// `inner`, with everything that it sends and receives written to `out`.
pub struct Pcap<L, W> {
    inner: L,
    file: File<W>,
}

struct File<W> {
    out: W,
    /// Stamp of time zero.
    since: Duration,
    packet: Vec<u8>,
    failed: bool,
}

impl<L: Link, W: Write + Send> Pcap<L, W> {
    /// Wraps a link, and writes the file's header.
    ///
    /// # Errors
    /// The errors of `out`. Later errors end the capture, not the link.
    pub fn new(mut inner: L, mut out: W) -> io::Result<Self> {
        inner.keep_icrc();
        for word in [MAGIC, 2 | 4 << 16, 0, 0, SNAP, LINK_TYPE_RAW] {
            out.write_all(&word.to_ne_bytes())?;
        }
        Ok(Self {
            inner,
            file: File { out, since: Duration::ZERO, packet: Vec::new(), failed: false },
        })
    }

    /// Stamps packets with `since` and the time on the NIC's clock together; otherwise with the
    /// latter alone.
    pub fn since(mut self, since: Duration) -> Self {
        self.file.since = since;
        self
    }
}

impl<W: Write> File<W> {
    fn put(&mut self, now: Duration, envelope: &Envelope, datagram: &[u8]) {
        if self.failed {
            return;
        }
        if let Err(error) = self.try_put(now, envelope, datagram) {
            tracing::warn!(%error, "the capture ends here: it cannot be written any more");
            self.failed = true;
        }
    }

    /// A datagram that came without an ICRC is shown with the right one.
    fn put_arrival(&mut self, now: Duration, envelope: &Envelope, datagram: &[u8], seal: Seal) {
        if seal == Seal::Absent {
            let mut sealed = datagram.to_vec();
            // A NIC sends no shorter ones.
            let _ = envelope.seal(&mut sealed);
            return self.put(now, envelope, &sealed);
        }
        let explained = envelope.open_any_id(datagram).map(|(_, envelope)| envelope);
        self.put(now, &explained.unwrap_or(*envelope), datagram);
    }

    fn try_put(&mut self, now: Duration, envelope: &Envelope, datagram: &[u8]) -> io::Result<()> {
        self.packet.clear();
        self.packet.resize(envelope.len() + datagram.len(), 0);
        let rest = envelope.emit(datagram.len(), &mut self.packet).map_err(io::Error::other)?;
        rest.copy_from_slice(datagram);
        let (len, now) = (self.packet.len() as u32, self.since + now);
        for word in [now.as_secs() as u32, now.subsec_nanos(), len, len] {
            self.out.write_all(&word.to_ne_bytes())?;
        }
        self.out.write_all(&self.packet)?;
        self.out.flush()
    }
}

pub(crate) fn envelope(from: SocketAddr, to: SocketAddr) -> Option<Envelope> {
    let ip = Ip::new(from.ip(), to.ip())?;
    Some(Envelope { ip, udp: Udp { src_port: from.port() } })
}

impl<L: Link, W: Write + Send> Link for Pcap<L, W> {
    fn inner(&self) -> Option<&dyn Link> {
        Some(&self.inner)
    }

    fn inner_mut(&mut self) -> Option<&mut dyn Link> {
        Some(&mut self.inner)
    }

    fn local(&self) -> SocketAddr {
        self.inner.local()
    }

    fn max_mtu(&self) -> Mtu {
        self.inner.max_mtu()
    }

    /// The link inside keeps it, and need not be asked.
    fn wants_icrc(&mut self, _now: Duration, _to: SocketAddr, _part: QpnPart) -> bool {
        true
    }

    fn send(&mut self, now: Duration, to: SocketAddr, train: &[u8], segment: usize) -> Sent {
        let sent = self.inner.send(now, to, train, segment);
        if sent == Sent::Taken
            && let Some(mut envelope) = envelope(self.inner.local(), to)
        {
            for (id, datagram) in (0..).zip(train.chunks(segment.max(1))) {
                if let Ip::V4(ip) = &mut envelope.ip {
                    ip.id = id;
                }
                self.file.put(now, &envelope, datagram);
            }
        }
        sent
    }

    fn receive(&mut self, now: Duration, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        let Self { inner, file } = self;
        let local = inner.local();
        inner.receive(now, &mut |arrival| {
            let Arrival { from, bytes, seal } = arrival;
            if let Some(envelope) = envelope(from, local) {
                file.put_arrival(now, &envelope, bytes, seal);
            }
            sink(arrival);
        })
    }
}

impl<L: fmt::Debug, W> fmt::Debug for Pcap<L, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pcap({:?})", self.inner)
    }
}
