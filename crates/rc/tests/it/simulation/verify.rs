//! Checks after a run.

use super::program::Program;
use crate::common::pair::Node;
use warpverbs_rc::{Completion, Received, ReceivedKind, Status, WrId};

pub(crate) fn requests(node: &Node) -> impl Iterator<Item = (WrId, Result<(), Status>)> {
    node.completions.iter().filter_map(|completion| match *completion {
        Completion::Request { id, result } => Some((id, result)),
        Completion::Receive { .. } => None,
    })
}

fn receives(node: &Node) -> impl Iterator<Item = (u64, Result<Received, Status>)> {
    node.completions.iter().filter_map(|completion| match *completion {
        Completion::Receive { id, result } => Some((id, result)),
        Completion::Request { .. } => None,
    })
}

/// Each request completes once, in order: with success, then at most one error, then flushes.
/// Returns how many succeeded.
pub(crate) fn check_completions(node: &Node, program: &Program) -> usize {
    let posted = program.requests.iter().map(|(request, _)| request.id);
    assert!(requests(node).map(|(id, _)| id).eq(posted), "completions are not in order");
    let succeeded = requests(node).take_while(|(_, result)| result.is_ok()).count();
    let mut rest = requests(node).skip(succeeded).map(|(_, result)| result);
    let first = rest.next();
    assert!(
        matches!(first, None | Some(Err(Status::RetryExceeded | Status::Flushed))),
        "{first:?}"
    );
    assert!(rest.all(|result| result == Err(Status::Flushed)), "after an error comes a flush");
    succeeded
}

/// READs and atomics brought what the model says.
pub(crate) fn check_answers(node: &Node, program: &Program, completed: usize) {
    for (request, _) in &program.requests[..completed] {
        if let Some(answer) = program.answers.get(&request.id) {
            assert!(node.buffers[&request.id] == *answer, "answer to {request:?}");
        }
    }
}

/// The peer's receives hold the messages, once and in order; after a failure the first of them.
pub(crate) fn check_messages(peer: &Node, program: &Program, completed: usize, failed: bool) {
    let arrived: Vec<_> = receives(peer).collect();
    let good = arrived.iter().take_while(|(_, result)| result.is_ok()).count();
    let acknowledged = &program.requests[..completed];
    let owed = acknowledged.iter().filter(|(request, _)| request.op.needs_receive()).count();
    assert!(good >= owed, "{owed} messages are acknowledged, {good} arrived");
    match failed {
        true => assert!(arrived[good..].iter().all(|(_, r)| *r == Err(Status::Flushed))),
        false => assert_eq!(arrived.len(), program.messages.len(), "messages"),
    }
    for (index, (id, result)) in arrived[..good].iter().enumerate() {
        let message = &program.messages[index];
        assert_eq!((*id, *result), (index as u64, Ok(message.received)));
        let contents = &peer.memory.taken[id];
        let filled = match message.received.kind {
            ReceivedKind::WriteImm(_) => 0,
            _ => message.payload.len(),
        };
        assert!(contents[..filled] == message.payload[..filled], "message {index}");
        assert!(contents[filled..].iter().all(|byte| *byte == 0xee), "beyond message {index}");
    }
}
