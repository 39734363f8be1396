//! Asynchronous events, as programs read them.

use crate::abi::AsyncEventDesc;
use warpverbs_rdma::AsyncEvent;
use zerocopy::IntoBytes;

/// Source of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EventSource {
    /// The CQ of this number.
    Cq(u32),
    /// The SRQ of this number.
    Srq(u32),
    /// The QP of this number.
    Qp(u32),
    /// The device itself.
    Device,
}

impl EventSource {
    /// The event's source; `None` for a port and for unknown sources.
    pub fn of(event: &AsyncEvent) -> Option<Self> {
        let (qp, cq) = (event.qpn().map(Self::Qp), event.cqn().map(Self::Cq));
        qp.or(cq).or(match *event {
            AsyncEvent::SrqError { srqn } | AsyncEvent::SrqLimit { srqn } => Some(Self::Srq(srqn)),
            AsyncEvent::DeviceFatal => Some(Self::Device),
            _ => None,
        })
    }
}

/// How a program reads events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventForm {
    /// `struct ib_uverbs_async_event_desc`.
    Verbs {
        /// The program's own name of the object.
        element: u64,
    },
    /// `struct mlx5dv_devx_async_event_hdr`: a cookie, and the event as firmware has it.
    Mlx5 {
        /// The program's own number.
        cookie: u64,
        /// Kinds of events that are wanted.
        kinds: Vec<u16>,
        /// Without the event: the cookie alone.
        omit_data: bool,
    },
    /// A count of them, in an eventfd.
    Counted {
        /// Kinds of events that are wanted, as firmware numbers them.
        kinds: Vec<u16>,
    },
}

/// Bytes of an event of firmware.
const EQE: usize = 64;
/// Its kind, and where the number of the CQ, SRQ or QP is; elsewhere if a CQ failed.
const EQE_KIND: usize = 1;
const EQE_NUMBER: usize = 0x38;
const EQE_FAILED_CQ: usize = 0x20;

impl EventForm {
    /// The message for an event; `None` if it is not wanted.
    pub fn message(&self, event: &AsyncEvent) -> Option<Vec<u8>> {
        let (verbs, mlx5) = numbers(event)?;
        match self {
            Self::Verbs { element } => {
                let desc = AsyncEventDesc { element: *element, event_type: verbs?, reserved: 0 };
                Some(desc.as_bytes().to_vec())
            }
            Self::Mlx5 { cookie, kinds, omit_data } => {
                kinds.contains(&mlx5).then(|| devx_message(*cookie, mlx5, event, *omit_data))
            }
            Self::Counted { kinds } => kinds.contains(&mlx5).then(|| 1u64.to_ne_bytes().to_vec()),
        }
    }
}

fn devx_message(cookie: u64, kind: u16, event: &AsyncEvent, omit_data: bool) -> Vec<u8> {
    let mut message = cookie.to_ne_bytes().to_vec();
    if !omit_data {
        let mut eqe = [0; EQE];
        eqe[EQE_KIND] = kind as u8;
        let number = match EventSource::of(event) {
            Some(EventSource::Cq(n) | EventSource::Srq(n) | EventSource::Qp(n)) => n,
            _ => 0,
        };
        let is_cq_error = matches!(event, AsyncEvent::CqError { .. });
        let at = if is_cq_error { EQE_FAILED_CQ } else { EQE_NUMBER };
        eqe[at..at + 4].copy_from_slice(&number.to_be_bytes());
        message.extend_from_slice(&eqe);
    }
    message
}

/// `IB_EVENT_*`, if verbs have the event, and the number that firmware gives it. `None`: neither.
fn numbers(event: &AsyncEvent) -> Option<(Option<u32>, u16)> {
    Some(match event {
        AsyncEvent::Completion { .. } => (None, 0),
        AsyncEvent::CqError { .. } => (Some(0), 0x04),
        AsyncEvent::QpFatal { .. } => (Some(1), 0x05),
        AsyncEvent::QpRequestError { .. } => (Some(2), 0x10),
        AsyncEvent::QpAccessError { .. } => (Some(3), 0x11),
        AsyncEvent::CommunicationEstablished { .. } => (Some(4), 0x02),
        AsyncEvent::SqDrained { .. } => (Some(5), 0x03),
        AsyncEvent::PathMigrated { .. } => (Some(6), 0x01),
        AsyncEvent::PathMigrationFailed { .. } => (Some(7), 0x07),
        AsyncEvent::DeviceFatal => (Some(8), 0x08),
        AsyncEvent::SrqError { .. } => (Some(14), 0x12),
        AsyncEvent::SrqLimit { .. } => (Some(15), 0x14),
        AsyncEvent::LastWqeReached { .. } => (Some(16), 0x13),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `IBV_EVENT_SRQ_LIMIT_REACHED` is 15, `MLX5_EVENT_TYPE_SRQ_LIMIT` 0x14.
    #[test]
    fn events_have_the_numbers_of_verbs_and_firmware() {
        let (limit, srqn) = (AsyncEvent::SrqLimit { srqn: 0x1234 }, EventSource::Srq(0x1234));
        assert_eq!(EventSource::of(&limit), Some(srqn));
        let verbs = EventForm::Verbs { element: 7 };
        let expected = [7, 0, 0, 0, 0, 0, 0, 0, 15, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(verbs.message(&limit).unwrap(), expected);
        assert_eq!(verbs.message(&AsyncEvent::Completion { cqn: 1 }), None);
        let firmware =
            |kinds: &[u16]| EventForm::Mlx5 { cookie: 9, kinds: kinds.to_vec(), omit_data: false };
        assert_eq!(firmware(&[0x13]).message(&limit), None);
        let message = firmware(&[0x13, 0x14]).message(&limit).unwrap();
        assert_eq!((message.len(), message[0], message[9]), (72, 9, 0x14));
        assert_eq!(message[8 + 0x38..8 + 0x3c], [0, 0, 0x12, 0x34]);
        let short = EventForm::Mlx5 { cookie: 9, kinds: vec![0x14], omit_data: true };
        assert_eq!(short.message(&limit).unwrap(), 9u64.to_ne_bytes());
        assert_eq!(EventSource::of(&AsyncEvent::Port { port: 1, active: true }), None);
    }
}
