//! The kernel's RDMA interface, for libraries that imitate a device: what libibverbs, libmlx5,
//! libbnxt_re and libionic ask the kernel, answered without one.
//!
//! A program opens `/dev/infiniband/uverbs0` and asks for everything with one `ioctl`, whose
//! argument is a list of attributes. [`Context`] is one such open file: [`Context::ioctl`] takes
//! the address of the list, checks it against the [`schema`], looks up the objects that it names,
//! has a [`Device`] do the work, and writes the answer.
//!
//! This crate makes no system call. The program's memory is behind [`UserMemory`], the device
//! behind [`Device`], and every byte that comes from the program is taken for hostile.

#![forbid(unsafe_code)]

pub mod abi;
mod call;
mod context;
mod device;
mod driver;
mod errno;
mod event;
mod memory;
mod objects;
mod provider;
mod refusal;
pub mod schema;
mod write;

pub use call::{HEADER_BYTES, PAGE_BYTES, VERBS_IOCTL};
pub use context::{Context, Fault};
pub use device::{
    Attributes, BnxtFixed, CqRequest, Device, Gid, MrRequest, OpenQp, Port, Profile, QpRequest,
    QpStatus, Queues, ResizeRequest, SrqRequest, Uar, UarKind,
};
pub use driver::Driver;
pub use errno::Errno;
pub use event::{EventForm, EventSource};
pub use memory::UserMemory;
pub use refusal::Refusal;
pub use warpverbs_bnxt::ring::Library as BnxtLibrary;
pub use write::{WRITE_COMMANDS, WriteCommand};
