// One-sided reads: get, get_each.
//
// The bytes are in local memory once wait or quiet (wait.h) has returned ok; until then they are
// undefined. A later put of the same queue pair may overtake a get unless it is `fenced`.
#pragma once

#include "warpverbs/coop.h"
#include "warpverbs/qp.h"
#include "warpverbs/status.h"

namespace wv {

// bytes: below 2^31.
template <class Coop, class Nic>
WV_DEVICE Posted get(const Coop& coop, const QpOf<Nic>& qp, Local local, Remote remote, u32 bytes,
                     Flags = {}, Timeout = {});

// As put_each: every member its own transfer, one reservation per warp. All members must call.
template <class Coop, class Nic>
WV_DEVICE Posted get_each(const Coop& coop, const QpOf<Nic>& qp, Local local, Remote remote,
                          u32 bytes, Flags = {}, Timeout = {});

}  // namespace wv

#include "warpverbs/impl/get.h"
