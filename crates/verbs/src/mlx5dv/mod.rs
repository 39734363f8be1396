//! libmlx5's own interface ("mlx5dv"), loaded at run time: objects made by firmware commands
//! ("DevX"), memory and doorbell registers for them.
//!
//! ```no_run
//! use warpverbs_mem::HostBuf;
//! use warpverbs_verbs::Verbs;
//! use warpverbs_verbs::mlx5dv::{Devx, Uar, Umem};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let devx = Devx::of(&Verbs::load()?.device("mlx5_0")?.open()?)?;
//! let reliable = devx.general_caps()?.rc == 1;
//! let rings = Umem::register(&devx, &HostBuf::region(1 << 16)?)?;
//! let doorbells = Uar::alloc(&devx)?;
//! # let _ = (reliable, rings, doorbells);
//! # Ok(())
//! # }
//! ```
//!
//! Commands are values of [`warpverbs_mlx5::prm`]. An [`Object`] keeps what its command names: pass
//! it along when the object is made. The kernel refuses to give up memory that an object still uses,
//! and then it is never freed.

mod address;
mod devx;
mod error;
mod event;
mod object;
pub mod sys;
mod uar;
mod umem;

pub use address::{AddressVector, pd_number, resolve};
pub use devx::{Devx, LIBMLX5_ENV};
pub use error::{Answer, Mlx5Error};
pub use event::{EventChannel, Mlx5Event};
pub use object::Object;
pub use uar::{Uar, UarKind};
pub use umem::Umem;
