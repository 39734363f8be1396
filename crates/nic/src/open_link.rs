//! From a NIC's configuration to its link: the proxy device, what is seen of it, what disturbs it.

use crate::{Clock, Config, NicError};
use std::ffi::OsString;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
#[cfg(feature = "udp")]
use warpverbs_link::LinkKind;
use warpverbs_link::{Faulty, Link, Pcap, descriptors::own};

/// The variable for [`Config::faults`].
const FAULTS: &str = "WARPVERBS_FAULT";
/// The variable for [`Config::capture`].
const CAPTURE: &str = "WARPVERBS_PCAP";
/// The variable for the kind of [`Config::link`].
#[cfg(feature = "udp")]
const LINK: &str = "WARPVERBS_LINK";

impl Config {
    /// Takes faults from `WARPVERBS_FAULT`, the capture's file from `WARPVERBS_PCAP`, and the kind
    /// of link of a NIC that has one from `WARPVERBS_LINK`, where these are set.
    ///
    /// # Errors
    /// A variable's value is not a plan of faults or not a link.
    pub fn with_env(self) -> Result<Self, NicError> {
        self.with_vars(|name| std::env::var_os(name).filter(|value| !value.is_empty()))
    }

    fn with_vars(mut self, var: impl Fn(&str) -> Option<OsString>) -> Result<Self, NicError> {
        if let Some(value) = var(FAULTS) {
            let value = value.to_string_lossy().into_owned();
            self.faults = value.parse().map_err(|cause| NicError::Variable {
                variable: FAULTS,
                value,
                cause,
            })?;
        }
        if let Some(path) = var(CAPTURE) {
            self.capture = Some(path.into());
        }
        #[cfg(feature = "udp")]
        if let (Some(value), Some(config)) = (var(LINK), self.link.address()) {
            let value = value.to_string_lossy().into_owned();
            let kind: LinkKind = value.parse().map_err(|cause| NicError::LinkVariable { cause })?;
            self.link = kind.at(config);
        }
        Ok(self)
    }

    /// The same for number `process` of several that were given the same configuration: a capture
    /// in a file of its own (`wire.pcap` becomes `wire.2.pcap`), faults with a seed of their own.
    pub fn for_process(mut self, process: u32) -> Self {
        self.capture = self.capture.map(|path| numbered(&path, process));
        self.faults.seed = self.faults.seed.wrapping_add(u64::from(process) << 32);
        self
    }

    pub(crate) fn open_link(&self) -> Result<Option<Box<dyn Link>>, NicError> {
        let refused = |what| Err(NicError::NoWire { what });
        match self.link.open()? {
            Some(link) => self.around(link).map(Some),
            None if !self.faults.is_none() => refused("a link with faults"),
            None if self.capture.is_some() => refused("a capture"),
            None => Ok(None),
        }
    }

    /// The capture is inside of the faults: it shows what they left.
    fn around(&self, link: Box<dyn Link>) -> Result<Box<dyn Link>, NicError> {
        let link = match &self.capture {
            Some(path) => Box::new(capture(link, path, &self.clock)?),
            None => link,
        };
        Ok(match self.faults.is_none() {
            true => link,
            false => Box::new(Faulty::new(link, self.faults)),
        })
    }
}

fn capture<L: Link>(link: L, path: &Path, clock: &Clock) -> Result<impl Link + use<L>, NicError> {
    let refused =
        |error: std::io::Error| NicError::Capture { path: path.into(), kind: error.kind() };
    // A NIC's own time begins at zero; captures of several hosts are to be read together.
    let since = match clock {
        Clock::Monotonic => SystemTime::now().duration_since(SystemTime::UNIX_EPOCH),
        Clock::Virtual(_) => Ok(Duration::ZERO),
    };
    let file = File::from(own(File::create(path).map_err(refused)?.into()));
    let out = BufWriter::new(file);
    Ok(Pcap::new(link, out).map_err(refused)?.since(since.unwrap_or_default()))
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    match path.extension() {
        Some(extension) => {
            let mut last = OsString::from(format!("{number}."));
            last.push(extension);
            path.with_extension(last)
        }
        None => path.with_extension(number.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(feature = "udp")]
    use crate::LinkConfig;
    use warpverbs_link::{Chance, FaultPlan};

    #[test]
    fn the_environment_gives_faults_and_a_capture() {
        let with = |faults: &str, file: &str| {
            let (faults, file) = (faults.to_owned(), file.to_owned());
            Config::default().with_vars(move |name| {
                let value = match name {
                    FAULTS => &faults,
                    CAPTURE => &file,
                    _ => return None,
                };
                (!value.is_empty()).then(|| value.into())
            })
        };
        let config = with("loss=5%,seed=3", "/x/wire.pcap").unwrap();
        assert_eq!(config.faults.loss, Chance::thousandths(50));
        let second = config.for_process(1);
        assert_eq!(second.capture, Some("/x/wire.1.pcap".into()));
        assert_eq!(second.faults.seed, 3 + (1 << 32));
        assert!(with("", "").unwrap().faults == FaultPlan::default());
        let error = with("loss=5", "").unwrap_err().to_string();
        assert!(
            error.contains("WARPVERBS_FAULT is \"loss=5\"") && error.contains("0.1%"),
            "{error}"
        );
    }

    #[cfg(feature = "udp")]
    #[test]
    fn the_environment_gives_the_link_of_a_nic_that_has_one() {
        let udp = crate::UdpConfig::at(([127, 0, 0, 1], 0).into());
        let with = |link, value: &'static str| {
            let vars = move |name: &str| (name == LINK).then(|| value.into());
            Config { link, ..Config::default() }.with_vars(vars).map(|config| config.link)
        };
        for (value, expected) in [
            ("udp", LinkConfig::Udp(udp)),
            ("shm", LinkConfig::Shm(udp)),
            ("auto", LinkConfig::Auto(udp)),
        ] {
            assert_eq!(with(LinkConfig::Udp(udp), value), Ok(expected));
            assert_eq!(with(LinkConfig::Loopback, value), Ok(LinkConfig::Loopback));
        }
        let error = with(LinkConfig::Udp(udp), "tcp").unwrap_err().to_string();
        assert!(error.contains("WARPVERBS_LINK") && error.contains("\"tcp\""), "{error}");
    }

    #[test]
    fn every_process_has_a_file_of_its_own() {
        for (path, expected) in [("wire", "wire.3"), ("a.b/w.pcap", "a.b/w.3.pcap")] {
            assert_eq!(numbered(Path::new(path), 3), Path::new(expected));
        }
    }

    #[test]
    fn there_is_nothing_to_see_or_disturb_without_a_link() {
        let faults = FaultPlan { loss: Chance::thousandths(1), ..FaultPlan::default() };
        let disturbed = Config { faults, ..Config::default() };
        assert!(matches!(disturbed.open_link(), Err(NicError::NoWire { .. })));
        let seen = Config { capture: Some("wire.pcap".into()), ..Config::default() };
        assert!(matches!(seen.open_link(), Err(NicError::NoWire { .. })));
    }
}
