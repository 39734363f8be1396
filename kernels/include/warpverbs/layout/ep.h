// Generated from crates/layout/src/ep.rs.
#pragma once

#include "warpverbs/layout/heap.h"

namespace wv {

#define WV_AT(type, field, at) \
  static_assert(WV_OFFSETOF(type, field) == at, #type "." #field)

constexpr u32 ep_ranks = 64;  // The most ranks of a channel: sets of ranks are words of 64 bits.
constexpr u32 ep_top_k = 32;  // The most experts of a token: a warp has as many lanes.
constexpr u32 ep_lanes = 64;  // The most queue pairs to a rank, each a lane of its own.
constexpr u32 ep_scaled = 128;  // Channels of a row, side by side, that have one scale.
// Of an `EpWord` for results: there are none, because the rows were missing.
constexpr u32 ep_refused = 0x80000000;

// Where the rows lie that a dispatch brings.
enum class ep_layout : u32 {
  rank_major = 0,  // In the heap as they came, by source and slot.
  expert_major = 1,  // A group for each expert, all groups of the largest size.
  flat = 2,  // A group for each expert, each padded to a multiple of `align` rows.
};

// Rows that a combine sends back.
enum class ep_combine : u32 {
  reduced = 0,  // The weighted sum over a rank's experts, one row for each token and rank.
  exact = 1,  // Every expert's row; its token's rank weights and adds.
  summed = 2,  // The caller's rows, which are weighted sums already; rank-major.
};

// Elements of the rows of a dispatch.
enum class ep_payload : u32 {
  bf16 = 0,  // bf16, as it is.
  cast = 1,  // bf16, which a dispatch casts to fp8 e4m3 with scales.
  fp8 = 2,  // fp8 e4m3 with scales, as the caller has them.
};

// Scales of e4m3 rows: what an element is to be multiplied with.
enum class ep_scale : u32 {
  f32 = 0,  // An f32 each.
  power_of_two = 1,  // An f32 each, a power of two.
  ue8m0 = 2,  // The exponent of a power of two, four in a word, the first in its lowest byte.
};

// A word that one rank writes in another's heap. It is never reset: who waits for one compares
// generation and epoch.
struct [[nodiscard]] EpWord {
  u64 raw = 0;

  static WV_HD constexpr EpWord of(u32 value, u32 epoch = 0, u32 generation = 0) {
    u64 word = 0x0;
    word |= static_cast<u64>(value) << 0;
    word |= static_cast<u64>(epoch) << 32;
    word |= static_cast<u64>(generation) << 56;
    return EpWord{word};
  }
  // Rows, or lanes that are in use.
  WV_HD constexpr u32 value() const {
    return static_cast<u32>(raw >> 0 & 0xffffffff);
  }
  // Number of the dispatch, modulo 2^24.
  WV_HD constexpr u32 epoch() const {
    return static_cast<u32>(raw >> 32 & 0xffffff);
  }
  // Of the ranks that take part.
  WV_HD constexpr u32 generation() const {
    return static_cast<u32>(raw >> 56 & 0xff);
  }
};

// The state of a channel that the blocks of a rank share. The host sets `epoch`, `ended`,
// `generation` and `members`, and zeroes the rest, while no call is under way.
struct EpState {
  u32 epoch;  // Of the last dispatch that all blocks have begun.
  u32 leaving;  // Blocks that have yet to end the combine of the last dispatch.
  u64 counted;  // Epoch of the last complete plan of what is received.
  u64 missing[2];  // Ranks whose rows did not come, by the epoch's lowest bit.
  u64 unanswered[2];  // Ranks that took no rows or gave no results, by the epoch's lowest bit.
  u32 sent[ep_lanes];  // Blocks of each lane that have sent their rows.
  u32 returned[ep_lanes];  // Blocks of each lane that have sent their results.
  u64 members;  // Ranks that take part, as bits.
  u32 generation;  // Of the ranks that take part.
  // Of the last dispatch before this one whose combine has ended, with the rows and results of all members.
  u32 ended;
  u32 begun[2];  // Blocks that have begun a dispatch, by its epoch's lowest bit.
  u8 left_out[2];  // 1, by the epoch's lowest bit: a block did not do its part.
  u8 reserved[6];  // Zero.
  u64 waited[ep_ranks];  // Nanoseconds that the first block has waited for words of each rank.
  u64 pad[118];  // Keeps the size a power of two.
};
static_assert(sizeof(EpState) == 2048 && alignof(EpState) == 8, "EpState");
WV_AT(EpState, epoch, 0);
WV_AT(EpState, leaving, 4);
WV_AT(EpState, counted, 8);
WV_AT(EpState, missing, 16);
WV_AT(EpState, unanswered, 32);
WV_AT(EpState, sent, 48);
WV_AT(EpState, returned, 304);
WV_AT(EpState, members, 560);
WV_AT(EpState, generation, 568);
WV_AT(EpState, ended, 572);
WV_AT(EpState, begun, 576);
WV_AT(EpState, left_out, 584);
WV_AT(EpState, reserved, 586);
WV_AT(EpState, waited, 592);
WV_AT(EpState, pad, 1104);

// A channel for dispatch and combine. Never written after it was handed out. Places in the heap are
// offsets, the same on all ranks. Regions by rank are those of the rank that writes them.
struct Ep {
  u64 heap;  // Address of the `Heap`.
  u64 state;  // Address of the `EpState`.
  u64 plans;  // Address of two plans, for even and odd epochs.
  u64 plan_bytes;  // Bytes of a plan.
  u64 announced;  // Words of each rank, a signal: rows that are to come.
  u64 arrived;  // Words of each rank, a signal for each lane: the rows have come.
  // Words of each rank, a signal for each lane: rows are consumed, results have come.
  u64 returned;
  u64 counts;  // Of each rank, its rows for each local expert, u32.
  u64 counts_out;  // The same for each rank as they leave.
  u64 rows;  // Of each rank, `tokens` rows.
  u64 results;  // Of each rank, `answers` rows of `hidden` for each row that it was sent.
  u64 stage;  // Of each token its row, for NICs; if `staged`.
  // Of each rank, for each of `tokens` rows, where its results lie for NICs, `back_bytes` apart.
  u64 stage_back;
  u32 line;  // Bytes from one rank's words of a kind to the next one's.
  // Bytes of a row's header: token, zero, set of ranks, then experts, weights and places.
  u32 header_bytes;
  u32 row_bytes;  // Bytes of a row with its header.
  u32 hidden;  // Elements of a row, a multiple of 8.
  u32 tokens;  // The most tokens of a rank.
  u32 top_k;  // Experts of a token.
  u32 experts;  // Experts of all ranks.
  u32 ranks;  // Ranks, the first of which have one expert more where the numbers do not divide.
  u32 rank;  // The own rank.
  u32 most_experts;  // The most experts of a rank.
  u32 lanes;  // Queue pairs to a rank, at least 1.
  u32 answers;  // The most result rows of a row.
  u32 backs;  // Rows of input of a combine for a received row in rank-major layout.
  u32 align;  // Multiple of rows of a flat group.
  ep_layout layout;  // An `EpLayout`.
  ep_combine combine;  // An `EpCombine`.
  u32 staged;  // 1: some rank is reached by RDMA.
  ep_payload payload;  // An `EpPayload`.
  ep_scale scale;  // An `EpScale`; of no use with bf16.
  u32 scale_words;  // Words of a row's scales, 0 with bf16. They lie in the heap behind the row.
  u32 payload_bytes;  // Bytes of a row without header and scales.
  u32 scale_rows;  // Packed rows whose scales lie side by side, word by word; 0: those of a row do.
  // Bytes from the results of one received row to those of the next, as they leave by NICs; 0: the
  // caller's rows are in the heap, where NICs read them.
  u32 back_bytes;
  u32 least_experts;  // The least experts of a rank.
  // 2^32 over the most and over the least experts of a rank, rounded up; 0 where these are 0. A number below 2^16
  // times one of them, shifted right by 32, is the number divided.
  u64 owner_scales[2];
  // Rows of the own combine, which ranks that loads lead to read here; 0: they do not.
  u64 outputs;
};
static_assert(sizeof(Ep) == 224 && alignof(Ep) == 8, "Ep");
WV_AT(Ep, heap, 0);
WV_AT(Ep, state, 8);
WV_AT(Ep, plans, 16);
WV_AT(Ep, plan_bytes, 24);
WV_AT(Ep, announced, 32);
WV_AT(Ep, arrived, 40);
WV_AT(Ep, returned, 48);
WV_AT(Ep, counts, 56);
WV_AT(Ep, counts_out, 64);
WV_AT(Ep, rows, 72);
WV_AT(Ep, results, 80);
WV_AT(Ep, stage, 88);
WV_AT(Ep, stage_back, 96);
WV_AT(Ep, line, 104);
WV_AT(Ep, header_bytes, 108);
WV_AT(Ep, row_bytes, 112);
WV_AT(Ep, hidden, 116);
WV_AT(Ep, tokens, 120);
WV_AT(Ep, top_k, 124);
WV_AT(Ep, experts, 128);
WV_AT(Ep, ranks, 132);
WV_AT(Ep, rank, 136);
WV_AT(Ep, most_experts, 140);
WV_AT(Ep, lanes, 144);
WV_AT(Ep, answers, 148);
WV_AT(Ep, backs, 152);
WV_AT(Ep, align, 156);
WV_AT(Ep, layout, 160);
WV_AT(Ep, combine, 164);
WV_AT(Ep, staged, 168);
WV_AT(Ep, payload, 172);
WV_AT(Ep, scale, 176);
WV_AT(Ep, scale_words, 180);
WV_AT(Ep, payload_bytes, 184);
WV_AT(Ep, scale_rows, 188);
WV_AT(Ep, back_bytes, 192);
WV_AT(Ep, least_experts, 196);
WV_AT(Ep, owner_scales, 200);
WV_AT(Ep, outputs, 216);

#undef WV_AT

}  // namespace wv
