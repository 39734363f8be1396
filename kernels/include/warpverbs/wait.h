// Completion: done, wait, quiet, flush.
//
// One thread at a time looks at a queue pair's completions, the others watch its result in GPU
// memory, so any number may wait at once. Every wait ends by the deadline: with timeout, and
// PostState.fault says who waited for what. Once the queue pair has failed, all of them return the
// first cause.
#pragma once

#include "warpverbs/coop.h"
#include "warpverbs/qp.h"
#include "warpverbs/status.h"

namespace wv {

// Whether the work is done, as far as is known without looking at the completion queue.
template <class Nic>
WV_DEVICE bool done(const QpOf<Nic>& qp, Posted posted);

// Waits until `posted` and everything posted before it is done: written bytes are in remote
// memory, read ones in local memory, old values of atomics stored. Returns posted.status at once
// if nothing was posted. Every member of `coop` passes a Posted of its own or the common one, and
// gets the status of that.
template <class Coop, class Nic>
WV_DEVICE Status wait(const Coop& coop, const QpOf<Nic>& qp, Posted posted, Timeout = {});

// Waits until everything is done that was posted to the queue pair before the call, by anybody
// whose posting happens before it. Work that others post meanwhile is not waited for.
template <class Coop, class Nic>
WV_DEVICE Status quiet(const Coop& coop, const QpOf<Nic>& qp, Timeout = {});

// quiet behind a fence of its own: also holds for work posted elsewhere in the same moment, and
// the NIC starts nothing behind it before every READ and atomic has come back. Costs one WQE.
template <class Coop, class Nic>
WV_DEVICE Status flush(const Coop& coop, const QpOf<Nic>& qp, Timeout = {});

}  // namespace wv

#include "warpverbs/impl/complete.h"
