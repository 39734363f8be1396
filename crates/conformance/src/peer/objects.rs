//! Objects of the peer that a case holds. The calls are those of the transport's own types.

use super::message::{Piece, Reply, Request, Take, Taken};
use super::{Peer, Shape, Trouble, out_of_turn};
use warpverbs::transport::{Access, EndpointHandle, LocalRegion, Received, RemoteRegion};

type Result<T> = std::result::Result<T, Trouble>;

/// An object of the peer's, gone there when it is dropped here.
struct Object {
    peer: Peer,
    number: u32,
}

impl Drop for Object {
    fn drop(&mut self) {
        // The object exists at the peer; if the peer is lost, so is the object.
        let _ = self.peer.call(Request::Drop { object: self.number });
    }
}

/// A reply that fits the request.
macro_rules! expect {
    ($reply:expr, $pattern:pat => $value:expr) => {
        match $reply? {
            $pattern => Ok($value),
            other => Err(out_of_turn(&other)),
        }
    };
}

/// A `MemoryRegion` of the peer's.
pub(crate) struct PeerRegion {
    object: Object,
    local: LocalRegion,
    remote: RemoteRegion,
}

/// A `SharedReceiveQueue` of the peer's.
pub(crate) struct PeerQueue {
    object: Object,
}

/// An `Endpoint` of the peer's, with its `Poster`.
pub(crate) struct PeerEndpoint {
    object: Object,
    handle: EndpointHandle,
}

impl Peer {
    /// Zeroed memory, which kernels reach if there are any.
    pub(crate) fn region(&self, len: usize, access: Access) -> Result<PeerRegion> {
        self.make_region(len as u64, access, false)
    }

    /// The same in another protection domain than the endpoints'.
    pub(crate) fn foreign_region(&self, len: usize, access: Access) -> Result<PeerRegion> {
        self.make_region(len as u64, access, true)
    }

    fn make_region(&self, len: u64, access: Access, foreign: bool) -> Result<PeerRegion> {
        let reply = self.call(Request::Region { len, access: access.bits(), foreign });
        expect!(reply, Reply::Region { object, addr, lkey, rkey } => PeerRegion {
            object: self.object(object),
            local: LocalRegion::new(addr, len, lkey),
            remote: RemoteRegion::new(addr, len, rkey),
        })
    }

    pub(crate) fn srq(&self, depth: u32, sges: u32) -> Result<PeerQueue> {
        let reply = self.call(Request::Queue { depth, sges });
        expect!(reply, Reply::Queue { object } => PeerQueue { object: self.object(object) })
    }

    pub(crate) fn endpoint(&self, shape: &Shape) -> Result<PeerEndpoint> {
        match self.call(Request::Endpoint { shape: shape.clone() })? {
            Reply::Endpoint { object, handle } => {
                let object = self.object(object);
                let bad = |error| Trouble::Other(format!("the peer's handle: {error}"));
                Ok(PeerEndpoint {
                    object,
                    handle: EndpointHandle::from_bytes(&handle).map_err(bad)?,
                })
            }
            other => Err(out_of_turn(&other)),
        }
    }

    fn object(&self, number: u32) -> Object {
        Object { peer: self.clone(), number }
    }
}

impl Object {
    fn done(&self, request: Request) -> Result<()> {
        expect!(self.peer.call(request), Reply::Done => ())
    }

    fn posted(&self, request: Request) -> Result<u64> {
        expect!(self.peer.call(request), Reply::Posted { index } => index)
    }
}

fn pieces(parts: impl AsRef<[LocalRegion]>) -> Vec<Piece> {
    parts.as_ref().iter().copied().map(Piece::from).collect()
}

impl PeerRegion {
    pub(crate) fn addr(&self) -> u64 {
        self.remote.addr()
    }

    pub(crate) fn rkey(&self) -> u32 {
        self.remote.rkey()
    }

    pub(crate) fn local(&self) -> LocalRegion {
        self.local
    }

    pub(crate) fn remote(&self) -> RemoteRegion {
        self.remote
    }

    pub(crate) fn write(&self, at: u64, data: &[u8]) -> Result<()> {
        let (region, data) = (self.object.number, data.to_vec());
        self.object.done(Request::Store { region, at, data })
    }

    pub(crate) fn read(&self, at: u64, len: u64) -> Result<Vec<u8>> {
        let region = self.object.number;
        expect!(self.object.peer.call(Request::Load { region, at, len }), Reply::Data(data) => data)
    }
}

impl PeerQueue {
    /// As `EndpointConfig::srq` has it.
    pub(crate) fn number(&self) -> u32 {
        self.object.number
    }

    pub(crate) fn post_recv(&self, to: impl AsRef<[LocalRegion]>) -> Result<()> {
        self.object.done(Request::Offer { queue: self.object.number, to: pieces(to) })
    }
}

impl PeerEndpoint {
    pub(crate) fn handle(&self) -> EndpointHandle {
        self.handle
    }

    pub(crate) fn connect(&self, to: &EndpointHandle) -> Result<()> {
        self.object.done(Request::Connect { endpoint: self.number(), to: to.to_bytes() })
    }

    pub(crate) fn reset(&self) -> Result<()> {
        self.object.done(Request::Reset { endpoint: self.number() })
    }

    pub(crate) fn fail(&self) -> Result<()> {
        self.object.done(Request::Fail { endpoint: self.number() })
    }

    /// Its error, if any.
    pub(crate) fn health(&self) -> Result<Option<String>> {
        let reply = self.object.peer.call(Request::Health { endpoint: self.number() });
        expect!(reply, Reply::Health(found) => found)
    }

    /// The index of the receive.
    pub(crate) fn post_recv(&self, to: impl AsRef<[LocalRegion]>) -> Result<u64> {
        self.object.posted(Request::Receive { endpoint: self.number(), to: pieces(to) })
    }

    pub(crate) fn wait_recv(&self) -> Result<Received> {
        let got = self.arrived(true)?;
        got.ok_or_else(|| Trouble::Other("the peer waited for a message, and has none".into()))
    }

    pub(crate) fn poll_recv(&self) -> Result<Option<Received>> {
        self.arrived(false)
    }

    fn arrived(&self, wait: bool) -> Result<Option<Received>> {
        let reply = self.object.peer.call(Request::Arrived { endpoint: self.number(), wait });
        expect!(reply, Reply::Arrived(got) => got.map(Received::from))
    }

    /// Unsignalled.
    pub(crate) fn post_write(&self, from: LocalRegion, to: RemoteRegion) -> Result<u64> {
        let (from, to) = (from.into(), to.into());
        self.object.posted(Request::Write { endpoint: self.number(), from, to })
    }

    /// Unsignalled.
    pub(crate) fn post_write_inline(&self, data: &[u8], to: RemoteRegion) -> Result<u64> {
        let (data, to) = (data.to_vec(), to.into());
        self.object.posted(Request::WriteInline { endpoint: self.number(), data, to })
    }

    pub(crate) fn quiet(&self) -> Result<()> {
        self.object.done(Request::Quiet { endpoint: self.number() })
    }

    /// Starts a kernel at the peer's that takes `count` messages of up to `room` bytes, one behind
    /// the other into `region`, with up to `window` receives open; 0 if others offer them.
    pub(crate) fn take(
        &self,
        region: &PeerRegion,
        (count, room, window): (u32, u32, u32),
    ) -> Result<()> {
        let (endpoint, region) = (self.number(), region.object.number);
        self.object.done(Request::Take(Take { endpoint, region, room, count, window }))
    }

    /// Waits for that kernel's end.
    pub(crate) fn taken(&self) -> Result<Taken> {
        expect!(self.object.peer.call(Request::Taken), Reply::Taken(taken) => taken)
    }

    fn number(&self) -> u32 {
        self.object.number
    }
}
