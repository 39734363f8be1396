//! Blocks of a heap in which teams and mailboxes meet, `kernels/include/warpverbs/{barrier,mail}.h`.

use crate::header::Header;
use crate::heap::Signal;

pub(crate) const HEADER: Header = Header {
    path: "layout/team.h",
    table: "layout/src/team.rs",
    namespace: "wv",
    includes: &["layout/heap.h"],
    items: &[TEAMS, TeamBlock::LAYOUT, MAIL, MailBlock::LAYOUT],
};

crate::layout! {
    consts TEAMS {
        /// Teams up to this size signal everybody at once.
        FLAT_RANKS: usize as "u32" = 8,
        /// Larger ones in rounds: 2^32 ranks.
        TEAM_ROUNDS: usize as "u32" = 32,
    }

    /// For a team's barriers, at the same offset of every heap.
    pub struct TeamBlock[656] {
        /// Of each rank of a small team.
        pub from: [Signal; FLAT_RANKS],
        /// Of each round of a large one.
        pub round: [Signal; TEAM_ROUNDS],
        /// Of this rank.
        pub calls: u64,
        /// Zero.
        pub reserved: u64,
    }

    consts MAIL {
        /// Bytes of payload of a narrow line.
        pub LINE_PAYLOAD: u32 = 8,
        /// Bytes; longer messages travel in wide lines.
        pub NARROW_MOST: u32 = 4096,
        /// Pairs of words that a wide line consists of, each as long as a narrow line.
        pub WIDE_PAIRS: u32 = 32,
        /// Words of 8 bytes that a wide line carries.
        pub WIDE_WORDS: u32 = 63,
        /// The most that Mailbox.log_slots may be.
        pub MOST_LOG_SLOTS: u8 = 16,
    }

    /// The head of a mailbox's block. Lines of all slots follow as they arrive, then as they leave by RDMA.
    pub struct MailBlock[128] {
        /// Messages.
        pub sent: u64,
        /// Messages.
        pub received: u64,
        /// Messages of this rank that its peer has taken.
        pub credit: Signal,
        /// Keeps the line to itself.
        pub pad: [u64; 12],
    }
}
