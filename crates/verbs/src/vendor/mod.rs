//! The common part of Broadcom's and AMD's own interfaces: each library is found beside the driver that libibverbs has
//! loaded, and each failure says what was tried.

mod device;
mod error;
mod library;

pub(crate) use device::VendorApi;
pub use device::VendorDevice;
pub use error::VendorError;
pub use library::VendorLibrary;
