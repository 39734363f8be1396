// Bodies of blocks.h.
#pragma once

#include "warpverbs/blocks.h"
#include "warpverbs/impl/copy.h"

namespace wv {
namespace impl {

// The run that has piece `piece`, one of the list's.
WV_DEVICE u64 run_of_piece(const BlockRun* runs, u64 count, u64 piece) {
  // runs[low] starts at or before the piece, runs[high] behind it.
  u64 low = 0, high = count;
  while (high - low > 1) {
    const u64 middle = low + (high - low) / 2;
    if (runs[middle].first <= piece) low = middle;
    else high = middle;
  }
  return low;
}

// A piece of a list, and the way to the next one.
struct BlockCursor {
  const BlockList& list;
  const BlockRun* runs;
  u64 index;       // of the run
  BlockRun run;    // in registers
  u64 run_end;     // its pieces end here
  u64 in_block;    // offset of the piece in its block
  u64 to, from;    // of the block

  WV_DEVICE BlockCursor(const BlockList& blocks, u64 piece)
      : list(blocks), runs(reinterpret_cast<const BlockRun*>(blocks.runs)),
        index(run_of_piece(runs, blocks.run_count, piece)) {
    open_run();
    const u64 behind = piece - run.first;
    const u64 each = ((run.bytes - 1) >> list.log_piece) + 1;
    const u64 block = each == 1 ? behind : behind / each;
    in_block = (behind - block * each) << list.log_piece;
    to += block * run.to_stride;
    from += block * run.from_stride;
  }

  WV_DEVICE void open_run() {
    run = runs[index];
    run_end = index + 1 < list.run_count ? runs[index + 1].first : list.pieces;
    in_block = 0;
    to = run.to;
    from = run.from;
  }

  WV_DEVICE u64 bytes() const {
    const u64 left = run.bytes - in_block, most = u64{1} << list.log_piece;
    return left < most ? left : most;
  }

  // To piece `next`, which follows this one and is one of the list's.
  WV_DEVICE void advance(u64 next) {
    in_block += u64{1} << list.log_piece;
    if (next == run_end) {
      index += 1;
      open_run();
    } else if (in_block >= run.bytes) {
      in_block = 0;
      to += run.to_stride;
      from += run.from_stride;
    }
  }
};

}  // namespace impl

template <class Coop>
WV_DEVICE void copy_blocks(const Coop& coop, const BlockList& list, u64 team, u64 teams) {
  const u64 each = list.pieces / teams, more = list.pieces % teams;
  const u64 begin = team * each + (team < more ? team : more);
  const u64 end = begin + each + (team < more ? 1 : 0);
  if (begin == end) return;
  impl::BlockCursor at(list, begin);
  for (u64 piece = begin;;) {
    // Registers of 512 threads and more: 8 packs in flight.
    impl::copy_with<8>(coop, reinterpret_cast<void*>(at.to + at.in_block),
                       reinterpret_cast<const void*>(at.from + at.in_block), at.bytes());
    if (++piece == end) return;
    at.advance(piece);
  }
}

}  // namespace wv
