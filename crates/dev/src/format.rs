//! The formats of queues that a test can run over.

use warpverbs_mem::Region;
use warpverbs_nic::{
    BnxtLibrary, BnxtMode, BnxtQueues, Dialect, IonicProtocol, PacketTable, QpFormat,
};

/// A format of queues, with what differs within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueFormat {
    /// mlx5's.
    Mlx5,
    /// bnxt_re's in static mode, with an MSN table.
    BnxtStatic,
    /// bnxt_re's in variable mode, with an MSN table, slots that are no power of two, and receives of three slots,
    /// which doorbells count.
    BnxtVariable,
    /// bnxt_re's as early libraries have them, with a table of 16-byte entries.
    BnxtEarly,
    /// ionic's of the first protocol.
    IonicV1,
    /// ionic's of the second protocol.
    IonicV2,
}

/// Slots in variable mode of a send queue of 2^`log_sq`.
fn slots(log_sq: u8) -> u32 {
    (3 << log_sq) + 9
}

/// Entries of the table of packet numbers.
pub(crate) const LOG_PACKETS: u8 = 7;
/// By which CQEs of bnxt_re name the QP.
pub(crate) const HANDLE: u64 = 0x1234_5678_9abc;

impl QueueFormat {
    /// Every one.
    pub const ALL: [Self; 6] = [
        Self::Mlx5,
        Self::BnxtStatic,
        Self::BnxtVariable,
        Self::BnxtEarly,
        Self::IonicV1,
        Self::IonicV2,
    ];

    /// Of its CQs.
    pub fn dialect(self) -> Dialect {
        match self {
            Self::Mlx5 => Dialect::Mlx5,
            Self::BnxtEarly => Dialect::Bnxt(BnxtLibrary::Early),
            Self::BnxtStatic | Self::BnxtVariable => Dialect::Bnxt(BnxtLibrary::Current),
            Self::IonicV1 | Self::IonicV2 => Dialect::Ionic,
        }
    }

    /// Units of its send queue of 2^`log_sq`, and bytes of one.
    pub(crate) fn units(self, log_sq: u8) -> (u64, usize) {
        match self {
            Self::Mlx5 | Self::IonicV1 | Self::IonicV2 => (1 << log_sq, 64),
            Self::BnxtStatic | Self::BnxtEarly => (1 << log_sq, 128),
            Self::BnxtVariable => (slots(log_sq).into(), 16),
        }
    }

    /// Slots of a receive, if doorbells of receives count slots.
    pub(crate) fn receive_slots(self) -> Option<u8> {
        (self == Self::BnxtVariable).then_some(3)
    }

    /// Bytes from one receive to the next.
    pub(crate) fn receive_bytes(self) -> usize {
        self.receive_slots().map_or(1 << self.log_stride(), |slots| 16 * usize::from(slots))
    }

    /// log2 of the bytes of its receives, where nothing else is said of them.
    pub fn log_stride(self) -> u8 {
        if matches!(self.dialect(), Dialect::Bnxt(_)) { 7 } else { 6 }
    }

    /// As a QP with a send queue of 2^`log_sq` is made; `packets` is the table of packet numbers.
    pub(crate) fn of_qp(self, packets: &Region, log_sq: u8) -> QpFormat {
        let bnxt = |library, mode, table| {
            let (packets, handle) = (packets.clone(), HANDLE);
            let (slots, receive_slots, log_packets) =
                (slots(log_sq), self.receive_slots(), LOG_PACKETS);
            QpFormat::Bnxt(BnxtQueues {
                library,
                mode,
                slots,
                receive_slots,
                counts_receive_slots: true,
                table,
                packets,
                log_packets,
                handle,
            })
        };
        let current = |mode| bnxt(BnxtLibrary::Current, mode, PacketTable::Msn);
        match self {
            Self::Mlx5 => QpFormat::Mlx5,
            Self::BnxtStatic => current(BnxtMode::Static),
            Self::BnxtVariable => current(BnxtMode::Variable),
            Self::BnxtEarly => bnxt(BnxtLibrary::Early, BnxtMode::Static, PacketTable::PsnExt),
            Self::IonicV1 => QpFormat::Ionic { protocol: IonicProtocol::V1, log_wqe: 6 },
            Self::IonicV2 => QpFormat::Ionic { protocol: IonicProtocol::V2, log_wqe: 6 },
        }
    }
}
