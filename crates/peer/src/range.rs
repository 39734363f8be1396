//! Ranges of memory that two processes use together, pair by pair: peers come and go.
//!
//! The owner's [`Exporter::export`] makes a [`RangeOffer`] of a buffer, which travels by whatever
//! means the program has. [`reach`] makes of it a [`RemoteRange`]: the memory mapped here, or its
//! address and key for the NIC.
//!
//! | memory | direct | RDMA |
//! |---|---|---|
//! | of an [arena](warpverbs_gpu::Arena), or by CUDA's virtual memory management | a descriptor for each allocation | if registered |
//! | `cudaMalloc` | an IPC handle | if registered |
//! | other host memory | no | if registered |

use crate::descriptor::{self, DescriptorServer, Secrets, Ticket, Trust};
use crate::{Decision, Identity, Introduction, Reason, Route};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use warpverbs_gpu::{Buffer, Gpu};
use warpverbs_mem::{Share, ShareHandle, SharePiece};
use warpverbs_transport::{MemoryRegion, RemoteRegion};

/// One allocation of a range.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Piece {
    Descriptor(Ticket),
    CudaIpc { handle: Vec<u8>, len: u64 },
    HipIpc { handle: Vec<u8>, len: u64 },
}

/// Offer of a range, with everything that a peer needs to reach it. Its readers may use the memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeOffer {
    len: u64,
    /// Where it begins in the first piece.
    offset: u64,
    pieces: Result<Vec<Piece>, Reason>,
    /// [`RemoteRegion::to_bytes`].
    region: Option<Vec<u8>>,
}

impl RangeOffer {
    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether processes of the same machine may be able to map it.
    pub fn is_mappable(&self) -> bool {
        self.pieces.is_ok()
    }
}

/// Offers memory of this process to its peers. Cloning shares it; its thread ends with the last
/// clone and the last [`Exported`].
#[derive(Clone, Debug)]
pub struct Exporter {
    introduction: Introduction,
    server: Arc<Mutex<DescriptorServer>>,
}

impl Exporter {
    /// Starts to listen for peers that ask for descriptors.
    ///
    /// # Errors
    /// As [`DescriptorServer::start`].
    pub fn start(gpu: &dyn Gpu) -> io::Result<Self> {
        let server = DescriptorServer::start()?;
        let introduction = Introduction::new(Identity::of_this_process(gpu), &server);
        Ok(Self { introduction, server: Arc::new(Mutex::new(server)) })
    }

    /// Facts of this process that peers need.
    pub fn introduction(&self) -> &Introduction {
        &self.introduction
    }

    /// Offers one descriptor, as [`DescriptorServer::offer`].
    ///
    /// # Errors
    /// As there.
    pub fn offer(&self, fd: OwnedFd, len: u64) -> io::Result<Ticket> {
        lock(&self.server).offer(fd, len)
    }

    /// Takes that back. Peers that have it keep it.
    pub fn withdraw(&self, ticket: &Ticket) {
        lock(&self.server).withdraw(ticket);
    }

    /// Offers `buffer` to be mapped, if it can be, and by RDMA if `region` is its registration.
    /// Why it cannot be mapped is part of the offer.
    pub fn export(&self, buffer: Buffer, region: Option<Arc<MemoryRegion>>) -> Exported {
        let (mut tickets, mut offset) = (Vec::new(), 0);
        let shared = |error: &dyn fmt::Display| Reason::new("sharing the memory", error);
        let pieces = buffer.region().share().map_err(|error| shared(&error)).and_then(|share| {
            offset = share.offset;
            let pieces = share.pieces.into_iter().map(|piece| match piece.handle {
                ShareHandle::CudaIpc(handle) => {
                    Ok(Piece::CudaIpc { handle: handle.into(), len: piece.len })
                }
                ShareHandle::HipIpc(handle) => {
                    Ok(Piece::HipIpc { handle: handle.into(), len: piece.len })
                }
                ShareHandle::Descriptor(fd) => {
                    let ticket = self.offer(fd, piece.len);
                    let ticket = ticket.map_err(|error| shared(&error))?;
                    tickets.push(ticket.clone());
                    Ok(Piece::Descriptor(ticket))
                }
            });
            pieces.collect()
        });
        let len = buffer.len() as u64;
        let bytes = region.as_ref().map(|region| region.remote().to_bytes());
        let offer = RangeOffer { len, offset, pieces, region: bytes };
        Exported { offer, tickets, server: self.server.clone(), region, buffer }
    }
}

fn lock(server: &Mutex<DescriptorServer>) -> MutexGuard<'_, DescriptorServer> {
    server.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A range that is on offer, until this is dropped. Peers that have it mapped keep the memory;
/// memory behind an IPC handle must outlive their use of it.
pub struct Exported {
    offer: RangeOffer,
    tickets: Vec<Ticket>,
    server: Arc<Mutex<DescriptorServer>>,
    // Before the buffer.
    region: Option<Arc<MemoryRegion>>,
    buffer: Buffer,
}

impl Exported {
    /// For the peers.
    pub fn offer(&self) -> &RangeOffer {
        &self.offer
    }

    /// The memory.
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// Hands its descriptors to an asker that shows these secrets, which are for it alone.
    pub fn grant(&self, secrets: Secrets) {
        if !self.tickets.is_empty() {
            lock(&self.server).grant(secrets, &self.tickets);
        }
    }

    /// Its registration.
    pub fn region(&self) -> Option<&Arc<MemoryRegion>> {
        self.region.as_ref()
    }
}

impl fmt::Debug for Exported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Exported({:?}, {:?})", self.buffer, self.offer.pieces)
    }
}

impl Drop for Exported {
    fn drop(&mut self) {
        let mut server = lock(&self.server);
        self.tickets.iter().for_each(|ticket| server.withdraw(ticket));
    }
}

/// Where a kernel finds a range of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangePlace {
    /// [`Route::Direct`] or [`Route::Rdma`].
    pub route: Route,
    /// Of the first byte: for loads and stores of kernels, or as the peer's NIC knows it.
    pub address: u64,
    /// For work requests; 0 on the direct route.
    pub key: u32,
}

/// A range of a peer. Clones share the mapping, which lives as long as one of them, a buffer or a
/// launch that was given it.
#[derive(Clone, Debug)]
pub struct RemoteRange {
    len: u64,
    decision: Decision,
    mapped: Option<Buffer>,
    region: Option<RemoteRegion>,
}

impl RemoteRange {
    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How it is reached, and why not better.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// The memory, if it is mapped.
    pub fn mapped(&self) -> Option<&Buffer> {
        self.mapped.as_ref()
    }

    /// Its place for a NIC, if the peer has registered it; also where it is mapped.
    pub fn region(&self) -> Option<RemoteRegion> {
        self.region
    }

    /// Where a kernel finds it; None if it is not reached.
    pub fn place(&self) -> Option<RangePlace> {
        match (&self.mapped, self.region) {
            (Some(buffer), _) => {
                let address = buffer.kernel_addr();
                Some(RangePlace { route: Route::Direct, address, key: 0 })
            }
            (None, Some(region)) => {
                let (address, key) = (region.addr(), region.rkey());
                Some(RangePlace { route: Route::Rdma, address, key })
            }
            (None, None) => None,
        }
    }
}

/// Reaches what `peer` offers, by loads and stores of `gpu` if that is possible, else by RDMA.
/// `own` is this process. `direct` says how far the peer is trusted, or why loads and stores are not
/// wanted.
///
/// Nothing is written: whether a mapping shows the peer's memory is for
/// [`write_word`](crate::write_word) and [`read_back`](crate::read_back) to find out.
pub fn reach(
    gpu: &dyn Gpu,
    own: &Identity,
    peer: &Introduction,
    offer: &RangeOffer,
    direct: Result<Trust<'_>, Reason>,
    deadline: Instant,
) -> RemoteRange {
    let (mapped, by, mut not_better) = match direct.map_err(|reason| vec![reason]) {
        Err(reasons) => (None, String::new(), reasons),
        Ok(trust) => match map(gpu, own, peer, trust, offer, deadline) {
            Ok((buffer, by, tried)) => (Some(buffer), by, tried),
            Err(reasons) => (None, String::new(), reasons),
        },
    };
    let region = match offer.region.as_deref().map(RemoteRegion::from_bytes) {
        None => None,
        Some(Ok(region)) if region.len() == offer.len => Some(region),
        Some(Ok(region)) => {
            let why = format!("{} bytes are registered of {}", region.len(), offer.len);
            not_better.push(Reason::new("the peer's registration", why));
            None
        }
        Some(Err(error)) => {
            not_better.push(Reason::new("the peer's registration", error));
            None
        }
    };
    if offer.region.is_none() && mapped.is_none() {
        not_better.push(Reason::new("RDMA", "the peer has not registered the memory"));
    }
    let route = match (&mapped, region) {
        (Some(_), _) => Route::Direct,
        (None, Some(_)) => Route::Rdma,
        (None, None) => Route::None,
    };
    RemoteRange { len: offer.len, decision: Decision { route, by, not_better }, mapped, region }
}

/// The memory, how its handles came, and how they did not.
type Mapped = (Buffer, String, Vec<Reason>);

fn map(
    gpu: &dyn Gpu,
    own: &Identity,
    peer: &Introduction,
    trust: Trust<'_>,
    offer: &RangeOffer,
    deadline: Instant,
) -> Result<Mapped, Vec<Reason>> {
    let one = |reason| vec![reason];
    own.may_share(&peer.identity).map_err(one)?;
    let offered = offer.pieces.as_ref().map_err(|reason| one(reason.clone()))?;
    let (mut by, mut tried, mut pieces) = (String::new(), Vec::new(), Vec::new());
    for piece in offered {
        let (handle, len, way) = match piece {
            Piece::Descriptor(ticket) => {
                let mut fetched = descriptor::fetch(own, peer, trust, ticket, deadline)?;
                tried.append(&mut fetched.tried);
                (ShareHandle::Descriptor(fetched.fd), ticket.len, fetched.by.to_string())
            }
            Piece::CudaIpc { handle, len } => {
                (ShareHandle::CudaIpc(ipc(handle).map_err(one)?), *len, "IPC handle".to_owned())
            }
            Piece::HipIpc { handle, len } => {
                (ShareHandle::HipIpc(ipc(handle).map_err(one)?), *len, "IPC handle".to_owned())
            }
        };
        by = way;
        pieces.push(SharePiece { handle, len });
    }
    let mapping = gpu.import(Share { pieces, offset: offer.offset }, offer.len);
    let what = format!("mapping what came by {by}");
    let mapping = mapping.map_err(|error| one(Reason::new(what, error)))?;
    Ok((mapping, by, tried))
}

fn ipc(handle: &[u8]) -> Result<[u8; 64], Reason> {
    handle.try_into().map_err(|_| {
        let why = format!("it has {} bytes, expected 64", handle.len());
        Reason::new("the IPC handle", why)
    })
}
