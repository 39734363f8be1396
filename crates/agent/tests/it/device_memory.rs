//! Agents over TCP whose ends receive into device memory, with a model of the kernel below the
//! payload sockets; and what is said where queues cannot be bound.

#[path = "../../../devmem/tests/it/common/kernel.rs"]
#[allow(dead_code, reason = "shared with other test programs")]
mod kernel;
#[path = "../../../tcp/tests/it/modelled.rs"]
#[allow(dead_code, reason = "shared with another test program")]
mod modelled;

use crate::bed::{SOON, run, tell};
use modelled::Model;
use warpverbs_agent::{Agent, AgentConfig, Op, PathKind, PostOptions, State};
use warpverbs_devmem::UnpackWay;

const LEN: usize = (3 << 20) + 5;

fn agent(name: &str, configure: impl FnOnce(AgentConfig) -> AgentConfig) -> Agent {
    let config = AgentConfig::default().require(PathKind::Tcp).tcp_sockets(3);
    Agent::new(name, configure(config)).unwrap()
}

fn pattern(seed: u64) -> Vec<u8> {
    warpverbs_dev::pattern(LEN, seed)
}

/// Writes and reads all bytes; how the initiator explains the path.
fn both_ways(initiator: &Agent, target: &Agent) -> String {
    let theirs = target.register(pattern(1), "cache").unwrap();
    let ours = initiator.register(pattern(2), "ours").unwrap();
    tell(initiator, target);
    let (here, there) = (ours.blocks(0, 4099, LEN / 4099), theirs.blocks(0, 4099, LEN / 4099));
    let (here, there) = (here.unwrap(), there.unwrap());
    let write = initiator.transfer(Op::Write, &here, &there).unwrap();
    write.post(PostOptions::new().notify(b"written")).unwrap();
    target.wait_remote_done("initiator", b"written", SOON).unwrap();
    let whole = LEN / 4099 * 4099;
    assert!(theirs.to_vec().unwrap()[..whole] == pattern(2)[..whole]);
    assert!(theirs.to_vec().unwrap()[whole..] == pattern(1)[whole..]);
    assert_eq!(write.wait(SOON).unwrap(), State::Done);
    theirs.write(0, &pattern(3)).unwrap();
    run(&initiator.transfer(Op::Read, &here, &there).unwrap());
    assert!(ours.to_vec().unwrap()[..whole] == pattern(3)[..whole]);
    let remote = initiator.remote("target", "cache").unwrap();
    initiator.explain(&ours, &remote).unwrap().to_string()
}

#[test]
fn either_end_or_both_receive_into_device_memory() {
    for (seed, ends) in [[true, false], [false, true], [true, true]].into_iter().enumerate() {
        let models = [Model::new(100 * seed as u64), Model::new(1000 + 100 * seed as u64)];
        let make = |at: usize, name| {
            agent(name, |config| match ends[at] {
                true => config.tcp_device_memory(models[at].device(UnpackWay::Auto)),
                false => config,
            })
        };
        let (initiator, target) = (make(0, "initiator"), make(1, "target"));
        let explained = both_ways(&initiator, &target);
        let into = |device| if device { "device memory" } else { "host memory" };
        let (near, far) = (into(ends[0]), into(ends[1]));
        assert!(explained.contains(&format!("this end receives into {near}")), "{explained}");
        assert!(explained.contains(&format!("the peer into {far}")), "{explained}");
        let model = explained.contains("a model of the kernel");
        assert_eq!(model, ends[0], "{explained}");
        for (model, device) in models.iter().zip(ends) {
            // Most packets of the model are in the dmabuf, in fragments of at most a page.
            let expected = if device { (LEN / 4096 / 2) as u64 } else { 0 };
            assert!(model.fragments() >= expected, "{}", model.fragments());
            assert!(device || model.fragments() == 0);
            model.check();
        }
    }
}

#[test]
fn queues_that_cannot_be_bound_are_explained_and_transfers_go_on() {
    for (given, why) in
        [("wv-none0:1", "the fallback: no interface wv-none0"), ("auto", "the fallback: ")]
    {
        let initiator = agent("initiator", |config| config.tcp_queues(given.parse().unwrap()));
        let explained = both_ways(&initiator, &agent("target", |config| config));
        println!("{explained}");
        assert!(explained.contains("this end receives into host memory"), "{explained}");
        assert!(explained.contains(why), "{explained}");
    }
}
