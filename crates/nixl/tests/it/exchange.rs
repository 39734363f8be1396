//! Metadata by address and by a store, while the program goes on.

use crate::bed::{Bed, SOON, config, done, seeded, until};
use std::sync::Arc;
use std::time::Duration;
use warpverbs_agent::{Exchange as _, LocalExchange};
use warpverbs_nixl::{Config, Op, Place, Status, Store};

fn at(bed: &Bed) -> Place {
    let port = bed.agent.agent().unwrap().address().port();
    Place::Agent { host: "127.0.0.1".into(), port }
}

fn listening() -> Config {
    Config { listen: Some(0), ..config() }
}

#[test]
fn metadata_come_and_go_by_address() {
    let mut rng = seeded();
    let [target, initiator] =
        ["target", "initiator"].map(|name| Bed::new(name, listening(), 4096, &mut rng));
    for bed in [&target, &initiator] {
        bed.register(&bed.reg(&[(0, 4096)]));
    }
    initiator.agent.fetch_metadata("target", at(&target)).unwrap();
    initiator.agent.send_metadata(None, at(&target)).unwrap();
    let mine = target.list(&[(0, 4096)]);
    until("metadata of target", || initiator.agent.knows("target", Some(&mine)));
    until("metadata of initiator", || target.agent.knows("initiator", None));
    let into = initiator.list(&[(0, 4096)]);
    done(&initiator.agent.create(Op::Read, &into, &mine, "target", None).unwrap());
    assert_eq!(initiator.bytes(), target.bytes());
    initiator.agent.withdraw_metadata(at(&target)).unwrap();
    until("the end of initiator", || !target.agent.knows("initiator", None));
}

#[test]
fn an_agent_that_does_not_listen_gives_nothing_to_strangers() {
    let mut rng = seeded();
    let silent = Bed::registered("silent", 4096, &mut rng);
    let asking = Bed::registered("asking", 4096, &mut rng);
    let address = silent.agent.agent().unwrap().address();
    let asked = asking.agent.agent().unwrap().fetch_metadata(address, SOON).unwrap_err();
    assert!(asked.to_string().contains("refuses"), "{asked}");
}

#[test]
fn metadata_travel_by_a_store() {
    let mut rng = seeded();
    let mut shelf = LocalExchange::default();
    let store = || {
        let shelf = shelf.clone();
        let open = Arc::new(move || Ok(Box::new(shelf.clone()) as _));
        Some(Store::Other { namespace: "/job/7/".into(), open })
    };
    let [a, b] = ["a", "b"].map(|name| {
        let bed = Bed::new(name, Config { store: store(), ..config() }, 4096, &mut rng);
        bed.register(&bed.reg(&[(0, 2048)]));
        bed
    });
    let part = b.reg(&[(2048, 2048)]);
    b.register(&part);
    let labelled = || Place::Store { label: "second".into() };
    // In any order: what is fetched is waited for.
    a.agent.fetch_metadata("b", labelled()).unwrap();
    b.agent.send_metadata(Some(&part), labelled()).unwrap();
    until("a part", || a.agent.knows("b", Some(&part.trim())));
    assert!(!a.agent.knows("b", Some(&b.list(&[(0, 2048)]))));
    b.agent.send_metadata(None, Place::Store { label: String::new() }).unwrap();
    a.agent.fetch_metadata("b", Place::Store { label: String::new() }).unwrap();
    until("all", || a.agent.knows("b", Some(&b.list(&[(0, 2048)]))));
    for key in ["/job/7/b/second", "/job/7/b/metadata"] {
        assert!(shelf.get(key, Duration::ZERO).is_ok(), "{key}");
    }

    let bare = Bed::registered("bare", 64, &mut rng);
    let refused = bare.agent.fetch_metadata("b", labelled()).unwrap_err();
    assert_eq!(refused.status, Status::InvalidParam);
}

#[test]
fn addresses_of_stores_are_checked() {
    for wrong in ["", "host", "host:", ":1", "host:70000", "host:x"] {
        assert_eq!(Store::tcp(wrong).unwrap_err().status, Status::InvalidParam, "{wrong:?}");
    }
    assert_eq!(format!("{:?}", Store::tcp("[::1]:2379").unwrap()), "Store(::1:2379)");
    let var = |name: &str| (name == "WARPVERBS_REQUIRE").then(|| "tpc".to_owned());
    let wrong = Config::from_vars(&var).unwrap_err();
    assert!(wrong.why.contains("direct"), "{wrong}");
}
