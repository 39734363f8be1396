// Kernels over queue pairs of any format: each looks at the format of its queue pair once, and is compiled
// for every one.
#include "warpverbs/verbs.h"
#include "warpverbs/warpverbs.h"

using namespace wv;

// One request of a thread, on its own piece of memory.
struct Step {
  u32 kind;
  u32 bytes;
  u64 offset;  // of the piece in both memories
};

enum class step : u32 {
  put = 0,
  get = 1,
  put_inline = 2,
  put_value = 3,
  add_one = 4,       // to the u64 at the piece, twice: with and without the old value
  swap = 5,          // the u64 at the piece, which is 0, for the offset
  put_unsignalled = 6,
  put_deferred = 7,
  put_then_signal = 8,  // the first 8 bytes of the piece are the signal, raised by 1
  unrung = 9,        // written and rung by two calls
  nop = 10,
};

namespace {

template <class Q>
WV_DEVICE Status take_step(const Q& qp, Step what, Local from, Remote to) {
  from.addr += what.offset;
  to.addr += what.offset;
  const Local rest{from.addr + 8, from.lkey};
  const Remote behind{to.addr + 8, to.rkey};
  u64 old = 0;
  switch (static_cast<step>(what.kind)) {
    case step::put: return put(thread, qp, from, to, what.bytes).status;
    case step::get: return get(thread, qp, from, to, what.bytes).status;
    case step::put_inline:
      return put_inline(thread, qp, reinterpret_cast<const void*>(from.addr), to, what.bytes).status;
    case step::put_value: return put_value(thread, qp, what.offset, to).status;
    case step::add_one: {
      const Status status = add(thread, qp, to, u64{1}).status;
      return status.ok() ? fetch_add(thread, qp, to, u64{1}, old) : status;
    }
    case step::swap: {
      const Status status = compare_swap(thread, qp, to, u64{0}, what.offset, old);
      if (status.ok() && old != 0) return Status::of(outcome::bad_error);
      return status;
    }
    case step::put_unsignalled: return put(thread, qp, from, to, what.bytes, unsignalled).status;
    case step::put_deferred: return put(thread, qp, from, to, what.bytes, deferred).status;
    case step::put_then_signal:
      return put_signal(thread, qp, rest, behind, what.bytes, to, SignalAdd{1}).status;
    case step::unrung: {
      const Posted posted = post_write(qp, from, to, what.bytes);
      ring_doorbell(qp, posted);
      return posted.status;
    }
    case step::nop: {
      const Posted posted = post_nop(qp);
      ring_doorbell(qp, posted);
      return posted.status;
    }
  }
  return Status::of(outcome::bad_error);
}

// The first of `pieces` messages that the lanes post together, whose lengths differ.
WV_DEVICE u32 bytes_of(u64 piece, u32 most) { return static_cast<u32>(piece * 37 % (most + 1)); }

}  // namespace

// Each thread takes `each` steps of its own, then waits for all that it can see.
WV_SAFE_KERNEL(formats_steps)(const Qp* qp, Local from, Remote to,
                              const Step* steps WV_COUNT(grid_threads * each), u32 each,
                              Status* status WV_COUNT(1)) {
  const Step* mine = steps + global_thread() * each;
  const Status ended = with_format(*qp, [&](const auto& q) {
    for (u32 i = 0; i < each; ++i) {
      const Status done = take_step(q, mine[i], from, to);
      if (!done.ok()) return done;
    }
    return quiet(thread, q);
  });
  keep_first(status, ended);
}

// Warps write pieces of `most` bytes of room together, each lane one of another length, `rounds` times;
// every eighth round is one transfer of all lanes.
WV_SAFE_KERNEL(formats_together)(const Qp* qp, Local from, Remote to, u32 most, u32 rounds,
                                 Status* status WV_COUNT(1)) {
  const Status ended = with_format(*qp, [&](const auto& q) {
    for (u32 i = 0; i < rounds; ++i) {
      const u64 piece = u64{i} * block_size() * grid_size() + global_thread();
      const Local source{from.addr + piece * most, from.lkey};
      const Remote target{to.addr + piece * most, to.rkey};
      Posted posted{};
      if (i % 8 == 7) {
        // The leader's arguments count: the warp's pieces are one.
        const u64 first = piece - lane_id();
        posted = put(warp, q, Local{from.addr + first * most, from.lkey},
                     Remote{to.addr + first * most, to.rkey}, most * warp.size());
      } else {
        posted = put_each(warp, q, source, target, bytes_of(piece, most));
      }
      if (!posted.ok()) return posted.status;
    }
    return quiet(warp, q);
  });
  keep_first(status, ended);
}

// Block 0 sends `count` messages, with immediates or none in turn and WRITEs among them; block 1 takes
// them, at most `window` receives open. taken: bytes, immediate, kind and index of each.
WV_SAFE_KERNEL(formats_talk)(const Qp* sender, const Qp* receiver, Local from, Remote to, Local into,
                             u32 room, u32 count, u32 window, u32* taken WV_COUNT(4 * count),
                             Status* status WV_COUNT(1)) {
  if (thread_index() != 0) return;
  const auto send_all = [&](const auto& q) {
    for (u32 i = 0; i < count; ++i) {
      const u64 offset = u64{i} * room;
      const u32 bytes = bytes_of(i, room);
      const Local piece{from.addr + offset, from.lkey};
      const Posted posted =
          i % 3 == 0   ? send(thread, q, piece, bytes)
          : i % 3 == 1 ? send_imm(thread, q, piece, bytes, 1000 + i)
                       : put_imm(thread, q, piece, Remote{to.addr + offset, to.rkey}, bytes, 1000 + i);
      if (!posted.ok()) return posted.status;
    }
    return quiet(thread, q);
  };
  const auto take_all = [&](const auto& q) {
    u32 offered = 0;
    for (u32 i = 0; i < count; ++i) {
      for (; offered < count && offered < i + window; ++offered) {
        const Local piece{into.addr + u64{offered} * room, into.lkey};
        const Posted posted = receive(thread, q, piece, room);
        if (!posted.ok()) return posted.status;
      }
      Received received{};
      const Status result = wait_recv(thread, q, received);
      if (!result.ok()) return result;
      taken[4 * i] = received.bytes;
      taken[4 * i + 1] = received.has_imm() ? received.imm : 0;
      taken[4 * i + 2] = received.opcode;
      taken[4 * i + 3] = static_cast<u32>(received.index);
    }
    return Status{};
  };
  keep_first(status, block_index() == 0 ? with_format(*sender, send_all)
                                        : with_format(*receiver, take_all));
}

// One thread counts indexes by itself: `count` WRITEs of `bytes` each, rung and waited for by the piece.
WV_SAFE_KERNEL(formats_alone)(const Qp* qp, Local from, Remote to, u32 bytes, u32 count,
                              Status* status WV_COUNT(1)) {
  if (global_thread() != 0) return;
  const Status ended = with_format(*qp, [&](const auto& q) {
    for (u32 i = 0; i < count; ++i) {
      const u64 index = next_send_index(q), offset = u64{i} * bytes;
      const Local source{from.addr + offset, from.lkey};
      const Posted posted =
          post_write(q, index, source, Remote{to.addr + offset, to.rkey}, bytes);
      update_send_dbrec(q, posted.end());
      ring_doorbell(q, posted.end());
      const Status polled = poll_cq(q, posted);
      if (!polled.ok()) return polled;
      update_cq_dbrec(q);
    }
    return Status{};
  });
  keep_first(status, ended);
}

// `rounds` of as many puts as a warp has lanes, all of the same 8 bytes.
WV_SAFE_KERNEL(formats_laps)(const Qp* qp, Local from, Remote to, u32 rounds,
                             Status* status WV_COUNT(1)) {
  const Status ended = with_format(*qp, [&](const auto& q) {
    for (u32 i = 0; i < rounds; ++i) {
      const Posted posted = put_each(warp, q, from, to, 8, unsignalled);
      if (!posted.ok()) return posted.status;
    }
    return quiet(warp, q);
  });
  keep_first(status, ended);
}

// Every thread writes 8 bytes where it may and then where it may not, and waits; then it posts again.
// ends: statuses of the three calls. Thread 0 of block 1 waits for a message of no bytes on `peer` meanwhile.
WV_SAFE_KERNEL(formats_fail)(const Qp* qp, const Qp* peer, Local from, Remote to, Remote wrong,
                             u32* ends WV_COUNT(3 * grid_threads)) {
  u32* mine = ends + 3 * global_thread();
  if (block_index() == 1) {
    if (thread_index() != 0) return;
    mine[0] = with_format(*peer, [&](const auto& q) {
      const Posted posted = receive(thread, q, from, 0);
      if (!posted.ok()) return posted.status;
      Received received{};
      return wait_recv(thread, q, received);
    }).code;
    return;
  }
  with_format(*qp, [&](const auto& q) {
    mine[0] = wait(thread, q, put(thread, q, from, to, 8)).code;
    mine[1] = wait(thread, q, put(thread, q, from, wrong, 8)).code;
    mine[2] = put(thread, q, from, to, 8).status.code;
    return 0;
  });
}
