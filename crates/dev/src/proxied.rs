//! Two connected ports whose work a fake device carries.

use super::pair::buffer;
use super::{Device, FakeDevice, FakePlan, Port, PortConfig, connect_proxied};
use std::sync::Arc;
use std::time::Duration;
use warpverbs_mem::testing::{LazyCopier, LazyMemory};
use warpverbs_mem::{Access, HostBuf, Region};
use warpverbs_mlx5::num::Rkey;
use warpverbs_mlx5::wqe::Remote;
use warpverbs_nic::{
    Clock, Config, Mr, NicError, Pd, QpAttrs, QpState, SoftNic, Step, VirtualClock,
};

/// How a proxied pair is made.
#[derive(Clone, Debug, Default)]
pub struct ProxiedConfig {
    /// The NIC; its clock is replaced by a virtual one.
    pub nic: Config,
    /// The device.
    pub plan: FakePlan,
    /// The first port.
    pub a: PortConfig,
    /// The second port.
    pub b: PortConfig,
}

/// One end: a port, and a buffer with all rights.
#[derive(Debug)]
pub struct ProxiedSide {
    /// The port.
    pub port: Port,
    /// 64 KiB.
    pub mr: Mr,
    /// The device's key for peers.
    pub rkey: u32,
}

impl ProxiedSide {
    /// The bytes from `offset` on, for the peer's work requests.
    pub fn remote(&self, offset: u64) -> Remote {
        Remote { addr: self.mr.addr() + offset, rkey: Rkey(self.rkey) }
    }
}

/// Two ports of one NIC, proxied by two QPs of a fake device that are connected to each other.
#[derive(Debug)]
pub struct ProxiedPair {
    /// The NIC. No thread drives it.
    pub nic: SoftNic,
    /// The NIC's clock.
    pub clock: VirtualClock,
    /// The protection domain of everything.
    pub pd: Pd,
    /// The device.
    pub device: FakeDevice,
    /// One end.
    pub a: ProxiedSide,
    /// The other end.
    pub b: ProxiedSide,
}

impl ProxiedPair {
    /// Makes everything, both ports in RTS.
    pub fn new(config: ProxiedConfig) -> Result<Self, NicError> {
        let clock = VirtualClock::new();
        let nic = SoftNic::new(Config { clock: Clock::Virtual(clock.clone()), ..config.nic })?;
        let (pd, device) = (nic.alloc_pd(), FakeDevice::new(config.plan));
        let side = |config: &PortConfig| {
            let port = Port::proxied(&nic, &pd, config, Box::new(device.qp(None)))?;
            let region = buffer()?;
            let (lkey, rkey) = device.register(&region, Access::all());
            let mr = nic.reg_proxied_mr(&pd, &region, Access::all(), lkey)?;
            Ok::<_, NicError>(ProxiedSide { port, mr, rkey })
        };
        let (a, b) = (side(&config.a)?, side(&config.b)?);
        let pair = Self { nic, clock, pd, device, a, b };
        pair.connect();
        Ok(pair)
    }

    /// Brings both ports and their QPs from RESET to RTS.
    pub fn connect(&self) {
        let (a, b) = (&self.a.port, &self.b.port);
        for (port, peer) in [(a, b), (b, a)] {
            self.device.connect(port.qp.qpn(), peer.qp.qpn());
            connect_proxied(port, peer.qp.qpn(), QpAttrs::default());
        }
    }

    /// 4 KiB of a GPU that the device does not reach, with its bounce buffer.
    ///
    /// # Panics
    /// There is no memory, or no key.
    pub fn bounced(&self) -> (Device, Region) {
        let copier = Arc::new(LazyCopier::default());
        let (region, view) = LazyMemory::regions(4096, 0, &copier).expect("memory");
        let buffer = HostBuf::region(4096).expect("memory");
        // Bytes that were not copied into it are seen.
        buffer.fill(0, 4096, 0x5a).expect("inside");
        let own = Access::LOCAL_WRITE;
        let (lkey, _) = self.device.register(&buffer, own);
        let mr = self.nic.reg_bounced_mr(&self.pd, &region, own, &buffer, lkey).expect("a key");
        (Device { mr, view, copier }, buffer)
    }

    /// Both ports to RESET, as a provider does it: the NIC's QP, then the device's.
    pub fn reset(&self) {
        for port in [&self.a.port, &self.b.port] {
            port.qp.modify(QpState::Reset, &QpAttrs::default()).expect("RESET from anywhere");
            self.device.reset(port.qp.qpn());
        }
    }

    /// Steps the NIC, without the device, until it has nothing to do.
    pub fn step(&self) {
        // A NIC that never comes to rest fails the test instead of hanging it. A device that gives
        // nothing by chance, half of the time, is asked again so often that this cannot last.
        let mut idle = 0;
        for _ in 0..1_000_000 {
            idle = if self.nic.step() == Step::Idle { idle + 1 } else { 0 };
            if idle == 128 {
                return;
            }
        }
        panic!("the NIC does not come to rest");
    }

    /// Steps NIC and device until neither has anything to do.
    pub fn run(&self) {
        loop {
            self.step();
            let (done, events) = (self.device.progress(5), self.device.take_events());
            if done == 0 && events.is_empty() {
                return;
            }
            events.into_iter().for_each(|event| self.nic.raise(event));
        }
    }

    /// As [`Self::run`], then lets `time` pass, then again.
    pub fn run_for(&self, time: Duration) {
        self.run();
        self.clock.advance(time);
        self.run();
    }
}
