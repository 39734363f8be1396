// One kernel for each kind of transfer. Each leaves the first bad wv::Status in *status.
#include "warpverbs/warpverbs.h"

using namespace wv;

// Byte i of the test pattern: no two aligned words within 64 KiB are equal.
WV_D u8 pattern(u32 seed, u64 i) {
  u64 x = (i >> 3) + (u64{seed} << 32) + 0x9e3779b97f4a7c15ull;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return static_cast<u8>((x ^ x >> 31) >> (8 * (i & 7)));
}

// Bytes of the test pattern of `seed`.
WV_SAFE_KERNEL(fill)(u8* data WV_COUNT(bytes), u64 bytes, u32 seed) {
  const u64 threads = u64{grid_size()} * block_size();
  for (u64 i = global_thread(); i < bytes; i += threads) data[i] = pattern(seed, i);
}

// Adds to wrong[0] how many bytes are not those of the test pattern.
WV_SAFE_KERNEL(check)(const u8* data WV_COUNT(bytes), u64 bytes, u32 seed,
                      u64* wrong WV_COUNT(1)) {
  const u64 threads = u64{grid_size()} * block_size();
  u64 count = 0;
  for (u64 i = global_thread(); i < bytes; i += threads) count += data[i] != pattern(seed, i);
  if (count != 0) (void)fetch_add<order::relaxed, scope::gpu>(wrong, count);
}

// Every thread writes its own `bytes` from `from` to `to` with one WRITE, and waits for it.
WV_SAFE_KERNEL(write)(const Qp* qp, Local from, Remote to, u32 bytes, Status* status WV_COUNT(1)) {
  const u64 offset = global_thread() * bytes;
  from.addr += offset;
  to.addr += offset;
  const Posted posted = put(thread, *qp, from, to, bytes);
  keep_first(status, wait(thread, *qp, posted));
}

// The same with the bytes inside the WQE: `source` need not be registered. bytes: at most
// 4 * inline_words.
WV_SAFE_KERNEL(write_inline)(const Qp* qp, const u8* source WV_COUNT(bytes * grid_threads),
                             Remote to, u32 bytes, Status* status WV_COUNT(1)) {
  const u64 offset = global_thread() * bytes;
  to.addr += offset;
  const Posted posted = put_inline(thread, *qp, source + offset, to, bytes);
  keep_first(status, wait(thread, *qp, posted));
}

// Every thread reads its own `bytes` from `from` into `to` with one READ, and waits for it.
WV_SAFE_KERNEL(read)(const Qp* qp, Local to, Remote from, u32 bytes, Status* status WV_COUNT(1)) {
  const u64 offset = global_thread() * bytes;
  to.addr += offset;
  from.addr += offset;
  const Posted posted = get(thread, *qp, to, from, bytes);
  keep_first(status, wait(thread, *qp, posted));
}

// Every thread adds 1 to the u64 at `at` and leaves what it was in olds[thread]. Thread 0 then
// swaps the u64 behind it from `expected` to `desired` and leaves what it was in
// olds[number of threads].
WV_SAFE_KERNEL(atomic)(const Qp* qp, Remote at, u64 expected, u64 desired,
                       u64* olds WV_COUNT(grid_threads + 1), Status* status WV_COUNT(1)) {
  u64 old = 0;
  keep_first(status, fetch_add(thread, *qp, at, u64{1}, old));
  olds[global_thread()] = old;
  if (global_thread() != 0) return;
  keep_first(status, compare_swap(thread, *qp, Remote{at.addr + 8, at.rkey}, expected, desired, old));
  olds[u64{grid_size()} * block_size()] = old;
}

// Thread 0 of the first block offers a receive at the queue pair `to` and then writes from `local`
// to `remote` with an immediate by the queue pair `from`. received: bytes, immediate, CQE opcode.
WV_SAFE_KERNEL(write_imm)(const Qp* from, const Qp* to, Local local, Remote remote, u32 bytes,
                          u32 imm, u32* received WV_COUNT(3), Status* status WV_COUNT(1)) {
  if (global_thread() != 0) return;
  // The receive is only counted, never written to: the bytes go where the WRITE says.
  Status result = receive(thread, *to, Local{0, 0}, 0).status;
  Received arrived{};
  if (result.ok()) {
    const Posted posted = put_imm(thread, *from, local, remote, bytes, imm);
    result = wait(thread, *from, posted);
  }
  if (result.ok()) result = wait_recv(thread, *to, arrived);
  received[0] = arrived.bytes;
  received[1] = arrived.imm;
  received[2] = arrived.opcode;
  keep_first(status, result);
}

// Length of piece i of `bytes` in pieces of `piece`.
WV_D u32 piece_bytes(u64 bytes, u32 piece, u64 i) {
  const u64 left = bytes - i * piece;
  return static_cast<u32>(left < piece ? left : piece);
}

// Sends `bytes` from `from` on in pieces, in order, and waits for the last.
WV_D Status send_pieces(const Qp& qp, Local from, u64 bytes, u32 piece, u64 pieces) {
  for (u64 i = 0; i < pieces; ++i) {
    const Local at{from.addr + i * piece, from.lkey};
    const Posted posted = send(thread, qp, at, piece_bytes(bytes, piece, i));
    if (!posted.ok()) return posted.status;
  }
  return quiet(thread, qp);
}

// Offers a receive for each piece, `window` ahead, and takes them as they come. `wrong` becomes
// the number of pieces whose length is not what was sent.
WV_D Status receive_pieces(const Qp& qp, Local to, u64 bytes, u32 piece, u64 pieces, u32 window,
                           u64& wrong) {
  u64 offered = 0;
  for (u64 taken = 0; taken < pieces; ++taken) {
    for (; offered < pieces && offered < taken + window; ++offered) {
      const Local at{to.addr + offered * piece, to.lkey};
      const Posted posted = receive(thread, qp, at, piece_bytes(bytes, piece, offered));
      if (!posted.ok()) return posted.status;
    }
    Received received;
    const Status status = wait_recv(thread, qp, received);
    if (!status.ok()) return status;
    wrong += received.bytes != piece_bytes(bytes, piece, taken);
  }
  return Status{};
}

// Carries `bytes` from `source` to `target` in messages of `piece` bytes, one warp sending by the
// queue pair `from`, one receiving by `to`, at most `window` receives open. One block of two warps
// or more.
// counts: messages sent, messages received, messages of the wrong length.
WV_SAFE_KERNEL(send_recv)(const Qp* from, const Qp* to, Local source, Local target, u64 bytes,
                          u32 piece, u32 window, u64* counts WV_COUNT(3),
                          Status* status WV_COUNT(1)) {
  const u64 pieces = piece == 0 ? 0 : (bytes + piece - 1) / piece;
  if (lane_id() != 0) return;
  if (warp_index() == 0) {
    const Status result = send_pieces(*from, source, bytes, piece, pieces);
    counts[0] = result.ok() ? pieces : 0;
    keep_first(status, result);
  } else if (warp_index() == 1) {
    u64 wrong = 0;
    const Status result =
        receive_pieces(*to, target, bytes, piece, pieces, window, wrong);
    counts[1] = result.ok() ? pieces : 0;
    counts[2] = wrong;
    keep_first(status, result);
  }
}
