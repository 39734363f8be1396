// The queue's error word and the record of the first failed wait.
#pragma once

#include "warpverbs/impl/queue.h"

namespace wv {
namespace impl {

WV_DEVICE Status error_of(PostState* state) {
  return Status{ErrorWord{load<order::relaxed, scope::gpu>(&state->error)}.status()};
}

// The first fault stays; returns the status of the first. `counter` is the WQE's.
WV_DEVICE Status claim_error(PostState* state, Status status, u16 counter) {
  const u64 mine = ErrorWord::of(status.code, counter).raw;
  const u64 old = compare_exchange<order::relaxed, scope::gpu>(&state->error, 0, mine);
  return old == 0 ? status : Status{ErrorWord{old}.status()};
}

// Records for the host which wait failed; `fill` stores what is particular to the kind of record.
// The first failed wait stays.
template <class Record, class Fill>
WV_DEVICE void record_first(Record* fault, Status status, wait_for what, u64 expected, u64 actual,
                            Fill fill) {
  // System scope: the host may be looking at it.
  if (compare_exchange<order::relaxed, scope::system>(&fault->claim, 0, 1) != 0) return;
  store<order::relaxed, scope::system>(&fault->status, status.code);
  store<order::relaxed, scope::system>(&fault->what, static_cast<u32>(what));
  fill();
  store<order::relaxed, scope::system>(&fault->expected, expected);
  store<order::relaxed, scope::system>(&fault->actual, actual);
  store<order::relaxed, scope::system>(&fault->thread, global_thread());
  // Release, pairs with the host's acquire of it.
  store<order::release, scope::system>(&fault->claim, fault_complete);
}

WV_DEVICE void record_fault(PostState* state, u32 qpn, Status status, wait_for what, u64 expected,
                          u64 actual) {
  Fault* fault = &state->fault;
  record_first(fault, status, what, expected, actual,
               [&] { store<order::relaxed, scope::system>(&fault->qpn, qpn); });
}

WV_DEVICE bool host_aborts(const u32* abort) {
  return load<order::relaxed, scope::system>(abort) != 0;
}

}  // namespace impl
}  // namespace wv
