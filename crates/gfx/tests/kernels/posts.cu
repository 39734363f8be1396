// The posting protocol, for the emulator's lazy mode. Blocks post WRITEs of a word each, wait for them, and look at
// what has landed. One more block is a NIC that executes them, and reads memory past all caches; and one brings old copies of
// words into caches. Each adds to wrong[0] when it sees what must not be.
#include "warpverbs/warpverbs.h"

using namespace wv;

constexpr u32 apart = 16, qpn = 0x123456, log_depth = 7;

WV_DEVICE void complain(u64* wrong) { (void)fetch_add<order::relaxed, scope::system>(wrong, 1); }

// Cached memory holds what only kernels write: the queue, its state, payload. The rest a NIC writes, or the host.
WV_KERNEL(prepare)(Qp* qp, u64 cached, u64 uncached) {
  Qp made{};
  made.sq = cached;
  made.state = cached + 0x2000;
  made.sq_ready = cached + 0x2400;
  made.sq_span = cached + 0x2480;
  made.dbr = uncached;
  made.doorbell = uncached + 0x80;
  made.abort = uncached + 0x100;
  made.scratch = uncached + 0x400;
  made.send_cq.buf = uncached + 0x180;
  made.send_cq.dbr = uncached + 0x200;
  made.send_cq.mode = cq_mode::collapsed;
  made.timeout_ns = 20000000000;
  made.qpn = made.send_tag = qpn;
  made.log_sq = log_depth;
  made.inline_words = 4;
  *qp = made;
  reinterpret_cast<u64*>(made.send_cq.buf)[7] = 0xf0ull << 56;
}

WV_DEVICE u64 word_at(const u64* at) { return load<order::relaxed, scope::system>(at); }

// Executes `total` WRITEs. If none comes, or one is not what it should be, it has all waits end.
WV_D WV_NOINLINE void nic(const Qp* qp, const u64* landed, u64* wrong, u32 total) {
  u32 done = 0;
  WV_ROLLED for (u32 looks = 0; done < total && looks < 20000; ++looks) {
    const u32 next = bswap32(static_cast<u32>(word_at(reinterpret_cast<u64*>(qp->doorbell)))) >> 8;
    if (next <= done) {
      pause(32);
      continue;
    }
    looks = 0;
    WV_ROLLED for (; done < next; ++done) {
      const u64* wqe = reinterpret_cast<const u64*>(qp->sq + u64{done % (1u << log_depth)} * 64);
      const u32 control = bswap32(static_cast<u32>(word_at(wqe)));
      const u64 to = bswap64(word_at(wqe + 2)), from = bswap64(word_at(wqe + 5));
      const u64 place = (to - reinterpret_cast<u64>(landed)) / (8 * apart);
      if (control != (done << 8 | 8) || place >= total || word_at(reinterpret_cast<u64*>(from)) != place + 1) {
        complain(wrong);
        store<order::relaxed, scope::system>(reinterpret_cast<u32*>(qp->abort), 1);
        return;
      }
      store<order::relaxed, scope::system>(reinterpret_cast<u64*>(to), place + 1);
    }
    const u64 counter = (done - 1) & 0xffff;
    store<order::release, scope::system>(reinterpret_cast<u64*>(qp->send_cq.buf) + 7,
                                         (counter >> 8 | (counter & 0xff) << 8) << 32);
  }
  if (done < total) {
    complain(wrong);
    store<order::relaxed, scope::system>(reinterpret_cast<u32*>(qp->abort), 1);
  }
}

// Reads what may not have landed yet.
WV_D WV_NOINLINE void watch(const u64* landed, u64* wrong, u32 total) {
  u64 sum = 0;
  WV_ROLLED for (u32 looks = 0; looks < 100; ++looks) {
    WV_ROLLED for (u32 i = 0; i < total; ++i) sum += landed[i * apart];
    asm volatile("" ::: "memory");
  }
  if (sum == ~u64{0}) complain(wrong);
}

// The calls of the library inline more than this, most of which never runs; these are its steps. Lanes that post together
// write their WQEs side by side; a lane alone may ring before it says that its work is ready.
template <class Lanes>
WV_DEVICE Status post(const Qp& qp, const Lanes& lanes, const u64* from, u64* to) {
  const impl::SendQueue q(qp);
  const impl::Deadline deadline = impl::deadline_of(qp, Timeout{});
  impl::Reserved r{};
  if (lanes.leads()) r = impl::reserve(qp, q, lanes.count, 0, lanes.count == 1, Flags{}, deadline);
  const u64 base = lanes.from_leader(r.base), index = base + lanes.rank;
  (void)post_write(qp, index, Local{reinterpret_cast<u64>(from), 1}, Remote{reinterpret_cast<u64>(to), 2}, 8);
  impl::publish(q, lanes, base, lanes.count, r.token);
  return impl::await_send<false, false>(qp, index + 1, wait_for::completion, deadline).status;
}

// `times` WRITEs by each poster of a block. A poster has one word of `data` and of `landed` for each.
template <class Body>
WV_DEVICE void posters(const Qp* qp, u64* data, u64* landed, u64* wrong, u32 times, u32 each, u32 own, Body body) {
  const u32 blocks = grid_size() - 2, total = blocks * each * times;
  if (block_index() >= blocks) {
    if (thread_index() != 0) return;
    return block_index() == blocks ? nic(qp, landed, wrong, total) : watch(landed, wrong, total);
  }
  WV_ROLLED for (u32 i = 0; i < times; ++i) {
    const u32 place = (block_index() * each + own) * times + i;
    u64* const word = data + place * apart;
    u64* const target = landed + place * apart;
    // An old copy comes into caches.
    if (*target != 0) complain(wrong);
    if (!body(word, target, place + 1)) complain(wrong);
  }
}

// One lane of each block.
WV_KERNEL(post_alone)(const Qp* qp, u64* data, u64* landed, u64* wrong, u32 times) {
  posters(qp, data, landed, wrong, times, 1, 0, [&](u64* word, u64* target, u64 value) {
    *word = value;
    return post(*qp, impl::Alone{}, word, target).ok() && *target == value;
  });
}
// All lanes together, each a WQE.
WV_KERNEL(post_group)(const Qp* qp, u64* data, u64* landed, u64* wrong, u32 times) {
  posters(qp, data, landed, wrong, times, block_size(), thread_index(), [&](u64* word, u64* target, u64 value) {
    *word = value;
    return post(*qp, impl::Group(whole_warp()), word, target).ok() && *target == value;
  });
}
// The first wave posts what the last one has written, and that one looks at what has landed.
WV_KERNEL(post_for_block)(const Qp* qp, u64* data, u64* landed, u64* wrong, u32 times) {
  const u32 thread = thread_index(), last = block_size() - 1;
  posters(qp, data, landed, wrong, times, 1, 0, [&](u64* word, u64* target, u64 value) {
    if (thread == last) *word = value;
    sync_block();
    bool right = true;
    if (thread == 0) right = post(*qp, impl::Alone{}, word, target).ok();
    sync_block();
    if (thread == last) right = *target == value;
    return right;
  });
}
