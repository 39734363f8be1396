//! Tests of packets, as one program: one build and one link.

#[path = "../common/mod.rs"]
mod common;

mod corpus;
mod packet;
mod properties;
mod scapy;
mod tshark;
