//! How an agent is made, by its program and by the environment.

use crate::exchange::Store;
use crate::{Error, Status};
use std::env;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;
use warpverbs_agent::{AgentConfig, MetricsTo, PathKind};
use warpverbs_gpu::Gpu;

/// The token of agents that are given none, so that those of one job know each other as NIXL's do.
const NO_TOKEN: &[u8] = b"nixl";

/// The GPU that the program uses at this moment, if it uses one.
pub type CurrentGpu = dyn Fn() -> Option<Arc<dyn Gpu>> + Send + Sync;

/// How an [`Agent`](crate::Agent) is made.
#[derive(Clone)]
pub struct Config {
    /// The port at which it serves its metadata and takes that of others, 0 for a free one; with `None`
    /// it does neither.
    pub listen: Option<u16>,
    /// Whether transfers count their time.
    pub telemetry: bool,
    /// The address at which it listens; all interfaces by default.
    pub address: IpAddr,
    /// How long a transfer may take.
    pub transfer_deadline: Duration,
    /// How long a deregistration waits for peers, and everything else that waits for one.
    pub deadline: Duration,
    /// Asked when the agent is first used: the device whose engines and kernels copy.
    pub current_gpu: Option<Arc<CurrentGpu>>,
    /// By which metadata travel where a program gives no address.
    pub store: Option<Store>,
    /// All else.
    pub agent: AgentConfig,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: None,
            telemetry: false,
            address: Ipv4Addr::UNSPECIFIED.into(),
            transfer_deadline: Duration::from_secs(600),
            deadline: Duration::from_secs(30),
            current_gpu: None,
            store: None,
            // Programs take notifications when they come to it.
            agent: AgentConfig::default().token(NO_TOKEN).notification_window(1 << 30),
        }
    }
}

impl Config {
    /// The defaults, with what the environment sets (`docs/python.md` lists the variables).
    ///
    /// # Errors
    /// A variable has a value that it cannot have.
    pub fn from_env() -> Result<Self, Error> {
        Self::from_vars(&|name| env::var(name).ok().filter(|value| !value.is_empty()))
    }

    /// As [`Config::from_env`], with variables from elsewhere.
    ///
    /// # Errors
    /// As for [`Config::from_env`].
    pub fn from_vars(var: &dyn Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let mut config = Self::default();
        if let Some(token) = var("WARPVERBS_TOKEN") {
            config.agent = config.agent.token(token);
        }
        if let Some(path) = var("WARPVERBS_REQUIRE") {
            config.agent = require(config.agent, &path)?;
        }
        if let Some(address) = var("WARPVERBS_LISTEN") {
            config.address = parse("WARPVERBS_LISTEN", &address, "an IP address")?;
        }
        if let Some(seconds) = var("WARPVERBS_DEADLINE") {
            config.deadline = seconds_of("WARPVERBS_DEADLINE", &seconds)?;
        }
        if let Some(seconds) = var("WARPVERBS_TRANSFER_DEADLINE") {
            config.transfer_deadline = seconds_of("WARPVERBS_TRANSFER_DEADLINE", &seconds)?;
        }
        if let Some(to) = var("WARPVERBS_METRICS") {
            let expected = "ADDRESS:PORT, such as 127.0.0.1:9400, or a path with a slash in it";
            let to: MetricsTo = parse("WARPVERBS_METRICS", &to, expected)?;
            // An agent goes without where another process, or another agent of this one, has the port: engines start
            // workers with the same variables.
            config.agent = config.agent.metrics(to.optional());
        }
        if let Some(wish) = var("WARPVERBS_EXPLAIN") {
            let explains = switch(&wish);
            let expected = "1 (or yes, true, on) or 0 (or no, false, off)";
            let explains = explains.ok_or_else(|| wrong("WARPVERBS_EXPLAIN", &wish, expected))?;
            config.agent = config.agent.announce_paths(explains);
        }
        config.store = var("NIXL_TCPSTORE_ENDPOINT").map(|at| Store::tcp(&at)).transpose()?;
        Ok(config)
    }

    /// Whether transfers count their time, by the program's wish and the variable `NIXL_TELEMETRY_ENABLE`,
    /// which goes before it.
    #[must_use]
    pub fn telemetry(self, wished: bool) -> Self {
        let variable = env::var("NIXL_TELEMETRY_ENABLE").ok();
        Self { telemetry: telemetry(wished, variable.as_deref()), ..self }
    }
}

fn telemetry(wished: bool, variable: Option<&str>) -> bool {
    variable.and_then(switch).unwrap_or(wished)
}

fn switch(value: &str) -> Option<bool> {
    match &*value.to_ascii_lowercase() {
        "y" | "yes" | "1" | "true" | "on" => Some(true),
        "n" | "no" | "0" | "false" | "off" => Some(false),
        _ => None,
    }
}

fn wrong(name: &str, value: &str, expected: &str) -> Error {
    Error::new(Status::InvalidParam, format!("{name} is {value:?}, expected {expected}"))
}

fn parse<T: std::str::FromStr>(name: &str, value: &str, expected: &str) -> Result<T, Error> {
    value.parse().map_err(|_| wrong(name, value, expected))
}

fn seconds_of(name: &str, value: &str) -> Result<Duration, Error> {
    let expected = "a number of seconds, more than 0, at most 31536000";
    let seconds: f64 = parse(name, value, expected)?;
    match seconds > 0.0 && seconds <= 31_536_000.0 {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err(wrong(name, value, expected)),
    }
}

fn require(config: AgentConfig, path: &str) -> Result<AgentConfig, Error> {
    if path == "direct" {
        return Ok(config.without(PathKind::Tcp));
    }
    let found = PathKind::ALL.into_iter().find(|kind| kind.word() == path);
    let kind = found.ok_or_else(|| {
        let words = PathKind::ALL.map(PathKind::word).join(", ");
        wrong("WARPVERBS_REQUIRE", path, &format!("direct (any but tcp) or one of {words}"))
    })?;
    Ok(config.require(kind))
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("listen", &self.listen)
            .field("address", &self.address)
            .field("telemetry", &self.telemetry)
            .field("transfer_deadline", &self.transfer_deadline)
            .field("deadline", &self.deadline)
            .field("store", &self.store)
            .field("agent", &self.agent)
            .finish_non_exhaustive()
    }
}
