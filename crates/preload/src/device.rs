//! The software NIC as a device of the kernel's RDMA interface.

use crate::bells::{self, OpenBells, Place};
use crate::dmabuf;
use crate::events::{Channel, CqEvents, Report, completions};
use crate::memory::refuse_region;
use crate::nic::{SharedNic, refuse_nic};
use crate::process;
use crate::queues::{self, Ring, With, cq_buffer, exported, payload, queue};
use crate::real::Real;
use crate::registers::{Bell, Registers};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use warpverbs_mem::{Access, Kind, Region};
use warpverbs_mlx5::prm::{CapabilityKind, Command, Field, RoceAddress, Status, capabilities};
use warpverbs_nic::link::QpnPart;
use warpverbs_nic::{
    AddressHandle, AsyncEvent, Cq, CqConfig, CqMode, CqeSize, Mr, Path, Pd, Qp, QpAttrs, QpInfo,
    QpState, Srq, SrqConfig, SrqOrder, Step, UarPage,
};
use warpverbs_rdma::ROCE_PORT;
use warpverbs_uverbs::{
    Attributes, CqRequest, Device, Errno, EventForm, EventSource, MrRequest, OpenQp, Profile,
    QpRequest, QpStatus, Refusal, ResizeRequest, SrqRequest, Uar, UarKind,
};

/// Bytes of a doorbell page.
const PAGE: u32 = 4096;
/// Bytes of an open device's file, in which its doorbell pages lie, but for one that [traps](bells).
pub(crate) const FILE_BYTES: u64 = bells::OFFSET;
/// Such pages at most.
const MAX_UARS: u32 = (FILE_BYTES / PAGE as u64) as u32;
/// Steps of the NIC at most that a call makes: other QPs may never let it be idle.
const LAST_STEPS: u32 = 64;
/// Rights that a QP or key gives to peers.
const REMOTE: Access = Access::REMOTE_READ.union(Access::REMOTE_WRITE).union(Access::REMOTE_ATOMIC);

/// One open device.
pub(crate) struct SoftDevice {
    shared: Arc<SharedNic>,
    /// The device's file, of [`FILE_BYTES`], which the program maps page by page.
    file: Region,
    free: Arc<FreePages>,
    silent: Arc<SilentCqs>,
    /// Of drivers without doorbell records.
    bells: Option<Arc<OpenBells>>,
}

impl SoftDevice {
    /// Its file has this inode.
    pub(crate) fn new(shared: Arc<SharedNic>, file: Region, inode: u64) -> Result<Self, Refusal> {
        let registers = Registers::of(shared.profile.driver);
        let bells = registers.map(|registers| OpenBells::new(inode, registers)).transpose()?;
        Ok(Self { shared, file, free: Arc::default(), silent: Arc::default(), bells })
    }

    /// A place for the doorbells of a new queue, if there are no records.
    fn place(&self) -> Result<Option<Place>, Refusal> {
        self.bells.as_ref().map(|bells| bells.place()).transpose()
    }

    /// How the QP `qpn` of a peer with this GID is reached. NICs of other processes may have the
    /// same.
    fn path(&self, gid: [u8; 16], qpn: Option<u32>) -> Path {
        let address = Ipv6Addr::from(gid);
        let address = address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4);
        let is_own = qpn.is_none_or(|qpn| QpnPart::of(qpn) == self.shared.nic.qpn_part());
        match address == self.shared.address && is_own {
            true => Path::Loopback,
            false => Path::Network(SocketAddr::new(address, ROCE_PORT)),
        }
    }

    fn rights(access: u32) -> Access {
        Access::from_bits_truncate(access) & (REMOTE | Access::LOCAL_WRITE)
    }
}

/// Numbers of doorbell pages: the highest that was ever used, and those that were given back.
#[derive(Default)]
struct FreePages(Mutex<(u32, Vec<u32>)>);

impl FreePages {
    /// A free page number. It is never 0, which programs take for "no page".
    fn take(self: &Arc<Self>) -> Option<PageNumber> {
        let mut pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (used, freed) = &mut *pages;
        let id = freed.pop().or_else(|| {
            *used = (*used + 1).min(MAX_UARS);
            Some(*used).filter(|id| *id < MAX_UARS)
        })?;
        Some(PageNumber { id, free: self.clone() })
    }
}

/// The number of a page; given back when it is dropped.
struct PageNumber {
    id: u32,
    free: Arc<FreePages>,
}

impl Drop for PageNumber {
    fn drop(&mut self) {
        self.free.0.lock().unwrap_or_else(PoisonError::into_inner).1.push(self.id);
    }
}

/// A page of doorbell registers. QPs may outlive it and go on with the page: if its number is given
/// out again, its registers also wake the QPs of the new one, at the cost of a look at their
/// records.
pub(crate) struct SoftUar {
    page: UarPage,
    _number: PageNumber,
}

/// Numbers of CQs that raise no completion events: their doorbell records are in a GPU's memory, and
/// looking whether they are armed would take a copy each time.
#[derive(Default)]
struct SilentCqs(Mutex<BTreeSet<u32>>);

impl SilentCqs {
    fn change<T>(&self, change: impl FnOnce(&mut BTreeSet<u32>) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The entry of one of them, until it is dropped.
struct Silent(u32, Arc<SilentCqs>);

impl Drop for Silent {
    fn drop(&mut self) {
        self.1.change(|numbers| numbers.remove(&self.0));
    }
}

/// A CQ, and its events if it has a channel.
pub(crate) struct SoftCq {
    /// Where it was made.
    pub(crate) ring: Ring,
    cq: Cq,
    events: Option<Arc<CqEvents>>,
    cqe_size: u32,
    _silent: Option<Silent>,
    _place: Option<Place>,
}

/// An SRQ.
pub(crate) struct SoftSrq {
    srq: Srq,
    _place: Option<Place>,
}

/// A QP.
pub(crate) struct SoftQp {
    /// Its send queue and its receive queue, of ionic's format.
    pub(crate) rings: Option<[Ring; 2]>,
    qp: Qp,
    place: Option<Place>,
    shared: Arc<SharedNic>,
}

/// Executes what was posted so far, as far as a few steps go.
fn finish_work(shared: &SharedNic) {
    for _ in 0..LAST_STEPS {
        if matches!(shared.nic.step(), Step::Idle) {
            break;
        }
    }
}

impl Drop for SoftQp {
    /// A program may end as soon as it has seen the last completion: what the NIC owes the peer for
    /// it, an acknowledgement perhaps, leaves before the QP goes.
    fn drop(&mut self) {
        finish_work(&self.shared);
        self.shared.say_link();
        self.shared.say_violations();
    }
}

impl Device for SoftDevice {
    type Pd = Pd;
    type Mr = Mr;
    type Channel = Arc<Channel>;
    type Cq = SoftCq;
    type Srq = SoftSrq;
    type Qp = SoftQp;
    type Uar = SoftUar;
    type Ah = AddressHandle;
    type Report = Report;

    fn profile(&self) -> &Profile {
        &self.shared.profile
    }

    fn alloc_pd(&self) -> Result<(Pd, u32), Refusal> {
        let pd = self.shared.nic.alloc_pd();
        let number = pd.number();
        Ok((pd, number))
    }

    fn create_ah(&self, pd: &Pd, gid: [u8; 16]) -> Result<(AddressHandle, u32), Refusal> {
        let ah = self.shared.nic.create_ah(pd, gid).map_err(refuse_nic)?;
        let number = ah.number();
        if let Some(offset) = self.shared.profile.driver.address_handle_at() {
            let told = self.file.write(offset, &number.to_le_bytes());
            told.map_err(|error| refuse_region("the device's first page", &error))?;
        }
        Ok((ah, number))
    }

    fn reg_mr(&self, pd: &Pd, request: &MrRequest) -> Result<(Mr, u32), Refusal> {
        let rights = Self::rights(request.access);
        let memory = match request.dmabuf {
            Some(fd) => exported(fd, request)?,
            None => payload(request, rights.contains(Access::LOCAL_WRITE))?,
        };
        let mr = self.shared.nic.reg_mr_at(pd, &memory, rights, request.iova);
        let mr = mr.map_err(refuse_nic)?;
        let key = mr.lkey();
        Ok((mr, key))
    }

    fn dmabuf(&self, fd: i32, offset: u64, length: u64) -> Result<u64, Refusal> {
        dmabuf::find(fd, offset, length)?.ok_or_else(|| {
            let why = "an unknown dmabuf, expected one that cuMemGetHandleForAddressRange has exported in \
                       this process";
            Refusal::unsupported(why)
        })
    }

    fn file(&self, fd: u32) -> Option<u64> {
        process::file_of(fd.cast_signed())
    }

    fn is_closed(&self, channel: &Arc<Channel>) -> bool {
        channel.is_closed()
    }

    fn withdraw(&self, fd: u32) {
        // SAFETY: a descriptor that was made by this call, and that the program does not know.
        unsafe { (Real::get().close)(fd.cast_signed()) };
    }

    fn open_comp_channel(&self) -> Result<(Arc<Channel>, u32), Refusal> {
        let (channel, fd) = Channel::open()?;
        Ok((Arc::new(channel), fd))
    }

    fn open_async_channel(&self) -> Result<(Arc<Channel>, u32), Refusal> {
        self.open_comp_channel()
    }

    fn open_eventfd(&self, fd: i32) -> Result<Arc<Channel>, Refusal> {
        Channel::of_eventfd(fd).map(Arc::new)
    }

    fn create_cq(
        &self,
        request: &CqRequest,
        channel: Option<&Arc<Channel>>,
    ) -> Result<(SoftCq, u32), Refusal> {
        let cqe_size = if request.cqe_size == 128 { CqeSize::B128 } else { CqeSize::B64 };
        let cqn: Arc<OnceLock<u32>> = Arc::default();
        let events = channel.map(|channel| CqEvents::new(channel.clone(), request.user_handle));
        let mut place = self.place()?;
        let dbr = match &place {
            Some(place) => place.region().clone(),
            None => queue("CQ doorbell record", request.dbr, 8)?,
        };
        let silent = dbr.kind() != Kind::Host;
        if silent && events.is_some() {
            return Err(Refusal::unsupported(SILENT));
        }
        let config = CqConfig {
            dialect: queues::dialect(request.driver),
            mode: if request.collapsed { CqMode::Collapsed } else { CqMode::Ring },
            log_size: request.log_size,
            buf: cq_buffer(request.buf, request.cqe_size, request.log_size)?,
            dbr: dbr.clone(),
            ignore_overrun: request.ignore_overrun,
            cqe_size,
            notice: match request.reported {
                true if silent => None,
                true => Some(completions(self.shared.events.clone(), cqn.clone())),
                false => events.as_ref().map(CqEvents::notice),
            },
        };
        let cq = self.shared.nic.create_cq(&config).map_err(refuse_nic)?;
        let number = *cqn.get_or_init(|| cq.cqn());
        if let Some(place) = &mut place {
            place.answer(Bell::Consumed, number, (&dbr, 0))?;
            place.answer(Bell::Arm, number, (&dbr, 8))?;
            place.answer(Bell::CutOff, number, (&dbr, 16))?;
        }
        let silent = silent.then(|| {
            self.silent.change(|numbers| numbers.insert(number));
            Silent(number, self.silent.clone())
        });
        let CqRequest { buf: address, log_size, cqe_size, .. } = *request;
        let ring = Ring { address, log_size, log_stride: cqe_size.ilog2() as u8 };
        Ok((SoftCq { ring, cq, events, cqe_size, _silent: silent, _place: place }, number))
    }

    fn close_cq(&self, cq: &SoftCq) -> u32 {
        cq.events.as_ref().map_or(0, |events| events.close())
    }

    fn resize_cq(&self, cq: &SoftCq, request: &ResizeRequest) -> Result<(), Refusal> {
        if request.cqe_size != cq.cqe_size {
            let (new, old) = (request.cqe_size, cq.cqe_size);
            return Err(Refusal::invalid(format!("CQEs of {new} bytes, the CQ has {old}")));
        }
        let buf = cq_buffer(request.buf, request.cqe_size, request.log_size)?;
        // A ring that is too small for completions of work posted before is refused.
        finish_work(&self.shared);
        cq.cq.resize(request.log_size, &buf).map_err(refuse_nic)
    }

    fn report(
        &self,
        source: EventSource,
        channel: &Arc<Channel>,
        form: EventForm,
    ) -> Result<Report, Refusal> {
        if let EventSource::Cq(cqn) = source
            && form.message(&AsyncEvent::Completion { cqn }).is_some()
            && self.silent.change(|numbers| numbers.contains(&cqn))
        {
            return Err(Refusal::unsupported(SILENT));
        }
        Ok(self.shared.events.report(source, channel.clone(), form))
    }

    fn close_report(&self, report: &Report) -> u32 {
        report.close()
    }

    fn set_srq_limit(&self, srq: &SoftSrq, limit: u16) {
        srq.srq.set_limit(limit);
    }

    fn srq_limit(&self, srq: &SoftSrq) -> u16 {
        srq.srq.limit()
    }

    fn create_srq(&self, pd: &Pd, request: &SrqRequest) -> Result<(SoftSrq, u32), Refusal> {
        let mut place = self.place()?;
        let dbr = match &place {
            Some(place) => place.region().clone(),
            None => queue("SRQ doorbell record", request.dbr, 4)?,
        };
        let bytes = 1 << (request.log_size + request.log_stride);
        let config = SrqConfig {
            dialect: queues::dialect(request.driver),
            order: if request.ring { SrqOrder::Ring } else { SrqOrder::Linked },
            buf: queue("SRQ buffer", request.buf, bytes)?,
            log_size: request.log_size,
            log_stride: request.log_stride,
            dbr: dbr.clone(),
        };
        let srq = self.shared.nic.create_srq(pd, &config).map_err(refuse_nic)?;
        let number = srq.srqn();
        if let Some(place) = &mut place {
            place.answer(Bell::Shared, number, (&dbr, 0))?;
        }
        Ok((SoftSrq { srq, _place: place }, number))
    }

    fn create_qp(
        &self,
        request: &QpRequest,
        with: OpenQp<'_, Self>,
    ) -> Result<(SoftQp, u32), Refusal> {
        let mut place = self.place()?;
        let with_queues = With {
            send_cq: &with.send_cq.cq,
            recv_cq: &with.recv_cq.cq,
            srq: with.srq.map(|srq| &srq.srq),
            page: with.uar.map(|uar| &uar.page),
            place: place.as_ref().map(Place::region),
        };
        let config = queues::qp(request, with_queues)?;
        let qp = self.shared.nic.create_qp(with.pd, config).map_err(refuse_nic)?;
        let number = qp.qpn();
        if let Some(place) = &mut place {
            let receives = place.region().clone();
            place.answer(Bell::Receive, number, (&receives, 0))?;
            let sends = (self.shared.nic.doorbells(), qp.doorbell_offset());
            place.answer(Bell::Send, number, sends)?;
        }
        let rings = Ring::of(request);
        Ok((SoftQp { rings, qp, place, shared: self.shared.clone() }, number))
    }

    fn query_qp(&self, qp: &SoftQp) -> QpStatus {
        let QpInfo { state, attrs, draining, .. } = qp.qp.query();
        QpStatus { state, draining, sq_psn: attrs.sq_psn, rq_psn: attrs.rq_psn }
    }

    fn modify_qp(&self, qp: &SoftQp, to: QpState, attrs: &Attributes) -> Result<(), Refusal> {
        let attrs = QpAttrs {
            access: attrs.access.map(|access| Self::rights(access) & REMOTE),
            dest_qpn: attrs.dest_qpn,
            qkey: attrs.qkey,
            path: attrs.dgid.map(|gid| self.path(gid, attrs.dest_qpn)),
            mtu: attrs.mtu,
            rq_psn: attrs.rq_psn,
            min_rnr_timer: attrs.min_rnr_timer,
            max_dest_rd_atomic: attrs.max_dest_rd_atomic,
            timeout: attrs.timeout,
            retry: attrs.retry,
            rnr_retry: attrs.rnr_retry,
            sq_psn: attrs.sq_psn,
            max_rd_atomic: attrs.max_rd_atomic,
        };
        if let (QpState::Reset, Some(place)) = (to, &qp.place) {
            place.clear();
        }
        qp.qp.modify(to, &attrs).map_err(|error| Refusal::invalid(error.to_string()))
    }

    fn alloc_uar(&self, _: UarKind) -> Result<(SoftUar, Uar), Refusal> {
        let Some(number) = self.free.take() else {
            return Err(Refusal::new(Errno::ENOMEM, format!("{MAX_UARS} doorbell pages at most")));
        };
        let (id, offset) = (number.id, u64::from(number.id) * u64::from(PAGE));
        let page = self.file.slice(offset, PAGE as usize);
        let page = page.map_err(|error| refuse_region("doorbell page", &error))?;
        let page = self.shared.nic.add_uar(&page).map_err(refuse_nic)?;
        Ok((SoftUar { page, _number: number }, Uar { offset, len: PAGE, id }))
    }

    fn command(&self, mailbox: &[u8], answer: &mut [u8]) -> Result<(), Refusal> {
        let failed = |status: Status, why: String, answer: &mut [u8]| {
            status.emit(0, answer);
            Err(Refusal::new(Errno::EREMOTEIO, why))
        };
        let command = match Command::parse(mailbox) {
            Ok(command) => command,
            Err(error) => return failed(error.status(), error.to_string(), answer),
        };
        match command {
            Command::QueryHcaCap { kind, .. } => {
                let Some(kind) = CapabilityKind::from_number(kind) else {
                    let why = format!("capabilities of kind {kind:#x} are not known");
                    return failed(Status::BadParameter, why, answer);
                };
                let Some(space) = answer.get_mut(0x10..) else {
                    let why = format!("an answer of {} bytes", answer.len());
                    return failed(Status::BadOutputLength, why, answer);
                };
                // A user may ask for the first part alone.
                let mut all = [0; 0x1000];
                capabilities(kind, &mut all);
                let len = space.len().min(all.len());
                space[..len].copy_from_slice(&all[..len]);
            }
            Command::QueryRoceAddress { index, .. } => {
                let found = self.shared.profile.gids.get(usize::from(index));
                let (Some(gid), Some(space)) = (found, answer.get_mut(0x10..0x30)) else {
                    let why = format!("there is no address {index}");
                    return failed(Status::BadParameter, why, answer);
                };
                roce_address(gid.gid).emit(space);
            }
            other => {
                let why = format!("objects by firmware commands are not modelled: {other:x?}");
                return failed(Status::BadOpcode, why, answer);
            }
        }
        Ok(())
    }
}

/// Why events are refused.
const SILENT: &str = "a CQ whose doorbell record is in a GPU's memory raises no completion events";

fn roce_address(gid: [u8; 16]) -> RoceAddress {
    let half = |at| Field { name: "GID", at, high: 63, low: 0 }.get(&gid);
    let is_ipv6 = Ipv6Addr::from(gid).to_ipv4_mapped().is_none();
    RoceAddress {
        gid_high: half(0),
        gid_low: half(8),
        l3_type: u32::from(is_ipv6),
        roce_version: 2,
        ..RoceAddress::default()
    }
}
