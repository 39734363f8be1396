//! Executes a peer's requests. The same code serves the posting side in its own process
//! and from another one; requests of the latter may be anything.

use super::message::{About, LONGEST_REGION, Piece, Reply, Request, Take, Taken};
use super::shape::access;
use super::{Shape, Trouble};
use crate::Side;
use crate::rig::{KERNEL, load};
use std::collections::HashMap;
use std::sync::Arc;
use warpverbs::gpu::{Buffer, Dim, KernelPtr, Launch, Place};
use warpverbs::transport::{
    Endpoint, EndpointHandle, HandleError, LocalRegion, MemoryRegion, SendFlags, SharedReceiveQueue,
};
use warpverbs_test_kernels::conform as k;

/// Objects at a time.
const MOST: usize = 1024;
/// Messages of one kernel.
const MOST_MESSAGES: u32 = 1 << 16;

/// A side that executes requests, and owns the objects that they create until it is dropped.
pub struct Actor {
    pub(crate) side: Side,
    objects: HashMap<u32, Object>,
    last: u32,
    taking: Option<Taking>,
}

enum Object {
    Region(MemoryRegion),
    Queue(Arc<SharedReceiveQueue>),
    Endpoint(Endpoint),
}

/// A kernel under way.
struct Taking {
    // Ended before its memory is let go.
    launch: Launch,
    status: Buffer,
    messages: Buffer,
}

impl Actor {
    /// One that has made nothing.
    pub fn new(side: Side) -> Self {
        Self { side, objects: HashMap::new(), last: 0, taking: None }
    }

    /// Executes one request. An error in it, or a failure, is the reply. Waits are bounded.
    pub fn act(&mut self, request: Request) -> Reply {
        self.answer(request).unwrap_or_else(Reply::Trouble)
    }

    /// The NIC, and where kernels run beside it.
    pub(crate) fn about(&self) -> About {
        self.side.about()
    }

    fn answer(&mut self, request: Request) -> Result<Reply, Trouble> {
        match request {
            Request::About => Ok(Reply::About(self.about())),
            Request::Region { len, access, foreign } => self.make_region(len, access, foreign),
            Request::Store { region, at, data } => {
                self.region(region)?.write(at, &data)?;
                Ok(Reply::Done)
            }
            Request::Load { region, at, len } => {
                let region = self.region(region)?;
                // A part outside the region is found before room for it is made.
                let part = region.local().slice(at, len)?;
                let mut data = vec![0; part.len() as usize];
                region.read(at, &mut data)?;
                Ok(Reply::Data(data))
            }
            Request::Queue { depth, sges } => {
                let queue = self.side.device.srq(depth, sges)?;
                Ok(Reply::Queue { object: self.keep(Object::Queue(queue))? })
            }
            Request::Offer { queue, to } => {
                self.queue(queue)?.post_recv(pieces(to))?;
                Ok(Reply::Done)
            }
            Request::Endpoint { shape } => self.make_endpoint(&shape),
            Request::Drop { object } => match self.objects.remove(&object) {
                Some(_) => Ok(Reply::Done),
                None => Err(unknown("object", object)),
            },
            Request::Take(take) => self.take(take),
            Request::Taken => self.taken(),
            at_endpoint => self.at_endpoint(at_endpoint),
        }
    }

    fn at_endpoint(&mut self, request: Request) -> Result<Reply, Trouble> {
        let posted = |index| Reply::Posted { index };
        let unsignaled = SendFlags::UNSIGNALED;
        match request {
            Request::Connect { endpoint, to } => {
                let bad = |error: HandleError| Trouble::Other(error.to_string());
                let to = EndpointHandle::from_bytes(&to).map_err(bad)?;
                self.endpoint(endpoint)?.connect(&to)?;
            }
            Request::Reset { endpoint } => self.endpoint(endpoint)?.reset()?,
            Request::Fail { endpoint } => self.endpoint(endpoint)?.fail()?,
            Request::Health { endpoint } => {
                let health = self.endpoint(endpoint)?.health()?;
                return Ok(Reply::Health((!health.is_ok()).then(|| health.to_string())));
            }
            Request::Receive { endpoint, to } => {
                let host = self.endpoint(endpoint)?.host()?;
                return Ok(posted(host.post_recv(pieces(to))?.index()));
            }
            Request::Write { endpoint, from, to } => {
                let host = self.endpoint(endpoint)?.host()?;
                let work = host.post_write(LocalRegion::from(from), to.into(), unsignaled)?;
                return Ok(posted(work.index()));
            }
            Request::WriteInline { endpoint, data, to } => {
                let host = self.endpoint(endpoint)?.host()?;
                return Ok(posted(host.post_write_inline(&data, to.into(), unsignaled)?.index()));
            }
            Request::Quiet { endpoint } => self.endpoint(endpoint)?.host()?.quiet()?,
            Request::Arrived { endpoint, wait } => {
                let host = self.endpoint(endpoint)?.host()?;
                let got = if wait { Some(host.wait_recv()?) } else { host.poll_recv()? };
                return Ok(Reply::Arrived(got.map(Into::into)));
            }
            other => return Err(Trouble::Other(format!("{other:?} is for no endpoint"))),
        }
        Ok(Reply::Done)
    }

    fn make_region(&mut self, len: u64, bits: u32, foreign: bool) -> Result<Reply, Trouble> {
        if len > LONGEST_REGION {
            let why = format!("a region of {len} bytes, expected at most {LONGEST_REGION}");
            return Err(Trouble::Other(why));
        }
        let side = &self.side;
        let device = if foreign { &side.stranger } else { &side.device };
        let region = side.region(device, len as usize, access(bits)?)?;
        let (addr, lkey, rkey) = (region.addr(), region.lkey(), region.rkey());
        Ok(Reply::Region { object: self.keep(Object::Region(region))?, addr, lkey, rkey })
    }

    fn make_endpoint(&mut self, shape: &Shape) -> Result<Reply, Trouble> {
        let endpoint = self.side.endpoint(shape, |number| self.queue(number).cloned())?;
        let handle = endpoint.handle().to_bytes();
        Ok(Reply::Endpoint { object: self.keep(Object::Endpoint(endpoint))?, handle })
    }

    fn take(&mut self, take: Take) -> Result<Reply, Trouble> {
        // A kernel without a request for its result belongs to a failed case; its deadlines end it.
        drop(self.taking.take());
        if !(1..=MOST_MESSAGES).contains(&take.count) {
            let why = format!("{} messages, expected 1 to {MOST_MESSAGES}", take.count);
            return Err(Trouble::Other(why));
        }
        let region = self.region(take.region)?;
        let to = region.local().into();
        let qp = self.endpoint(take.endpoint)?.device_qp();
        let gpu = self.side.gpu.as_ref().ok_or_else(Trouble::no_kernels)?;
        load(&**gpu)?;
        let status = gpu.alloc(64, Place::Shared)?;
        let messages = gpu.alloc(12 * take.count as usize, Place::Shared)?;
        let kernel = k::Take {
            qp,
            to,
            room: take.room,
            count: take.count,
            window: take.window,
            taken: KernelPtr::new(&messages),
            status: KernelPtr::new(&status),
        };
        let launch = gpu.launch(&kernel, Dim::new(1, 32), KERNEL)?;
        self.taking = Some(Taking { launch, status, messages });
        Ok(Reply::Done)
    }

    fn taken(&mut self) -> Result<Reply, Trouble> {
        let nothing = || Trouble::Other("no kernel is under way".into());
        let Taking { launch, status, messages } = self.taking.take().ok_or_else(nothing)?;
        launch.wait()?;
        let words = |buffer: &Buffer| -> Result<Vec<u32>, Trouble> {
            let mut bytes = vec![0; buffer.len()];
            buffer
                .region()
                .read(0, &mut bytes)
                .map_err(warpverbs::transport::TransportError::from)?;
            let (words, _) = bytes.as_chunks::<4>();
            Ok(words.iter().copied().map(u32::from_ne_bytes).collect())
        };
        let messages = words(&messages)?.as_chunks::<3>().0.to_vec();
        Ok(Reply::Taken(Taken { status: words(&status)?[0], messages }))
    }

    fn keep(&mut self, object: Object) -> Result<u32, Trouble> {
        if self.objects.len() >= MOST {
            return Err(Trouble::Other(format!("{MOST} objects are there already")));
        }
        self.last += 1;
        self.objects.insert(self.last, object);
        Ok(self.last)
    }

    fn region(&self, number: u32) -> Result<&MemoryRegion, Trouble> {
        match self.objects.get(&number) {
            Some(Object::Region(region)) => Ok(region),
            _ => Err(unknown("region", number)),
        }
    }

    fn queue(&self, number: u32) -> Result<&Arc<SharedReceiveQueue>, Trouble> {
        match self.objects.get(&number) {
            Some(Object::Queue(queue)) => Ok(queue),
            _ => Err(unknown("shared receive queue", number)),
        }
    }

    fn endpoint(&mut self, number: u32) -> Result<&mut Endpoint, Trouble> {
        match self.objects.get_mut(&number) {
            Some(Object::Endpoint(endpoint)) => Ok(endpoint),
            _ => Err(unknown("endpoint", number)),
        }
    }
}

fn pieces(pieces: Vec<Piece>) -> Vec<LocalRegion> {
    pieces.into_iter().map(LocalRegion::from).collect()
}

fn unknown(kind: &str, number: u32) -> Trouble {
    Trouble::Other(format!("no {kind} has number {number}"))
}
