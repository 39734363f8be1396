// Kernels of the model checker. A thread's argument numbers its word of payload; what it writes
// there before a put is part of the transfer.
#include "warpverbs/warpverbs.h"

namespace {

// As in src/world.rs.
constexpr wv::u64 source = 0x105000;
constexpr wv::u64 target = 0x106000;

wv::Local from(wv::u64 i) { return {source + 8 * i, 1}; }
wv::Remote to(wv::u64 i) { return {target + 8 * i, 1}; }
wv::u64 value(wv::u64 i) { return 0x100 + i; }

void require_ok(wv::Status status, const char* what, wv::site where = wv::site::here()) {
  wv::check::require(status.ok(), what, where);
}

wv::Posted put_word(const wv::Qp& qp, wv::u64 i, wv::Flags flags = {}) {
  wv::check::write(source + 8 * i, value(i));
  return wv::put(wv::thread, qp, from(i), to(i), 8, flags);
}

}  // namespace

extern "C" {

// One put, and its completion: the payload has arrived and its source may be reused.
void wv_put_wait(const wv::Qp* qp, wv::u64 i) {
  const wv::Posted posted = put_word(*qp, i);
  require_ok(posted.status, "put");
  require_ok(wv::wait(wv::thread, *qp, posted), "wait");
  wv::check::require(wv::done(*qp, posted), "what was waited for stays done");
  wv::check::require(wv::check::read(target + 8 * i) == value(i), "the payload is there");
  wv::check::write(source + 8 * i, 0);
}

// A put that nobody waits for.
void wv_put(const wv::Qp* qp, wv::u64 i) { require_ok(put_word(*qp, i).status, "put"); }

// Two, then a wait for the older one.
void wv_put_twice(const wv::Qp* qp, wv::u64 i) {
  const wv::Posted first = put_word(*qp, i);
  const wv::Posted second = put_word(*qp, i + 1);
  require_ok(second.status, "put");
  require_ok(wv::wait(wv::thread, *qp, first), "wait");
  wv::check::require(wv::check::read(target + 8 * i) == value(i), "the payload is there");
}

// Unsignalled work, then quiet: somebody has to post a NOP.
void wv_put_quiet(const wv::Qp* qp, wv::u64 i) {
  require_ok(put_word(*qp, i, wv::unsignalled).status, "put");
  require_ok(wv::quiet(wv::thread, *qp), "quiet");
  wv::check::require(wv::check::read(target + 8 * i) == value(i), "the payload is there");
}

// Three, so that a ring of four is used again.
void wv_put_many(const wv::Qp* qp, wv::u64 i) {
  for (wv::u64 k = 0; k < 3; ++k) require_ok(put_word(*qp, i + k).status, "put");
}

// A WQE of several WQEBBs.
void wv_put_inline(const wv::Qp* qp, wv::u64 i) {
  wv::u64 words[8];
  for (wv::u64 k = 0; k < 8; ++k) words[k] = value(i + k);
  const wv::Posted posted =
      wv::put_inline(wv::thread, *qp, words, to(i), static_cast<wv::u32>(sizeof(words)));
  require_ok(posted.status, "put_inline");
  wv::check::require(posted.wqebbs == 2, "two WQEBBs");
}

// The value of a READ is there when its completion is.
void wv_get_wait(const wv::Qp* qp, wv::u64 i) {
  const wv::Posted posted = wv::get(wv::thread, *qp, from(i), to(i), 8);
  require_ok(posted.status, "get");
  require_ok(wv::wait(wv::thread, *qp, posted), "wait");
  (void)wv::check::read(source + 8 * i);
}

// Lanes want the one scratch slot that is free.
void wv_fetch_add(const wv::Qp* qp, wv::u64 i) {
  wv::u64 old = 0;
  require_ok(wv::fetch_add(wv::thread, *qp, to(0), wv::u64{1}, old), "fetch_add");
  wv::check::note(static_cast<wv::u32>(i), old + 1);
}

// Returns no_room where a put would wait.
void wv_put_now(const wv::Qp* qp, wv::u64 i) {
  const wv::Posted posted = put_word(*qp, i, wv::no_wait);
  wv::check::require(posted.ok() || posted.status.kind() == wv::outcome::no_room, "ok or no_room");
  wv::check::note(static_cast<wv::u32>(i + 1), posted.ok() ? 1 : 2);
}

// The NIC refuses somebody's work.
void wv_put_fails(const wv::Qp* qp, wv::u64 i) {
  const wv::Posted posted = put_word(*qp, i);
  const wv::Status status = posted.ok() ? wv::wait(wv::thread, *qp, posted) : posted.status;
  wv::check::require(!status.ok(), "the wait ends with the error");
  wv::check::note(static_cast<wv::u32>(i + 1), status.code);
}

}  // extern "C"
