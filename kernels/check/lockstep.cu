// Waits by every lane of a warp. In the machine code of a GPU whose lanes run in lockstep, what takes a lock
// and what gives it back must be in one loop: check/loops.py looks.
#include "warpverbs/warpverbs.h"

using namespace wv;

WV_KERNEL(lanes_wait)(const Qp* qp, const Posted* posted, Status* status) {
  status[global_thread()] = wait(thread, *qp, posted[global_thread()]);
}
WV_KERNEL(lanes_poll)(const Qp* qp, u64 upto, Status* status) {
  status[global_thread()] = poll_cq(*qp, upto);
}
WV_KERNEL(lanes_receive)(const Qp* qp, Received* received) {
  (void)wait_recv(thread, *qp, received[global_thread()]);
}
WV_KERNEL(lanes_fetch)(const Qp* qp, Remote at, u64* old) {
  (void)fetch_add(thread, *qp, at, u64{1}, old[global_thread()]);
}
WV_KERNEL(lanes_lock)(u32* lock, u64* count) {
  repeat(0, 0, WV_SITE, [&](bool) {
    if (exchange<order::acquire, scope::gpu>(lock, 1) != 0) return false;
    *count += 1;
    store<order::release, scope::gpu>(lock, 0);
    return true;
  });
}
