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
#include "warpverbs/operands.h"
#include "warpverbs/qp.h"
#include "warpverbs/status.h"

namespace wv {

// bytes: below 2^31; 0 is allowed. Otherwise the status is too_long and nothing was posted.
template <class Nic>
WV_DEVICE Posted post_send(const QpOf<Nic>& qp, Local local, u32 bytes, Flags = {}, Timeout = {});
template <class Nic>
WV_DEVICE Posted post_send_imm(const QpOf<Nic>& qp, Local local, u32 bytes, u32 imm, Flags = {},
                               Timeout = {});
template <class Nic>
WV_DEVICE Posted post_write(const QpOf<Nic>& qp, Local local, Remote remote, u32 bytes, Flags = {},
                            Timeout = {});
template <class Nic>
WV_DEVICE Posted post_write_imm(const QpOf<Nic>& qp, Local local, Remote remote, u32 bytes,
                                u32 imm, Flags = {}, Timeout = {});
// Copies from `source`, which may be any memory the thread can read and is free again on return.
// bytes: at most 4 * qp.inline_words.
template <class Nic>
WV_DEVICE Posted post_write_inline(const QpOf<Nic>& qp, const void* source, Remote remote,
                                   u32 bytes, Flags = {}, Timeout = {});
template <class Nic>
WV_DEVICE Posted post_read(const QpOf<Nic>& qp, Local local, Remote remote, u32 bytes, Flags = {},
                           Timeout = {});
template <class Operands, class Nic>
WV_DEVICE Posted post_atomic(const QpOf<Nic>& qp, Local local, Remote remote, Operands operands,
                             Flags = {}, Timeout = {});
template <class Nic>
WV_DEVICE Posted post_nop(const QpOf<Nic>& qp, Flags = {}, Timeout = {});
// Waits for room until a completion of this receive queue is consumed.
template <class Nic>
WV_DEVICE Posted post_recv(const QpOf<Nic>& qp, Local local, u32 bytes, Timeout = {});

// Makes a self-reserved WQE known to the NIC, at once or with that of others.
template <class Nic>
WV_DEVICE void ring_doorbell(const QpOf<Nic>& qp, Posted posted);
template <class Nic>
WV_DEVICE void update_recv_dbrec(const QpOf<Nic>& qp, Posted posted);

// Explicit forms.
template <class Nic>
WV_DEVICE u64 next_send_index(const QpOf<Nic>& qp);
template <class Nic>
WV_DEVICE u64 next_recv_index(const QpOf<Nic>& qp);
template <class Nic>
WV_DEVICE Posted post_send(const QpOf<Nic>& qp, u64 index, Local local, u32 bytes, Flags = {});
template <class Nic>
WV_DEVICE Posted post_send_imm(const QpOf<Nic>& qp, u64 index, Local local, u32 bytes, u32 imm,
                               Flags = {});
template <class Nic>
WV_DEVICE Posted post_write(const QpOf<Nic>& qp, u64 index, Local local, Remote remote, u32 bytes,
                            Flags = {});
template <class Nic>
WV_DEVICE Posted post_write_imm(const QpOf<Nic>& qp, u64 index, Local local, Remote remote,
                                u32 bytes, u32 imm, Flags = {});
template <class Nic>
WV_DEVICE Posted post_write_inline(const QpOf<Nic>& qp, u64 index, const void* source,
                                   Remote remote, u32 bytes, Flags = {});
template <class Nic>
WV_DEVICE Posted post_read(const QpOf<Nic>& qp, u64 index, Local local, Remote remote, u32 bytes,
                           Flags = {});
template <class Operands, class Nic>
WV_DEVICE Posted post_atomic(const QpOf<Nic>& qp, u64 index, Local local, Remote remote,
                             Operands operands, Flags = {});
template <class Nic>
WV_DEVICE Posted post_nop(const QpOf<Nic>& qp, u64 index, Flags = {});
template <class Nic>
WV_DEVICE Posted post_recv(const QpOf<Nic>& qp, u64 index, Local local, u32 bytes);

// `next`: the index behind the last WQE that was written. The record first, then the doorbell,
// whose release orders everything before it.
template <class Nic>
WV_DEVICE void update_send_dbrec(const QpOf<Nic>& qp, u64 next);
template <class Nic>
WV_DEVICE void ring_doorbell(const QpOf<Nic>& qp, u64 next);
template <class Nic>
WV_DEVICE void update_recv_dbrec(const QpOf<Nic>& qp, u64 next);

// One look at the send completions; `completed` is the index everything below which is done.
// ok: it moved since `completed` was last written; no_room: it did not.
template <class Nic>
WV_DEVICE Status poll_cq_once(const QpOf<Nic>& qp, u64& completed);
// Waits until everything below `upto` is done. The WQE before `upto` must be signalled.
template <class Nic>
WV_DEVICE Status poll_cq(const QpOf<Nic>& qp, u64 upto, Timeout = {});
template <class Nic>
WV_DEVICE Status poll_cq(const QpOf<Nic>& qp, Posted posted, Timeout = {});
// Gives consumed CQEs back to the NIC. Needed after polling a ring CQ; of no effect on a collapsed
// one. The functions of wait.h do it themselves.
template <class Nic>
WV_DEVICE void update_cq_dbrec(const QpOf<Nic>& qp);

}  // namespace wv

#include "warpverbs/impl/verbs.h"
