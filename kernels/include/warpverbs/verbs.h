// The verbs stratum: one WQE, one record, one doorbell, one CQE at a time, by the calling thread.
//
// Self-reserving forms (no index): any number of threads may post to one queue pair. The WQE is
// written but the NIC does not know of it until ring_doorbell(qp, posted), which also brings the
// doorbell record up to date; every posted WQE must be rung, and before the ring is full, or
// whoever posts behind it waits in vain. They wait for room up to the deadline; with `no_wait` they
// return no_room instead.
//
// Explicit forms (u64 index): the caller is the only poster of the queue, keeps its own unmasked
// index, stays within depth of what has completed, and does each step itself:
//   post_write(qp, index, …); update_send_dbrec(qp, next); ring_doorbell(qp, next); poll_cq(…);
// The queue's counters are kept as the protocol would keep them, so both forms may take turns.
#pragma once

#include "warpverbs/coop.h"
#include "warpverbs/qp.h"
#include "warpverbs/status.h"

namespace wv {

// Operands of post_atomic. Native byte order. The old value goes to `local`: 8-byte ones as the
// host stores a u64, 4-byte ones big-endian.
struct FetchAdd {
  u64 add;
};
struct CompareSwap {
  u64 compare, swap;
};
// T is u32 or u64. A set bit of `boundary` stops the carry out of that bit.
template <class T>
struct MaskedFetchAdd {
  T add, boundary;
};
// Compares the bits of compare_mask; if equal, replaces those of swap_mask.
template <class T>
struct MaskedCompareSwap {
  T compare, compare_mask, swap, swap_mask;
};

// bytes: below 2^31; 0 is allowed. Otherwise the status is too_long and nothing was posted.
WV_DEVICE Posted post_send(const Qp& qp, Local local, u32 bytes, Flags = {}, Timeout = {});
WV_DEVICE Posted post_send_imm(const Qp& qp, Local local, u32 bytes, u32 imm, Flags = {},
                               Timeout = {});
WV_DEVICE Posted post_write(const Qp& qp, Local local, Remote remote, u32 bytes, Flags = {},
                            Timeout = {});
WV_DEVICE Posted post_write_imm(const Qp& qp, Local local, Remote remote, u32 bytes, u32 imm,
                                Flags = {}, Timeout = {});
// Copies from `source`, which may be any memory the thread can read and is free again on return.
// bytes: at most 4 * qp.inline_words.
WV_DEVICE Posted post_write_inline(const Qp& qp, const void* source, Remote remote, u32 bytes,
                                   Flags = {}, Timeout = {});
WV_DEVICE Posted post_read(const Qp& qp, Local local, Remote remote, u32 bytes, Flags = {},
                           Timeout = {});
template <class Operands>
WV_DEVICE Posted post_atomic(const Qp& qp, Local local, Remote remote, Operands operands,
                             Flags = {}, Timeout = {});
WV_DEVICE Posted post_nop(const Qp& qp, Flags = {}, Timeout = {});
// Waits for room until a completion of this receive queue is consumed.
WV_DEVICE Posted post_recv(const Qp& qp, Local local, u32 bytes, Timeout = {});

// Makes a self-reserved WQE known to the NIC, at once or with that of others.
WV_DEVICE void ring_doorbell(const Qp& qp, Posted posted);
WV_DEVICE void update_recv_dbrec(const Qp& qp, Posted posted);

// Explicit forms.
WV_DEVICE u64 next_send_index(const Qp& qp);
WV_DEVICE u64 next_recv_index(const Qp& qp);
WV_DEVICE Posted post_send(const Qp& qp, u64 index, Local local, u32 bytes, Flags = {});
WV_DEVICE Posted post_send_imm(const Qp& qp, u64 index, Local local, u32 bytes, u32 imm,
                               Flags = {});
WV_DEVICE Posted post_write(const Qp& qp, u64 index, Local local, Remote remote, u32 bytes,
                            Flags = {});
WV_DEVICE Posted post_write_imm(const Qp& qp, u64 index, Local local, Remote remote, u32 bytes,
                                u32 imm, Flags = {});
WV_DEVICE Posted post_write_inline(const Qp& qp, u64 index, const void* source, Remote remote,
                                   u32 bytes, Flags = {});
WV_DEVICE Posted post_read(const Qp& qp, u64 index, Local local, Remote remote, u32 bytes,
                           Flags = {});
template <class Operands>
WV_DEVICE Posted post_atomic(const Qp& qp, u64 index, Local local, Remote remote,
                             Operands operands, Flags = {});
WV_DEVICE Posted post_nop(const Qp& qp, u64 index, Flags = {});
WV_DEVICE Posted post_recv(const Qp& qp, u64 index, Local local, u32 bytes);

// `next`: the index behind the last WQE that was written. The record first, then the doorbell,
// whose release orders everything before it.
WV_DEVICE void update_send_dbrec(const Qp& qp, u64 next);
WV_DEVICE void ring_doorbell(const Qp& qp, u64 next);
WV_DEVICE void update_recv_dbrec(const Qp& qp, u64 next);

// One look at the send completions; `completed` is the index everything below which is done.
// ok: it moved since `completed` was last written; no_room: it did not.
WV_DEVICE Status poll_cq_once(const Qp& qp, u64& completed);
// Waits until everything below `upto` is done. The WQE before `upto` must be signalled.
WV_DEVICE Status poll_cq(const Qp& qp, u64 upto, Timeout = {});
WV_DEVICE Status poll_cq(const Qp& qp, Posted posted, Timeout = {});
// Gives consumed CQEs back to the NIC. Needed after polling a ring CQ; of no effect on a collapsed
// one. The functions of wait.h do it themselves.
WV_DEVICE void update_cq_dbrec(const Qp& qp);

}  // namespace wv

#include "warpverbs/impl/verbs.h"
