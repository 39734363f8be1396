//! Views of an agent's and its peers' memory: what they are made of, and what is refused. Their use
//! by kernels is tested with the kernels.

use std::sync::Arc;
use std::time::Duration;
use warpverbs_agent::{Agent, AgentConfig, AgentError, PathKind};
use warpverbs_gpu::Gpu;
use warpverbs_gpu::simt::{SimtConfig, SimtDevice};
use warpverbs_transport::{Context, Device};

fn device() -> Arc<dyn Gpu> {
    Arc::new(SimtDevice::new(SimtConfig::default()).expect("SIMT device"))
}

fn nic() -> Device {
    Context::new().expect("context").open("soft").expect("the software NIC")
}

fn pair(name: &str, config: impl Fn(&str) -> AgentConfig) -> (Agent, Agent) {
    let names = [format!("{name} a"), format!("{name} b")];
    let [a, b] = names.map(|name| Agent::new(&name, config(&name)).expect("an agent"));
    a.load_metadata(&b.metadata().expect("metadata")).expect("a peer");
    (a, b)
}

#[test]
fn memory_of_the_same_process_is_reached_directly_and_of_a_nic_by_queue_pairs() {
    for (without, expected) in
        [(None, PathKind::SameProcess), (Some(PathKind::SameProcess), PathKind::Network)]
    {
        let (gpu, nic) = (device(), nic());
        let config = |_: &str| {
            let config = AgentConfig::default().gpu(&gpu).nic(&nic);
            match without {
                Some(path) => config.without(path).without(PathKind::Mapped),
                None => config,
            }
        };
        let (a, b) = pair(&format!("{expected}"), config);
        let (own, data) = (a.alloc(4096, "own").unwrap(), b.alloc(4096, "data").unwrap());
        let counter = b.alloc(16, "counter").unwrap();
        a.load_metadata(&b.metadata().unwrap()).unwrap();
        let remote = ["data", "counter"].map(|label| a.remote(b.name(), label).unwrap());
        let views = a.views(&[&own], &[Some(&remote[0]), None, Some(&remote[1])]).unwrap();
        assert_eq!(views.path(b.name()), Some(expected));
        assert_eq!((views.number(b.name()), views.number("nobody")), (Some(0), None));
        assert_eq!(views.failed_wait().unwrap(), None);
        views.give_up("nobody").unwrap();
        views.abort().unwrap();
        drop((data, counter));
    }
}

#[test]
fn what_kernels_cannot_reach_is_refused_with_every_reason() {
    let gpu = device();
    let config = |_: &str| {
        let config = AgentConfig::default().gpu(&gpu).deadline(Duration::from_secs(20));
        config.without(PathKind::SameProcess).without(PathKind::Mapped)
    };
    let (a, b) = pair("refused", config);
    let (own, data) = (a.alloc(64, "own").unwrap(), b.alloc(64, "data").unwrap());
    a.load_metadata(&b.metadata().unwrap()).unwrap();
    let remote = a.remote(b.name(), "data").unwrap();
    let error = a.views(&[&own], &[Some(&remote)]).unwrap_err();
    let AgentError::NoPath { tried, .. } = &error else { panic!("{error}") };
    assert!(!tried.is_empty(), "{error}");
    drop(data);
}

#[test]
fn deregistered_memory_makes_no_view_and_a_view_keeps_its_memory() {
    let gpu = device();
    let (a, b) = pair("kept", |_| AgentConfig::default().gpu(&gpu));
    let (own, data) = (a.alloc(64, "own").unwrap(), b.alloc(64, "data").unwrap());
    a.load_metadata(&b.metadata().unwrap()).unwrap();
    let remote = a.remote(b.name(), "data").unwrap();
    let views = a.views(&[&own], &[Some(&remote)]).unwrap();
    drop(data);
    assert!(a.views(&[&own], &[Some(&remote)]).is_err());
    drop((own, b, a));
    assert!(views.local().addr() != 0 && views.remote().addr() != 0);
}
