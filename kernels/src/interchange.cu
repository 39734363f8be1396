// Data from one GPU's memory to another's, step by step: fill, post, record, doorbell, poll, check.
#include "warpverbs/verbs.h"

using namespace wv;

// Every byte of data becomes `value`.
WV_SAFE_KERNEL(fill)(u8* data WV_COUNT(bytes), u64 bytes, u8 value) {
  const u64 threads = u64{grid_size()} * block_size();
  for (u64 i = global_thread(); i < bytes; i += threads) data[i] = value;
}

// One thread is the only poster of the queue pair and takes every step itself. *status: how it
// ended. trace: index of the WQE, index behind it, and where `completed` stood afterwards.
WV_SAFE_KERNEL(transfer)(const Qp* qp, Local from, Remote to, u32 bytes,
                         Status* status WV_COUNT(1), u64* trace WV_COUNT(3)) {
  const u64 index = next_send_index(*qp);
  const Posted posted = post_write(*qp, index, from, to, bytes);
  Status result = posted.status;
  if (result.ok()) {
    update_send_dbrec(*qp, posted.end());
    ring_doorbell(*qp, posted.end());
    result = poll_cq(*qp, posted);
    update_cq_dbrec(*qp);
  }
  u64 completed = posted.end();
  if (result.ok()) (void)poll_cq_once(*qp, completed);
  trace[0] = posted.index;
  trace[1] = posted.end();
  trace[2] = completed;
  *status = result;
}

// Adds to wrong[0] how many bytes of data are not `value`.
WV_SAFE_KERNEL(verify)(const u8* data WV_COUNT(bytes), u64 bytes, u8 value,
                       u64* wrong WV_COUNT(1)) {
  const u64 threads = u64{grid_size()} * block_size();
  u64 count = 0;
  for (u64 i = global_thread(); i < bytes; i += threads) count += data[i] != value;
  if (count != 0) (void)fetch_add<order::relaxed, scope::gpu>(wrong, count);
}
