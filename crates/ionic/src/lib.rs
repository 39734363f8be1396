//! Queue formats of AMD Pensando's ionic devices (Pollara) as bytes and values, for posters and for NICs.
//!
//! Nothing here touches a device or shared memory: bytes come in and go out as slices. Fields of WQEs and
//! CQEs are big-endian but for indexes of WQEs; doorbells are little-endian. The facts were read in public
//! user libraries and seen in bytes that these libraries wrote; `docs/formats.md` says which of them no
//! hardware has confirmed.
//!
//! # Tour
//!
//! **Bytes.** [`body`] declares the parts of a WQE, [`cqe`] the 32 bytes of a completion, [`doorbell`] the
//! 8 bytes of a doorbell and the page of registers.
//!
//! **Values.** [`wqe::parse`] makes a [`Posted`](warpverbs_rdma::Posted) request of a send WQE and
//! [`wqe::build`] a WQE of a [`WorkRequest`](warpverbs_rdma::WorkRequest); [`recv`] does the same for
//! receives. Malformed bytes give a violation that names the field, its value and what was expected.
//!
//! **Counting.** [`ring::Position`] says which index and colour belong to a place, [`ring::counter`] turns
//! the positions of doorbells into counters.
//!
//! **The vendor's library.** [`dv`] has the structures of its own interface.
//!
//! ```
//! use warpverbs_ionic::{cqe::Cqe, doorbell::Doorbell, opcode::Protocol, ring::{Position, counter}, wqe};
//! use warpverbs_rdma::{Data, Op, Qpn, Remote, SendFlags, Sge, WorkRequest, widen};
//!
//! // A poster writes the first WQE of a ring of 64, and the doorbell.
//! let (qpn, at) = (Qpn::new(0x42).unwrap(), Position { counter: 0, log_depth: 6 });
//! let op = Op::Write(Remote::new(0x7000, 0x1234));
//! let sges = [Sge::new(0x2000, 3000, 0x2b00)];
//! let request = WorkRequest { id: 0, op, data: Data::Sges(&sges), flags: SendFlags::SIGNALED };
//! let mut slot = [0; 64];
//! wqe::build(&mut slot, at, Protocol::V2, &request)?;
//! let rung = Doorbell { queue: qpn, index: at.next().index(), arm: None }.word();
//!
//! // A NIC sees the doorbell, and finds the request.
//! let doorbell = Doorbell::parse(rung)?;
//! assert_eq!((doorbell.queue, counter(doorbell.index, 0, 6)?), (qpn, 1));
//! let posted = wqe::parse(&slot, at, Protocol::V2)?;
//! assert_eq!((posted.op, posted.local.single()), (op, Some(sges[0])));
//!
//! // It completes the first message in the first lap of a CQ of 128 entries.
//! let done = Cqe::Messages { qpn, msn: 1, status: Ok(()) };
//! let bytes = done.emit(Position { counter: 0, log_depth: 7 }.color());
//! let Ok(Cqe::Messages { msn, .. }) = Cqe::parse(&bytes) else { panic!() };
//! assert_eq!(widen(msn, 24, 0), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

pub mod body;
pub mod cqe;
pub mod doorbell;
pub mod dv;
pub mod header;
pub mod opcode;
pub mod recv;
pub mod ring;
pub mod status;
pub mod wqe;
