// The exported QP: where everything lies that a kernel needs to post by itself. Its layout is in
// layout/qp.h. Native byte order; addresses are the poster's own.
#pragma once

#include "warpverbs/layout/qp.h"

namespace wv {

// In Qp::send_tag: the send counter of the doorbell record is stored with a release of system scope,
// because a device behind PCIe may read it without having received a doorbell. Doorbells and control
// segments shift the bits above the 24 of the QP number out.
constexpr u32 fenced_record = 1u << 31;

constexpr u32 scratch_slots = 64;

}  // namespace wv
