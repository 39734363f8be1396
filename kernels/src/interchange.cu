// Data from one GPU's memory to another's, step by step: fill, post, record, doorbell, poll, check.
#include "warpverbs/verbs.h"

using namespace wv;

// Every byte of data becomes `value`.
WV_KERNEL(fill)(u8* data, u64 bytes, u8 value) {
  const u64 threads = u64{grid_size()} * block_size();
  for (u64 i = global_thread(); i < bytes; i += threads) data[i] = value;
}

// One thread is the only poster of the queue pair and takes every step itself. status[0]: how it
// ended. trace: index of the WQE, index behind it, and where `completed` stood afterwards.
WV_KERNEL(transfer)(const Qp* qp, u64 laddr, u32 lkey, u64 raddr, u32 rkey, u32 bytes, u32* status,
                    u64* trace) {
  const u64 index = next_send_index(*qp);
  const Posted posted = post_write(*qp, index, Local{laddr, lkey}, Remote{raddr, rkey}, bytes);
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
  status[0] = result.code;
}

// Adds to wrong[0] how many bytes of data are not `value`.
WV_KERNEL(verify)(const u8* data, u64 bytes, u8 value, u64* wrong) {
  const u64 threads = u64{grid_size()} * block_size();
  u64 count = 0;
  for (u64 i = global_thread(); i < bytes; i += threads) count += data[i] != value;
  if (count != 0) (void)fetch_add<order::relaxed, scope::gpu>(wrong, count);
}
