//! Metadata and lists under keys of a store that processes share.

use crate::bed::SOON;
use std::time::Duration;
use warpverbs_agent::{Agent, AgentConfig, AgentError, BlockList, Exchange, LocalExchange};
use warpverbs_rendezvous::{Client, Limits, Server};

fn travels(mut left: impl Exchange, mut right: impl Exchange + Send) {
    let [a, b] = ["a", "b"].map(|name| Agent::new(name, AgentConfig::default()).unwrap());
    let memory = a.register(vec![0; 4096], "memory").unwrap();
    let list = memory.blocks_at(&[4000, 0, 100], 96).unwrap();
    std::thread::scope(|scope| {
        // The order of both sides does not matter.
        let waits = scope.spawn(|| {
            let name = b.retrieve_metadata(&mut right, "job/a", SOON).unwrap();
            (name, BlockList::retrieve(&mut right, "job/list", SOON).unwrap())
        });
        a.publish_metadata(&mut left, "job/a").unwrap();
        list.publish(&mut left, "job/list").unwrap();
        let (name, found) = waits.join().unwrap();
        assert_eq!((&*name, &found), ("a", &list));
        assert_eq!(b.prepare(&found).unwrap().len(), 3);
        // One is not taken for the other.
        let wrong = b.retrieve_metadata(&mut left, "job/list", SOON).unwrap_err();
        assert!(matches!(wrong, AgentError::Encoding(_)), "{wrong}");
        let late = BlockList::retrieve(&mut left, "job/none", Duration::from_millis(20));
        let late = late.unwrap_err().to_string();
        assert!(late.starts_with("list \"job/none\": "), "{late}");
    });
}

#[test]
fn by_a_map_of_this_process() {
    let exchange = LocalExchange::default();
    travels(exchange.clone(), exchange);
}

#[test]
fn by_the_store_that_ranks_meet_at() {
    let server = Server::bind("127.0.0.1:0".parse().unwrap(), Limits::default()).unwrap();
    let port = server.local_addr().port();
    let client = || Client::connect("127.0.0.1", port, SOON, Limits::default()).unwrap();
    travels(client(), client());
}
