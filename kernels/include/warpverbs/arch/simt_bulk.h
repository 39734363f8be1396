// The names of cuda_bulk.h for host SIMT: copies are done at once, in words of 8 bytes, and a wait
// for a load that was not made ends the launch.
#pragma once

namespace wv {

constexpr bool bulk_copies = true;

// *landed: loads so far.
inline void bulk_open(u64* landed) { *landed = 0; }
inline void bulk_close(u64* landed) { *landed = ~u64{0}; }
inline void bulk_fence() {}

namespace host {
inline void bulk_copy(void* to, const void* from, u32 bytes, site where) {
  const u64 bits = reinterpret_cast<u64>(to) | reinterpret_cast<u64>(from) | bytes;
  if (bits % 16 != 0 || bytes == 0) host::trap(where);
  for (u32 i = 0; i < bytes / 8; ++i) {
    const u64 word = load<order::relaxed, scope::system>(static_cast<const u64*>(from) + i, where);
    store<order::relaxed, scope::system>(static_cast<u64*>(to) + i, word, where);
  }
}
}  // namespace host

inline void bulk_load(void* shared, const void* global, u32 bytes, u64* landed,
                      site where = site::here()) {
  host::bulk_copy(shared, global, bytes, where);
  *landed += 1;
}
inline void bulk_await(u64* landed, u32 parity, site where = site::here()) {
  if (*landed == 0 || (*landed - 1) % 2 != parity) host::trap(where);
}
inline void bulk_store(void* global, const void* shared, u32 bytes, site where = site::here()) {
  host::bulk_copy(global, shared, bytes, where);
}
template <u32 Left>
inline void bulk_read() {}
inline void bulk_drain() {}

// The launch's dynamic shared memory.
inline u8* dynamic_shared(u32 bytes) {
  static const char key{};
  return static_cast<u8*>(wv_simt_shared(bytes, 128, &key));
}

}  // namespace wv
