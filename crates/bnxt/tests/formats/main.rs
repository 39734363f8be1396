//! Tests of bnxt_re's queue formats: against bytes that its libraries wrote, against an independent
//! description of the bytes, against themselves, and against arbitrary bytes.

mod any_bytes;
mod counting;
mod cqes;
mod exercise;
mod golden;
mod offsets;
mod request;
mod violations;
