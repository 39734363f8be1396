// Many lanes on one queue pair, every operation and scope, with effects that can be counted
// afterwards. Each thread has a cell of its own on either side and leaves in its Tally what the
// remote cell must hold. status[thread]: how its work ended.
#include "warpverbs/warpverbs.h"

using namespace wv;

constexpr u32 cell_bytes = 512;

// The contents of a remote cell at the end. The host compares field by field.
struct Cell {
  u64 adds;      // u64 fetch-and-adds
  u64 signals;   // SignalAdd of put_signal
  u64 last;      // value of the newest put_value
  u64 swapped;   // masked compare-and-swap
  u32 adds4;     // u32 fetch-and-adds
  u32 reserved;
  u64 words[12];  // written by put and put_signal
  u8 bytes[96];   // written by put_inline
};
static_assert(sizeof(Cell) <= cell_bytes, "one cell");

struct Random {
  u64 state;
  WV_DEVICE u32 next(u32 below) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<u32>(state >> 33) % below;
  }
};

// One queue pair and the caller's cells.
struct Place {
  const Qp& qp;
  Local local;
  Remote remote;
  Cell* mine;    // the local cell, as this thread reaches it
  Cell* expect;  // what the remote cell must hold

  WV_DEVICE Local from(u64 offset) const { return {local.addr + offset, local.lkey}; }
  WV_DEVICE Remote to(u64 offset) const { return {remote.addr + offset, remote.rkey}; }
};

constexpr u64 at_words = 40;
constexpr u64 at_bytes = 136;
static_assert(WV_OFFSETOF(Cell, words) == at_words, "Cell");
static_assert(WV_OFFSETOF(Cell, bytes) == at_bytes, "Cell");

// The source may change under a put of an earlier round; the put of this round is behind that one
// and carries the new value.
WV_D Status put_word(const Place& p, u32 round, u64 value, Flags flags) {
  const u32 slot = round % 12;
  p.mine->words[slot] = value;
  p.expect->words[slot] = value;
  const u64 offset = at_words + 8 * slot;
  return put(thread, p.qp, p.from(offset), p.to(offset), 8, flags).status;
}

WV_D Status put_words_and_signal(const Place& p, Flags flags) {
  p.expect->signals += 3;
  return put_signal(thread, p.qp, p.from(at_words), p.to(at_words), 8, p.to(8), SignalAdd{3}, flags)
      .status;
}

WV_D Status put_bytes(const Place& p, Random& random, Flags flags) {
  const u32 most = p.qp.inline_words * 4 < 96 ? p.qp.inline_words * 4 : 96;
  const u32 length = 1 + random.next(most);
  u8 bytes[96];
  for (u32 i = 0; i < length; ++i) {
    bytes[i] = static_cast<u8>(random.next(256));
    p.expect->bytes[i] = bytes[i];
  }
  return put_inline(thread, p.qp, bytes, p.to(at_bytes), length, flags).status;
}

template <class Nic, class Operands>
WV_D Status swap_by(const QpOf<Nic>& qp, const Place& p, Operands step, Flags flags) {
  // Lanes in lockstep must not post by verbs on one queue pair.
  if (lockstep()) {
    return impl::post(thread, qp, Nic::atomic(p.from(24), p.to(24), step), flags, {}).status;
  }
  const Posted posted = post_atomic(qp, p.from(24), p.to(24), step, flags);
  ring_doorbell(qp, posted);
  return posted.status;
}

// From what it holds to one more, by a mask of all bits where the NIC has masks.
template <class Nic>
WV_D Status swap_word(const QpOf<Nic>& qp, const Place& p, Flags flags) {
  const u64 now = p.expect->swapped, next = now + 1;
  p.expect->swapped = next;
  if constexpr (Nic::masked_atomics) {
    return swap_by(qp, p, MaskedCompareSwap<u64>{now, ~u64{0}, next, ~u64{0}}, flags);
  } else {
    return swap_by(qp, p, CompareSwap{now, next}, flags);
  }
}

WV_D Status fetch_both(const Place& p) {
  u64 old = 0;
  Status status = fetch_add(thread, p.qp, p.to(0), u64{1}, old);
  if (status.ok() && old != p.expect->adds) status = Status::of(outcome::bad_error);
  p.expect->adds += 1;
  if (!WV_NIC::Nic::masked_atomics) return status;
  u32 old4 = 0;
  if (status.ok()) status = fetch_add(thread, p.qp, p.to(32), u32{7}, old4);
  if (status.ok() && old4 != p.expect->adds4) status = Status::of(outcome::bad_error);
  p.expect->adds4 += 7;
  return status;
}

WV_D Status step(const Place& p, Random& random, u32 round) {
  const Flags flags = random.next(3) == 0 ? Flags{} : unsignalled;
  switch (random.next(8)) {
    case 0: return put_word(p, round, random.state, flags);
    case 1: return put_words_and_signal(p, flags);
    case 2: return put_bytes(p, random, flags);
    case 3: return swap_word(p.qp, p, flags);
    case 4: return random.next(4) == 0 ? fetch_both(p) : Status{};
    case 5:
      p.expect->adds += 5;
      return add(thread, p.qp, p.to(0), u64{5}, flags).status;
    case 6:
      p.expect->last = random.state;
      return put_value(thread, p.qp, random.state, p.to(16), flags).status;
    default: return random.next(4) == 0 ? quiet(thread, p.qp) : Status{};
  }
}

// Every thread does `rounds` operations of all kinds by chance, signalled or not, on its own cells,
// and then waits for everything.
WV_SAFE_KERNEL(mixed)(const Qp* qp, u64* mine WV_COUNT(64 * grid_threads), Local from, Remote to,
                      u64* expect WV_COUNT(64 * grid_threads), u32 rounds, u64 seed,
                      Status* status WV_COUNT(grid_threads)) {
  const u64 at = global_thread() * cell_bytes;
  const Place place{*qp,
                    Local{from.addr + at, from.lkey},
                    Remote{to.addr + at, to.rkey},
                    reinterpret_cast<Cell*>(mine + at / 8),
                    reinterpret_cast<Cell*>(expect + at / 8)};
  Random random{seed ^ (global_thread() + 1) * 0x9e3779b97f4a7c15ull};
  Status result;
  for (u32 round = 0; round < rounds && result.ok(); ++round) {
    result = step(place, random, round);
  }
  if (result.ok()) result = quiet(thread, *qp);
  status[global_thread()] = result;
}

enum class Scope : u32 { thread, warp, block, each_of_warp, each_of_block, verbs, no_wait };

template <class Coop>
WV_DEVICE Status put_and_count(const Coop& coop, const Qp& qp, Local local, Remote remote,
                               u32 bytes, Remote counter) {
  const Posted posted = put(coop, qp, local, remote, bytes, unsignalled);
  return posted.ok() ? add(coop, qp, counter, u64{1}, unsignalled).status : posted.status;
}

WV_DEVICE Status put_by_verbs(const Qp& qp, Local local, Remote remote, u32 bytes,
                              Remote counter) {
  const Posted write = post_write(qp, local, remote, bytes);
  ring_doorbell(qp, write);
  if (!write.ok()) return write.status;
  const Local sink{qp.scratch + u64{scratch_slots} * 8, qp.scratch_lkey};
  const Posted atomic = post_atomic(qp, sink, counter, FetchAdd{1}, unsignalled);
  ring_doorbell(qp, atomic);
  return atomic.status;
}

// As put_and_count, asking again until there is room.
WV_DEVICE Status put_patiently(const Qp& qp, Local local, Remote remote, u32 bytes,
                               Remote counter) {
  Posted posted;
  do {
    posted = put(thread, qp, local, remote, bytes, no_wait);
    if (posted.status.kind() == outcome::no_room) pause(100);
  } while (posted.status.kind() == outcome::no_room);
  return posted.ok() ? add(thread, qp, counter, u64{1}).status : posted.status;
}

// Every thread, or in the scopes warp and block every warp or block, moves `bytes` at its own
// place `rounds` times and adds 1 to its own u64 at `counter` for each, itself or through its group.
WV_SAFE_KERNEL(scoped)(const Qp* qp, Local from, Remote to, Remote counter, u32 bytes, u32 rounds,
                       u32 how, Status* status WV_COUNT(grid_threads)) {
  const u64 me = global_thread();
  const u32 warps_per_block = (block_size() + warp_size - 1) / warp_size;
  const u64 group = static_cast<Scope>(how) == Scope::warp
                        ? u64{block_index()} * warps_per_block + warp_index()
                    : static_cast<Scope>(how) == Scope::block ? block_index()
                                                              : me;
  from.addr += group * bytes;
  to.addr += group * bytes;
  counter.addr += group * 8;
  Status result;
  for (u32 i = 0; i < rounds; ++i) {
    Status now;
    switch (static_cast<Scope>(how)) {
      case Scope::thread: now = put_and_count(thread, *qp, from, to, bytes, counter); break;
      case Scope::warp: now = put_and_count(warp, *qp, from, to, bytes, counter); break;
      case Scope::block: now = put_and_count(block, *qp, from, to, bytes, counter); break;
      case Scope::each_of_warp:
        now = put_each(warp, *qp, from, to, bytes).status;
        if (now.ok()) now = add(thread, *qp, counter, u64{1}).status;
        break;
      case Scope::each_of_block:
        now = put_each(block, *qp, from, to, bytes, unsignalled).status;
        if (now.ok()) now = add(thread, *qp, counter, u64{1}, unsignalled).status;
        break;
      case Scope::verbs: now = put_by_verbs(*qp, from, to, bytes, counter); break;
      case Scope::no_wait: now = put_patiently(*qp, from, to, bytes, counter); break;
    }
    if (result.ok()) result = now;
  }
  if (result.ok()) result = quiet(thread, *qp);
  status[me] = result;
}

// Every thread writes 1, 2 … rounds into its own u64 at `cells`, one put_value each, and signals
// once at `counter` after the last. In order, and once each, is how the host finds them.
WV_SAFE_KERNEL(ordered)(const Qp* qp, Remote cells, Remote counter, u32 rounds,
                        Status* status WV_COUNT(grid_threads)) {
  const Remote cell{cells.addr + global_thread() * 8, cells.rkey};
  Status result;
  for (u32 i = 1; i <= rounds && result.ok(); ++i) {
    result = put_value(thread, *qp, u64{i}, cell, i % 5 == 0 ? Flags{} : unsignalled).status;
  }
  if (result.ok()) result = signal(thread, *qp, counter, SignalAdd{1}).status;
  if (result.ok()) result = flush(thread, *qp);
  status[global_thread()] = result;
}

// Every thread of the first half of the grid offers `rounds` receives of 8 bytes at the queue pair
// `to` and takes as many; every thread of the second half sends as many by `from`. sums[0]: of the
// immediates that came.
WV_SAFE_KERNEL(messages)(const Qp* from, const Qp* to, Local source, Local target, u32 rounds,
                         u64* sums WV_COUNT(1), Status* status WV_COUNT(grid_threads)) {
  const u64 half = u64{grid_size()} * block_size() / 2;
  const u64 me = global_thread();
  Status result;
  if (me < half) {
    for (u32 i = 0; i < rounds && result.ok(); ++i) {
      result = receive(thread, *to, Local{target.addr + (me * rounds + i) * 8, target.lkey}, 8).status;
      Received received{};
      if (result.ok()) result = wait_recv(thread, *to, received);
      if (result.ok() && (received.bytes != 8 || !received.has_imm())) {
        result = Status::of(outcome::bad_error);
      }
      (void)fetch_add<order::relaxed, scope::gpu>(sums, u64{received.imm});
    }
  } else {
    for (u32 i = 0; i < rounds && result.ok(); ++i) {
      const u64 n = (me - half) * rounds + i;
      const Local piece{source.addr + n * 8, source.lkey};
      result = send_imm(thread, *from, piece, 8, static_cast<u32>(n + 1),
                        i % 3 == 0 ? Flags{} : unsignalled)
                   .status;
    }
    if (result.ok()) result = quiet(thread, *from);
  }
  status[me] = result;
}
