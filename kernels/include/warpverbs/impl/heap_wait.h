// Waiting for a word of a heap, or of other memory, that others change: bounded, and ended by the
// host's alarms.
#pragma once

#include "warpverbs/impl/heap.h"
#include "warpverbs/impl/signal.h"

namespace wv {
namespace impl {

WV_DEVICE Deadline deadline_of(const Heap& heap, Timeout timeout) {
  return deadline_within(timeout, fixed(heap.timeout_ns));
}

// The same for waits that usually end at once: the clock is read, and the time begins, when the
// first look at the time is due.
struct HeapDeadline {
  u64 ns;
  Deadline deadline;

  // `usual`: nanoseconds of a call that names no timeout.
  WV_DEVICE static HeapDeadline of(u64 usual, Timeout timeout) {
    return {timeout.ns != 0 ? timeout.ns : usual, {0}};
  }
  WV_DEVICE static HeapDeadline of(const Heap& heap, Timeout timeout) {
    return of(fixed(heap.timeout_ns), timeout);
  }
  WV_DEVICE bool passed() {
    if (deadline.end != 0) return deadline.passed();
    deadline = deadline_within(Timeout{ns}, ns);
    return false;
  }
};

// Bounds of a wait.
struct Watch {
  u64 state;   // HeapState, for the record of a wait that failed
  u64 alarms;  // u32 for all waits, then one for each peer
  u32 peers;
  u64 base;    // offsets in the record count from here
};
WV_DEVICE Watch watch_of(const Heap& heap) {
  return {fixed(heap.state), fixed(heap.alarms), fixed(heap.world), fixed(heap.base)};
}
WV_DEVICE Watch watch_of(const Watch& watch) { return watch; }

// Purpose of a wait, for the record if it fails.
struct HeapWait {
  wait_for what;
  u32 peer;
  const void* word;
  u64 expected;
};

template <class Watched>
WV_DEVICE void record_fault(const Watched& watched, const HeapWait& wait, Status status,
                            u64 actual) {
  const Watch watch = watch_of(watched);
  HeapFault* fault = &at<HeapState>(watch.state)->fault;
  record_first(fault, status, wait.what, wait.expected, actual, [&] {
    store<order::relaxed, scope::system>(&fault->peer, wait.peer);
    const u64 offset = reinterpret_cast<u64>(wait.word) - watch.base;
    store<order::relaxed, scope::system>(&fault->offset, offset);
  });
}

// Why the host wants the wait to end, if it does. The words lie in host memory.
WV_DEVICE Status alarm_of(const Watch& watch, u32 peer) {
  const u32* alarms = at<const u32>(watch.alarms);
  if (load<order::relaxed, scope::system>(alarms + alarm_of_heap) != 0) {
    return Status::of(outcome::aborted);
  }
  if (peer < watch.peers &&
      load<order::relaxed, scope::system>(alarms + alarm_of_peer(peer)) != 0) {
    return Status::of(outcome::peer_lost);
  }
  return Status{};
}

// The pace of one wait. The awaited value usually comes within microseconds: looks follow one
// another until about as much time has gone by as a pause would take. They come in turns, because
// work between two of them adds to the latency of the value.
struct HeapPace {
  static constexpr u32 looks = 8;  // of a turn
  static constexpr u32 eager_turns = 64;
  u32 turn = 0;
  Backoff backoff;

  // Behind a turn's looks: pauses, or says why the wait must end. `asks`: whether this lane looks at the
  // host's alarms. Few do: looks of many across PCIe hold up all of the device's memory.
  template <class Watched>
  WV_DEVICE Status next(const Watched& watched, u32 peer, HeapDeadline& deadline, bool asks = true) {
    const bool eager = turn < eager_turns;
    turn += 1;
    if (!eager || turn % 2 == 0) {
      if (deadline.passed()) return Status::of(outcome::timeout);
    }
    if (asks && turn % 64 == 0) {
      const Status alarm = alarm_of(watch_of(watched), peer);
      if (!alarm.ok()) return alarm;
    }
    if (!eager) backoff.pause_once();
    return Status{};
  }
};

// Until `look()`, which acquires, has returned what `holds` accepts.
template <class Watched, class Look, class Holds>
WV_DEVICE Status await_word(const Watched& watched, const HeapWait& wait, HeapDeadline& deadline,
                            Look look, Holds holds) {
  HeapPace pace;
  for (;;) {
    u64 actual = 0;
    WV_ROLLED
    for (u32 i = 0; i < HeapPace::looks; ++i) {
      actual = look();
      if (holds(actual)) return Status{};
      give_way();
    }
    const Status status = pace.next(watched, wait.peer, deadline);
    if (!status.ok()) {
      record_fault(watched, wait, status, actual);
      return status;
    }
  }
}

// One status for all members, who may have seen different ends.
template <class Coop>
WV_DEVICE Status worst_of(const Coop& coop, Status mine) {
  if (Coop::alone || !coop.any(!mine.ok())) return mine;
  if (coop.any(mine.kind() == outcome::aborted)) return Status::of(outcome::aborted);
  if (coop.any(mine.kind() == outcome::peer_lost)) return Status::of(outcome::peer_lost);
  const bool bad = coop.any(mine.kind() == outcome::bad_address);
  return Status::of(bad ? outcome::bad_address : outcome::timeout);
}

// await_word by all members of a group.
template <class Coop, class Watched, class Look, class Holds>
WV_DEVICE Status await_word_together(const Coop& coop, const Watched& watched, const HeapWait& wait,
                                     HeapDeadline& deadline, Look look, Holds holds) {
  return once(coop, [&] { return await_word(watched, wait, deadline, look, holds); });
}
// All lanes of a warp look, by one load, and have acquired by themselves when it is over: to pass
// the word on takes as long as a look.
template <class Watched, class Look, class Holds>
WV_DEVICE Status await_word_together(const Warp& lanes, const Watched& watched,
                                     const HeapWait& wait, HeapDeadline& deadline, Look look,
                                     Holds holds) {
  HeapPace pace;
  for (;;) {
    u64 actual = 0;
    WV_ROLLED
    for (u32 i = 0; i < HeapPace::looks; ++i) {
      actual = look();
      if (ballot(all_lanes(), !holds(actual)) == 0) return Status{};
      give_way();
    }
    Status status = pace.next(watched, wait.peer, deadline, lane_id() == 0);
    if (ballot(all_lanes(), !status.ok()) == 0) continue;
    status = worst_of(lanes, status);
    if (!holds(actual)) record_fault(watched, wait, status, actual);
    return status;
  }
}
// Of a block its first warp looks, and the others learn of it at the block's barrier.
template <class Watched, class Look, class Holds>
WV_DEVICE Status await_word_together(const Block& members, const Watched& watched,
                                     const HeapWait& wait, HeapDeadline& deadline, Look look,
                                     Holds holds) {
  Status status;
  if (members.thread_rank() < warp_size) {
    status = await_word_together(wv::warp, watched, wait, deadline, look, holds);
  }
  return members.any(!status.ok()) ? members.broadcast(status) : Status{};
}

}  // namespace impl
}  // namespace wv
