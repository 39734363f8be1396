// Byte order. Every field the NIC reads or writes is big-endian; posters are little-endian.
#pragma once

#include "warpverbs/arch/bytes.h"

namespace wv {
namespace mlx5 {

using wv::bswap16;
using wv::bswap32;
using wv::bswap64;
using wv::hi32;
using wv::lo32;
using wv::Seg;

}  // namespace mlx5
}  // namespace wv
