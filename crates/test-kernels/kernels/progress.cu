// Queues after unusual waits. Each kernel is run by one warp on a pair of connected queue
// pairs of one device; `cell` is remote memory that the kernel also sees.
#include "warpverbs/warpverbs.h"

namespace impl = wv::impl;
using wv::Local, wv::Posted, wv::Qp, wv::Remote, wv::Status, wv::u32, wv::u64;

namespace {

struct Cells {
  Local local;
  Remote remote;
  u64* cell;

  WV_DEVICE Posted put(const Qp& qp) const {
    return wv::put(wv::thread, qp, local, remote, 8);
  }
  // Posts, and returns when the NIC has executed it and has had time to report it.
  WV_DEVICE Posted put_and_stay(const Qp& qp, u64 value) const {
    const Posted posted = wv::put_value(wv::thread, qp, value, remote);
    for (u32 turn = 0; turn < 100000 && wv::read_signal(cell) != value; ++turn) wv::pause(100);
    for (u32 turn = 0; turn < 100; ++turn) wv::pause(1000);
    return posted;
  }
};

WV_DEVICE u64 completed(const Qp& qp) {
  return impl::load_poll_word(&impl::state_of(qp)->sq).completed();
}

}  // namespace

// Waits for work whose index is 2^16 behind the newest, when the newest completion has been read
// (`read` 1) or is still in the CQ. out[0]: status of that wait; [1]: whether the newest is done
// after a wait for it; [2]: how far `completed` is from the newest's end; [3]: status of one more put
// and its wait; [4]: the distance of the two indexes.
WV_SAFE_KERNEL(wait_again)(const Qp* qp, Local local, Remote remote, u64* cell WV_COUNT(1), u32 read,
                           u64* out WV_COUNT(5)) {
  const Cells cells{local, remote, cell};
  const Posted first = wv::put_each(wv::warp, *qp, local, remote, 8);
  for (u32 i = 1; i < 2048; ++i) {
    (void)wv::put_each(wv::warp, *qp, local, remote, 8);
  }
  (void)wv::quiet(wv::warp, *qp);
  if (wv::lane_id() != 0) return;
  const Posted last = cells.put_and_stay(*qp, ~u64{0});
  if (read != 0) (void)wv::wait(wv::thread, *qp, last);
  out[0] = wv::wait(wv::thread, *qp, first).code;
  out[2] = last.end() - completed(*qp);
  const Status newest = read != 0 ? Status{} : wv::wait(wv::thread, *qp, last);
  out[1] = newest.ok() && wv::done(*qp, last) ? 1 : 0;
  if (read == 0) out[2] = last.end() - completed(*qp);
  out[3] = wv::wait(wv::thread, *qp, cells.put(*qp)).code;
  out[4] = last.index - first.index;
}

// A poller sees a completion before it sees `published`, as it may when the NIC goes by the record.
// out[0]: status of a short wait then; [1]: `completed` after it; [2]: status of a wait when
// `published` is there; [3]: `completed` after that.
WV_SAFE_KERNEL(seen_early)(const Qp* qp, Local local, Remote remote, u64* cell WV_COUNT(1),
                           u64* out WV_COUNT(4)) {
  const Cells cells{local, remote, cell};
  const Posted posted = cells.put_and_stay(*qp, 1);
  wv::QueueState* q = &impl::state_of(*qp)->sq;
  wv::store<wv::order::relaxed, wv::scope::gpu>(&q->published, posted.index);
  out[0] = wv::poll_cq(*qp, posted, wv::within_us(200)).code;
  out[1] = completed(*qp);
  wv::store<wv::order::relaxed, wv::scope::gpu>(&q->published, posted.end());
  out[2] = wv::poll_cq(*qp, posted).code;
  out[3] = completed(*qp);
}

// The CQ holds a completion of work that has been counted already, as after a NIC that reports one
// twice. out[0]: status of a wait for later work.
WV_SAFE_KERNEL(reported_twice)(const Qp* qp, Local local, Remote remote, u64* cell WV_COUNT(1),
                               u64* out WV_COUNT(1)) {
  const Cells cells{local, remote, cell};
  const Posted posted = cells.put_and_stay(*qp, 1);
  wv::QueueState* q = &impl::state_of(*qp)->sq;
  wv::store<wv::order::relaxed, wv::scope::gpu>(&q->poll,
                                                wv::PollWord::of(posted.end(), false).raw);
  out[0] = wv::poll_cq(*qp, cells.put_and_stay(*qp, 2)).code;
}

// `to` gets two messages, then fails by a WRITE under a key that is none. out[0], [1]: the first two
// messages; [2]: what is after them; [3]: their immediates, added.
WV_SAFE_KERNEL(arrived_before)(const Qp* from, const Qp* to, Local source, Local target,
                               u32 bad_rkey, u64* out WV_COUNT(5)) {
  for (u32 i = 0; i < 4; ++i) (void)wv::receive(wv::thread, *to, target, 8);
  for (u32 i = 1; i <= 2; ++i) {
    const Posted sent = wv::send_imm(wv::thread, *from, source, 8, i);
    (void)wv::wait(wv::thread, *from, sent);
  }
  const Posted bad = wv::put(wv::thread, *to, source, Remote{target.addr, bad_rkey}, 8);
  out[4] = wv::wait(wv::thread, *to, bad).ok() ? 1 : 0;
  out[3] = 0;
  for (u32 i = 0; i < 3; ++i) {
    wv::Received received{};
    out[i] = wv::wait_recv(wv::thread, *to, received).code;
    out[3] += received.imm;
  }
}
