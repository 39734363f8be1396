// The names of cuda_bulk.h for devices without such copies. Never called.
#pragma once

namespace wv {

constexpr bool bulk_copies = false;

WV_DEVICE void bulk_open(u64*) {}
WV_DEVICE void bulk_close(u64*) {}
WV_DEVICE void bulk_fence() {}
WV_DEVICE void bulk_load(void*, const void*, u32, u64*) {}
WV_DEVICE void bulk_await(u64*, u32) {}
WV_DEVICE void bulk_store(void*, const void*, u32) {}
template <u32 Left>
WV_DEVICE void bulk_read() {}
WV_DEVICE void bulk_drain() {}

}  // namespace wv
