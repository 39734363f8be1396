//! Tests of ionic's queue formats: against bytes that its library wrote, against a library that is at hand,
//! against an independent description of the bytes, against themselves, and against arbitrary bytes.

mod any_bytes;
mod cpp;
mod cqes;
// Requests are the same for all formats, and libraries are driven in the same way.
#[path = "../../../bnxt/tests/formats/driven.rs"]
mod driven;
mod exercise;
mod golden;
mod live;
mod offsets;
#[path = "../../../bnxt/tests/formats/request.rs"]
mod request;
mod violations;
