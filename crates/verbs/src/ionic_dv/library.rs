//! AMD's libionic, among the libraries of vendors.

use super::sys::IonicApi;
use crate::sys::LoadFailure;
use crate::vendor::{VendorApi, VendorDevice, VendorLibrary};
use std::sync::Mutex;
use warpverbs_ionic::dv::NEEDED;

/// Names the libionic to load instead of those that are looked for: a path or a file name. It must be the one that
/// libibverbs uses as its driver, or go with it.
pub const LIBIONIC_ENV: &str = "WARPVERBS_LIBIONIC";
/// PCI number of the vendor, [`DeviceAttr::vendor_id`](crate::DeviceAttr::vendor_id) of its devices.
pub const PENSANDO: u32 = 0x1dd8;

/// An open ionic device and the library that tells of its queues. Cloning shares it.
pub type IonicDv = VendorDevice<IonicApi>;

impl VendorApi for IonicApi {
    const LIBRARY: VendorLibrary = VendorLibrary {
        maker: "AMD",
        name: "libionic",
        devices: "ionic",
        vendor: PENSANDO,
        variable: LIBIONIC_ENV,
        first: NEEDED[0],
    };

    unsafe fn load(file: &str) -> Result<Self, LoadFailure> {
        // SAFETY: as the caller says.
        unsafe { Self::load(file) }
    }

    fn loaded() -> &'static Mutex<Option<&'static Self>> {
        static LOADED: Mutex<Option<&IonicApi>> = Mutex::new(None);
        &LOADED
    }
}
