//! Broadcom's libbnxt_re, among the libraries of vendors.

use super::sys::BnxtApi;
use crate::sys::LoadFailure;
use crate::vendor::{VendorApi, VendorDevice, VendorLibrary};
use std::sync::Mutex;
use warpverbs_bnxt::dv::NEEDED;

/// Names the libbnxt_re to load instead of those that are looked for: a path or a file name. It must be the
/// one that libibverbs uses as its driver, or go with it.
pub const LIBBNXT_RE_ENV: &str = "WARPVERBS_LIBBNXT_RE";
/// PCI number of the vendor, [`DeviceAttr::vendor_id`](crate::DeviceAttr::vendor_id) of its devices.
pub const BROADCOM: u32 = 0x14e4;

/// An open bnxt_re device and the library that makes its queues. Cloning shares it.
pub type BnxtDv = VendorDevice<BnxtApi>;

impl VendorApi for BnxtApi {
    const LIBRARY: VendorLibrary = VendorLibrary {
        maker: "Broadcom",
        name: "libbnxt_re",
        devices: "bnxt_re",
        vendor: BROADCOM,
        variable: LIBBNXT_RE_ENV,
        first: NEEDED[0],
    };

    unsafe fn load(file: &str) -> Result<Self, LoadFailure> {
        // SAFETY: as the caller says.
        unsafe { Self::load(file) }
    }

    fn loaded() -> &'static Mutex<Option<&'static Self>> {
        static LOADED: Mutex<Option<&BnxtApi>> = Mutex::new(None);
        &LOADED
    }
}
