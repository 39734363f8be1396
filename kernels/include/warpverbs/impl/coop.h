// Bodies of coop.h.
#pragma once

#include "warpverbs/coop.h"

namespace wv {
namespace impl {

template <class T>
struct Words {
  static_assert(sizeof(T) % 4 == 0 && sizeof(T) <= 64, "a few words");
  static constexpr u32 count = sizeof(T) / 4;
  u32 word[count];
};

}  // namespace impl

template <class T>
WV_DEVICE T Warp::broadcast(const T& value) const {
  auto words = __builtin_bit_cast(impl::Words<T>, value);
  for (u32& word : words.word) word = shfl(all_lanes(), word, 0);
  return __builtin_bit_cast(T, words);
}

template <class T>
WV_DEVICE T Block::broadcast(const T& value) const {
  WV_SHARED(impl::Words<T>, shared_value);
  if (thread_index() == 0) shared_value = __builtin_bit_cast(impl::Words<T>, value);
  sync_block();
  const impl::Words<T> result = shared_value;
  // The next broadcast must not overtake a slow reader of this one.
  sync_block();
  return __builtin_bit_cast(T, result);
}

}  // namespace wv
