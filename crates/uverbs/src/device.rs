//! The device that does the work: a NIC, behind a trait.

use crate::abi::QpCap;
use crate::event::{EventForm, EventSource};
use crate::{BnxtLibrary, Driver, Refusal};
use warpverbs_rdma::{Mtu, QpState, Service};

/// Properties of the device.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Whose device it is.
    pub driver: Driver,
    /// Firmware version: major in the upper 32 bits, minor in bits 31 to 16, patch below.
    pub fw_ver: u64,
    /// GUID of the node.
    pub node_guid: u64,
    /// Number of the kind of device, as its vendor counts.
    pub vendor_part_id: u32,
    /// QPs at most.
    pub max_qp: u32,
    /// WQEBBs of a send queue, and receives of a receive queue, at most.
    pub max_qp_wr: u32,
    /// Scatter entries of a work request at most.
    pub max_sge: u32,
    /// CQs at most.
    pub max_cq: u32,
    /// CQEs of a CQ at most, a power of two.
    pub max_cqe: u32,
    /// Memory regions at most.
    pub max_mr: u32,
    /// Protection domains at most.
    pub max_pd: u32,
    /// READs and atomics of a QP that may be outstanding.
    pub max_qp_rd_atom: u32,
    /// SRQs at most.
    pub max_srq: u32,
    /// Receives of an SRQ at most.
    pub max_srq_wr: u32,
    /// Completion vectors.
    pub comp_vectors: u32,
    /// 0: CQEs carry the number of the SRQ; 1: the user index of the queue.
    pub cqe_version: u8,
    /// The one port.
    pub port: Port,
    /// The port's addresses.
    pub gids: Vec<Gid>,
}

/// The state of a port.
#[derive(Clone, Copy, Debug)]
pub struct Port {
    /// The largest path MTU.
    pub max_mtu: Mtu,
    /// The path MTU in use.
    pub active_mtu: Mtu,
    /// Bytes of a message at most.
    pub max_msg_sz: u32,
}

/// An address of a port, of RoCEv2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gid {
    /// The address: IPv6, or IPv4 mapped into it.
    pub gid: [u8; 16],
    /// Number of the network interface.
    pub ifindex: u32,
}

/// Memory to register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MrRequest {
    /// First byte: its address, or its place in the dmabuf.
    pub start: u64,
    /// Bytes.
    pub length: u64,
    /// Address of the first byte in work requests.
    pub iova: u64,
    /// `IB_ACCESS_*`: 1 local write, 2 remote write, 4 remote read, 8 remote atomic.
    pub access: u32,
    /// The memory is that of a dmabuf, and `start` an offset in it.
    pub dmabuf: Option<i32>,
}

/// A CQ to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqRequest {
    /// Whose CQEs they are.
    pub driver: Driver,
    /// log2 of the number of CQEs.
    pub log_size: u8,
    /// Bytes of a CQE: 64 or 128; 32 of others than mlx5.
    pub cqe_size: u32,
    /// Where the CQEs lie.
    pub buf: u64,
    /// The doorbell record: consumer index and arming, 32 bits each. 0 of others than mlx5, which have none.
    pub dbr: u64,
    /// CQEs that were not consumed may be overwritten.
    pub ignore_overrun: bool,
    /// Every CQE is written to the first entry.
    pub collapsed: bool,
    /// Value that completion events carry.
    pub user_handle: u64,
    /// Completions may be asked for by [`Device::report`].
    pub reported: bool,
}

/// Another ring for a CQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResizeRequest {
    /// log2 of the number of CQEs.
    pub log_size: u8,
    /// Bytes of a CQE, which must be as before.
    pub cqe_size: u32,
    /// Where the CQEs lie.
    pub buf: u64,
}

/// An SRQ to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrqRequest {
    /// Whose receives they are.
    pub driver: Driver,
    /// Receives are taken by their numbers, instead of in the order of their links.
    pub ring: bool,
    /// log2 of the number of receives.
    pub log_size: u8,
    /// log2 of the bytes of a receive.
    pub log_stride: u8,
    /// Where the receives lie.
    pub buf: u64,
    /// The doorbell record: 32 bits. 0 of others than mlx5, which have none.
    pub dbr: u64,
}

/// A QP to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpRequest {
    /// Its service. A target of dynamic connections has no own memory: `buf` and `dbr` are 0.
    pub service: Service,
    /// Where the receive queue lies.
    pub buf: u64,
    /// The doorbell record: receive counter and send counter, 32 bits each. 0 of others than mlx5, which have
    /// none.
    pub dbr: u64,
    /// log2 of the WQEBBs of the send queue, or of its WQEs; `None` without.
    pub log_sq: Option<u8>,
    /// log2 of the number of receives, and of their bytes; `None` without.
    pub rq: Option<(u8, u8)>,
    /// Number that CQEs carry in place of that of an SRQ: CQE version 1.
    pub user_index: Option<u32>,
    /// Data of READs go into their CQE, if they ask for one and the data fit.
    pub scatter_requests: bool,
    /// Messages go into their CQE, if they fit.
    pub scatter_receives: bool,
    /// Limits that the program asked for.
    pub cap: QpCap,
    /// The format of the queues, and where the send queue lies.
    pub queues: Queues,
}

/// The format of a QP's queues, and where the send queue lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queues {
    /// WQEBBs of 64 bytes, behind the receive queue.
    Mlx5,
    /// WQEs of 128 bytes.
    Bnxt {
        /// Where they lie, and behind them one entry of packet numbers for each, of 16 bytes.
        sq: u64,
        /// The program's name of the QP, in its CQEs.
        handle: u64,
        /// The library that writes them.
        library: BnxtLibrary,
        /// The program has laid them out itself.
        fixed: Option<BnxtFixed>,
    },
    /// WQEs of protocol 2.
    Ionic {
        /// Where they lie.
        sq: u64,
        /// log2 of the bytes of each.
        log_wqe: u8,
    },
}

/// Queues of bnxt_re that a program has laid out itself: WQEs of as many slots as they use, and behind the
/// slots of the send queue its table of messages, of entries of 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BnxtFixed {
    /// Slots of the send queue.
    pub slots: u32,
    /// log2 of the entries of the table.
    pub log_packets: u8,
    /// Slots of each receive, of which doorbells count receives.
    pub receive_slots: Option<u8>,
}

impl QpRequest {
    /// Bytes of a receive, if the program says how many slots it has.
    pub fn receive_bytes(&self) -> Option<u64> {
        match self.queues {
            Queues::Bnxt { fixed: Some(BnxtFixed { receive_slots, .. }), .. } => {
                receive_slots.map(|slots| u64::from(slots) * 16)
            }
            _ => None,
        }
    }

    /// Where the send queue lies.
    pub fn sq(&self) -> u64 {
        match self.queues {
            Queues::Mlx5 => {
                let receives = self.rq.map_or(0, |(log, stride)| 1u64 << (log + stride));
                self.buf.wrapping_add(receives)
            }
            Queues::Bnxt { sq, .. } | Queues::Ionic { sq, .. } => sq,
        }
    }
}

/// Objects that a new QP works with.
pub struct OpenQp<'a, D: Device + ?Sized> {
    /// Its protection domain.
    pub pd: &'a D::Pd,
    /// Completions of sends.
    pub send_cq: &'a D::Cq,
    /// Completions of receives.
    pub recv_cq: &'a D::Cq,
    /// Where it takes receives from, if not from its own queue.
    pub srq: Option<&'a D::Srq>,
    /// The page whose registers it rings by, if it sends. It may be freed before the QP is
    /// destroyed.
    pub uar: Option<&'a D::Uar>,
}

/// Attributes given with a transition; `None` is "not given".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Attributes {
    /// Rights of peers: `IB_ACCESS_*`.
    pub access: Option<u32>,
    /// Address of the peer.
    pub dgid: Option<[u8; 16]>,
    pub mtu: Option<Mtu>,
    pub dest_qpn: Option<u32>,
    pub qkey: Option<u32>,
    pub rq_psn: Option<u32>,
    pub sq_psn: Option<u32>,
    pub timeout: Option<u8>,
    pub retry: Option<u8>,
    pub rnr_retry: Option<u8>,
    pub min_rnr_timer: Option<u8>,
    pub max_rd_atomic: Option<u8>,
    pub max_dest_rd_atomic: Option<u8>,
}

/// A QP as it is now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpStatus {
    /// Its state.
    pub state: QpState,
    /// In SQD, work that was begun is still in flight.
    pub draining: bool,
    /// PSN of the next packet sent; `None`: as it was given.
    pub sq_psn: Option<u32>,
    /// PSN of the next packet expected; likewise.
    pub rq_psn: Option<u32>,
}

/// Kinds of doorbell pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UarKind {
    /// For whole WQEs: "BlueFlame".
    BlueFlame,
    /// For doorbells only.
    NonCached,
}

/// A doorbell page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uar {
    /// Offset that the program gives to `mmap`.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
    /// The page's number.
    pub id: u32,
}

/// A device. Its handles destroy what they stand for when they are dropped, and keep what they
/// need: they are dropped in any order.
pub trait Device {
    /// A protection domain.
    type Pd;
    /// Registered memory.
    type Mr;
    /// A descriptor that events are read from.
    type Channel;
    /// A completion queue.
    type Cq;
    /// A shared receive queue.
    type Srq;
    /// A queue pair.
    type Qp;
    /// A doorbell page.
    type Uar;
    /// An address handle.
    type Ah;
    /// Events that the program asked for. Dropped, there are no more.
    type Report;

    /// Properties of the device.
    fn profile(&self) -> &Profile;

    /// A new protection domain, and its number.
    ///
    /// # Errors
    /// The device's reason; likewise below.
    fn alloc_pd(&self) -> Result<(Self::Pd, u32), Refusal>;

    /// An address handle for datagrams to this GID, and its number: of drivers whose WQEs name it by that.
    /// See also [`Driver::address_handle_at`].
    fn create_ah(&self, pd: &Self::Pd, gid: [u8; 16]) -> Result<(Self::Ah, u32), Refusal>;

    /// Registers memory, and says its key.
    fn reg_mr(&self, pd: &Self::Pd, request: &MrRequest) -> Result<(Self::Mr, u32), Refusal>;

    /// The address of `length` bytes at `offset` of the program's dmabuf `fd`, which does not say it:
    /// a device may know it from elsewhere. Requests name queues there by it.
    fn dmabuf(&self, fd: i32, offset: u64, length: u64) -> Result<u64, Refusal>;

    /// The open file behind the program's descriptor `fd`: one number for all duplicates, which no
    /// other open file has. `None`: the descriptor is not open.
    fn file(&self, fd: u32) -> Option<u64>;

    /// Whether the program has closed every descriptor of a channel.
    fn is_closed(&self, channel: &Self::Channel) -> bool;

    /// Closes the descriptor of a channel whose number could not be told the program.
    fn withdraw(&self, fd: u32);

    /// A new channel of completion events, and its descriptor.
    fn open_comp_channel(&self) -> Result<(Self::Channel, u32), Refusal>;

    /// A new channel of asynchronous events, and its descriptor.
    fn open_async_channel(&self) -> Result<(Self::Channel, u32), Refusal>;

    /// The program's eventfd `fd`, as a channel of events that it [counts](EventForm::Counted).
    fn open_eventfd(&self, fd: i32) -> Result<Self::Channel, Refusal>;

    /// A new CQ, and its number.
    fn create_cq(
        &self,
        request: &CqRequest,
        channel: Option<&Self::Channel>,
    ) -> Result<(Self::Cq, u32), Refusal>;

    /// How many completion events of the CQ the program has read. None comes after this call.
    fn close_cq(&self, cq: &Self::Cq) -> u32;

    /// Goes on in another ring, and says so by the last CQE of the old one.
    fn resize_cq(&self, cq: &Self::Cq, request: &ResizeRequest) -> Result<(), Refusal>;

    /// From now on, events of `source` that `form` wants are written to `channel`.
    ///
    /// # Errors
    /// The source raises no such events.
    fn report(
        &self,
        source: EventSource,
        channel: &Self::Channel,
        form: EventForm,
    ) -> Result<Self::Report, Refusal>;

    /// How many events the program has read. None comes after this call.
    fn close_report(&self, report: &Self::Report) -> u32;

    /// A new SRQ, and its number.
    fn create_srq(&self, pd: &Self::Pd, request: &SrqRequest) -> Result<(Self::Srq, u32), Refusal>;

    /// Raises an event once when fewer receives are left; 0 for never.
    fn set_srq_limit(&self, srq: &Self::Srq, limit: u16);

    /// The limit that has raised no event yet.
    fn srq_limit(&self, srq: &Self::Srq) -> u16;

    /// A new QP in RESET, and its number.
    fn create_qp(
        &self,
        request: &QpRequest,
        with: OpenQp<'_, Self>,
    ) -> Result<(Self::Qp, u32), Refusal>;

    /// A QP's state and progress.
    fn query_qp(&self, qp: &Self::Qp) -> QpStatus;

    /// Brings a QP to another state, or changes it within its state.
    fn modify_qp(&self, qp: &Self::Qp, to: QpState, attrs: &Attributes) -> Result<(), Refusal>;

    /// A new doorbell page.
    fn alloc_uar(&self, kind: UarKind) -> Result<(Self::Uar, Uar), Refusal>;

    /// A firmware command that makes no object: a mailbox, at least 16 bytes, and room for the
    /// answer, likewise. A command that fails is [`Errno::EREMOTEIO`](crate::Errno::EREMOTEIO),
    /// with status and syndrome in the answer.
    fn command(&self, mailbox: &[u8], answer: &mut [u8]) -> Result<(), Refusal>;
}
