//! Tests of bnxt_re's queue formats: against bytes that its libraries wrote, against a library that is
//! installed, against an independent description of the bytes, against themselves, and against arbitrary
//! bytes.

mod any_bytes;
mod counting;
mod cpp;
mod cqes;
mod driven;
mod exercise;
mod golden;
mod live;
mod offsets;
mod request;
mod violations;
