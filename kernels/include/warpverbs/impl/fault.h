// The queue's error word and the record of the first failed wait.
#pragma once

#include "warpverbs/impl/queue.h"

namespace wv {
namespace impl {

// CQE opcode of an error word that no CQE made: a poster gave up after it had reserved, so the
// queue has a hole that nobody will fill.
constexpr u8 poster_gave_up = 0x7f;
// The same for a completion that names no WQE in flight.
constexpr u8 stray_completion = 0x7e;

WV_DEVICE Status status_of(ErrorWord error) {
  if (!error.is_set()) return Status{};
  const u8 syndrome = error.syndrome(), vendor = error.vendor(), op = error.wqe_opcode();
  switch (error.cqe_opcode()) {
    case static_cast<u8>(mlx5::cqe_opcode::req_err):
      return Status::of(outcome::requester, syndrome, vendor, op);
    case static_cast<u8>(mlx5::cqe_opcode::resp_err):
      return Status::of(outcome::responder, syndrome, vendor, op);
    case poster_gave_up:
      return Status::of(outcome::aborted);
    case stray_completion:
      return Status::of(outcome::stray_cqe, 0, 0, op);
    default:
      return Status::of(outcome::bad_error, syndrome, vendor, op);
  }
}

WV_DEVICE Status error_of(PostState* state) {
  return status_of(ErrorWord{load<order::relaxed, scope::gpu>(&state->error)});
}

// The first one stays; returns the status of whoever was first.
WV_DEVICE Status claim_error(PostState* state, ErrorWord error) {
  const u64 old = compare_exchange<order::relaxed, scope::gpu>(&state->error, 0, error.raw);
  return status_of(old == 0 ? error : ErrorWord{old});
}

// Records for the host who waited for what. The first failed wait stays.
WV_DEVICE void record_fault(PostState* state, u32 qpn, Status status, wait_for what, u64 expected,
                          u64 actual) {
  Fault* fault = &state->fault;
  // System scope: the host may be looking at it.
  if (compare_exchange<order::relaxed, scope::system>(&fault->claim, 0, 1) != 0) return;
  store<order::relaxed, scope::system>(&fault->status, status.code);
  store<order::relaxed, scope::system>(&fault->what, static_cast<u32>(what));
  store<order::relaxed, scope::system>(&fault->qpn, qpn);
  store<order::relaxed, scope::system>(&fault->expected, expected);
  store<order::relaxed, scope::system>(&fault->actual, actual);
  store<order::relaxed, scope::system>(&fault->thread, global_thread());
  // Release, pairs with the host's acquire of 2.
  store<order::release, scope::system>(&fault->claim, 2);
}

WV_DEVICE bool host_aborts(const u32* abort) {
  return load<order::relaxed, scope::system>(abort) != 0;
}

}  // namespace impl
}  // namespace wv
