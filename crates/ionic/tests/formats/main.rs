//! Tests of ionic's queue formats: against bytes that its library wrote, against an independent
//! description of the bytes, against themselves, and against arbitrary bytes.

mod any_bytes;
mod cpp;
mod cqes;
mod exercise;
mod golden;
mod offsets;
// Requests are the same for all formats.
#[path = "../../../bnxt/tests/formats/request.rs"]
mod request;
mod violations;
