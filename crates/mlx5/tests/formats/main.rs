//! Tests of the queue formats: against golden vectors, against the C++ mirror, against
//! themselves, and against arbitrary bytes.

mod amo;
mod any_bytes;
mod cpp;
mod docs;
mod exercise;
mod golden;
mod ignored;
mod mirror;
mod prm;
mod receives;
mod request;
mod roundtrip;
mod strategies;
mod vectors;
mod violations;
mod words;
