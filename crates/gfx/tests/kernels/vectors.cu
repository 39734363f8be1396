// Operations whose results the host computes as well. Each thread has a row of inputs and a row of results.
#define KERNEL(name) extern "C" __attribute__((global)) void name
using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned;
using u64 = unsigned long long;
using i8 = signed char;
using i16 = short;
using i32 = int;
using i64 = long long;

static __attribute__((device)) u32 thread() {
  return __builtin_amdgcn_workgroup_id_x() * __builtin_amdgcn_workgroup_size_x() + __builtin_amdgcn_workitem_id_x();
}

// b is not 0.
KERNEL(integers)(const u64* in, u64* out) {
  const u64 a = in[3 * thread()], b = in[3 * thread() + 1], c = in[3 * thread() + 2];
  u64* row = out + 32 * thread();
  u32 at = 0;
  const u32 x = static_cast<u32>(a), y = static_cast<u32>(b), z = static_cast<u32>(c);
  row[at++] = a / b;
  row[at++] = a % b;
  row[at++] = static_cast<u64>(static_cast<i64>(a) / static_cast<i64>(b | 1));
  row[at++] = static_cast<u64>(static_cast<i64>(a) % static_cast<i64>(b | 1));
  row[at++] = x / (y | 1);
  row[at++] = x % (y | 1);
  row[at++] = static_cast<u64>(static_cast<i64>(static_cast<i32>(x >> 1) / static_cast<i32>(y | 1)));
  row[at++] = a * b + c;
  row[at++] = a << (b & 63);
  row[at++] = a >> (c & 63);
  row[at++] = static_cast<u64>(static_cast<i64>(a) >> (c & 63));
  row[at++] = static_cast<u32>(__builtin_popcountll(a)) + static_cast<u32>(__builtin_popcount(y));
  row[at++] = static_cast<u32>(__builtin_clzll(b)) * 100 + static_cast<u32>(__builtin_ctzll(b));
  row[at++] = __builtin_bswap64(a);
  row[at++] = __builtin_bitreverse64(a);
  row[at++] = x << (z & 31) | x >> (-z & 31);
  row[at++] = static_cast<u16>(static_cast<u16>(x) * static_cast<u16>(y) + static_cast<u16>(z));
  row[at++] = static_cast<u64>(static_cast<i64>(static_cast<i8>(x)) + static_cast<i16>(y));
  row[at++] = static_cast<i64>(a) < static_cast<i64>(b) ? c : a;
  row[at++] = a < b ? a : b;
  row[at++] = static_cast<u64>(static_cast<i64>(static_cast<i32>(x) < static_cast<i32>(y) ? x : z));
  row[at++] = __builtin_elementwise_sub_sat(x, y);
  row[at++] = __builtin_elementwise_add_sat(x, z);
  // In 32 bits: clang 19 forgets the mask of a product of 64 bits.
  row[at++] = (x & 0xffffff) * (y & 0xff) + z;
  row[at++] = x >> (z & 31) & ((1u << (y & 31)) - 1);
  row[at++] = (a ^ b) + (~c & a) - (b | ~c);
  row[at++] = (static_cast<u64>(x) * y >> 32) + (static_cast<u64>(static_cast<i64>(static_cast<i32>(x)) * static_cast<i32>(z)) >> 32);
  row[at++] = static_cast<u8>(x >> 8) < static_cast<u8>(y >> 16) ? 1 : 2;
  row[at++] = (a + b < a ? 1 : 0) + (a - c > a ? 2 : 0);
  row[at++] = x / 7 + y % 1000;
}

KERNEL(floats)(const float* in, u32* out) {
  const float a = in[3 * thread()], b = in[3 * thread() + 1], c = in[3 * thread() + 2];
  const u32 bits = __builtin_bit_cast(u32, a);
  u32* row = out + 16 * thread();
  u32 at = 0;
  row[at++] = __builtin_bit_cast(u32, a + b);
  row[at++] = __builtin_bit_cast(u32, a - c);
  row[at++] = __builtin_bit_cast(u32, a * b);
  row[at++] = __builtin_bit_cast(u32, __builtin_fmaf(a, b, c));
  row[at++] = __builtin_bit_cast(u32, a / b);
  row[at++] = __builtin_bit_cast(u32, __builtin_truncf(c));
  row[at++] = __builtin_bit_cast(u32, static_cast<float>(bits));
  row[at++] = __builtin_bit_cast(u32, static_cast<float>(static_cast<i32>(bits)));
  row[at++] = __builtin_bit_cast(u32, static_cast<float>(static_cast<u64>(bits) << 17 | bits));
  row[at++] = (a < b ? 1 : 0) | (a <= c ? 2 : 0) | (b == c ? 4 : 0) | (a != a ? 8 : 0) | (__builtin_fabsf(a) > -c ? 16 : 0);
  // To bf16, to the nearest and even, and back.
  row[at++] = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
  row[at++] = __builtin_bit_cast(u32, __builtin_fminf(a, b) + __builtin_fmaxf(b, c));
  row[at++] = __builtin_bit_cast(u32, -__builtin_fabsf(a) * c);
}

// c is small enough for integers.
KERNEL(conversions)(const float* in, u32* out) {
  const float c = in[thread()];
  out[3 * thread()] = static_cast<u32>(static_cast<i32>(c));
  out[3 * thread() + 1] = static_cast<u32>(__builtin_fabsf(c));
  out[3 * thread() + 2] = static_cast<u32>(static_cast<u64>(__builtin_fabsf(c)) >> 3);
}

// Of each width, in global, group and private memory, by pointers of which the compiler does not know the kind.
static __attribute__((device, noinline)) u64 sum(const volatile void* p, u32 at) {
  return static_cast<const volatile u8*>(p)[at] + static_cast<u64>(static_cast<const volatile i8*>(p)[at + 1]) +
         static_cast<const volatile u16*>(p)[at / 2 + 1] + static_cast<u64>(static_cast<const volatile i16*>(p)[at / 2]) +
         static_cast<const volatile u32*>(p)[at / 4 + 1] + static_cast<const volatile u64*>(p)[at / 8 + 1];
}
KERNEL(widths)(const u8* in, u64* out) {
  struct alignas(16) Cells {
    u8 bytes[64];
  };
  static __attribute__((shared)) Cells group[64];
  const u32 own = __builtin_amdgcn_workitem_id_x();
  Cells local;
  for (u32 i = 0; i < 64; ++i) local.bytes[i] = in[64 * thread() + i] ^ 0x5a;
  group[own] = *reinterpret_cast<const Cells*>(in + 64 * thread());
  const u32 at = (thread() * 8) % 48;
  out[4 * thread()] = sum(in + 64 * thread(), at);
  out[4 * thread() + 1] = sum(&local, at);
  __builtin_amdgcn_s_barrier();
  out[4 * thread() + 2] = sum(&group[own ^ 1], at);
  // An unaligned access of 8 bytes.
  u64 odd;
  __builtin_memcpy(&odd, in + 64 * thread() + at + 3, 8);
  out[4 * thread() + 3] = odd;
}

// Each lane loops as often as its input says, and calls another function on one of the ways.
static __attribute__((device, noinline)) u32 step(u32 x) { return x % 2 == 0 ? x / 2 : 3 * x + 1; }
KERNEL(divergent)(const u32* in, u32* out) {
  u32 x = in[thread()], steps = 0;
  while (x != 1 && steps < 200) {
    if (x % 3 == 0) {
      x = step(x);
    } else if (x % 2 == 0) {
      x /= 2;
    } else {
      x = 3 * x + 1;
    }
    ++steps;
  }
  out[thread()] = steps;
}

// Reaches what it may not, by the way that is asked for.
KERNEL(outside)(u64* p, u32 how) {
  if (how == 0) *p = 1;
  if (how == 1) __hip_atomic_fetch_add(p, 1, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
  if (how == 2) __builtin_trap();
  if (how == 3) reinterpret_cast<void (*)()>(p)();
}

// Each lane takes a lock that lanes of its own wave hold, and gives it back behind the loop. With `inside` it does so
// within the loop, together with the others.
KERNEL(lock)(u32* cell, u32* count, u32 inside) {
  if (inside == 0) {
    while (__hip_atomic_exchange(cell, 1, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) != 0) __builtin_amdgcn_s_sleep(1);
    *count += 1;
    __hip_atomic_store(cell, 0, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
    return;
  }
  for (bool done = false; !done;) {
    if (__hip_atomic_exchange(cell, 1, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) == 0) {
      *count += 1;
      __hip_atomic_store(cell, 0, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
      done = true;
    }
    __builtin_amdgcn_wave_barrier();
  }
}
