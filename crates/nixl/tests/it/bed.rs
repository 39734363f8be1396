//! Agents with memory of their own.

use rand::{Rng, SeedableRng, rngs::StdRng};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};
use warpverbs_gpu::Buffer;
use warpverbs_mem::{HostBuf, Region};
use warpverbs_nixl::{
    Agent, Config, Desc, Kind, List, Params, RegDesc, RegList, Status, Strided, Transfer,
};

pub(crate) const SOON: Duration = Duration::from_secs(20);

/// Printed, so that a failed run can be repeated.
pub(crate) fn seeded() -> StdRng {
    StdRng::seed_from_u64(warpverbs_dev::seed())
}

pub(crate) struct Bed {
    pub(crate) agent: Agent,
    pub(crate) memory: Region,
}

pub(crate) fn config() -> Config {
    Config { address: Ipv4Addr::LOCALHOST.into(), deadline: SOON, ..Config::default() }
}

impl Bed {
    /// An agent with `len` random bytes that are not registered yet.
    pub(crate) fn new(name: &str, config: Config, len: usize, rng: &mut StdRng) -> Self {
        let agent = Agent::new(name, config).unwrap();
        agent.create_backend("UCX", &Params::new()).unwrap();
        let memory = HostBuf::region(len).unwrap();
        let mut bytes = vec![0; len];
        rng.fill_bytes(&mut bytes);
        memory.write(0, &bytes).unwrap();
        Self { agent, memory }
    }

    /// The same with all of it registered.
    pub(crate) fn registered(name: &str, len: usize, rng: &mut StdRng) -> Self {
        let bed = Self::new(name, config(), len, rng);
        bed.register(&bed.reg(&[(0, len as u64)]));
        bed
    }

    /// Descriptors of ranges of its memory, by offset and length.
    pub(crate) fn list(&self, ranges: &[(u64, u64)]) -> List {
        let base = self.memory.addr();
        let desc = |&(offset, len): &(u64, u64)| Desc { addr: base + offset, len, dev: 0 };
        List { kind: Kind::Dram, descs: ranges.iter().map(desc).collect() }
    }

    pub(crate) fn reg(&self, ranges: &[(u64, u64)]) -> RegList {
        let list = self.list(ranges);
        let one = |desc: &Desc| RegDesc { desc: *desc, meta: b"its path".to_vec() };
        RegList { kind: list.kind, descs: list.descs.iter().map(one).collect() }
    }

    pub(crate) fn row(&self, offset: u64, len: u64, stride: u64, count: u64) -> Strided {
        Strided { addr: self.memory.addr() + offset, len, dev: 0, stride, count }
    }

    pub(crate) fn try_register(&self, list: &RegList) -> Result<(), warpverbs_nixl::Error> {
        self.agent.register(list, &mut |gpu, desc| {
            assert!(gpu.is_none(), "host memory");
            let offset = desc.addr.checked_sub(self.memory.addr()).ok_or("not of this bed")?;
            let part = self.memory.slice(offset, desc.len as usize);
            Ok(Buffer::of_region(part.map_err(|error| error.to_string())?))
        })
    }

    pub(crate) fn register(&self, list: &RegList) {
        self.try_register(list).unwrap();
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.memory.len()];
        self.memory.read(0, &mut bytes).unwrap();
        bytes
    }
}

/// Posts, and polls until it is done.
pub(crate) fn done(transfer: &Transfer) {
    let end = Instant::now() + SOON;
    let mut status = transfer.post(None).unwrap();
    while status == Status::InProgress {
        assert!(Instant::now() < end, "{transfer:?}");
        status = transfer.status().unwrap();
    }
    assert_eq!(status, Status::Success);
}

/// The first notifications of `from` that come, `count` of them.
pub(crate) fn notified(agent: &Agent, from: &str, count: usize) -> Vec<Vec<u8>> {
    let end = Instant::now() + SOON;
    let mut all = Vec::new();
    while all.len() < count {
        assert!(Instant::now() < end, "{} of {count} notifications of {from}", all.len());
        for (sender, bytes) in agent.notifications_within(SOON) {
            assert_eq!(sender, from);
            all.extend(bytes);
        }
    }
    all
}

pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + SOON;
    while !is_so() {
        assert!(Instant::now() < end, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
