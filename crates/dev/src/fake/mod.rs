//! A fake device that executes proxied QPs: requests are executed when a test says so.

mod proxy_device;

pub use proxy_device::{FakeProxyDevice, FakeSrq};

use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use warpverbs_mem::{Access, HostBuf, Region};
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_nic::{AsyncEvent, ProxyLimits, Staging};
use warpverbs_rdma::{Completion, Lkey, Op, ReceivedKind, Remote, Sge, Status};

/// How a [`FakeDevice`] behaves.
#[derive(Clone, Copy, Debug)]
pub struct FakePlan {
    /// Makes its choices repeatable.
    pub seed: u64,
    /// Limits of its queues.
    pub limits: ProxyLimits,
    /// This many slots of this many bytes for inline data beyond that, for each QP.
    pub staging: Option<(u32, u32)>,
    /// It takes all of a list, or a random number of requests up to this.
    pub takes_at_most: Option<usize>,
    /// A poll returns a random number of completions up to this; `None` returns all.
    pub polls_at_most: Option<usize>,
}

impl Default for FakePlan {
    fn default() -> Self {
        let limits = ProxyLimits {
            send_depth: 64,
            recv_depth: 64,
            send_sges: 16,
            recv_sges: 16,
            inline_bytes: 256,
        };
        Self { seed: 1, limits, staging: None, takes_at_most: None, polls_at_most: None }
    }
}

/// Counts of posted work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FakeStats {
    /// Lists of send work requests.
    pub lists: u64,
    /// Requests taken.
    pub requests: u64,
    /// Of these, those that asked for a completion.
    pub signaled: u64,
}

struct Owned {
    id: u64,
    op: Op,
    inline: Option<Vec<u8>>,
    sges: Vec<Sge>,
    signaled: bool,
}

type Receive = (u64, Vec<Sge>);

#[derive(Default)]
struct FakeQp {
    peer: Option<u32>,
    failed: bool,
    sends: VecDeque<Owned>,
    receives: VecDeque<Receive>,
    srq: Option<usize>,
    /// Completions not polled yet, of sends and of receives.
    done: [VecDeque<Completion>; 2],
    /// Sends not yet completed by a poll, with a completion of theirs or of a later one.
    slots: VecDeque<u64>,
    fail_next: Option<Status>,
    refuse_next: Option<i32>,
    stats: FakeStats,
}

struct Inner {
    plan: FakePlan,
    rng: StdRng,
    keys: BTreeMap<u32, (Region, Access)>,
    qps: BTreeMap<u32, FakeQp>,
    srqs: Vec<VecDeque<Receive>>,
    events: Vec<AsyncEvent>,
    gone: bool,
    silent: bool,
}

/// The device. Clones share it.
#[derive(Clone)]
pub struct FakeDevice(Arc<Mutex<Inner>>);

impl fmt::Debug for FakeDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FakeDevice")
    }
}

fn ended(id: u64, status: Status) -> Completion {
    let vendor = Syndrome::of(status).map_or(0, |syndrome| syndrome.usual_vendor());
    Completion { id, status, vendor: vendor.into(), ..Completion::default() }
}

impl FakeQp {
    fn fail(&mut self) {
        self.failed = true;
        let flush = |id| ended(id, Status::Flushed);
        self.done[0].extend(self.sends.drain(..).map(|work| flush(work.id)));
        self.done[1].extend(self.receives.drain(..).map(|(id, _)| flush(id)));
    }
}

impl Inner {
    fn span(&self, key: u32, addr: u64, len: u64, needed: Access) -> Option<(&Region, u64)> {
        let (region, access) = self.keys.get(&key)?;
        let offset = addr.checked_sub(region.addr())?;
        let inside = offset.checked_add(len).is_some_and(|end| end <= region.len() as u64);
        (inside && access.contains(needed)).then_some((region, offset))
    }

    fn gather(&self, work: &Owned) -> Result<Vec<u8>, Status> {
        if let Some(bytes) = &work.inline {
            return Ok(bytes.clone());
        }
        let mut out = Vec::new();
        for sge in &work.sges {
            let span = self.span(sge.lkey.0, sge.addr, sge.len.into(), Access::empty());
            let (region, offset) = span.ok_or(Status::LocalProtection)?;
            let start = out.len();
            out.resize(start + sge.len as usize, 0);
            region.read(offset, &mut out[start..]).expect("inside the region");
        }
        Ok(out)
    }

    fn scatter(&self, sges: &[Sge], mut bytes: &[u8]) -> Result<(), Status> {
        for sge in sges {
            let (now, rest) = bytes.split_at(bytes.len().min(sge.len as usize));
            let span = self.span(sge.lkey.0, sge.addr, sge.len.into(), Access::LOCAL_WRITE);
            let (region, offset) = span.ok_or(Status::LocalProtection)?;
            region.write(offset, now).expect("inside the region");
            bytes = rest;
        }
        if bytes.is_empty() { Ok(()) } else { Err(Status::LocalLength) }
    }

    fn word(&self, Remote { addr, rkey }: Remote) -> Result<(&Region, u64, u64), Status> {
        let span = self.span(rkey.0, addr, 8, Access::REMOTE_ATOMIC);
        let (region, offset) = span.ok_or(Status::RemoteAccess)?;
        let mut old = [0; 8];
        region.read(offset, &mut old).expect("inside the region");
        Ok((region, offset, u64::from_ne_bytes(old)))
    }

    /// Writes into the peer's memory.
    fn put(&self, Remote { addr, rkey }: Remote, bytes: &[u8]) -> Result<(), Status> {
        if bytes.is_empty() {
            return Ok(());
        }
        let span = self.span(rkey.0, addr, bytes.len() as u64, Access::REMOTE_WRITE);
        let (region, offset) = span.ok_or(Status::RemoteAccess)?;
        region.write(offset, bytes).expect("inside the region");
        Ok(())
    }

    fn next_receive(&mut self, peer: u32) -> Option<Receive> {
        let qp = self.qps.get_mut(&peer)?;
        match qp.srq {
            Some(srq) => self.srqs[srq].pop_front(),
            None => qp.receives.pop_front(),
        }
    }

    fn has_receive(&self, peer: u32) -> bool {
        self.qps.get(&peer).is_some_and(|qp| match qp.srq {
            Some(srq) => !self.srqs[srq].is_empty(),
            None => !qp.receives.is_empty(),
        })
    }

    /// Delivers a message into the next receive of `peer`.
    fn deliver(
        &mut self,
        peer: u32,
        kind: ReceivedKind,
        len: usize,
        bytes: Option<&[u8]>,
    ) -> Result<(), Status> {
        let Some((id, sges)) = self.next_receive(peer) else {
            return Err(Status::RnrRetryExceeded);
        };
        let placed = bytes.map_or(Ok(()), |bytes| self.scatter(&sges, bytes));
        let done = match placed {
            Ok(()) => Completion { byte_len: len as u32, kind, ..ended(id, Status::Success) },
            Err(status) => ended(id, status),
        };
        if let Some(qp) = self.qps.get_mut(&peer) {
            qp.done[1].push_back(done);
        }
        placed.map_err(|status| match status {
            Status::LocalLength => Status::RemoteInvalidRequest,
            _ => Status::RemoteOperation,
        })
    }

    fn execute(&mut self, work: &Owned, peer: u32) -> Result<(), Status> {
        match work.op {
            Op::Write(remote) => self.put(remote, &self.gather(work)?),
            Op::WriteImm(remote, imm) => {
                let bytes = self.gather(work)?;
                self.put(remote, &bytes)?;
                self.deliver(peer, ReceivedKind::WriteImm(imm), bytes.len(), None)
            }
            Op::Send | Op::SendImm(_) | Op::SendInvalidate(_) => {
                let bytes = self.gather(work)?;
                let kind = match work.op {
                    Op::SendImm(imm) => ReceivedKind::SendImm(imm),
                    Op::SendInvalidate(rkey) => ReceivedKind::SendInvalidate(rkey),
                    _ => ReceivedKind::Send,
                };
                self.deliver(peer, kind, bytes.len(), Some(&bytes))
            }
            Op::Read(Remote { addr, rkey }) => {
                let len = work.sges.iter().map(|sge| sge.len as usize).sum::<usize>();
                let mut bytes = vec![0; len];
                if len > 0 {
                    let span = self.span(rkey.0, addr, len as u64, Access::REMOTE_READ);
                    let (region, offset) = span.ok_or(Status::RemoteAccess)?;
                    region.read(offset, &mut bytes).expect("inside the region");
                }
                self.scatter(&work.sges, &bytes)
            }
            Op::CompareSwap { remote, compare, swap } => {
                let (region, offset, old) = self.word(remote)?;
                if old == compare {
                    region.write(offset, &swap.to_ne_bytes()).expect("inside the region");
                }
                self.scatter(&work.sges, &old.to_ne_bytes())
            }
            Op::FetchAdd { remote, add } => {
                let (region, offset, old) = self.word(remote)?;
                let sum = old.wrapping_add(add).to_ne_bytes();
                region.write(offset, &sum).expect("inside the region");
                self.scatter(&work.sges, &old.to_ne_bytes())
            }
        }
    }

    fn is_ready(&self, qp: &FakeQp) -> bool {
        let Some(first) = qp.sends.front() else { return false };
        let needs = first.op.needs_receive();
        let alive = qp.peer.and_then(|peer| self.qps.get(&peer)).is_some_and(|peer| !peer.failed);
        let scripted = qp.fail_next.is_some();
        qp.peer.is_some()
            && (scripted || !alive || !needs || qp.peer.is_some_and(|peer| self.has_receive(peer)))
    }

    /// Executes the next request of some QP, if there is one that can be.
    fn progress(&mut self) -> bool {
        let ready: Vec<u32> =
            self.qps.iter().filter(|(_, qp)| self.is_ready(qp)).map(|(qpn, _)| *qpn).collect();
        if ready.is_empty() || self.silent {
            return false;
        }
        let qpn = ready[self.rng.random_range(0..ready.len())];
        let Some(qp) = self.qps.get_mut(&qpn) else { return false };
        let (Some(work), Some(peer)) = (qp.sends.pop_front(), qp.peer) else { return false };
        let scripted = qp.fail_next.take();
        let dead = self.qps.get(&peer).is_none_or(|peer| peer.failed);
        let result = match (scripted, dead) {
            (Some(status), _) => Err(status),
            (None, true) => Err(Status::RetryExceeded),
            (None, false) => self.execute(&work, peer),
        };
        let Some(qp) = self.qps.get_mut(&qpn) else { return false };
        match result {
            Ok(()) if work.signaled => {
                qp.done[0].push_back(ended(work.id, Status::Success));
            }
            Ok(()) => {}
            Err(status) => {
                qp.done[0].push_back(ended(work.id, status));
                qp.fail();
                let far = matches!(
                    status,
                    Status::RemoteAccess | Status::RemoteInvalidRequest | Status::RemoteOperation
                );
                if far
                    && scripted.is_none()
                    && let Some(qp) = self.qps.get_mut(&peer)
                {
                    qp.fail();
                    self.events.push(match status {
                        Status::RemoteAccess => AsyncEvent::QpAccessError { qpn: peer },
                        _ => AsyncEvent::QpRequestError { qpn: peer },
                    });
                }
            }
        }
        true
    }
}

impl FakeDevice {
    /// A device without QPs.
    pub fn new(plan: FakePlan) -> Self {
        let rng = StdRng::seed_from_u64(plan.seed);
        let (keys, qps, srqs, events) = (BTreeMap::new(), BTreeMap::new(), Vec::new(), Vec::new());
        let inner = Inner { plan, rng, keys, qps, srqs, events, gone: false, silent: false };
        Self(Arc::new(Mutex::new(inner)))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers memory: its lkey and its rkey, which differ.
    pub fn register(&self, region: &Region, access: Access) -> (u32, u32) {
        let mut inner = self.lock();
        let lkey = inner.rng.next_u32() | 1;
        let rkey = lkey.wrapping_add(1);
        inner.keys.insert(lkey, (region.clone(), access));
        inner.keys.insert(rkey, (region.clone(), access));
        (lkey, rkey)
    }

    /// A new QP, on an SRQ if one is given.
    pub fn qp(&self, srq: Option<&FakeSrq>) -> FakeProxyDevice {
        let mut inner = self.lock();
        let qpn = loop {
            let qpn = inner.rng.random_range(0x10..0xff_ffff);
            if !inner.qps.contains_key(&qpn) {
                break qpn;
            }
        };
        let srq = srq.map(|srq| srq.number);
        inner.qps.insert(qpn, FakeQp { srq, ..FakeQp::default() });
        let staging = inner.plan.staging;
        drop(inner);
        let staging = staging.map(|(count, slot)| {
            let memory = HostBuf::region((count * slot) as usize).expect("memory for slots");
            let (lkey, _) = self.register(&memory, Access::empty());
            Staging { memory, lkey: Lkey(lkey), slot }
        });
        FakeProxyDevice { device: self.clone(), qpn, staging }
    }

    /// A new SRQ.
    pub fn srq(&self) -> FakeSrq {
        let mut inner = self.lock();
        inner.srqs.push(VecDeque::new());
        FakeSrq { device: self.clone(), number: inner.srqs.len() - 1 }
    }

    fn with(&self, qpn: u32, change: impl FnOnce(&mut FakeQp)) {
        change(self.lock().qps.get_mut(&qpn).expect("a QP of this device"));
    }

    /// Lets the QP send to `peer`.
    pub fn connect(&self, qpn: u32, peer: u32) {
        self.with(qpn, |qp| qp.peer = Some(peer));
    }

    /// RESET: work and completions are dropped.
    pub fn reset(&self, qpn: u32) {
        self.with(qpn, |qp| *qp = FakeQp { srq: qp.srq, ..FakeQp::default() });
    }

    /// Executes up to `count` requests; how many there were.
    pub fn progress(&self, count: usize) -> usize {
        let mut inner = self.lock();
        (0..count).take_while(|_| inner.progress()).count()
    }

    /// Asynchronous events since the last call.
    pub fn take_events(&self) -> Vec<AsyncEvent> {
        std::mem::take(&mut self.lock().events)
    }

    /// The next request of the QP ends like this.
    pub fn fail_next(&self, qpn: u32, status: Status) {
        self.with(qpn, |qp| qp.fail_next = Some(status));
    }

    /// The next request is refused when it is posted.
    pub fn refuse_next(&self, qpn: u32, errno: i32) {
        self.with(qpn, |qp| qp.refuse_next = Some(errno));
    }

    /// The QP goes to ERR on its own, as if its peer had died.
    pub fn kill(&self, qpn: u32) {
        self.with(qpn, FakeQp::fail);
    }

    /// The device is gone.
    pub fn unplug(&self) {
        self.lock().gone = true;
    }

    /// The device stops working, and does not even flush; or works again.
    pub fn silence(&self, silent: bool) {
        self.lock().silent = silent;
    }

    /// Counts of work posted to the QP.
    pub fn stats(&self, qpn: u32) -> FakeStats {
        self.lock().qps.get(&qpn).map_or(FakeStats::default(), |qp| qp.stats)
    }
}

impl Inner {
    fn portion(&mut self, most: Option<usize>, all: usize) -> usize {
        most.map_or(all, |most| self.rng.random_range(0..=most).min(all))
    }
}
