//! How a heap is made.

use crate::ShmemError;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Name of the environment variable that overrides [`HeapConfig::routes`].
pub const ROUTE_ENV: &str = "WARPVERBS_SHMEM_ROUTE";

/// Most queue pairs from one rank to another.
const MOST_QPS: u32 = 64;
/// Largest heap: 2^46 bytes.
const MOST_BYTES: u64 = 1 << 46;

/// Which routes may be taken to other ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RoutePolicy {
    /// Loads and stores where possible, else RDMA.
    #[default]
    Auto,
    /// Loads and stores; a rank that cannot be reached so is an error.
    Direct,
    /// RDMA to every other rank.
    Rdma,
    /// RDMA from and to these ranks, the others as by [`RoutePolicy::Auto`].
    RdmaOf(Vec<u32>),
}

impl RoutePolicy {
    /// Whether `from` must not use loads and stores to reach `to`, another rank.
    pub(crate) fn forces_rdma(&self, from: u32, to: u32) -> bool {
        match self {
            Self::Auto | Self::Direct => false,
            Self::Rdma => true,
            Self::RdmaOf(ranks) => ranks.contains(&from) || ranks.contains(&to),
        }
    }
}

impl fmt::Display for RoutePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Direct => f.write_str("direct"),
            Self::Rdma => f.write_str("rdma"),
            Self::RdmaOf(ranks) => {
                let ranks: Vec<_> = ranks.iter().map(u32::to_string).collect();
                write!(f, "rdma:{}", ranks.join(","))
            }
        }
    }
}

impl FromStr for RoutePolicy {
    type Err = ShmemError;

    fn from_str(text: &str) -> Result<Self, ShmemError> {
        let wrong = || ShmemError::Config {
            field: "routes",
            value: text.to_owned(),
            expected: "auto, direct, rdma, or rdma: and ranks separated by commas".to_owned(),
        };
        Ok(match text.split_once(':') {
            None if text == "auto" => Self::Auto,
            None if text == "direct" => Self::Direct,
            None if text == "rdma" => Self::Rdma,
            Some(("rdma", ranks)) => {
                let ranks = ranks.split(',').map(str::parse).collect::<Result<_, _>>();
                Self::RdmaOf(ranks.map_err(|_| wrong())?)
            }
            _ => return Err(wrong()),
        })
    }
}

/// How a heap is made. Every rank gives the same, which is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeapConfig {
    pub(crate) size: u64,
    pub(crate) max_size: Option<u64>,
    pub(crate) routes: RoutePolicy,
    pub(crate) deadline: Duration,
    pub(crate) timeout: Duration,
    pub(crate) qps: u32,
    pub(crate) queue_pairs: bool,
    pub(crate) shared: bool,
}

impl HeapConfig {
    /// A heap of `size` bytes on each rank, rounded up to a power of two.
    pub fn new(size: u64) -> Self {
        Self {
            size,
            max_size: None,
            routes: RoutePolicy::Auto,
            deadline: Duration::from_secs(60),
            timeout: Duration::from_secs(5),
            qps: 1,
            queue_pairs: false,
            shared: true,
        }
    }

    /// How large it may become, rounded up to a power of two: address space alone, for each rank of
    /// this machine. 16 times the size if not given.
    pub fn max_size(self, bytes: u64) -> Self {
        Self { max_size: Some(bytes), ..self }
    }

    /// Which routes may be taken, unless [`ROUTE_ENV`] is set.
    pub fn routes(self, routes: RoutePolicy) -> Self {
        Self { routes, ..self }
    }

    /// How long each step of making and growing it waits for other ranks.
    pub fn deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// The deadline of every wait in a kernel that is not given its own.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Queue pairs to each rank that is reached by RDMA, 1 to 64.
    pub fn qps_per_peer(self, qps: u32) -> Self {
        Self { qps, ..self }
    }

    /// Whether there are queue pairs to ranks that are reached by loads and stores as well: for
    /// [registered](crate::Heap::register) buffers that cannot be mapped.
    pub fn queue_pairs(self, wanted: bool) -> Self {
        Self { queue_pairs: wanted, ..self }
    }

    /// Whether other ranks of the machine may map this rank's memory. If not, or if the driver cannot
    /// share memory of the device, the memory comes from the device's ordinary allocator, all routes
    /// to and from this rank are RDMA, and the heap cannot grow. Ranks may differ in this.
    pub fn shared(self, shared: bool) -> Self {
        Self { shared, ..self }
    }

    /// With the environment's overrides, each of which is also given as text.
    pub(crate) fn with_env(mut self) -> Result<(Self, Vec<String>), ShmemError> {
        let mut overrides = Vec::new();
        if let Some(value) = std::env::var_os(ROUTE_ENV) {
            self.routes = value.to_string_lossy().parse()?;
            overrides.push(format!("{ROUTE_ENV}={}", self.routes));
        }
        Ok((self, overrides))
    }

    /// Size and largest size as powers of two, at least `granule`.
    pub(crate) fn sizes(&self, granule: u64) -> Result<(u64, u64), ShmemError> {
        let wrong = |field, value: u64, expected: &str| ShmemError::Config {
            field,
            value: value.to_string(),
            expected: expected.to_owned(),
        };
        if !(1..=MOST_QPS).contains(&self.qps) {
            return Err(wrong("qps_per_peer", self.qps.into(), "1 to 64"));
        }
        if !(1..=MOST_BYTES).contains(&self.size) {
            return Err(wrong("size", self.size, "1 to 2^46 bytes"));
        }
        let size = self.size.next_power_of_two().max(granule);
        let max = self.max_size.unwrap_or(size.saturating_mul(16).min(MOST_BYTES));
        if !(self.size..=MOST_BYTES).contains(&max) {
            return Err(wrong("max_size", max, "the size or more, up to 2^46 bytes"));
        }
        Ok((size, max.next_power_of_two().max(size)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_parse_and_print() {
        for text in ["auto", "direct", "rdma", "rdma:0", "rdma:1,3"] {
            assert_eq!(text.parse::<RoutePolicy>().unwrap().to_string(), text);
        }
        for wrong in ["", "nvlink", "rdma:", "rdma:x", "rdma:1,", "auto:1"] {
            let refused = wrong.parse::<RoutePolicy>().unwrap_err().to_string();
            assert!(refused.contains(&format!("{wrong:?}")), "{refused}");
        }
        let some = RoutePolicy::RdmaOf(vec![1]);
        assert!(some.forces_rdma(1, 0) && some.forces_rdma(0, 1) && !some.forces_rdma(0, 2));
    }

    #[test]
    fn sizes_are_powers_of_two() {
        let config = HeapConfig::new(5 << 20);
        assert_eq!(config.sizes(4096).unwrap(), (8 << 20, 128 << 20));
        assert_eq!(HeapConfig::new(1).sizes(2 << 20).unwrap().0, 2 << 20);
        let capped = HeapConfig::new(5 << 20).max_size(5 << 20);
        assert_eq!(capped.sizes(4096).unwrap(), (8 << 20, 8 << 20));
        for wrong in [HeapConfig::new(0), HeapConfig::new(u64::MAX), config.clone().max_size(1)] {
            assert!(matches!(wrong.sizes(4096), Err(ShmemError::Config { .. })), "{wrong:?}");
        }
        assert!(config.qps_per_peer(0).sizes(4096).is_err());
    }
}
