//! Registered memory, for all crates that touch it: bytes that a NIC, a kernel and the host use at the
//! same time.
//!
//! Threads that poll such bytes wait by [`pause`].
//!
//! Two rules, everywhere: no `&` or `&mut` to such bytes is ever made (single atomics excepted),
//! and every access is bounds-checked against a [`Region`], which keeps its memory alive.

mod access;
mod bounce;
mod cells;
mod completion_ring;
mod copier;
mod doorbell;
mod error;
mod file;
mod give_way;
mod guarded;
mod holes;
mod host;
mod keys;
mod kind;
mod mapped;
mod memfd;
mod process;
mod proof;
mod region;
mod registration;
mod ring;
mod share;
mod span;
mod staged;
#[cfg(any(test, feature = "test-utils"))]
pub mod testing;
mod through;

pub use access::{Access, AccessError, KeyError};
pub use bounce::{BounceBuffer, BouncePool, BounceShare};
pub use cells::{Cell, Cells};
pub use completion_ring::{CompletionRecord, CompletionRing};
pub use copier::{Copier, CopyTicket, Pending, Progress, copy, copy_on_host};
pub use doorbell::{DoorbellPage, RegisterPage};
pub use error::MemError;
pub use file::{
    Alignment, FileBatch, FileEngine, FileFailure, FileIoError, FileOp, FileQueue, FileRequest,
    MOST_IN_FLIGHT, duplicate_descriptor, read_file, write_file,
};
pub use give_way::{give_way, pause};
#[cfg(feature = "fault-guard")]
pub use guarded::resume_at;
pub use holes::Holes;
pub use host::{HostBuf, SmallBuf, VecBuf};
pub use keys::{KeyHint, KeyTable};
pub use kind::Kind;
pub use mapped::{Mapped, NotMapped};
pub use memfd::{SharedError, check_sealed, map_sealed, named_memfd, sealed_memfd};
pub use process::{Direction, Process, ProcessError, ProcessPiece, same_user};
pub use proof::{Proof, ProofPlace};
pub use region::{Backing, Region, WeakRegion};
pub use registration::{Dmabuf, NotExported, RegistrationPath};
pub use ring::{Block, QueueRecord, ReceiveRing, SendRing};
pub use share::{Share, ShareHandle, SharePiece};
pub use span::{Span, scatter};
