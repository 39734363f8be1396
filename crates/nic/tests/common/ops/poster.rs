//! The operations of a poster on its queues.

use super::script::{Announce, Fault, Op};
use super::world::{Keys, Outcome};
use super::wqe;
use std::time::Duration;
use warpverbs_dev::{Poster, Reported};
use warpverbs_mlx5::num::MAX_WQE;
use warpverbs_nic::{Delay, SoftNic, Status};
use warpverbs_rdma::QueueKind;

/// Puts what `op` says into the send queue or the receive queue.
pub(crate) fn queue(port: &mut Poster, keys: &Keys, op: &Op) {
    match op {
        Op::Post { request, flags, patch, announce, .. } => {
            let mut buf = [0; MAX_WQE];
            if let Some((len, payload)) = wqe::build(request, *flags, keys, port, &mut buf) {
                if let Some((at, mask)) = *patch {
                    buf[usize::from(at) % len] ^= mask;
                }
                put(port, &buf[..len], payload, *announce);
            }
        }
        Op::Raw { bytes, announce, .. } => {
            let mut bytes = *bytes;
            port.place(&mut bytes, QueueKind::Send);
            put(port, &bytes, 0, *announce);
        }
        Op::Receive { entries, .. } => {
            if let Some(receive) = port.build_recv(&entries.sges(keys)) {
                port.post_recv_bytes(&receive);
            }
        }
        Op::RawReceive { bytes, .. } => {
            let mut bytes = *bytes;
            port.place(&mut bytes, QueueKind::Receive);
            let mut receive = [0; 128];
            receive[..64].copy_from_slice(&bytes);
            port.post_recv_bytes(&receive);
        }
        _ => {}
    }
}

fn put(port: &mut Poster, wqe: &[u8], payload: u32, announce: Announce) {
    port.put_bytes(wqe, payload);
    if matches!(announce, Announce::Both | Announce::Record | Announce::Last) {
        port.record();
    }
    match announce {
        Announce::Both | Announce::Doorbell => port.ring_bytes(port.doorbell(port.posted)),
        Announce::Last => port.ring_last(),
        Announce::Record | Announce::Nothing => {}
    }
}

pub(crate) fn poll(port: &mut Poster, receives: bool, times: u8, outcome: &mut Outcome) {
    for _ in 0..times {
        let status = match if receives { port.poll_recv() } else { port.poll_send() } {
            None => return,
            Some(Reported::Ended) => continue,
            Some(
                Reported::Sent { status, .. }
                | Reported::Received { status, .. }
                | Reported::Datagram { status, .. },
            ) => status,
        };
        match status {
            Status::Success => outcome.succeeded += 1,
            // Retries that ran out are nobody's violation.
            Status::Flushed | Status::RetryExceeded | Status::RnrRetryExceeded => {}
            _ => outcome.failed += 1,
        }
    }
}

pub(crate) fn switch_on(nic: &SoftNic, port: &Poster, fault: Fault) {
    let (faults, qpn) = (nic.faults(), port.qp.qpn());
    let result = match fault {
        Fault::DelaySteps(steps) => {
            faults.delay_cqes(port.send_cq(), steps.map(|n| Delay::Steps(n.into())));
            Ok(())
        }
        Fault::DelayMicros(time) => {
            let time = time.map(|n| Delay::Time(Duration::from_micros(n.into())));
            faults.delay_cqes(port.recv_cq(), time);
            Ok(())
        }
        Fault::Lose { count, recovery } => {
            faults.lose_doorbells(qpn, count.into(), recovery.map(u32::from))
        }
        Fault::NotReady(count) => faults.receiver_not_ready(qpn, count.into()),
        Fault::Stick(stuck) => faults.stick(qpn, stuck),
    };
    result.unwrap();
}
