//! Settings of `warpverbs run`, in one environment variable.

use crate::bells;
use crate::process::Once;
use std::ffi::OsString;
use std::net::IpAddr;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use warpverbs_mlx5::prm::Status;
use warpverbs_rdma::Mtu;
use warpverbs_uverbs::{BnxtLibrary, Driver, Fault};

/// `nics=2,device=bnxt_re,mtu=1024,address=10.0.0.1,fail=7:8,consume,verbose,record=FILE`: any of these, `record`
/// last. A value that cannot be understood counts as not given; `warpverbs run` has checked it.
const VARIABLE: &str = "WARPVERBS_RUN";

/// Those whose doorbell page lies behind the end of the device's file.
const BNXT: Driver = Driver::Bnxt { doorbells: bells::OFFSET, library: BnxtLibrary::Early };
const IONIC: Driver = Driver::Ionic { doorbells: bells::OFFSET };

/// The name of a device.
pub(crate) fn device_name(index: u32) -> String {
    Settings::get().driver.device(index)
}

/// Settings that were asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Devices.
    pub(crate) nics: u32,
    /// Whose devices they are.
    pub(crate) driver: Driver,
    /// The largest path MTU, if not that of the interface.
    pub(crate) mtu: Option<Mtu>,
    /// The first device's address; one of the loopback network otherwise.
    pub(crate) address: Option<IpAddr>,
    /// A call of each open device that fails.
    pub(crate) fault: Option<Fault>,
    /// Devices only consume from the start.
    pub(crate) consume: bool,
    /// Refused calls are printed.
    pub(crate) verbose: bool,
    /// Where calls are recorded.
    pub(crate) record: Option<PathBuf>,
    /// The folder in place of `/sys`.
    pub(crate) sysfs: Option<Vec<u8>>,
}

impl Settings {
    /// Those of this process; without the variable there is no device.
    pub(crate) fn get() -> &'static Self {
        static SETTINGS: Once<Settings> = Once::new();
        SETTINGS.get(|| {
            let settings = Self::parse(&std::env::var(VARIABLE).unwrap_or_default());
            let sysfs = std::env::var_os("SYSFS_PATH").filter(|_| settings.nics > 0);
            Self { sysfs: sysfs.map(OsString::into_vec), ..settings }
        })
    }

    fn parse(text: &str) -> Self {
        let (text, record) = match text.split_once("record=") {
            Some((text, file)) => (text, Some(file.into())),
            None => (text, None),
        };
        let mut settings = Self { record, ..Self::default() };
        for part in text.split(',') {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            match name {
                "nics" => settings.nics = value.parse().unwrap_or(0),
                "device" => {
                    let named = [BNXT, IONIC].into_iter().find(|driver| driver.name() == value);
                    settings.driver = named.unwrap_or_default();
                }
                "mtu" => settings.mtu = value.parse().ok().and_then(Mtu::from_bytes),
                "address" => settings.address = value.parse().ok(),
                "fail" => settings.fault = fault(value),
                "consume" => settings.consume = true,
                "verbose" => settings.verbose = true,
                _ => {}
            }
        }
        settings
    }
}

/// `7:8`: the seventh call, status 8.
fn fault(value: &str) -> Option<Fault> {
    let (call, status) = value.split_once(':')?;
    let status = status.parse().ok()?;
    let status = Status::parse(&[status, 0, 0, 0, 0, 0, 0, 0]).0?;
    Some(Fault { call: call.parse().ok()?, status })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_understood() {
        let text = "nics=2,device=bnxt_re,mtu=1024,address=10.0.0.1,fail=7:8,consume,verbose,record=/tmp/a,b";
        let (address, record) = (Some([10, 0, 0, 1].into()), Some("/tmp/a,b".into()));
        let mtu = Some(Mtu::B1024);
        let fault = Some(Fault { call: 7, status: Status::Limit });
        let (consume, verbose) = (true, true);
        let (nics, driver) = (2, BNXT);
        let expected =
            Settings { nics, driver, mtu, address, fault, consume, verbose, record, sysfs: None };
        assert_eq!(Settings::parse(text), expected);
        assert_eq!(Settings::parse("device=ionic").driver, IONIC);
        assert_eq!(Settings::parse(""), Settings::default());
    }
}
