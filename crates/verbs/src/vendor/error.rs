//! Errors, with a line of advice where something can be done about it.

use super::library::VendorLibrary;
use crate::{CallError, LoadError};
use nix::errno::Errno;
use thiserror::Error;

/// A call of a vendor's library that failed, or that cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum VendorError {
    /// No library has the functions.
    #[error(
        "{} of {}'s {} cannot be had: {}; the {} of rdma-core has no such function in any version, the one of \
         {}'s own package has ({} names another file)",
        expected, library.maker, library.name,
        tried.iter().map(describe).collect::<Vec<_>>().join("; "),
        library.name, library.maker, library.variable
    )]
    NoLibrary {
        /// The library.
        library: &'static VendorLibrary,
        /// The functions that are needed.
        expected: &'static str,
        /// The files that were tried, in this order, and why each cannot be used.
        tried: Vec<LoadError>,
    },
    /// The device is not one of the vendor's.
    #[error(
        "{device} is of PCI vendor {vendor:#06x}, and no {} device ({:#06x})",
        library.devices, library.vendor
    )]
    NotOfVendor {
        /// The library.
        library: &'static VendorLibrary,
        /// The device.
        device: String,
        /// Its vendor.
        vendor: u32,
    },
    /// A call failed.
    #[error("{call}{}", advice(call))]
    Call {
        /// The call.
        call: CallError,
    },
    /// The library lays a queue out in another way than is known of it.
    #[error(
        "{of} wants {found} for {what}, expected {expected}: it is newer than what is known of it"
    )]
    Layout {
        /// The library.
        of: &'static str,
        /// The queue.
        what: &'static str,
        /// Its wish.
        found: String,
        /// The layout that was meant.
        expected: String,
    },
    /// The device cannot be given the memory.
    #[error(
        "queues in {kind} memory cannot be given to the device: {why}; queues in pinned host memory \
         (QueuePlacement::PinnedHost) can"
    )]
    NotReached {
        /// Where it lies.
        kind: String,
        /// The party that refused it.
        why: String,
    },
}

impl From<CallError> for VendorError {
    fn from(call: CallError) -> Self {
        Self::Call { call }
    }
}

/// A library that was tried: its name says the version that was found.
fn describe(failure: &LoadError) -> String {
    match failure {
        LoadError::NotFound { file } => format!("there is no {file}"),
        LoadError::Unusable { file, reason } => format!("{file} does not load ({reason})"),
        LoadError::TooOld { file, symbol, .. } => {
            let of = private_interface(file).map(|number| {
                format!(", which is a driver of libibverbs' private interface {number},")
            });
            format!("{file}{} has no {symbol}", of.unwrap_or_default())
        }
    }
}

/// The number behind `-rdmav` in the name of a driver of libibverbs.
fn private_interface(file: &str) -> Option<u32> {
    file.rsplit_once("-rdmav")?.1.strip_suffix(".so")?.parse().ok()
}

fn advice(call: &CallError) -> &'static str {
    match call.errno {
        Errno::ENOMEM => {
            "; locked memory may be limited: `ulimit -l unlimited`, for a container --ulimit memlock=-1"
        }
        Errno::EOPNOTSUPP | Errno::ENOTTY | Errno::EPROTONOSUPPORT => {
            "; the kernel's driver may be older than the library: both are of the vendor's package"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_that_was_found_is_told() {
        let file = "/usr/lib/libibverbs/libbnxt_re-rdmav34.so";
        assert_eq!(private_interface(file), Some(34));
        assert_eq!(private_interface("libbnxt_re.so"), None);
        let found = LoadError::TooOld {
            file: file.into(),
            symbol: "bnxt_re_dv_umem_reg",
            version: "",
            needed: 0,
        };
        let absent = LoadError::NotFound { file: "libbnxt_re.so".into() };
        let library = &VendorLibrary {
            maker: "Broadcom",
            name: "libbnxt_re",
            devices: "bnxt_re",
            vendor: 0x14e4,
            variable: "WARPVERBS_LIBBNXT_RE",
            first: "bnxt_re_dv_umem_reg",
        };
        let tried = vec![found, absent];
        let error = VendorError::NoLibrary { library, expected: "bnxt_re_dv_*", tried };
        let text = error.to_string();
        for part in [
            file,
            "private interface 34",
            "no bnxt_re_dv_umem_reg",
            "no libbnxt_re.so",
            "of Broadcom's libbnxt_re cannot",
            "(WARPVERBS_LIBBNXT_RE names",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
