//! The list of generated headers.

use crate::header::Header;
use crate::{blocks, ep, heap, qp, status, stop, team, views};

/// Every generated header.
pub const HEADERS: [&Header; 8] = [
    &blocks::HEADER,
    &ep::HEADER,
    &heap::HEADER,
    &qp::HEADER,
    &status::HEADER,
    &stop::HEADER,
    &team::HEADER,
    &views::HEADER,
];
