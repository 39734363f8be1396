// One buffer from one GPU to another, in the steps of the verbs: examples/gpu_interchange.rs.
#include "warpverbs/verbs.h"

using namespace wv;

// Sets every byte of `data`.
WV_KERNEL(fill)(u8* data, u64 bytes, u32 value) {
  const u64 threads = u64{block_size()} * grid_size();
  for (u64 i = global_thread(); i < bytes; i += threads) {
    store<order::relaxed, scope::system>(data + i, static_cast<u8>(value));
  }
}

// Writes `bytes` to the peer, step by step: WQE, doorbell record, doorbell, completion. The only
// poster of its queue pair. *status: 0, or how it ended.
WV_KERNEL(interchange)(const Qp* qp, u64 local, u32 lkey, u64 remote, u32 rkey, u32 bytes,
                       u32* status) {
  if (global_thread() != 0) return;
  const u64 index = next_send_index(*qp);
  const Posted posted = post_write(*qp, index, Local{local, lkey}, Remote{remote, rkey}, bytes);
  Status ended = posted.status;
  if (ended.ok()) {
    update_send_dbrec(*qp, posted.end());
    ring_doorbell(*qp, posted.end());
    ended = poll_cq(*qp, posted);
    update_cq_dbrec(*qp);
  }
  *status = ended.code;
}

// Counts the bytes of `data` that are not `value`.
WV_KERNEL(verify)(const u8* data, u64 bytes, u32 value, u64* wrong) {
  const u64 threads = u64{block_size()} * grid_size();
  u64 mine = 0;
  for (u64 i = global_thread(); i < bytes; i += threads) {
    if (load<order::relaxed, scope::system>(data + i) != static_cast<u8>(value)) mine += 1;
  }
  if (mine != 0) (void)fetch_add<order::relaxed, scope::gpu>(wrong, mine);
}
