// Generated from crates/layout/src/team.rs.
#pragma once

#include "warpverbs/layout/heap.h"

namespace wv {

#define WV_AT(type, field, at) \
  static_assert(WV_OFFSETOF(type, field) == at, #type "." #field)

constexpr u32 flat_ranks = 8;  // Teams up to this size signal everybody at once.
constexpr u32 team_rounds = 32;  // Larger ones in rounds: 2^32 ranks.

// For a team's barriers, at the same offset of every heap.
struct TeamBlock {
  Signal from[flat_ranks];  // Of each rank of a small team.
  Signal round[team_rounds];  // Of each round of a large one.
  u64 calls;  // Of this rank.
  u64 reserved;  // Zero.
};
static_assert(sizeof(TeamBlock) == 656 && alignof(TeamBlock) == 16, "TeamBlock");
WV_AT(TeamBlock, from, 0);
WV_AT(TeamBlock, round, 128);
WV_AT(TeamBlock, calls, 640);
WV_AT(TeamBlock, reserved, 648);

constexpr u32 line_payload = 8;  // Bytes of payload of a narrow line.
constexpr u32 narrow_most = 4096;  // Bytes; longer messages travel in wide lines.
// Pairs of words that a wide line consists of, each as long as a narrow line.
constexpr u32 wide_pairs = 32;
constexpr u32 wide_words = 63;  // Words of 8 bytes that a wide line carries.
constexpr u8 most_log_slots = 16;  // The most that Mailbox.log_slots may be.

// The head of a mailbox's block. Lines of all slots follow as they arrive, then as they leave by RDMA.
struct MailBlock {
  u64 sent;  // Messages.
  u64 received;  // Messages.
  Signal credit;  // Messages of this rank that its peer has taken.
  u64 pad[12];  // Keeps the line to itself.
};
static_assert(sizeof(MailBlock) == 128 && alignof(MailBlock) == 16, "MailBlock");
WV_AT(MailBlock, sent, 0);
WV_AT(MailBlock, received, 8);
WV_AT(MailBlock, credit, 16);
WV_AT(MailBlock, pad, 32);

#undef WV_AT

}  // namespace wv
