//! Two connected QPs with queues of any format.

use std::time::Duration;
use warpverbs_dev::{PortConfig, Poster, QueueFormat, addresses, bytes, rest};
use warpverbs_mem::{Access, HostBuf, Region};
use warpverbs_nic::link::{Link, cable};
use warpverbs_nic::{Clock, Config, Mr, Mtu, QpAttrs, SoftNic, VirtualClock};

pub(crate) const LEN: usize = 1 << 14;
const GUARD: u8 = 0xc3;

/// Two connected QPs, whose formats may differ, on one NIC or on two with a cable between them.
pub(crate) struct Rig {
    pub(crate) nics: [SoftNic; 2],
    pub(crate) clock: VirtualClock,
    pub(crate) a: Poster,
    pub(crate) b: Poster,
    pub(crate) mr_a: Mr,
    pub(crate) mr_b: Mr,
    /// The registered memory, with as many bytes on either side that must stay as they are.
    whole: [Region; 2],
    rtr: [QpAttrs; 2],
    rts: [QpAttrs; 2],
}

impl Rig {
    pub(crate) fn with(
        a: QueueFormat,
        b: QueueFormat,
        apart: bool,
        config: Config,
        port: &PortConfig,
    ) -> Self {
        let links = apart.then(|| {
            let (here, there) = addresses();
            let (one, other) = cable(here, there);
            [Box::new(one) as Box<dyn Link>, Box::new(other)]
        });
        Self::over(links, [a, b], config, port)
    }

    /// On two NICs, each with one of the links; without links on one NIC.
    pub(crate) fn over(
        links: Option<[Box<dyn Link>; 2]>,
        [a, b]: [QueueFormat; 2],
        config: Config,
        port: &PortConfig,
    ) -> Self {
        let clock = VirtualClock::new();
        let config = Config { clock: Clock::Virtual(clock.clone()), ..config };
        let nics = if let Some(links) = links {
            links.map(|link| SoftNic::with_link(config.clone(), link).unwrap())
        } else {
            let nic = SoftNic::new(config).unwrap();
            [nic.clone(), nic]
        };
        let pds = [nics[0].alloc_pd(), nics[1].alloc_pd()];
        let mr = |side: usize| {
            let whole = HostBuf::region(3 * LEN).unwrap();
            whole.fill(0, 3 * LEN, GUARD).unwrap();
            let part = whole.slice(LEN as u64, LEN).unwrap();
            (nics[side].reg_mr(&pds[side], &part, Access::all()).unwrap(), whole)
        };
        let ((mr_a, whole_a), (mr_b, whole_b)) = (mr(0), mr(1));
        let a = Poster::with(&nics[0], &pds[0], [a; 2], port).unwrap();
        let b = Poster::with(&nics[1], &pds[1], [b; 2], port).unwrap();
        let rtr = |to: &Poster, nic: &SoftNic, rq_psn| {
            let attrs = match nic.local_addr() {
                Some(addr) => QpAttrs::rtr_to(addr, to.qp.qpn()),
                None => QpAttrs::rtr(to.qp.qpn()),
            };
            QpAttrs { mtu: Some(Mtu::B1024), rq_psn: Some(rq_psn), ..attrs }
        };
        let psns = [0xff_fff0, 0x12_3456];
        let rts = psns.map(|psn| QpAttrs { sq_psn: Some(psn), ..QpAttrs::rts() });
        let rtr = [rtr(&b, &nics[1], psns[1]), rtr(&a, &nics[0], psns[0])];
        let whole = [whole_a, whole_b];
        let mut rig = Self { nics, clock, a, b, mr_a, mr_b, whole, rtr, rts };
        rig.restart();
        rig
    }

    pub(crate) fn restart(&mut self) {
        let init = QpAttrs::init(Access::all());
        self.a.connect(&init, &self.rtr[0], &self.rts[0]);
        self.b.connect(&init, &self.rtr[1], &self.rts[1]);
        while self.a.poll_send().is_some() || self.a.poll_recv().is_some() {}
        while self.b.poll_send().is_some() || self.b.poll_recv().is_some() {}
    }

    /// Until there is nothing to do at this time.
    pub(crate) fn run(&self) {
        rest([&self.nics[0], &self.nics[1]]);
    }

    /// The same while time passes.
    pub(crate) fn run_for(&self, time: Duration) {
        let end = self.clock.now() + time;
        self.run();
        while let Some(wait) = self.nics.iter().filter_map(SoftNic::next_timer).min() {
            if self.clock.now() + wait > end {
                break;
            }
            self.clock.expire(wait);
            self.run();
        }
    }

    /// Nothing was written beside what is registered.
    pub(crate) fn is_intact(&self) -> bool {
        let guard = vec![GUARD; LEN];
        self.whole
            .iter()
            .all(|all| bytes(all, 0, LEN) == guard && bytes(all, 2 * LEN as u64, LEN) == guard)
    }
}
