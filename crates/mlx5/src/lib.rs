//! mlx5 queue formats as bytes and values, for posters and for NICs.
//!
//! Nothing here touches a device or shared memory: bytes come in and go out as slices.
//!
//! # Tour
//!
//! **Bytes.** [`segment`] declares the 16-byte pieces of a WQE, [`cqe`] the 64 bytes of a
//! completion, [`doorbell`] the records and the 8-byte doorbell, [`export`] the struct that a
//! kernel gets. Every layout is a struct of big-endian types with asserted size and offsets.
//!
//! **The door.** [`wqe::parse`] is the only way from ring bytes to a [`wqe::Wqe`]. It gets the
//! [`wqe::Position`] at which the bytes were found, checks everything that can be checked without
//! looking at memory, and returns a [`wqe::WqeViolation`] that names field, value and expected
//! value. [`recv::parse`] does the same for receive WQEs and [`cqe::Cqe::parse`] for completions.
//!
//! **Values.** [`wqe::Op`] says what to do; nobody behind the door looks at bits. [`amo`] has the
//! arithmetic of masked atomics and the byte order of their results.
//!
//! **And back.** [`wqe::WqeBuilder`], [`recv::build`] and [`cqe::Cqe::emit`] give bytes;
//! [`ring::store`] puts a WQE into a ring whose end it may cross.
//!
//! ```
//! use warpverbs_mlx5::{cqe::{Cqe, owner_bit}, doorbell::Doorbell, num::*, ring, wqe::*};
//!
//! let at = Position { qpn: Qpn::new(0x12e).unwrap(), index: WqeIndex(0xffff) };
//! let remote = Remote { addr: 0x7000, rkey: Rkey(0x1234) };
//!
//! // A poster writes a WQE into its ring and rings the doorbell.
//! let mut sq = [0; 128 * WQEBB];
//! let mut wqe = [0; WQEBB];
//! let wqe = WqeBuilder::write(&mut wqe, at, remote).inline(b"hello").signaled().finish()?;
//! ring::store(&mut sq, at.index, wqe)?;
//! let rung = Doorbell::Next { qpn: at.qpn, next: at.index.advance(1) }.bytes();
//!
//! // A NIC sees the doorbell, fetches the WQE and parses it.
//! assert_eq!(Doorbell::parse(rung).next(), WqeIndex(0));
//! let mut fetched = [0; WQEBB];
//! ring::load(&sq, at.index, &mut fetched)?;
//! assert_eq!(peek(&fetched), 1);
//! let wqe = parse(&fetched, at)?;
//! assert_eq!(wqe.op, Op::Write { remote, payload: Payload::Inline(b"hello"), imm: None });
//!
//! // It completes the WQE in the first lap of a CQ of 256 entries.
//! let done = Cqe::Requester {
//!     qpn: at.qpn,
//!     wqe_counter: at.index.0,
//!     opcode: wqe.op.opcode(),
//!     byte_cnt: 0,
//! };
//! let bytes = done.emit(owner_bit(3, 8));
//! assert_eq!(Cqe::parse(&bytes)?, done);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

pub mod amo;
pub mod cqe;
pub mod doorbell;
pub mod export;
pub mod flags;
pub mod header;
pub mod num;
pub mod opcode;
pub mod prm;
pub mod recv;
pub mod ring;
pub mod segment;
pub mod syndrome;
pub mod wqe;
