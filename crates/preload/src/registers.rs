//! The registers of doorbell pages, for drivers that have no doorbell records.

use warpverbs_bnxt::doorbell::{Doorbell as BnxtDoorbell, Kind};
use warpverbs_ionic::doorbell::{Doorbell as IonicDoorbell, queue_type};
use warpverbs_uverbs::Driver;
use warpverbs_uverbs::abi::{IONIC_CQES, IONIC_RECEIVES, IONIC_SENDS};

/// News of a queue that a doorbell tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bell {
    /// Sends are posted.
    Send,
    /// Receives are posted.
    Receive,
    /// Receives of an SRQ are posted.
    Shared,
    /// CQEs are consumed.
    Consumed,
    /// The next CQE is to raise an event.
    Arm,
    /// The end of a CQ's ring is seen, and the next one is used.
    CutOff,
}

impl Bell {
    /// How many there are.
    pub(crate) const COUNT: usize = 6;
}

/// The registers of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Registers {
    /// One, for queues of all kinds.
    Bnxt,
    /// One for each kind of queue, in blocks that fill the page.
    Ionic,
}

impl Registers {
    /// Those of a driver; `None` if its queues have doorbell records.
    pub(crate) fn of(driver: Driver) -> Option<Self> {
        match driver {
            Driver::Mlx5 => None,
            Driver::Bnxt { .. } => Some(Self::Bnxt),
            Driver::Ionic { .. } => Some(Self::Ionic),
        }
    }

    /// The doorbell that tells what a consumer has consumed, as one that arms its CQ says. libbnxt_re of v56
    /// and later may not have told it before; the index of ionic's is that of the request.
    pub(crate) fn consumed(self, arms: u64) -> Option<u64> {
        let bell = BnxtDoorbell::parse(arms).ok().filter(|_| self == Self::Bnxt)?;
        Some(BnxtDoorbell { kind: Kind::Completion, toggle: false, ..bell }.word())
    }

    /// The news in a store of this value at `offset` of the page, and the number of the queue.
    pub(crate) fn meaning(self, offset: usize, value: u64) -> Option<(Bell, u32)> {
        match self {
            Self::Bnxt => {
                let bell = BnxtDoorbell::parse(value).ok().filter(|_| offset == 0)?;
                let means = match bell.kind {
                    Kind::Send => Bell::Send,
                    Kind::Receive => Bell::Receive,
                    Kind::Shared => Bell::Shared,
                    Kind::Completion => Bell::Consumed,
                    Kind::Arm | Kind::ArmSolicited => Bell::Arm,
                    Kind::CutOffAck => Bell::CutOff,
                    _ => return None,
                };
                Some((means, bell.queue))
            }
            Self::Ionic => {
                let bell = IonicDoorbell::parse(value).ok().filter(|_| offset.is_multiple_of(8))?;
                let means = match (queue_type(offset), bell.arm) {
                    (IONIC_SENDS, None) => Bell::Send,
                    (IONIC_RECEIVES, None) => Bell::Receive,
                    (IONIC_CQES, None) => Bell::Consumed,
                    (IONIC_CQES, Some(_)) => Bell::Arm,
                    _ => return None,
                };
                Some((means, bell.queue.get()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpverbs_ionic::doorbell::Arm;
    use warpverbs_rdma::Qpn;

    #[test]
    fn bnxt_re_has_one_register() {
        let word = |kind| {
            let (epoch, toggle, valid) = (true, false, true);
            BnxtDoorbell { kind, queue: 7, index: 3, epoch, toggle, valid }.word()
        };
        for (kind, means) in [
            (Kind::Send, Some(Bell::Send)),
            (Kind::Receive, Some(Bell::Receive)),
            (Kind::Shared, Some(Bell::Shared)),
            (Kind::Completion, Some(Bell::Consumed)),
            (Kind::Arm, Some(Bell::Arm)),
            (Kind::ArmSolicited, Some(Bell::Arm)),
            (Kind::CutOffAck, Some(Bell::CutOff)),
            (Kind::ArmEnable, None),
        ] {
            let found = Registers::Bnxt.meaning(0, word(kind));
            assert_eq!(found, means.map(|means| (means, 7)), "{kind:?}");
            assert_eq!(Registers::Bnxt.meaning(8, word(kind)), None, "{kind:?}");
        }
        assert_eq!(Registers::Bnxt.meaning(0, u64::MAX), None);
    }

    #[test]
    fn ionic_has_a_register_for_each_kind_of_queue() {
        let queue = Qpn::truncate(0xab_cdef);
        let word = |arm| IonicDoorbell { queue, index: 3, arm }.word();
        let armed = [Arm::Any, Arm::Solicited].map(|arm| word(Some(arm)));
        let plain = word(None);
        for block in (0..4096).step_by(64) {
            let at = |kind: u8, word| {
                let found = Registers::Ionic.meaning(block + 8 * usize::from(kind), word);
                found.map(|(means, number)| {
                    assert_eq!(number, queue.get());
                    means
                })
            };
            for (kind, means) in [
                (IONIC_SENDS, Bell::Send),
                (IONIC_RECEIVES, Bell::Receive),
                (IONIC_CQES, Bell::Consumed),
            ] {
                assert_eq!(at(kind, plain), Some(means));
                assert_eq!(at(kind, 3 << 16), None, "armed in no known way");
                let arms = (kind == IONIC_CQES).then_some(Bell::Arm);
                assert_eq!(armed.map(|word| at(kind, word)), [arms; 2]);
            }
            for kind in [0, 4, 5, 6, 7] {
                assert_eq!(at(kind, plain), None, "register {kind}");
            }
        }
        assert_eq!(Registers::Ionic.meaning(12, plain), None, "between two registers");
    }
}
