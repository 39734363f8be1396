// Tests of barriers and mail on the symmetric heap: block b is the rank of members[b]. wrong[0]
// counts what a rank saw and should not have seen.
#include "members.h"
#include "warpverbs/barrier.h"
#include "warpverbs/mail.h"

using namespace wv;

WV_DEVICE void count_wrong(u64* wrong, bool is_wrong) {
  if (is_wrong) (void)fetch_add<order::relaxed, scope::gpu>(wrong, 1);
}

// In each round every member writes the round's number into a word of every other's heap, at
// `words` by the writer's rank; behind the barrier all of them must be there, and no later round than the
// next.
template <class Coop>
WV_DEVICE Status meet_rounds(const Coop& coop, const Heap& heap, const Team& team, u64 words,
                             u32 rounds, u32 light, u64* wrong) {
  Status status;
  for (u32 round = 1; round <= rounds && status.ok(); ++round) {
    for (u32 i = 0; i < team.size && status.ok(); ++i) {
      status = put_value(coop, heap, at_offset<u64>(heap, words) + heap.rank, u64{round},
                         team.first + i * team.stride);
    }
    if (status.ok()) {
      status = light != 0 ? sync(coop, heap, team) : barrier(coop, heap, team);
    }
    for (u32 i = coop.thread_rank(); i < team.size && status.ok(); i += coop.size()) {
      const u32 rank = team.first + i * team.stride;
      const u64 seen = load<order::relaxed, scope::gpu>(at_offset<u64>(heap, words) + rank);
      count_wrong(wrong, seen < round || seen > round + 1);
    }
    coop.sync();
  }
  return status;
}

// Members are ranks of a team of `size`. light: sync in place of barrier.
WV_SAFE_KERNEL(shm_barrier)(const Member* members WV_COUNT(grid_blocks), u32 group, u64 team_block,
                            u32 first, u32 stride, u32 size, u64 words, u32 rounds, u32 light,
                            u64* wrong WV_COUNT(1), Status* status WV_COUNT(1)) {
  const Heap& heap = *members[block_index()].heap;
  if (words % 8 != 0 || !in_heap(heap, at_offset<u8>(heap, words), u64{heap.world} * 8)) return;
  const Team team{team_block, first, stride, size, 0};
  by_members(group, [&](const auto& coop) {
    keep_first(status, meet_rounds(coop, heap, team, words, rounds, light, wrong));
  });
}

// One call by one rank of a team that the others may not come to.
WV_SAFE_KERNEL(shm_meet)(const Heap* heap, u64 team_block, u32 first, u32 stride, u32 size, u64 ns,
                         Status* status WV_COUNT(1)) {
  const Team team{team_block, first, stride, size, 0};
  keep_first(status, barrier(block, *heap, team, within_ns(ns)));
}

WV_DEVICE u8 letter(u64 message, u32 i) {
  return static_cast<u8>((message + 1) * 0x9e3779b97f4a7c15ull >> 17 ^ i * 0x85ebca6bu >> 11);
}
// 0 to `most` bytes.
WV_DEVICE u32 length(u64 message, u32 most) {
  return static_cast<u32>((message * 0xd1342543de82ef95ull >> 33) % (most + 1));
}

template <class Coop>
WV_DEVICE Status post_letters(const Coop& coop, const Heap& heap, Mail& mail, u8* desk, u32 count,
                              u64 skip) {
  (void)heap;
  Status status;
  for (u64 n = skip; n < skip + count && status.ok(); ++n) {
    const u32 bytes = length(n, mail.box.bytes);
    for (u32 i = coop.thread_rank(); i < bytes; i += coop.size()) {
      store<order::relaxed, scope::gpu>(desk + i, letter(n, i));
    }
    status = mail_send(coop, mail, desk, bytes);
    coop.sync();
  }
  return status;
}

template <class Coop>
WV_DEVICE Status read_letters(const Coop& coop, Mail& mail, u8* desk, u32 count, u64 skip, u32 look,
                              u64* wrong) {
  Status status;
  for (u64 n = skip; n < skip + count && status.ok(); ++n) {
    const u32 bytes = length(n, mail.box.bytes);
    // The byte behind the message stays.
    if (coop.thread_rank() == 0) store<order::relaxed, scope::gpu>(desk + bytes, u8{0x5a});
    coop.sync();
    if (look == 0) status = mail_recv(coop, mail, desk, bytes);
    else do status = mail_try_recv(coop, mail, desk, bytes);
    while (status.kind() == outcome::no_room);
    for (u32 i = coop.thread_rank(); i <= bytes && status.ok(); i += coop.size()) {
      const u8 expected = i == bytes ? u8{0x5a} : letter(n, i);
      count_wrong(wrong, load<order::relaxed, scope::gpu>(desk + i) != expected);
    }
    coop.sync();
  }
  return status;
}

// Rank `sender` sends `count` messages of all lengths up to `bytes` to rank `receiver`, which reads
// them, by mail_try_recv if look != 0; other members do nothing. `desk`: bytes + 8 of each heap,
// 8-byte aligned. skip: messages of earlier launches.
WV_SAFE_KERNEL(shm_letters)(const Member* members WV_COUNT(grid_blocks), u32 sender, u32 receiver,
                            u32 group, u64 box, u32 bytes, u32 log_slots, u32 log_period, u64 desk,
                            u32 count, u64 skip, u32 look, u64* wrong WV_COUNT(1),
                            Status* status WV_COUNT(1)) {
  const Heap& heap = *members[block_index()].heap;
  const bool sends = heap.rank == sender;
  u8* place = at_offset<u8>(heap, desk);
  if ((!sends && heap.rank != receiver) || desk % 8 != 0 ||
      !in_heap(heap, place, u64{bytes} + 8)) {
    return;
  }
  const Mailbox mailbox{box, bytes, static_cast<u8>(log_slots), static_cast<u8>(log_period), 0};
  // Inlined by force: a call would pass what is captured, and Mail, in local memory.
  by_members(group, [&](const auto& coop) __attribute__((always_inline)) {
    Mail mail = mail_open(coop, heap, mailbox, sends ? receiver : no_rank, sends ? no_rank : sender);
    const Status result = sends ? post_letters(coop, heap, mail, place, count, skip)
                                : read_letters(coop, mail, place, count, skip, look, wrong);
    keep_first(status, result.ok() ? mail_close(coop, mail) : result);
  });
}

// Values round a ring of all ranks: each adds its rank and passes on; rank 0 begins.
WV_SAFE_KERNEL(shm_round)(const Member* members WV_COUNT(grid_blocks), u32 group, u64 box,
                          u32 rounds, u64* wrong WV_COUNT(1), Status* status WV_COUNT(1)) {
  const Heap& heap = *members[block_index()].heap;
  const u32 world = heap.world, me = heap.rank;
  by_members(group, [&](const auto& coop) {
    Mail mail = mail_open(coop, heap, Mailbox{box, 8, 2, 4, 0}, (me + 1) % world,
                          (me + world - 1) % world);
    Status result = mail.status;
    u64 sum = 0;
    for (u32 round = 0; round < rounds && result.ok(); ++round) {
      if (me == 0) result = mail_send_value(coop, mail, sum);
      if (result.ok()) result = mail_recv_value(coop, mail, sum);
      sum += me;
      if (me != 0 && result.ok()) result = mail_send_value(coop, mail, sum);
    }
    const u64 all = u64{world} * (world - 1) / 2;
    if (me == 0 && result.ok()) count_wrong(wrong, sum != rounds * all);
    keep_first(status, result.ok() ? mail_close(coop, mail) : result);
  });
}

// Calls of a rank whose peer does nothing, up to 1000: 0 sends until that fails, 1 receives. `done`:
// calls that succeeded.
WV_SAFE_KERNEL(shm_lone_mail)(const Heap* heap, u32 receives, u64 box, u32 bytes, u32 log_slots,
                              u32 size, u32 peer, u64 ns, u64* done WV_COUNT(1),
                              Status* status WV_COUNT(1)) {
  const Mailbox mailbox{box, bytes, static_cast<u8>(log_slots), 30, 0};
  Mail mail = mail_open(block, *heap, mailbox, receives != 0 ? no_rank : peer,
                        receives != 0 ? peer : no_rank);
  Status result = mail.status;
  u8* own = at_offset<u8>(*heap, 0);
  u64 calls = 0;
  for (; calls < 1000; ++calls) {
    result = receives != 0 ? mail_recv(block, mail, own, size, within_ns(ns))
                           : mail_send(block, mail, own, size, within_ns(ns));
    if (!result.ok()) break;
  }
  if (thread_index() == 0) *done = calls;
  keep_first(status, result);
}
