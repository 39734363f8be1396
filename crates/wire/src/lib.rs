//! RoCEv2 packets as bytes and as values, for NICs and for tools that read captures.
//!
//! ```text
//! IPv4 | IPv6   UDP 4791   BTH   extension headers   payload   pad   ICRC
//! └──────── Envelope ───┘  └─────────── Transport ────────────────┘
//! └────────────────────────────── Packet ──────────────────────────────┘
//! ```
//!
//! One file per header. Each has two types and nothing in between:
//!
//! * `Header`, a view: the declared layout, big-endian, unaligned. It is only ever reached as a
//!   reference into a buffer ([`Layout::view`], [`Layout::view_mut`]), which checks the length, so
//!   **no accessor of a `Header` can panic**, whatever the bytes are.
//! * `Repr`, a value: native integers and newtypes, only what has a meaning. `parse(&Header)`
//!   checks what the header alone can say and names what was wrong; `emit(&self, &mut Header)`
//!   writes **every** byte of the header. Lengths, pads and checksums are not part of the value:
//!   they are derived when emitting and checked when parsing.
//!
//! [`Packet`] is the whole datagram beginning at the IP header, [`Transport`] what a UDP socket
//! carries between its header and the ICRC, [`Envelope`] the addresses around it, which the ICRC
//! covers and a UDP socket hides.
//!
//! A packet that a receiver must discard in silence (InfiniBand specification, vol. 1, 9.6) is a
//! [`ParseError`]; one that it must answer with a NAK (9.7.4.1) parses, and is then found by
//! [`Transport::check_payload`] or by the caller. Fields that the specification calls reserved are
//! sent as zero and ignored on arrival, unless [`Checks::STRICT`] is asked for.
//!
//! Not here: sockets, capture files, connection state, InfiniBand and RoCEv1 link headers, and
//! every transport service other than reliable connection.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod aeth;
pub mod atomic;
pub mod bth;
pub mod deth;
pub mod icrc;
pub mod id;
pub mod ieth;
pub mod immdt;
pub mod ipv4;
pub mod ipv6;
pub mod opcode;
pub mod payload;
pub mod reth;
pub mod udp;

mod envelope;
mod error;
mod layout;
mod packet;
mod print;
mod serial;
mod transport;

pub use aeth::{Credits, NakCode, Repr as Aeth, RnrTimer, Syndrome};
pub use atomic::{AckRepr as AtomicAckEth, Repr as AtomicEth};
pub use bth::Repr as Bth;
pub use deth::Repr as Deth;
pub use envelope::{Envelope, Ip};
pub use error::{EmitError, HeaderName, ParseError, ReservedField};
pub use id::{Pkey, Qpn};
pub use ieth::Repr as Ieth;
pub use immdt::Repr as ImmDt;
pub use ipv4::Repr as Ipv4;
pub use ipv6::Repr as Ipv6;
pub use layout::{Layout, U24};
pub use opcode::{HeaderSet, Opcode, Operation, Position};
pub use packet::Packet;
pub use payload::{PayloadError, PayloadRule};
pub use reth::Repr as Reth;
pub use serial::{Msn, Psn};
pub use transport::{Checks, Extension, Transport};
pub use udp::Repr as Udp;
pub use warpverbs_rdma::{Mtu, Rkey};
