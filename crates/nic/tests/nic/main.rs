//! Tests of the software NIC, as one program: one build and one link instead of 25.

mod bounce;
mod bounce_by_chance;
mod corpus;
mod device_memory;
mod errors;
mod faults;
mod garbage;
mod hostile;
mod long_messages;
mod model;
mod network;
mod network_faults;
mod network_local;
mod network_receives;
mod network_stage;
mod network_stage_ends;
mod network_timers;
mod network_trains;
mod operations;
mod pcap;
mod proxied;
mod proxied_errors;
mod queues;
mod receives;
mod teardown;
