// Litmus test of views: two agents are blocks of one launch, so that a seed may interleave them in any
// way. wrong[0] counts words that were not what an agent must see.
#include "members.h"
#include "warpverbs/nixl.h"

using namespace wv;

WV_DEVICE u64 word_of(u32 round, u64 i) { return (u64{round} << 40) ^ (i * 0x9e3779b97f4a7c15ull); }

// Entry 0 of all views: `words` u64 as target, as many as source. Entry 1: the counter.
struct Side {
  const LocalView* own;
  const RemoteView* peer;
};

// Not inlined: with copies of three groups twice over, the kernel would spill registers.
template <class Coop>
WV_D WV_NOINLINE Status put_half(Coop coop, Side side, u64 from, u64 bytes, Flags flags) {
  return put(coop, LocalAt{side.own, 0, from}, RemoteAt{side.peer, 0, 0}, bytes,
             on_channel(3, flags))
      .status;
}

// Message passing, `rounds` times. Block 0 fills its source, puts half of it, without ringing if
// `defer`, then the other half with the counter, and waits for the answer. Block 1 waits for the
// counter, looks at all of it, and answers by an add.
WV_SAFE_KERNEL(nixl_message)(const LocalView* own_a, const RemoteView* b_from_a,
                             const LocalView* own_b, const RemoteView* a_from_b, u32 group,
                             u32 words, u32 rounds, u32 defer, u64* wrong WV_COUNT(1),
                             Status* status WV_COUNT(1)) {
  if (block_index() > 1) return;
  const bool sends = block_index() == 0;
  const Side side = sends ? Side{own_a, b_from_a} : Side{own_b, a_from_b};
  const LocalEntry& entry = reinterpret_cast<const LocalEntry*>(side.own->entries)[0];
  if (entry.bytes < u64{words} * 16) return;
  u64* target = reinterpret_cast<u64*>(entry.addr);
  const u64 half = u64{words / 2} * 8, all = u64{words} * 8;
  const LocalAt own_counter{side.own, 1, 0};
  const RemoteAt counter{side.peer, 1, 0};
  by_members(group, [&](const auto& coop) {
    Status result;
    for (u32 round = 1; round <= rounds && result.ok(); ++round) {
      if (sends) {
        for (u64 i = coop.thread_rank(); i < words; i += coop.size()) {
          store<order::relaxed, scope::gpu>(target + words + i, word_of(round, i));
        }
        const Flags flags = defer != 0 ? unsignalled | deferred : unsignalled;
        result = put_half(coop, side, all, half, flags);
        if (result.ok()) {
          result = put_signal(coop, LocalAt{side.own, 0, all + half}, RemoteAt{side.peer, 0, half},
                              all - half, counter, 1, on_channel(3))
                       .status;
        }
        if (result.ok()) result = wait_signal(coop, own_counter, compare::ge, round);
      } else {
        result = wait_signal(coop, own_counter, compare::ge, round);
        for (u64 i = coop.thread_rank(); i < words && result.ok(); i += coop.size()) {
          if (load<order::relaxed, scope::gpu>(target + i) != word_of(round, i)) {
            (void)fetch_add<order::relaxed, scope::gpu>(wrong, 1);
          }
        }
        // Everybody has looked before the answer lets the sender go on.
        if (result.ok()) result = atomic_add(coop, 1, counter, on_channel(1)).status;
      }
    }
    keep_first(status, result);
  });
}
