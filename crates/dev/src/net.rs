//! Two NICs with a cable between them, and one port with memory on each.

use super::pair::buffer;
use super::{Port, PortConfig, connect_over, rest, until};
use std::net::SocketAddr;
use std::time::Duration;
use warpverbs_mem::Access;
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_nic::link::{FaultPlan, Faulty, Link, cable};
use warpverbs_nic::{Clock, Config, Mr, NicError, Pd, QpAttrs, SoftNic, VirtualClock};

/// One NIC with a port.
#[derive(Debug)]
pub struct Host {
    /// The NIC. No thread drives it.
    pub nic: SoftNic,
    /// The protection domain of everything.
    pub pd: Pd,
    /// The port.
    pub port: Port,
    /// 64 KiB, all rights.
    pub mr: Mr,
}

impl Host {
    /// A NIC, with a port as they usually are.
    ///
    /// # Panics
    /// The NIC cannot be made.
    #[track_caller]
    pub fn new(config: Config) -> Self {
        SoftNic::new(config).and_then(|nic| Self::on(nic, &PortConfig::default())).expect("a NIC")
    }

    /// Puts a port and a buffer on a NIC.
    pub fn on(nic: SoftNic, config: &PortConfig) -> Result<Self, NicError> {
        let pd = nic.alloc_pd();
        let port = Port::new(&nic, &pd, config)?;
        let mr = nic.reg_mr(&pd, &buffer()?, Access::all())?;
        Ok(Self { nic, pd, port, mr })
    }

    /// Brings the port to RTS towards the port of `peer`. Attributes given replace the usual ones.
    pub fn connect(&self, peer: &Host, attrs: QpAttrs) {
        let addr = peer.nic.local_addr().expect("the NIC has a link");
        connect_over(&self.port, addr, peer.port.qp.qpn(), attrs);
    }

    /// Brings both ports to RTS towards each other.
    pub fn join(&self, peer: &Host, attrs: QpAttrs) {
        self.connect(peer, attrs);
        peer.connect(self, attrs);
    }

    /// Another port.
    pub fn another(&self) -> Port {
        Port::new(&self.nic, &self.pd, &PortConfig::default()).expect("a port")
    }

    /// Steps this NIC and that of `peer` until the send queue has a completion. Its error.
    ///
    /// # Panics
    /// There are more than one at once, or none for minutes.
    #[track_caller]
    pub fn outcome(&mut self, peer: &Host) -> Option<Syndrome> {
        until(|| {
            self.nic.step();
            peer.nic.step();
            self.port.only_sent()
        })
    }
}

/// Two hosts, connected to each other. Time stands still unless [`Net::run_for`] lets it go on.
#[derive(Debug)]
pub struct Net {
    /// The clock of both NICs.
    pub clock: VirtualClock,
    /// The first host.
    pub a: Host,
    /// The second host.
    pub b: Host,
}

/// Addresses of the two ends of a cable.
pub fn addresses() -> (SocketAddr, SocketAddr) {
    (SocketAddr::from(([10, 0, 0, 1], 4791)), SocketAddr::from(([10, 0, 0, 2], 4791)))
}

impl Net {
    /// Two NICs over a cable without faults, with ports as they usually are.
    pub fn perfect(attrs: QpAttrs) -> Self {
        Self::new(FaultPlan::default(), &PortConfig::default(), attrs).expect("two NICs")
    }

    /// Two NICs over a cable whose ends have the faults of `plan`, each with its own seed.
    pub fn new(plan: FaultPlan, ports: &PortConfig, attrs: QpAttrs) -> Result<Self, NicError> {
        let (a, b) = addresses();
        let (a, b) = cable(a, b);
        Self::faulty([Box::new(a), Box::new(b)], plan, ports, attrs)
    }

    /// Two NICs over links that have the faults of `plan`, each with its own seed.
    pub fn faulty(
        [a, b]: [Box<dyn Link>; 2],
        plan: FaultPlan,
        ports: &PortConfig,
        attrs: QpAttrs,
    ) -> Result<Self, NicError> {
        let other = FaultPlan { seed: plan.seed ^ 0x9e37_79b9, ..plan };
        Self::over(Box::new(Faulty::new(a, plan)), Box::new(Faulty::new(b, other)), ports, attrs)
    }

    /// Two NICs, each over a link of its own.
    pub fn over(
        a: Box<dyn Link>,
        b: Box<dyn Link>,
        ports: &PortConfig,
        attrs: QpAttrs,
    ) -> Result<Self, NicError> {
        let clock = VirtualClock::new();
        let host = |name: &str, seed, link| {
            let config = Config {
                name: name.into(),
                seed: Some(seed),
                clock: Clock::Virtual(clock.clone()),
                ..Config::default()
            };
            Host::on(SoftNic::with_link(config, link)?, ports)
        };
        let (a, b) = (host("a", 1, a)?, host("b", 2, b)?);
        a.join(&b, attrs);
        Ok(Self { clock, a, b })
    }

    /// Steps both NICs until there is nothing left to do at this time.
    pub fn run(&self) {
        rest([&self.a.nic, &self.b.nic]);
    }

    /// As [`Self::run`], while up to `limit` passes, timer by timer, until `done`. Whether it was.
    pub fn run_until(&mut self, limit: Duration, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.clock.now() + limit;
        loop {
            self.run();
            if done(self) {
                return true;
            }
            if !self.pass_until(end) {
                return false;
            }
        }
    }

    /// Lets time pass to the next timer of either NIC; false if there is none before `end`.
    pub fn pass_until(&mut self, end: Duration) -> bool {
        let timers = [self.a.nic.next_timer(), self.b.nic.next_timer()];
        let Some(wait) = timers.into_iter().flatten().min() else { return false };
        if self.clock.now() + wait > end {
            return false;
        }
        self.clock.expire(wait);
        true
    }

    /// As [`Self::run`], while `time` passes.
    pub fn run_for(&mut self, time: Duration) {
        let end = self.clock.now() + time;
        self.run_until(time, |_| false);
        self.clock.advance(end.saturating_sub(self.clock.now()));
        self.run();
    }
}
