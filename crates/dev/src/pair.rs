//! Two connected ports on one NIC, and memory that both may use.

use super::{Port, PortConfig, rest};
use std::net::SocketAddr;
use std::time::Duration;
use warpverbs_mem::{Access, HostBuf, Region};
use warpverbs_mlx5::num::{Lkey, Rkey};
use warpverbs_mlx5::wqe::{Local, Remote, Sge};
use warpverbs_nic::{
    Clock, Config, Mr, NicError, Path, Pd, QpAttrs, QpState, SoftNic, VirtualClock,
};

/// How a pair is made.
#[derive(Clone, Debug, Default)]
pub struct PairConfig {
    /// The NIC; its clock is replaced by a virtual one.
    pub nic: Config,
    /// The first port.
    pub a: PortConfig,
    /// The second port.
    pub b: PortConfig,
    /// Attributes for RTR and RTS in place of the usual ones.
    pub attrs: QpAttrs,
}

/// Two QPs in RTS, connected to each other, and two registered buffers. Time stands still unless
/// [`Pair::run_for`] lets it go on.
#[derive(Debug)]
pub struct Pair {
    /// The NIC. No thread drives it.
    pub nic: SoftNic,
    /// The NIC's clock.
    pub clock: VirtualClock,
    /// The protection domain of everything.
    pub pd: Pd,
    /// The first port.
    pub a: Port,
    /// The second port.
    pub b: Port,
    /// 64 KiB, the buffer of `a`: all rights.
    pub mr_a: Mr,
    /// 64 KiB, the buffer of `b`: all rights.
    pub mr_b: Mr,
}

/// Every right there is.
const ALL: Access = Access::all();

/// 64 KiB of zeroed memory.
pub(crate) fn buffer() -> Result<Region, NicError> {
    HostBuf::region(1 << 16).map_err(|cause| NicError::Memory { what: "test memory", cause })
}

impl Default for Pair {
    /// As everything is made if nothing is asked for.
    fn default() -> Self {
        Self::new(PairConfig::default()).expect("a NIC and two QPs")
    }
}

impl Pair {
    /// Makes the NIC and everything on it.
    pub fn new(config: PairConfig) -> Result<Self, NicError> {
        let clock = VirtualClock::new();
        let nic = SoftNic::new(Config { clock: Clock::Virtual(clock.clone()), ..config.nic })?;
        Self::on(nic, clock, &config.a, &config.b, config.attrs)
    }

    /// As [`Self::new`], on a NIC that exists.
    pub fn on(
        nic: SoftNic,
        clock: VirtualClock,
        a: &PortConfig,
        b: &PortConfig,
        attrs: QpAttrs,
    ) -> Result<Self, NicError> {
        let pd = nic.alloc_pd();
        let (a, b) = (Port::new(&nic, &pd, a)?, Port::new(&nic, &pd, b)?);
        let buffer = || nic.reg_mr(&pd, &buffer()?, ALL);
        let (mr_a, mr_b) = (buffer()?, buffer()?);
        connect(&a, b.qp.qpn(), attrs);
        connect(&b, a.qp.qpn(), attrs);
        Ok(Self { nic, clock, pd, a, b, mr_a, mr_b })
    }

    /// Calls `step` until there is nothing left to do at this time; how many WQEs were done.
    pub fn run(&self) -> u32 {
        rest([&self.nic])
    }

    /// Both QPs by RESET to RTS again.
    pub fn restart(&mut self) {
        self.a.reset();
        self.b.reset();
        connect(&self.a, self.b.qp.qpn(), QpAttrs::default());
        connect(&self.b, self.a.qp.qpn(), QpAttrs::default());
    }

    /// As [`Self::run`], while `time` passes, timer by timer.
    pub fn run_for(&self, time: Duration) -> u32 {
        let end = self.clock.now() + time;
        let mut done = self.run();
        while let Some(wait) = self.nic.next_timer() {
            if self.clock.now() + wait > end {
                break;
            }
            self.clock.expire(wait);
            done += self.run();
        }
        self.clock.advance(end.saturating_sub(self.clock.now()));
        done + self.run()
    }
}

/// Brings a port to RTS towards `dest_qpn`. Attributes given in `attrs` replace the usual ones.
pub fn connect(port: &Port, dest_qpn: u32, attrs: QpAttrs) {
    connect_with(port, QpAttrs::rtr(dest_qpn), attrs);
}

/// As [`connect`], to a QP of the NIC at `peer`.
pub fn connect_over(port: &Port, peer: SocketAddr, dest_qpn: u32, attrs: QpAttrs) {
    connect_with(port, QpAttrs::rtr_to(peer, dest_qpn), attrs);
}

/// As [`connect`], for a port that another device executes.
pub fn connect_proxied(port: &Port, dest_qpn: u32, attrs: QpAttrs) {
    connect_with(port, QpAttrs { path: Some(Path::Proxied), ..QpAttrs::rtr(dest_qpn) }, attrs);
}

fn connect_with(port: &Port, mut rtr: QpAttrs, attrs: QpAttrs) {
    let mut init = QpAttrs::init(ALL);
    init.access = attrs.access.or(init.access);
    let mut rts = QpAttrs::rts();
    rtr.mtu = attrs.mtu.or(rtr.mtu);
    rtr.min_rnr_timer = attrs.min_rnr_timer.or(rtr.min_rnr_timer);
    rtr.max_dest_rd_atomic = attrs.max_dest_rd_atomic.or(rtr.max_dest_rd_atomic);
    rts.timeout = attrs.timeout.or(rts.timeout);
    rts.retry = attrs.retry.or(rts.retry);
    rts.rnr_retry = attrs.rnr_retry.or(rts.rnr_retry);
    rts.max_rd_atomic = attrs.max_rd_atomic.or(rts.max_rd_atomic);
    for (state, attrs) in [(QpState::Init, init), (QpState::Rtr, rtr), (QpState::Rts, rts)] {
        port.qp.modify(state, &attrs).expect("the usual way to RTS");
    }
}

/// `len` bytes at `offset` of `mr`, for the owner's work requests.
pub fn sge(mr: &Mr, offset: u64, len: u32) -> Sge {
    Sge { addr: mr.addr() + offset, len, lkey: Lkey(mr.lkey()) }
}

/// The bytes from `offset` of `mr` on, for a peer's work requests.
pub fn remote(mr: &Mr, offset: u64) -> Remote {
    Remote { addr: mr.addr() + offset, rkey: Rkey(mr.rkey()) }
}

/// Where the result of an atomic goes.
pub fn local(mr: &Mr, offset: u64) -> Local {
    Local { addr: mr.addr() + offset, lkey: Lkey(mr.lkey()) }
}

/// `len` bytes of host memory at `offset`.
pub fn bytes(region: &Region, offset: u64, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    region.read(offset, &mut out).expect("inside the region");
    out
}
