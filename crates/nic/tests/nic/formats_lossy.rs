//! Connections whose ends have queues of different formats, over links that lose and reorder what is sent.

use crate::formats::{every_operation, pairs};
use crate::rig::Rig;
use crate::rng;
use rand::RngExt;
use std::time::Duration;
use warpverbs_dev::{PortConfig, Receives, addresses};
use warpverbs_nic::Config;
use warpverbs_nic::link::{Chance, FaultPlan, Faulty, Link, cable};

/// Lost packets are sent again with the numbers that their WQE has in the table of bnxt_re, and each message arrives
/// once.
#[test]
fn every_operation_survives_losses_in_every_format() {
    let (seed, mut rng) = rng();
    println!("WARPVERBS_SEED={seed}");
    for (a, b) in pairs() {
        println!("{a:?} to {b:?}");
        let faulty = |link| {
            let plan = FaultPlan {
                loss: Chance::thousandths(60),
                duplicate: Chance::thousandths(60),
                reorder: Chance::thousandths(60),
                late: Duration::from_micros(100),
                seed: rng.random(),
                ..FaultPlan::default()
            };
            Box::new(Faulty::new(link, plan)) as Box<dyn Link>
        };
        let (here, there) = addresses();
        let links = <[_; 2]>::from(cable(here, there)).map(faulty);
        let port =
            PortConfig { log_cq: 7, receives: Receives::Own { log: 5 }, ..PortConfig::default() };
        let mut rig = Rig::over(Some(links), [a, b], Config::default(), &port);
        every_operation(&mut rig, &mut rng);
        // Longer than any delay of the link: something was waited for, and sent again.
        assert!(rig.clock.now() > Duration::from_millis(5), "{:?}", rig.clock.now());
        assert!(rig.is_intact());
    }
}
