//! Our own NIC, in user space, posted to by the host or by a kernel.

use super::{Address, Area, Arrival, NOT_IN_TIME, Remote, Side, Work};
use crate::interop::case::{AREA, Group, Op, named};
use crate::rig::kernel::{self, KernelFailure, Posting};
use crate::rig::machine::RIGHTS;
use crate::rig::plan::{self, mtu};
use anyhow::{Context as _, Result, bail};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use warpverbs::gpu::{self, Dim, Gpu, GpuChoice};
use warpverbs::raw::nic::link::{LinkConfig, UdpConfig};
use warpverbs::raw::nic::{Config, Mtu};
use warpverbs::transport::{
    Access, Context, Device, Endpoint, EndpointConfig, EndpointHandle, LocalRegion, MemoryRegion,
    Posted, ReceivedKind, RemoteRegion, SendFlags, TransportError, WaitError,
};
use warpverbs_verbs::Status;

/// How often a kernel posts each work request, and by which lanes.
const TIMES: u32 = 40;
const LANES: Dim = Dim::new(2, 32);
/// The longest wait in a kernel: emulated machines are slow, and some networks lose packets.
const LIMIT: Duration = Duration::from_secs(30);

/// The software NIC at an address.
pub(crate) struct Soft {
    device: Device,
    local: MemoryRegion,
    exposed: MemoryRegion,
    closed: MemoryRegion,
    /// Made anew for each connection: a SEND may take its key away.
    spare: Option<MemoryRegion>,
    endpoint: Option<Endpoint>,
    posted: VecDeque<Pending>,
    /// Where the kernels of a group run that they post.
    gpu: Option<Arc<dyn Gpu>>,
}

enum Pending {
    Posted(Posted),
    Ended(String),
}

impl Soft {
    /// Brings it up, for path MTUs up to 4096, with faults and a capture as the environment says.
    pub(crate) fn new(at: SocketAddr) -> Result<Self> {
        let link = LinkConfig::Udp(UdpConfig { max_mtu: Some(Mtu::B4096), ..UdpConfig::at(at) });
        let config = Config { link, ..Config::default() }.with_env()?;
        let device = Context::builder().soft_config(config).build()?.open("soft")?;
        let area = |access| device.alloc_host(AREA as usize, access);
        let (local, exposed) = (area(Access::LOCAL_WRITE)?, area(RIGHTS)?);
        let closed = area(Access::LOCAL_WRITE)?;
        let (posted, gpu, spare, endpoint) = (VecDeque::new(), None, None, None);
        Ok(Self { device, local, exposed, closed, spare, endpoint, posted, gpu })
    }

    fn endpoint(&self) -> Result<&Endpoint> {
        self.endpoint.as_ref().context("no queue pair is open")
    }

    fn area(&self, area: Area) -> &MemoryRegion {
        match area {
            Area::Local => &self.local,
            Area::Exposed => &self.exposed,
        }
    }
}

fn remote(region: &MemoryRegion) -> Remote {
    Remote { addr: region.addr(), rkey: region.rkey() }
}

/// A peer's endpoint, whatever NIC it is on.
fn handle(peer: &Address, group: &Group) -> Result<EndpointHandle> {
    Ok(EndpointHandle::foreign(peer.at, peer.qpn, peer.psn, mtu(group.mtu)?, 16)?)
}

impl Side for Soft {
    fn name(&self) -> String {
        "soft".into()
    }

    fn is_rxe(&self) -> bool {
        false
    }

    fn open(&mut self, group: &Group) -> Result<Address> {
        self.endpoint = None;
        self.posted.clear();
        self.gpu = group.by_kernel.then(|| gpu::open(GpuChoice::Simt)).transpose()?;
        self.gpu.as_deref().map_or(Ok(()), kernel::load)?;
        let config = match &self.gpu {
            Some(gpu) => EndpointConfig::for_gpu(gpu).timeout(LIMIT),
            None => EndpointConfig::host().inline_bytes(4),
        };
        let config = config
            .mtu(mtu(group.mtu)?)
            .retries(group.retry, group.rnr_retry)
            .timers(group.ack_timeout, 12);
        let endpoint = self.device.endpoint(&config)?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::INVALIDATE;
        let spare = self.device.alloc_host(AREA as usize, access)?;
        let handle = endpoint.handle();
        let address = Address {
            at: handle.addr().context("the NIC has no address")?,
            qpn: handle.qpn(),
            psn: handle.psn(),
            exposed: remote(&self.exposed),
            closed: remote(&self.closed),
            spare: Some(remote(&spare)),
        };
        (self.spare, self.endpoint) = (Some(spare), Some(endpoint));
        Ok(address)
    }

    fn connect(&mut self, peer: &Address, group: &Group) -> Result<()> {
        Ok(self.endpoint()?.connect(&handle(peer, group)?)?)
    }

    fn write(&mut self, area: Area, offset: u64, bytes: &[u8]) -> Result<()> {
        Ok(self.area(area).write(offset, bytes)?)
    }

    fn read(&self, area: Area, offset: u64, len: usize) -> Result<Vec<u8>> {
        let mut out = vec![0; len];
        self.area(area).read(offset, &mut out)?;
        Ok(out)
    }

    fn post_recv(&mut self, offset: u64, bytes: u32) -> Result<()> {
        let place = self.local.local().slice(offset, bytes.into())?;
        self.endpoint()?.host()?.post_recv(place)?;
        Ok(())
    }

    fn post(&mut self, work: &Work) -> Result<()> {
        let local = self.local.local().slice(work.local, work.bytes.into())?;
        let endpoint = self.endpoint()?;
        self.posted.push_back(match &self.gpu {
            Some(gpu) => Pending::Ended(by_kernel(&**gpu, endpoint, local, work)?),
            None => Pending::Posted(post(endpoint, local, work)?),
        });
        Ok(())
    }

    fn sent(&mut self, limit: Duration) -> Result<String> {
        let work = match self.posted.pop_front().context("nothing is posted")? {
            Pending::Posted(work) => work,
            Pending::Ended(status) => return Ok(status),
        };
        match self.endpoint()?.host()?.with_timeout(limit).wait(work) {
            Ok(()) => Ok(named(Status::Success)),
            Err(error) => status(error),
        }
    }

    fn arrived(&mut self, limit: Duration) -> Result<Option<Arrival>> {
        let none =
            Arrival { status: named(Status::Success), bytes: 0, imm: None, invalidated: None };
        let received = match self.endpoint()?.host()?.with_timeout(limit).wait_recv() {
            Ok(received) => received,
            Err(TransportError::Wait(WaitError::Timeout { .. })) => return Ok(None),
            Err(error) => return Ok(Some(Arrival { status: status(error)?, ..none })),
        };
        let arrival = Arrival { bytes: received.byte_len, ..none };
        Ok(Some(match received.kind {
            ReceivedKind::SendImm(imm) | ReceivedKind::WriteImm(imm) => {
                Arrival { imm: Some(imm), ..arrival }
            }
            ReceivedKind::SendInvalidate(key) => Arrival { invalidated: Some(key.0), ..arrival },
            _ => arrival,
        }))
    }
}

fn post(endpoint: &Endpoint, local: LocalRegion, work: &Work) -> Result<Posted> {
    let (host, flags) = (endpoint.host()?, SendFlags::SIGNALED);
    let remote = RemoteRegion::new(work.remote.addr, work.bytes.into(), work.remote.rkey);
    let [first, second] = work.operands;
    Ok(match work.op {
        Op::Send => host.post_send(local, flags)?,
        Op::SendImm => host.post_send_imm(local, work.extra, flags)?,
        Op::SendInval => host.post_send_inval(local, work.extra, flags)?,
        Op::Write => host.post_write(local, remote, flags)?,
        Op::WriteImm => host.post_write_imm(local, remote, work.extra, flags)?,
        Op::Read => host.post_read(local, remote, flags)?,
        Op::FetchAdd => host.post_fetch_add(local, remote, first, flags)?,
        Op::CompareSwap { .. } => host.post_compare_swap(local, remote, first, second, flags)?,
    })
}

/// A kernel posts `work` again and again and waits for its end.
fn by_kernel(
    gpu: &dyn Gpu,
    endpoint: &Endpoint,
    local: LocalRegion,
    work: &Work,
) -> Result<String> {
    let op = match work.op {
        Op::Write => plan::Op::Write,
        Op::Read => plan::Op::Read,
        other => bail!("no kernel here posts {other:?}"),
    };
    let remote = RemoteRegion::new(work.remote.addr, work.bytes.into(), work.remote.rkey);
    let posting = Posting { endpoint, local, remote };
    match kernel::stream(gpu, &[posting], op, TIMES, LANES, 2 * LIMIT) {
        Ok(_) => Ok(named(Status::Success)),
        Err(error) => Ok(error.downcast::<KernelFailure>()?.to_string()),
    }
}

/// The status of an error completion; other errors are the caller's.
fn status(error: TransportError) -> Result<String> {
    match error {
        TransportError::Work(work) => Ok(named(work.syndrome.status())),
        TransportError::Wait(WaitError::Timeout { .. }) => Ok(NOT_IN_TIME.into()),
        error => bail!(error),
    }
}
