//! Queue formats of Broadcom's bnxt_re devices (Thor) as bytes and values, for posters and for NICs.
//!
//! Nothing here touches a device or shared memory: bytes come in and go out as slices. All fields are
//! little-endian. The facts were read in public user libraries and seen in bytes that these libraries
//! wrote; `docs/formats.md` says which of them no hardware has confirmed.
//!
//! # Tour
//!
//! **Bytes.** [`slot`] declares the 16-byte slots of which WQEs consist, [`cqe`] the 32 bytes of a
//! completion, [`doorbell`] the 8 bytes of a doorbell, [`packets`] the table of packet numbers behind a
//! send queue.
//!
//! **Values.** [`wqe::parse`] makes a [`Posted`](warpverbs_rdma::Posted) request of a send WQE and
//! [`wqe::build`] a WQE of a [`WorkRequest`](warpverbs_rdma::WorkRequest); [`recv`] does the same for
//! receives. Malformed bytes give a violation that names the field, its value and what was expected.
//!
//! **Counting.** [`ring::Ring`] turns the positions of doorbells into counters and back, and says which
//! phase a CQE has.
//!
//! **Making queues.** [`dv`] has the structures by which a vendor's library makes queues in memory of the program.
//!
//! ```
//! use warpverbs_bnxt::{cqe::Cqe, packets::{Packets, Table}, ring::{Library, Ring}, slot::SLOT, wqe};
//! use warpverbs_bnxt::{doorbell::{Doorbell, Kind}, status::SendStatus};
//! use warpverbs_rdma::{Data, Mtu, Op, Remote, SendFlags, Sge, WorkRequest, widen};
//!
//! // A poster writes the first WQE of a ring of 256 WQEs, its packet numbers, and the doorbell.
//! let ring = Ring::new(256, Library::Current)?;
//! let op = Op::Write(Remote::new(0x7000, 0x1234));
//! let sges = [Sge::new(0x2000, 3000, 0x2b00)];
//! let request = WorkRequest { id: 0, op, data: Data::Sges(&sges), flags: SendFlags::SIGNALED };
//! let mut buf = [0; 8 * SLOT];
//! let wqe = wqe::build(&mut buf, &request)?;
//! let mut entry = [0; 8];
//! Packets::of(0x123456, 3000, Mtu::B1024, 0).write(Table::Msn, 0, &mut entry)?;
//! let rung = ring.doorbell(Kind::Send, 0x42, 1).word();
//!
//! // A NIC sees the doorbell, and finds the request and its packet numbers.
//! let doorbell = Doorbell::parse(rung)?;
//! assert_eq!((doorbell.queue, ring.counter(&doorbell, 0)?), (0x42, 1));
//! let posted = wqe::parse(wqe, Library::Current)?;
//! assert_eq!((posted.op, posted.local.single()), (op, Some(sges[0])));
//! let packets = Packets::read(Table::Msn, &entry)?;
//! packets.check(Packets::of(0x123456, 3000, Mtu::B1024, 0))?;
//!
//! // It completes the WQE in the first lap of a CQ of 64 entries.
//! let done = Cqe::Sent { qp_handle: 0x5000, consumed: 1, status: SendStatus::Ok };
//! let bytes = done.emit(Ring::new(64, Library::Current)?.phase(0));
//! let Ok(Cqe::Sent { consumed, .. }) = Cqe::parse(&bytes) else { panic!() };
//! assert_eq!(widen(consumed.into(), 16, 0), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

pub mod cqe;
pub mod doorbell;
pub mod dv;
pub mod header;
pub mod opcode;
pub mod packets;
pub mod recv;
pub mod ring;
pub mod slot;
pub mod status;
pub mod wqe;
