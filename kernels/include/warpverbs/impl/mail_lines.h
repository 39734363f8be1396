// Lines of mail: how the bytes of a message travel, so that each 8 aligned bytes that arrive say by
// themselves that they have.
//
// Narrow lines, for messages of up to narrow_most bytes: 8 bytes of payload in 16, each half with
// the message's number. Any member writes and reads any line.
//
// Wide lines, for longer ones: 63 words of 8 bytes in 64. Bit 63 of every word is a mark; the bits
// that it displaces are the last word. A warp writes a line by one 16-byte store of each lane: lane
// i has words i and 32 + i. Unused words of the last line are marked zeros. The receiver zeroes wide
// lines before it gives their slot back; narrow lines have no bit 63 set, so a slot takes either
// kind.
#pragma once

#include "warpverbs/impl/copy.h"
#include "warpverbs/impl/heap_wait.h"
#include "warpverbs/mail.h"

namespace wv {
namespace impl {

constexpr u64 line_mark = u64{1} << 63;

// ---- a message in memory, in words of 8 bytes, of which the last may be short

struct MailBytes {
  u8* at;

  WV_DEVICE bool aligned() const { return reinterpret_cast<u64>(at) % line_payload == 0; }
  WV_DEVICE u64 get(u64 i) const { return read8(reinterpret_cast<const u64*>(at) + i); }
  WV_DEVICE void put(u64 i, u64 value) const {
    store<order::relaxed, scope::gpu>(reinterpret_cast<u64*>(at) + i, value);
  }
  WV_DEVICE u64 get_short(u32 i, u32 bytes) const {
    u64 value = 0;
    WV_ROLLED
    for (u32 k = 0; k < bytes; ++k) {
      value |= u64{load<order::relaxed, scope::gpu>(at + i * line_payload + k)} << 8 * k;
    }
    return value;
  }
  WV_DEVICE void put_short(u32 i, u64 value, u32 bytes) const {
    WV_ROLLED
    for (u32 k = 0; k < bytes; ++k) {
      store<order::relaxed, scope::gpu>(at + i * line_payload + k,
                                        static_cast<u8>(value >> 8 * k));
    }
  }
};

// A message that is one register.
struct MailRegister {
  u64* value;

  WV_DEVICE bool aligned() const { return true; }
  WV_DEVICE u64 get(u64) const { return *value; }
  WV_DEVICE void put(u64, u64 v) const { *value = v; }
  WV_DEVICE u64 get_short(u32, u32) const { return *value; }
  WV_DEVICE void put_short(u32, u64 v, u32) const { *value = v; }
};

// Word `i` of a message of `bytes`; 0 behind its end.
template <class Message>
WV_DEVICE u64 word_of(const Message& message, u32 bytes, u32 i) {
  const u32 whole = bytes / line_payload, rest = bytes % line_payload;
  if (i < whole) return message.get(i);
  return i == whole && rest != 0 ? message.get_short(i, rest) : 0;
}
// Stores word `i`; nothing behind the end.
template <class Message>
WV_DEVICE void put_word(const Message& message, u32 bytes, u32 i, u64 value) {
  const u32 whole = bytes / line_payload, rest = bytes % line_payload;
  if (i < whole) message.put(i, value);
  else if (i == whole && rest != 0) message.put_short(i, value, rest);
}

// ---- what a pair of words is when it has arrived

struct Numbered {
  u32 number;

  WV_DEVICE bool operator()(vec16 pair) const {
    return static_cast<u32>(pair.lo >> 32) == number && static_cast<u32>(pair.hi >> 32) == number;
  }
};
struct Marked {
  WV_DEVICE bool operator()(vec16 pair) const { return (pair.lo & pair.hi & line_mark) != 0; }
};

WV_DEVICE vec16 numbered_pair(u64 payload, u32 number) {
  const u64 high = u64{number} << 32;
  return {high | (payload & 0xffffffff), high | payload >> 32};
}
WV_DEVICE u64 payload_of(vec16 pair) { return (pair.lo & 0xffffffff) | pair.hi << 32; }

WV_DEVICE vec16 marked_pair(u64 low, u64 high) { return {low | line_mark, high | line_mark}; }
// A word without its mark, with bit `i` of `tops`, which is half of the line's last word, in place.
WV_DEVICE u64 unmarked(u64 word, u32 tops, u32 i) {
  return (word & ~line_mark) | u64{tops >> i << 31} << 32;
}

// ---- who has which lines

// Whether there is a narrow line with less than 8 bytes: with none, for a message of 0 bytes.
WV_DEVICE bool ends_short(u32 bytes) { return bytes % line_payload != 0 || bytes == 0; }
// The short line behind the whole ones.
template <class Coop>
WV_DEVICE bool has_short(const Coop& coop) {
  return coop.thread_rank() == coop.size() - 1;
}

// The calling warp among those of its group.
struct WarpOf {
  u32 index, count;

  template <class Coop>
  WV_DEVICE static WarpOf of(const Coop& coop) {
    return {coop.thread_rank() / wide_pairs, coop.size() / wide_pairs};
  }
};

// Lines that a member has in its registers at a time where it has many: a warp alone has little in
// flight else; members of a block have few lines each, and few registers.
template <class Coop>
constexpr u32 most_lines = Coop::max_size > warp_size ? 4 : 8;

// Calls `body(Together<n>, first, mine)` for narrow lines, as share_out does. Where members have a
// line each at most, as those of most blocks, there is one call and no arithmetic.
template <class Coop, class Body>
WV_DEVICE void share_narrow(const Coop& coop, u32 lines, Body body) {
  const u32 rank = coop.thread_rank();
  if (lines <= coop.size()) (void)body(Together<1>{}, rank, rank < lines);
  else share_out<most_lines<Coop>>(coop, lines, body);
}

// Whether a group's whole warps share out wide lines; if not, each member has lines by itself.
template <class Coop>
WV_DEVICE bool lines_by_warps(const Coop& coop) {
  if constexpr (Coop::alone || warp_size != wide_pairs) return false;
  else return coop.size() % wide_pairs == 0;
}

// ---- sending

template <class Coop, class Message>
WV_DEVICE void write_narrow(const Coop& coop, const Message& message, u32 bytes, MailLine* lines,
                            u32 number) {
  constexpr u32 apart = Coop::alone ? 1 : warp_size;
  const u32 whole = bytes / line_payload;
  share_narrow(coop, whole, [&](auto together, u32 first, bool mine) {
    constexpr u32 count = decltype(together)::count;
    if (!mine) return true;
    u64 held[count];
    WV_UNROLL
    for (u32 k = 0; k < count; ++k) held[k] = message.get(first + k * apart);
    WV_UNROLL
    for (u32 k = 0; k < count; ++k) {
      store16<scope::system>(lines + first + k * apart, numbered_pair(held[k], number));
    }
    return true;
  });
  if (ends_short(bytes) && has_short(coop)) {
    const u64 last = message.get_short(whole, bytes % line_payload);
    store16<scope::system>(lines + whole, numbered_pair(last, number));
  }
}

// Words that a lane stores of a wide line of which it has two words, of the last lane one.
WV_DEVICE vec16 wide_pair(u32 lane, u64 low, u64 high) {
  constexpr lane_mask whole = ~lane_mask{0};
  const u64 tops = u64{ballot(whole, low >> 63 != 0)} | u64{ballot(whole, high >> 63 != 0)} << 32;
  return marked_pair(low, lane == wide_pairs - 1 ? tops : high);
}

// A warp's lines, by all its lanes: line `index` of the message and each that lies `count` behind.
template <class Message>
WV_DEVICE void write_wide_by_warp(const Message& message, u32 bytes, MailLine* lines,
                                  WarpOf own) {
  const u32 lane = lane_id(), whole = bytes / line_payload, all = wide_lines(bytes);
  const bool two = lane != wide_pairs - 1;
  MailLine* at = lines + own.index * wide_pairs + lane;
  u32 word = own.index * wide_words + lane;
  WV_ROLLED
  for (u32 line = own.index; line < all; line += own.count) {
    u64 low = word < whole ? message.get(word) : 0;
    u64 high = two && word + wide_pairs < whole ? message.get(word + wide_pairs) : 0;
    if (line == all - 1 && bytes % line_payload != 0) {
      if (word == whole) low = word_of(message, bytes, whole);
      if (two && word + wide_pairs == whole) high = word_of(message, bytes, whole);
    }
    store16<scope::system>(at, wide_pair(lane, low, high));
    at += own.count * wide_pairs;
    word += own.count * wide_words;
  }
}

// The same lines by the calling thread.
template <class Message>
WV_DEVICE void write_wide_alone(const Message& message, u32 bytes, MailLine* lines, u32 first,
                                u32 stride) {
  WV_ROLLED
  for (u32 line = first; line < wide_lines(bytes); line += stride) {
    u64 tops = 0;
    WV_ROLLED
    for (u32 i = 0; i < wide_pairs; ++i) {
      const u32 word = line * wide_words + i;
      const u64 low = word_of(message, bytes, word);
      u64 high = i < wide_pairs - 1 ? word_of(message, bytes, word + wide_pairs) : 0;
      tops |= low >> 63 << i | high >> 63 << (wide_pairs + i);
      if (i == wide_pairs - 1) high = tops;
      store16<scope::system>(lines + line * wide_pairs + i, marked_pair(low, high));
    }
  }
}

// Writes the lines of a message to where they leave or arrive, by all members.
template <class Coop, class Message>
WV_DEVICE void write_lines(const Coop& coop, const Message& message, u32 bytes, MailLine* lines,
                           u32 number) {
  if (bytes <= narrow_most) {
    write_narrow(coop, message, bytes, lines, number);
  } else if (lines_by_warps(coop)) {
    write_wide_by_warp(message, bytes, lines, WarpOf::of(coop));
  } else {
    write_wide_alone(message, bytes, lines, coop.thread_rank(), coop.size());
  }
}

// ---- receiving

// How long a wait has lasted, and how it ended.
struct LinePatience {
  u64 end;  // 0: the clock was not looked at yet
  u32 turn;
  Status status;
};

// Turns of HeapPace between two looks at the clock.
constexpr u32 line_turns = 4;

// After `line_turns` turns of looks: pauses, or returns why the wait must end. Not inlined; arguments go
// by value: a message usually comes within a few looks, and work between two looks delays an answer.
WV_D WV_NOINLINE inline LinePatience line_turn(const Heap& heap, u32 peer, u64 timeout_ns,
                                               LinePatience past) {
  HeapDeadline deadline{timeout_ns != 0 ? timeout_ns : fixed(heap.timeout_ns), {past.end}};
  const u32 paused = past.turn < HeapPace::eager_turns ? 0 : past.turn - HeapPace::eager_turns;
  HeapPace pace{past.turn + line_turns - 1, Backoff{paused / line_turns}};
  const Status status = pace.next(heap, peer, deadline);
  return {deadline.deadline.end, pace.turn, status};
}

// Records the wait for a line that has not come.
WV_D WV_NOINLINE inline void line_missing(const Heap& heap, u32 peer, const MailLine* line,
                                          u32 number, Status status) {
  const u64 actual = load<order::relaxed, scope::system>(&line->first);
  record_fault(heap, HeapWait{wait_for::mail, peer, line, number}, status, actual);
}

// One member's wait for pairs of a message. Nothing is acquired but the pairs themselves.
struct LineWait {
  const Mail& mail;
  const MailLine* lines;
  u32 number;
  u64 timeout_ns;
  LinePatience past;

  // Whether it holds for all lanes that leave a loop together: to gather lanes that left it one by
  // one takes as long as a look.
  template <class Coop>
  WV_DEVICE static bool everybody(bool here) {
    if constexpr (of_warps<Coop>) return ballot(all_lanes(), !here) == 0;
    else return here;
  }

  // Calls `look()` until `has_come()` holds for everybody. `missing()` is a line that has not come.
  template <class Coop, class Come, class Look, class Missing>
  WV_DEVICE Status await(Come has_come, Look look, Missing missing) {
    for (u32 looks = 0;;) {
      if (everybody<Coop>(has_come())) return Status{};
      if (looks == line_turns * HeapPace::looks) {
        looks = 0;
        past = line_turn(*mail.heap, mail.from, timeout_ns, past);
        if (!everybody<Coop>(past.status.ok())) break;
      }
      give_way();
      look();
      looks += 1;
    }
    Status status = past.status;
    if constexpr (of_warps<Coop>) status = worst_of(wv::warp, status);
    if (!has_come()) line_missing(*mail.heap, mail.from, missing(), number, status);
    return status;
  }

  // Until this member's pairs, Count of them from `own` on, `apart` of each other, are what `arrived`
  // accepts; if it has none, `mine` is false. Keep: pairs that have come are not loaded again, and
  // some may be held already.
  template <class Coop, bool Keep, u32 Count, class Arrived>
  WV_DEVICE Status await_pairs(vec16 (&held)[Count], const MailLine* own, u32 apart, bool mine,
                               Arrived arrived) {
    const auto look = [&] {
      WV_UNROLL
      for (u32 k = 0; k < Count; ++k) {
        if (Keep ? !arrived(held[k]) : mine) held[k] = load16<scope::system>(own + k * apart);
      }
    };
    if constexpr (!Keep) look();
    return await<Coop>(
        [&] {
          bool all = true;
          WV_UNROLL
          for (u32 k = 0; k < Count; ++k) all = all && (!mine || arrived(held[k]));
          return all;
        },
        look,
        [&] {
          const MailLine* missing = own;
          WV_UNROLL
          for (u32 k = 1; k < Count; ++k) {
            if (!arrived(held[k])) missing = own + k * apart;
          }
          return missing;
        });
  }
};

// One member's narrow lines.
template <class Coop, class Message>
WV_DEVICE Status read_narrow(const Coop& coop, LineWait& wait, const Message& message, u32 bytes) {
  constexpr u32 apart = Coop::alone ? 1 : warp_size;
  const u32 whole = bytes / line_payload;
  const Numbered arrived{wait.number};
  Status status;
  share_narrow(coop, whole, [&](auto together, u32 first, bool mine) {
    constexpr u32 count = decltype(together)::count;
    vec16 held[count];
    status = wait.await_pairs<Coop, false>(held, wait.lines + first, apart, mine, arrived);
    if (!status.ok() || !mine) return status.ok();
    WV_UNROLL
    for (u32 k = 0; k < count; ++k) message.put(first + k * apart, payload_of(held[k]));
    return true;
  });
  if (status.ok() && ends_short(bytes) && has_short(coop)) {
    vec16 held[1];
    status = wait.await_pairs<Thread, false>(held, wait.lines + whole, 1, true, arrived);
    if (status.ok()) message.put_short(whole, payload_of(held[0]), bytes % line_payload);
  }
  return status;
}

// A lane's two words of a wide line.
struct WideWords {
  u64 low, high;

  WV_DEVICE static WideWords of(vec16 pair, u32 lane) {
    constexpr u32 last = wide_pairs - 1;
    constexpr lane_mask whole = ~lane_mask{0};
    const u32 low = shfl(whole, static_cast<u32>(pair.hi), last);
    const u32 high = shfl(whole, static_cast<u32>(pair.hi >> 32), last);
    return {unmarked(pair.lo, low, lane), unmarked(pair.hi, high, lane)};
  }
};

// Stores a lane's words of a line, the first of which is `word`: those of `whole` ones.
template <class Message>
WV_DEVICE void put_wide(const Message& message, u32 word, u32 whole, u32 lane, WideWords words) {
  if (word < whole) message.put(word, words.low);
  if (lane != wide_pairs - 1 && word + wide_pairs < whole) {
    message.put(word + wide_pairs, words.high);
  }
}

// Rows of a warp that is the whole group, 8 lines each, for it has little in flight else. Where the
// rest begins.
template <class Message>
WV_DEVICE u32 read_wide_rows(LineWait& wait, const Message& message, u32 bytes, Status& status) {
  constexpr u32 count = 8;
  const u32 lane = lane_id(), whole = bytes / line_payload, full = bytes / wide_payload;
  u32 line = 0;
  WV_ROLLED
  for (; line + count <= full && status.ok(); line += count) {
    vec16 held[count];
    WV_UNROLL
    for (u32 k = 0; k < count; ++k) held[k] = vec16{0, 0};
    status = wait.await_pairs<Warp, true>(held, wait.lines + line * wide_pairs + lane, wide_pairs,
                                          true, Marked{});
    if (!status.ok()) break;
    WV_UNROLL
    for (u32 k = 0; k < count; ++k) {
      const u32 word = (line + k) * wide_words + lane;
      put_wide(message, word, whole, lane, WideWords::of(held[k], lane));
    }
  }
  return line;
}

// A warp's lines, by all its lanes, as write_wide_by_warp has them. The next line is loaded while one
// is stored: by then it has often come.
template <class Coop, class Message>
WV_DEVICE Status read_wide_by_warp(LineWait& wait, const Message& message, u32 bytes, WarpOf own) {
  const u32 lane = lane_id(), whole = bytes / line_payload, all = wide_lines(bytes);
  Status status;
  u32 line = own.index;
  if constexpr (Coop::max_size == warp_size) line = read_wide_rows(wait, message, bytes, status);
  const MailLine* at = wait.lines + line * wide_pairs + lane;
  u32 word = line * wide_words + lane;
  vec16 held[1] = {{0, 0}};
  WV_ROLLED
  for (; line < all && status.ok(); line += own.count) {
    status = wait.await_pairs<Warp, true>(held, at, 0, true, Marked{});
    if (!status.ok()) break;
    at += own.count * wide_pairs;
    const vec16 come = held[0];
    held[0] = vec16{0, 0};
    if (line + own.count < all) held[0] = load16<scope::system>(at);
    const WideWords words = WideWords::of(come, lane);
    put_wide(message, word, whole, lane, words);
    if (line == all - 1 && bytes % line_payload != 0) {
      if (word == whole) put_word(message, bytes, whole, words.low);
      if (lane != wide_pairs - 1 && word + wide_pairs == whole) {
        put_word(message, bytes, whole, words.high);
      }
    }
    word += own.count * wide_words;
  }
  return status;
}

// The same lines by the calling thread.
template <class Message>
WV_DEVICE Status read_wide_alone(LineWait& wait, const Message& message, u32 bytes, u32 first,
                                 u32 stride) {
  WV_ROLLED
  for (u32 line = first; line < wide_lines(bytes); line += stride) {
    const MailLine* own = wait.lines + line * wide_pairs;
    vec16 last[1];
    Status status = wait.await_pairs<Thread, false>(last, own + wide_pairs - 1, 1, true, Marked{});
    WV_ROLLED
    for (u32 i = 0; i < wide_pairs && status.ok(); ++i) {
      vec16 held[1];
      status = wait.await_pairs<Thread, false>(held, own + i, 1, true, Marked{});
      if (!status.ok()) break;
      const u32 word = line * wide_words + i;
      put_word(message, bytes, word, unmarked(held[0].lo, static_cast<u32>(last[0].hi), i));
      if (i != wide_pairs - 1) {
        const u32 tops = static_cast<u32>(last[0].hi >> 32);
        put_word(message, bytes, word + wide_pairs, unmarked(held[0].hi, tops, i));
      }
    }
    if (!status.ok()) return status;
  }
  return Status{};
}

// A member's part of a message.
template <class Coop, class Message>
WV_DEVICE Status read_lines(const Coop& coop, LineWait& wait, const Message& message, u32 bytes) {
  if (bytes <= narrow_most) return read_narrow(coop, wait, message, bytes);
  if (lines_by_warps(coop)) return read_wide_by_warp<Coop>(wait, message, bytes, WarpOf::of(coop));
  return read_wide_alone(wait, message, bytes, coop.thread_rank(), coop.size());
}

}  // namespace impl
}  // namespace wv
