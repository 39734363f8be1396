// Whether kernels reach memory of another process.
#include "warpverbs/atomic.h"

using namespace wv;

// Writes `value`, which the owner of the memory reads back.
WV_SAFE_KERNEL(write_word)(u64* word WV_COUNT(1), u64 value) {
  if (global_thread() == 0) store<order::release, scope::system>(word, value);
}
