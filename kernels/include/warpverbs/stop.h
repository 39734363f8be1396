// Launches that the host can withdraw, while they are queued and while they run. Every block enters before
// it touches anything, and leaves when it is done; the host raises `stopped`, then waits until none is inside.
// Either the host sees that a block is inside, or the block sees that it is to do nothing.
#pragma once

#include "warpverbs/coop.h"
#include "warpverbs/layout/stop.h"

namespace wv {

// Whether the launch was withdrawn.
WV_DEVICE bool is_stopped(const StopRecord* record) {
  return load<order::relaxed, scope::system>(&record->stopped) != 0;
}

// Every thread of a block calls it, with the same record. If false the block does nothing more; if true
// its threads call `leave` at the end.
WV_DEVICE bool enter(StopRecord* record) {
  bool stopped = false;
  if (thread_index() == 0) {
    increase<order::relaxed, scope::gpu>(&record->running, 1);
    // Counted first, then the look; the host does the reverse. Its copies read and write where the scope
    // of the device orders.
    fence<order::seq_cst, scope::gpu>();
    stopped = is_stopped(record);
    if (stopped) increase<order::relaxed, scope::gpu>(&record->running, ~u64{0});
  }
  return !any_in_block(stopped);
}

// Every thread of a block calls it, behind its last access.
WV_DEVICE void leave(StopRecord* record) {
  sync_block();
  // Behind all that the block has written, wherever that lies: the host takes 0 for the end of it.
  if (thread_index() == 0) increase<order::release, scope::system>(&record->running, ~u64{0});
}

}  // namespace wv
