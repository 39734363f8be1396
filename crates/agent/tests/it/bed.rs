//! Two agents, and what most tests do with them.

use rustix::process::{Pid, Signal, kill_process};
use std::time::Duration;
use warpverbs_agent::{
    Agent, AgentConfig, AgentError, BlockList, Op, PathKind, PostOptions, State, Transfer,
};
use warpverbs_dev::Child;
use warpverbs_transport::{Context, Device, LinkKind};

/// Ends a hang: nothing that comes at all takes this long, however slow the machine is.
pub(crate) const SOON: Duration = Duration::from_secs(600);

/// An initiator and a target, configured alike.
pub(crate) fn pair(config: impl Fn() -> AgentConfig) -> (Agent, Agent) {
    let agent = |name| Agent::new(name, config()).unwrap();
    (agent("initiator"), agent("target"))
}

/// Tells one agent of the other and its memory.
pub(crate) fn tell(agent: &Agent, of: &Agent) {
    agent.load_metadata(&of.metadata().unwrap()).unwrap();
}

/// A software NIC that others of this machine reach by UDP alone.
pub(crate) fn nic_over_udp() -> Device {
    let nics = Context::builder().soft_link(LinkKind::Udp, ([127, 0, 0, 1], 0).into());
    nics.build().unwrap().open("soft").unwrap()
}

/// Transfers by this path alone, without an early deadline.
pub(crate) fn by(path: PathKind) -> AgentConfig {
    let config = match path {
        PathKind::Network => over_udp(),
        _ => AgentConfig::default(),
    };
    config.require(path).deadline(SOON).token("of the test")
}

/// With such a NIC.
pub(crate) fn over_udp() -> AgentConfig {
    AgentConfig::default().nic(&nic_over_udp())
}

/// A transfer between two lists that were just made.
pub(crate) fn transfer(
    agent: &Agent,
    op: Op,
    here: Result<BlockList, AgentError>,
    there: Result<BlockList, AgentError>,
) -> Transfer {
    agent.transfer(op, &here.unwrap(), &there.unwrap()).unwrap()
}

pub(crate) fn run(transfer: &Transfer) {
    transfer.post(PostOptions::new()).unwrap();
    assert_eq!(transfer.wait(SOON).unwrap(), State::Done);
}

/// Sends another process a signal. It has stopped when this returns, if that is what it says.
pub(crate) fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(&child.process), signal).unwrap();
    if signal == Signal::STOP {
        warpverbs_dev::await_stopped(child.id());
    }
}
