//! Where an agent's counters are to be had as text: a file, or an HTTP listener of their own. One thread for
//! an agent, which ends with it and never delays it.

mod ending;
mod file;
mod http;
mod request;

use crate::{AgentError, panics::guarded};
use ending::{Ending, Source};
use file::Written;
use http::Server;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::thread::JoinHandle;
use std::time::Duration;

/// Between two times a file is written, unless another interval is given.
const INTERVAL: Duration = Duration::from_secs(15);

/// Where the counters of an agent go as text that Prometheus reads ([`AgentConfig::metrics`](crate::AgentConfig::metrics)).
#[derive(Clone, Debug)]
pub struct MetricsTo {
    to: To,
    optional: bool,
}

#[derive(Clone, Debug)]
enum To {
    File(PathBuf, Duration),
    Http(SocketAddr),
}

impl MetricsTo {
    /// A file, as node_exporter's textfile collector reads them. It is replaced every 15 s, so a reader never
    /// sees a part of it, and a last time when the agent ends.
    ///
    /// In its path `{pid}` stands for the number of the process, and `{agent}` for the name of the agent, in
    /// which all characters but ASCII letters, digits, `-` and `_` are written as `%` and two digits for each
    /// byte. A file with `{pid}` is removed when the agent ends, because no later agent would replace it.
    /// Two agents of one process cannot write the same file.
    #[must_use]
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self { to: To::File(path.into(), INTERVAL), optional: false }
    }

    /// Changes how often a file is written: 10 ms to a day.
    #[must_use]
    pub fn every(mut self, interval: Duration) -> Self {
        if let To::File(_, every) = &mut self.to {
            *every = interval;
        }
        self
    }

    /// An address at which `GET /metrics` gives them, port 0 for a free one. Everybody who reaches it may read
    /// them. [`Agent::metrics_address`](crate::Agent::metrics_address) has the address.
    #[must_use]
    pub fn http(address: impl Into<SocketAddr>) -> Self {
        Self { to: To::Http(address.into()), optional: false }
    }

    /// If the address is taken, or the file cannot be written, an agent is made all the same, and goes
    /// without, with a warning in the log.
    #[must_use]
    pub fn optional(self) -> Self {
        Self { optional: true, ..self }
    }

    pub(crate) fn check(&self) -> Result<(), AgentError> {
        let To::File(_, every) = &self.to else { return Ok(()) };
        let possible = Duration::from_millis(10)..=Duration::from_secs(24 * 3600);
        match possible.contains(every) {
            true => Ok(()),
            false => Err(AgentError::Config {
                field: "interval of metrics",
                value: format!("{every:?}"),
                expected: "10 ms to 24 hours",
            }),
        }
    }
}

/// A path if there is a slash in it, else an address and a port.
impl FromStr for MetricsTo {
    type Err = AgentError;

    fn from_str(text: &str) -> Result<Self, AgentError> {
        if text.contains('/') {
            return Ok(Self::file(text));
        }
        let address = text.parse::<SocketAddr>().map_err(|_| AgentError::Config {
            field: "metrics",
            value: format!("{text:?}"),
            expected: "ADDRESS:PORT, such as 127.0.0.1:9400, or a path with a slash in it",
        })?;
        Ok(Self::http(address))
    }
}

/// The counters as they are shown. Dropping it ends that.
pub(crate) struct Metrics {
    address: Option<SocketAddr>,
    file: Option<PathBuf>,
    ending: Ending,
    thread: Option<JoinHandle<()>>,
}

impl Metrics {
    /// `None` if it cannot be done and need not.
    pub(crate) fn start(
        to: &MetricsTo,
        agent: &str,
        source: Box<Source>,
    ) -> Result<Option<Self>, AgentError> {
        match Self::of(&to.to, agent, source) {
            Ok(metrics) => Ok(Some(metrics)),
            Err(why) if to.optional => {
                tracing::warn!(%agent, %why, "this agent goes without metrics");
                Ok(None)
            }
            Err(why) => Err(why),
        }
    }

    fn of(to: &To, agent: &str, source: Box<Source>) -> Result<Self, AgentError> {
        let ending = Ending::new().map_err(|error| AgentError::system("eventfd", error))?;
        let mut metrics = Self { address: None, file: None, ending: ending.clone(), thread: None };
        let work: Box<dyn FnOnce() + Send> = match to {
            To::File(path, every) => {
                let (written, every) = (Written::start(path, agent, &*source)?, *every);
                tracing::info!(%agent, file = %written.path().display(), "metrics are written");
                metrics.file = Some(written.path().to_owned());
                Box::new(move || written.serve(&ending, every, &*source))
            }
            To::Http(address) => {
                let server = Server::new(*address)?;
                metrics.address = Some(server.address());
                tracing::info!(%agent, address = %server.address(), "metrics are served");
                Box::new(move || server.serve(&ending, &*source))
            }
        };
        let thread = std::thread::Builder::new().name("wv-metrics".to_owned());
        let thread = thread.spawn(move || {
            guarded("the thread of metrics", work);
        });
        metrics.thread = Some(thread.map_err(|error| AgentError::system("clone", error))?);
        Ok(metrics)
    }

    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        self.ending.come();
        if let Some(thread) = self.thread.take() {
            // It waits for nobody but this, and for a file system that stops for ever it never ends either way.
            let _ = thread.join();
        }
    }
}
