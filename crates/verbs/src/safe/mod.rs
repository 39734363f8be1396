//! Objects that own what they stand for.

mod access;
mod advice;
mod attr;
mod channel;
mod completion;
mod context;
mod cq;
mod device;
mod error;
mod event;
mod gid;
mod gid_table;
mod gpu;
mod load;
mod load_error;
mod mr;
mod owned;
mod pd;
mod port;
mod post;
mod qp;
mod select;
mod srq;
mod wait;

pub use attr::DeviceAttr;
pub use channel::{CompChannel, CqEvent};
pub use completion::{Completion, WcOpcode};
pub use context::Context;
pub use cq::{Cq, CqOptions, CqParts};
pub use device::{Device, Transport};
pub use error::{NotRegistered, VerbsError};
pub use gid::{Gid, GidChoice, GidEntry, GidKind};
pub use gpu::{GpuWays, Registered, peer_module};
pub use load::{LIBRARY_ENV, Verbs};
pub use load_error::LoadError;
pub(crate) use load_error::explain;
pub use mr::{Mr, Registration};
pub(crate) use owned::{Owned, Uses};
pub use pd::Pd;
pub use port::{LinkLayer, PortAttr, PortState};
pub use post::{ListError, PostError, RecvList, SendList};
pub(crate) use qp::Maker;
pub use qp::{Finding, GlobalRoute, ModifyError, Path, Qp, QpAttrs, QpCaps, QpOptions};
pub use select::{NICS_ENV, Selection, SelectionError};
pub use srq::{Srq, SrqOptions};
pub(crate) use wait::set_nonblocking;

pub use warpverbs_mem::RegistrationPath;
pub use warpverbs_rdma::{
    AsyncEvent, AttrMask, Data, Lkey, Mtu, Op, PortChange, QpState, Remote, Rkey, SendFlags, Sge,
    Status, TransitionError,
};
pub use warpverbs_rdma::{Decision, Reason};
