// Lanes of a warp that wait for one another, which no kernel may do: independent lanes get through, and in
// lockstep those that wait never see what they wait for. Never run on a GPU. *late counts lanes that gave up
// after `patience` ns.
#include "warpverbs/arch/arch.h"

using namespace wv;

// A lock whose holder has left the loop in which the others try for it.
WV_SAFE_KERNEL(lock_outside)(u32* lock WV_COUNT(1), u64* count WV_COUNT(1), u32* late WV_COUNT(1),
                             u64 patience) {
  const u64 start = now_ns();
  while (exchange<order::acquire, scope::gpu>(lock, 1) != 0) {
    if (now_ns() - start > patience) {
      fetch_add<order::relaxed, scope::gpu>(late, 1);
      return;
    }
    pause(200);
  }
  const u64 seen = load<order::relaxed, scope::gpu>(count);
  store<order::relaxed, scope::gpu>(count, seen + 1);
  store<order::release, scope::gpu>(lock, 0);
}

// Every lane waits for the one before it.
WV_SAFE_KERNEL(chain)(u32* turn WV_COUNT(1), u32* late WV_COUNT(1), u64 patience) {
  const u64 start = now_ns();
  while (load<order::acquire, scope::gpu>(turn) != lane_id()) {
    if (now_ns() - start > patience) {
      fetch_add<order::relaxed, scope::gpu>(late, 1);
      return;
    }
    pause(100);
  }
  store<order::release, scope::gpu>(turn, lane_id() + 1);
}

// The same without a pause.
WV_SAFE_KERNEL(chain_without_pause)(u32* turn WV_COUNT(1), u32* late WV_COUNT(1), u64 patience) {
  const u64 start = now_ns();
  while (load<order::acquire, scope::gpu>(turn) != lane_id()) {
    if (now_ns() - start > patience) {
      fetch_add<order::relaxed, scope::gpu>(late, 1);
      return;
    }
  }
  store<order::release, scope::gpu>(turn, lane_id() + 1);
}
