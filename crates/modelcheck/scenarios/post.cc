// Kernels of the model checker. A thread's argument numbers its word of payload; what it writes
// there before a put is part of the transfer.
#include "warpverbs/warpverbs.h"

namespace {

// As in src/world.rs.
constexpr wv::u64 source = 0x105000;
constexpr wv::u64 target = 0x106000;
constexpr wv::u64 inbox = 0x10c000;
const wv::u64* const signal_word = reinterpret_cast<const wv::u64*>(0x107000);

wv::Local from(wv::u64 i) { return {source + 8 * i, 1}; }
wv::Remote to(wv::u64 i) { return {target + 8 * i, 1}; }
wv::u64 value(wv::u64 i) { return 0x100 + i; }

void require_ok(wv::Status status, const char* what, wv::site where = wv::site::here()) {
  wv::check::require(status.ok(), what, where);
}

template <class Q>
wv::Posted put_word(const Q& qp, wv::u64 i, wv::Flags flags = {}) {
  wv::check::write(source + 8 * i, value(i));
  return wv::put(wv::thread, qp, from(i), to(i), 8, flags);
}

wv::Local buffer(wv::u64 i) { return {inbox + 8 * i, 1}; }

wv::u64 wait_message(const wv::Qp& qp, wv::u64 i) {
  wv::Received received{};
  require_ok(wv::wait_recv(wv::thread, qp, received), "wait_recv");
  wv::check::require(received.bytes == 8, "a message of 8 bytes");
  wv::check::note(static_cast<wv::u32>(i + 1), received.index + 1);
  return received.index;
}

// As src/receiver.rs.
void require_message(wv::u64 i, wv::u64 index) {
  wv::check::require(wv::check::read(inbox + 8 * i) == 0x200 + index, "the message is there");
}

template <class Coop>
void put_together(const Coop& coop, const wv::Qp& qp, wv::u64 i) {
  wv::check::write(source + 8 * i, value(i));
  const wv::Posted posted = wv::put(coop, qp, from(0), to(0), 8 * coop.size());
  require_ok(posted.status, "put");
  require_ok(wv::wait(coop, qp, posted), "wait");
  for (wv::u64 k = 0; k < coop.size(); ++k) {
    wv::check::require(wv::check::read(target + 8 * k) == value(k), "the payload is there");
  }
}

template <class Signal>
void put_and_signal(const wv::Qp& qp, wv::u64 i, Signal what) {
  wv::check::write(source + 8 * i, value(i));
  const wv::Posted posted = wv::put_signal(wv::thread, qp, from(i), to(i), 8,
                                           {reinterpret_cast<wv::u64>(signal_word), 1}, what);
  require_ok(posted.status, "put_signal");
}

}  // namespace

// Kernels for queue pairs of every format.
namespace every {

// One put, and its completion: the payload has arrived and its source may be reused.
template <class Q>
void put_wait(const Q& qp, wv::u64 i) {
  const wv::Posted posted = put_word(qp, i);
  require_ok(posted.status, "put");
  require_ok(wv::wait(wv::thread, qp, posted), "wait");
  wv::check::require(wv::done(qp, posted), "what was waited for stays done");
  wv::check::require(wv::check::read(target + 8 * i) == value(i), "the payload is there");
  wv::check::write(source + 8 * i, 0);
}

// A put that nobody waits for.
template <class Q>
void put(const Q& qp, wv::u64 i) { require_ok(put_word(qp, i).status, "put"); }

// Two, then a wait for the older one.
template <class Q>
void put_twice(const Q& qp, wv::u64 i) {
  const wv::Posted first = put_word(qp, i);
  const wv::Posted second = put_word(qp, i + 1);
  require_ok(second.status, "put");
  require_ok(wv::wait(wv::thread, qp, first), "wait");
  wv::check::require(wv::check::read(target + 8 * i) == value(i), "the payload is there");
}

// Unsignalled work, then quiet: somebody has to post a NOP.
template <class Q>
void put_quiet(const Q& qp, wv::u64 i) {
  require_ok(put_word(qp, i, wv::unsignalled).status, "put");
  require_ok(wv::quiet(wv::thread, qp), "quiet");
  wv::check::require(wv::check::read(target + 8 * i) == value(i), "the payload is there");
}

// Leaves the doorbell of the first to the second, whose completion says both.
template <class Q>
void defer_put_wait(const Q& qp, wv::u64 i) {
  require_ok(put_word(qp, i, wv::unsignalled | wv::deferred).status, "put");
  const wv::Posted second = put_word(qp, i + 1);
  require_ok(second.status, "put");
  require_ok(wv::wait(wv::thread, qp, second), "wait");
  for (wv::u64 k = i; k < i + 2; ++k) {
    wv::check::require(wv::check::read(target + 8 * k) == value(k), "the payload is there");
  }
}

// Nobody posts behind it: the wait rings.
template <class Q>
void defer_wait(const Q& qp, wv::u64 i) {
  const wv::Posted posted = put_word(qp, i, wv::deferred);
  require_ok(posted.status, "put");
  require_ok(wv::wait(wv::thread, qp, posted), "wait");
  wv::check::require(wv::check::read(target + 8 * i) == value(i), "the payload is there");
}

// Three, so that a ring of four is used again.
template <class Q>
void put_many(const Q& qp, wv::u64 i) {
  for (wv::u64 k = 0; k < 3; ++k) require_ok(put_word(qp, i + k).status, "put");
}

// The value of a READ is there when its completion is.
template <class Q>
void get_wait(const Q& qp, wv::u64 i) {
  const wv::Posted posted = wv::get(wv::thread, qp, from(i), to(i), 8);
  require_ok(posted.status, "get");
  require_ok(wv::wait(wv::thread, qp, posted), "wait");
  (void)wv::check::read(source + 8 * i);
}

// Returns no_room where a put would wait.
template <class Q>
void put_now(const Q& qp, wv::u64 i) {
  const wv::Posted posted = put_word(qp, i, wv::no_wait);
  wv::check::require(posted.ok() || posted.status.kind() == wv::outcome::no_room, "ok or no_room");
  wv::check::note(static_cast<wv::u32>(i + 1), posted.ok() ? 1 : 2);
}

// The NIC refuses somebody's work.
template <class Q>
void put_fails(const Q& qp, wv::u64 i) {
  const wv::Posted posted = put_word(qp, i);
  const wv::Status status = posted.ok() ? wv::wait(wv::thread, qp, posted) : posted.status;
  wv::check::require(!status.ok(), "the wait ends with the error");
  wv::check::note(static_cast<wv::u32>(i + 1), status.code);
}

// One transfer for each lane, posted together; each waits for its own.
template <class Q>
void put_each_warp(const Q& qp, wv::u64 i) {
  wv::check::write(source + 8 * i, value(i));
  const wv::Posted posted = wv::put_each(wv::warp, qp, from(i), to(i), 8);
  require_ok(posted.status, "put_each");
  require_ok(wv::wait(wv::warp, qp, posted), "wait");
  wv::check::require(wv::check::read(target + 8 * i) == value(i), "the payload is there");
}

}  // namespace every

#define WV_EVERY_NIC(name)                             \
  void wv_##name(const wv::Qp* qp, wv::u64 i) {        \
    (void)wv::with_format(*qp, [i](const auto& queue) { \
      every::name(queue, i);                           \
      return 0;                                        \
    });                                                \
  }

extern "C" {

WV_EVERY_NIC(put_wait)
WV_EVERY_NIC(put)
WV_EVERY_NIC(put_twice)
WV_EVERY_NIC(put_quiet)
WV_EVERY_NIC(defer_put_wait)

// Leaves it to anybody who comes.
void wv_defer(const wv::Qp* qp, wv::u64 i) {
  require_ok(put_word(*qp, i, wv::unsignalled | wv::deferred).status, "put");
}

WV_EVERY_NIC(defer_wait)

// The same by quiet.
void wv_defer_quiet(const wv::Qp* qp, wv::u64 i) {
  require_ok(put_word(*qp, i, wv::unsignalled | wv::deferred).status, "put");
  require_ok(wv::quiet(wv::thread, *qp), "quiet");
  wv::check::require(wv::check::read(target + 8 * i) == value(i), "the payload is there");
}

WV_EVERY_NIC(put_many)

// A WQE of several WQEBBs.
void wv_put_inline(const wv::Qp* qp, wv::u64 i) {
  wv::u64 words[8];
  for (wv::u64 k = 0; k < 8; ++k) words[k] = value(i + k);
  const wv::Posted posted =
      wv::put_inline(wv::thread, *qp, words, to(i), static_cast<wv::u32>(sizeof(words)));
  require_ok(posted.status, "put_inline");
  wv::check::require(posted.wqebbs == 2, "two WQEBBs");
}

WV_EVERY_NIC(get_wait)

// Lanes want the one scratch slot that is free.
void wv_fetch_add(const wv::Qp* qp, wv::u64 i) {
  wv::u64 old = 0;
  require_ok(wv::fetch_add(wv::thread, *qp, to(0), wv::u64{1}, old), "fetch_add");
  wv::check::note(static_cast<wv::u32>(i), old + 1);
}

WV_EVERY_NIC(put_now)

// Where waits may end for another reason: what is said to have arrived has.
void wv_put_may_fail(const wv::Qp* qp, wv::u64 i) {
  const wv::Posted posted = put_word(*qp, i);
  const wv::Status status = posted.ok() ? wv::wait(wv::thread, *qp, posted) : posted.status;
  if (status.ok()) {
    wv::check::require(wv::check::read(target + 8 * i) == value(i), "the payload is there");
  }
  wv::check::note(static_cast<wv::u32>(i + 1), status.code + 1);
}

// The NIC never executes it.
void wv_put_ends(const wv::Qp* qp, wv::u64 i) {
  const wv::Posted posted = put_word(*qp, i);
  const wv::Status status = posted.ok() ? wv::wait(wv::thread, *qp, posted) : posted.status;
  wv::check::require(!status.ok(), "the wait ends without success");
  wv::check::note(static_cast<wv::u32>(i + 1), status.code + 1);
}

WV_EVERY_NIC(put_fails)

// --- Receives. The message that takes the receive at `index` is `message(index)`.

// A receive that somebody else waits for.
void wv_receive(const wv::Qp* qp, wv::u64 i) {
  require_ok(wv::receive(wv::thread, *qp, buffer(i), 8).status, "receive");
}

// The same by the verbs stratum.
void wv_post_recv(const wv::Qp* qp, wv::u64 i) {
  const wv::Posted posted = wv::post_recv(*qp, buffer(i), 8);
  require_ok(posted.status, "post_recv");
  wv::update_recv_dbrec(*qp, posted);
}

// A receive, then some message: this one's, or that of a receive posted by another.
void wv_receive_wait(const wv::Qp* qp, wv::u64 i) {
  const wv::Posted posted = wv::receive(wv::thread, *qp, buffer(i), 8);
  require_ok(posted.status, "receive");
  const wv::u64 index = wait_message(*qp, i);
  if (index >= posted.index) require_message(i, posted.index);
}

// As many as the ring has, then one more for each message.
void wv_receive_many(const wv::Qp* qp, wv::u64) {
  for (wv::u64 i = 0; i < 2; ++i) {
    require_ok(wv::receive(wv::thread, *qp, buffer(i), 8).status, "receive");
  }
  for (wv::u64 i = 0; i < 3; ++i) {
    const wv::u64 index = wait_message(*qp, i);
    require_message(i % 2, index);
    if (i == 0) require_ok(wv::receive(wv::thread, *qp, buffer(0), 8).status, "receive");
  }
}

// A message of a receive that another posted.
void wv_wait_recv(const wv::Qp* qp, wv::u64 i) { (void)wait_message(*qp, i); }

// None comes.
void wv_wait_recv_ends(const wv::Qp* qp, wv::u64 i) {
  wv::Received received{};
  const wv::Status status = wv::wait_recv(wv::thread, *qp, received);
  wv::check::require(!status.ok(), "the wait ends without success");
  wv::check::note(static_cast<wv::u32>(i + 1), status.code + 1);
}

// --- Calls of a warp and of a block.

// One transfer of what all members wrote; all wait for it.
void wv_put_warp(const wv::Qp* qp, wv::u64 i) { put_together(wv::warp, *qp, i); }
void wv_put_block(const wv::Qp* qp, wv::u64 i) { put_together(wv::block, *qp, i); }

WV_EVERY_NIC(put_each_warp)

// The same without a completion, which somebody has to ask for afterwards.
void wv_put_each_quiet(const wv::Qp* qp, wv::u64 i) {
  wv::check::write(source + 8 * i, value(i));
  require_ok(wv::put_each(wv::warp, *qp, from(i), to(i), 8, wv::unsignalled).status, "put_each");
  require_ok(wv::quiet(wv::warp, *qp), "quiet");
  wv::check::require(wv::check::read(target + 8 * i) == value(i), "the payload is there");
}

// All scratch slots serve as a lock, which is given back outside of the loop that takes it: lanes of a warp in
// lockstep must not do that.
void wv_lock_outside(const wv::Qp* qp, wv::u64) {
  using wv::order, wv::scope;
  wv::u64* lock = &wv::impl::state_of(*qp)->scratch_free;
  wv::u64 slots = 0;
  while ((slots = wv::exchange<order::acquire, scope::gpu>(lock, 0)) == 0) wv::pause(0);
  wv::store<order::release, scope::gpu>(lock, slots);
}

// --- Signals, which a kernel of the peer waits for.

void wv_put_signal_set(const wv::Qp* qp, wv::u64 i) {
  put_and_signal(*qp, i, wv::SignalSet{1});
}
void wv_put_signal_add(const wv::Qp* qp, wv::u64 i) {
  put_and_signal(*qp, i, wv::SignalAdd{1});
}

// Waits for `count` signals; their payload has arrived.
void wv_wait_signal(const wv::Qp* qp, wv::u64 count) {
  const wv::Status status =
      wv::wait_signal(wv::thread, *qp, signal_word, wv::compare::ge, count);
  require_ok(status, "wait_signal");
  for (wv::u64 i = 0; i < count; ++i) {
    wv::check::require(wv::check::read(target + 8 * i) == value(i), "the payload is there");
  }
}

// None comes.
void wv_wait_signal_ends(const wv::Qp* qp, wv::u64 i) {
  const wv::Status status = wv::wait_signal(wv::thread, *qp, signal_word, wv::compare::eq, 1);
  wv::check::require(!status.ok(), "the wait ends without success");
  wv::check::note(static_cast<wv::u32>(i + 1), status.code + 1);
}

}  // extern "C"
