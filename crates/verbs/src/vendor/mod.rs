//! What the own interfaces of Broadcom's and AMD's libraries share: each is found beside the driver that libibverbs
//! has loaded, and each failure says what was tried.

mod error;
mod library;

pub use error::VendorError;
pub(crate) use library::VendorApi;
pub use library::{VendorDevice, VendorLibrary};
