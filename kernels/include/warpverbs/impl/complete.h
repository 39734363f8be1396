// Bodies of wait.h.
#pragma once

#include "warpverbs/impl/post.h"
#include "warpverbs/wait.h"

namespace wv {
namespace impl {

// A signalled NOP: the CQE that work without one of its own completes with. Rare beside waiting.
template <class Nic>
WV_DEVICE Posted post_tail(const QpOf<Nic>& qp, Flags flags, Deadline deadline) {
  return post_fitting(qp, Alone{}, Nop{}, flags, deadline);
}

// Waits until everything below `upto` is done; posts a signalled WQE where no CQE would report it.
template <class Nic>
WV_DEVICE Status complete(const QpOf<Nic>& qp, u64 upto, Deadline deadline,
                          Expected expected = {}) {
  for (;;) {
    const Waited waited =
        await_send<true, true>(qp, upto, wait_for::completion, deadline, expected);
    if (!waited.needs_tail) return waited.status;
    const Posted tail = post_tail(qp, Flags{}, deadline);
    if (!tail.ok()) return tail.status;
  }
}

// Runs `body` on one thread for all of `coop`; its acquires hold for everybody afterwards.
template <class Coop, class Body>
WV_DEVICE Status once(const Coop& coop, Body body) {
  Status status;
  if (coop.thread_rank() == 0) status = body();
  // `any` orders memory as a sync does; a block pays one barrier unless the call failed.
  return coop.any(!status.ok()) ? coop.broadcast(status) : Status{};
}

}  // namespace impl

template <class Nic>
WV_DEVICE bool done(const QpOf<Nic>& qp, Posted posted) {
  if (!posted.ok()) return false;
  return impl::load_poll_word(&impl::state_of(qp)->sq).completed() >= posted.end();
}

template <class Coop, class Nic>
WV_DEVICE Status wait(const Coop& coop, const QpOf<Nic>& qp, Posted posted, Timeout timeout) {
  const impl::Deadline deadline = impl::deadline_of(qp, timeout);
  // Of work that was posted together the last member's is done last: that member waits, and the
  // others usually find theirs done. Each still makes sure of its own, which may be later work.
  if constexpr (!Coop::alone) {
    if (coop.thread_rank() == coop.size() - 1 && posted.ok()) {
      (void)impl::complete(qp, posted.end(), deadline);
    }
    coop.sync();
  }
  if (!posted.ok()) return posted.status;
  impl::Expected own;
  if (posted.wqebbs == 1) own.index = posted.index;
  return impl::complete(qp, posted.end(), deadline, own);
}

template <class Coop, class Nic>
WV_DEVICE Status quiet(const Coop& coop, const QpOf<Nic>& qp, Timeout timeout) {
  // The members' postings before the look at `reserved`.
  coop.sync();
  return impl::once(coop, [&] {
    const u64 upto = impl::next_index(qp);
    return impl::complete(qp, upto, impl::deadline_of(qp, timeout));
  });
}

template <class Coop, class Nic>
WV_DEVICE Status flush(const Coop& coop, const QpOf<Nic>& qp, Timeout timeout) {
  coop.sync();
  return impl::once(coop, [&] {
    const impl::Deadline deadline = impl::deadline_of(qp, timeout);
    const Posted last = impl::post_tail(qp, fenced, deadline);
    return last.ok() ? impl::complete(qp, last.end(), deadline) : last.status;
  });
}

}  // namespace wv
