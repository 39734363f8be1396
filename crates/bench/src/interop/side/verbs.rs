//! Any RDMA device, through libibverbs.

use super::{Address, Area, Arrival, NOT_IN_TIME, Remote, Side, Work};
use crate::interop::case::{AREA, Group, Op, named};
use crate::rig::machine::RIGHTS;
use crate::rig::plan::mtu;
use anyhow::{Context as _, Result, ensure};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};
use warpverbs::raw::mem::{Access, HostBuf};
use warpverbs::raw::nic::link::ROCE_PORT;
use warpverbs_verbs::{
    Completion, Context, Cq, Data, Gid, GidEntry, GidKind, Mr, Op as VerbsOp, Path, Pd, Qp,
    QpAttrs, QpOptions, QpState, RecvList, Registration, Rkey, SendFlags, SendList, Verbs,
};

const DEVICE_PORT: u8 = 1;
/// READs and atomics in flight each way, if the device has as many.
const RD_ATOMIC: u8 = 16;
/// The vendor that `rdma_rxe` says it is of.
const RXE_VENDOR: u32 = 0xff_ffff;
/// The first packet sequence number: it comes round in the middle of a long message.
const PSN: u32 = 0xff_fff0;

pub(crate) struct Rdma {
    name: String,
    ip: IpAddr,
    context: Context,
    gid: GidEntry,
    pd: Pd,
    local: Mr,
    exposed: Mr,
    closed: Mr,
    rd_atomic: u8,
    vendor: u32,
    open: Option<Open>,
}

struct Open {
    qp: Qp,
    send_cq: Cq,
    recv_cq: Cq,
}

impl Rdma {
    /// Opens the device, and takes the GID of `ip`.
    pub(crate) fn new(name: &str, ip: IpAddr) -> Result<Self> {
        let context = Verbs::load()?.device(name)?.open()?;
        let address = match ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let table = context.gids(DEVICE_PORT)?;
        let mut fitting = table
            .iter()
            .filter(|entry| entry.kind == GidKind::RoceV2 && entry.gid == Gid(address.octets()));
        let gid = *fitting.next().with_context(|| format!("{name} has no RoCEv2 GID of {ip}"))?;
        let pd = Pd::new(&context)?;
        let area = |access| -> Result<Mr> {
            Ok(Mr::register(&pd, &HostBuf::region(AREA as usize)?, Registration::new(access))?)
        };
        let (local, exposed) = (area(Access::LOCAL_WRITE)?, area(RIGHTS)?);
        let closed = area(Access::LOCAL_WRITE)?;
        let attr = context.attr()?;
        let rd_atomic = RD_ATOMIC.min(attr.max_dest_rd_atomic.min(attr.max_rd_atomic) as u8);
        let vendor = attr.vendor_id;
        let name = name.into();
        let open = None;
        Ok(Self { name, ip, context, gid, pd, local, exposed, closed, rd_atomic, vendor, open })
    }

    fn current(&self) -> Result<&Open> {
        self.open.as_ref().context("no queue pair is open")
    }

    fn area(&self, area: Area) -> &Mr {
        match area {
            Area::Local => &self.local,
            Area::Exposed => &self.exposed,
        }
    }
}

fn remote(mr: &Mr) -> Remote {
    Remote { addr: mr.region().addr(), rkey: mr.rkey() }
}

/// The next completion, if one comes in time.
fn poll(cq: &Cq, limit: Duration) -> Result<Option<Completion>> {
    let (deadline, mut found) = (Instant::now() + limit, [Completion::default()]);
    loop {
        if cq.poll(&mut found)? == 1 {
            return Ok(Some(found[0]));
        }
        if Instant::now() > deadline {
            return Ok(None);
        }
        std::thread::yield_now();
    }
}

impl Side for Rdma {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn is_rxe(&self) -> bool {
        self.vendor == RXE_VENDOR
    }

    fn open(&mut self, _group: &Group) -> Result<Address> {
        self.open = None;
        let (send_cq, recv_cq) = (Cq::new(&self.context, 64)?, Cq::new(&self.context, 64)?);
        let options = QpOptions { recv_cq: recv_cq.clone(), ..QpOptions::new(&send_cq) };
        let qp = Qp::new(&self.pd, &options)?;
        let rights = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        qp.modify(QpState::Init, &QpAttrs::init(DEVICE_PORT, rights))?;
        let address = Address {
            at: SocketAddr::new(self.ip, ROCE_PORT),
            qpn: qp.qpn(),
            psn: PSN,
            exposed: remote(&self.exposed),
            closed: remote(&self.closed),
            // Memory that user space registers lets no peer invalidate its key; windows would.
            spare: None,
        };
        self.open = Some(Open { qp, send_cq, recv_cq });
        Ok(address)
    }

    fn connect(&mut self, peer: &Address, group: &Group) -> Result<()> {
        let dgid = match peer.at.ip() {
            IpAddr::V4(ip) => Gid(ip.to_ipv6_mapped().octets()),
            IpAddr::V6(ip) => Gid(ip.octets()),
        };
        let path = Path::roce(DEVICE_PORT, self.gid.index.try_into()?, dgid);
        let mtu = mtu(group.mtu)?;
        let qp = &self.current()?.qp;
        let max_dest_rd_atomic = Some(self.rd_atomic);
        let rtr = QpAttrs::rtr(path, mtu, peer.qpn, peer.psn);
        qp.modify(QpState::Rtr, &QpAttrs { max_dest_rd_atomic, ..rtr })?;
        let rts = QpAttrs {
            timeout: Some(group.ack_timeout),
            retry: Some(group.retry),
            rnr_retry: Some(group.rnr_retry),
            max_rd_atomic: Some(self.rd_atomic),
            ..QpAttrs::rts(PSN)
        };
        Ok(qp.modify(QpState::Rts, &rts)?)
    }

    fn write(&mut self, area: Area, offset: u64, bytes: &[u8]) -> Result<()> {
        Ok(self.area(area).region().write(offset, bytes)?)
    }

    fn read(&self, area: Area, offset: u64, len: usize) -> Result<Vec<u8>> {
        let mut out = vec![0; len];
        self.area(area).region().read(offset, &mut out)?;
        Ok(out)
    }

    fn post_recv(&mut self, offset: u64, bytes: u32) -> Result<()> {
        let sge = self.local.sge(offset, bytes)?;
        let mut list = RecvList::new(1, 1);
        list.push(0, if bytes == 0 { &[] } else { std::slice::from_ref(&sge) })?;
        Ok(self.current()?.qp.post_recv(&mut list)?)
    }

    fn post(&mut self, work: &Work) -> Result<()> {
        let sge = self.local.sge(work.local, work.bytes)?;
        let sges = if work.bytes == 0 { &[] } else { std::slice::from_ref(&sge) };
        let mut list = SendList::new(1, 1, 0);
        list.push(0, operation(work), Data::Sges(sges), SendFlags::SIGNALED)?;
        Ok(self.current()?.qp.post_send(&mut list)?)
    }

    fn sent(&mut self, limit: Duration) -> Result<String> {
        let done = poll(&self.current()?.send_cq, limit)?;
        Ok(done.map_or_else(|| NOT_IN_TIME.into(), |done| named(done.status())))
    }

    fn arrived(&mut self, limit: Duration) -> Result<Option<Arrival>> {
        let Some(done) = poll(&self.current()?.recv_cq, limit)? else { return Ok(None) };
        ensure!(done.qpn() == self.current()?.qp.qpn(), "a completion of another queue pair");
        let arrival =
            Arrival { status: named(done.status()), bytes: 0, imm: None, invalidated: None };
        if !done.is_success() {
            return Ok(Some(arrival));
        }
        let (bytes, imm, invalidated) = (done.byte_len(), done.imm(), done.invalidated_rkey());
        Ok(Some(Arrival { bytes, imm, invalidated, ..arrival }))
    }
}

fn operation(work: &Work) -> VerbsOp {
    let remote = warpverbs_verbs::Remote::new(work.remote.addr, work.remote.rkey);
    let [first, second] = work.operands;
    match work.op {
        Op::Send => VerbsOp::Send,
        Op::SendImm => VerbsOp::SendImm(work.extra),
        Op::SendInval => VerbsOp::SendInvalidate(Rkey(work.extra)),
        Op::Write => VerbsOp::Write(remote),
        Op::WriteImm => VerbsOp::WriteImm(remote, work.extra),
        Op::Read => VerbsOp::Read(remote),
        Op::FetchAdd => VerbsOp::FetchAdd { remote, add: first },
        Op::CompareSwap { .. } => VerbsOp::CompareSwap { remote, compare: first, swap: second },
    }
}
