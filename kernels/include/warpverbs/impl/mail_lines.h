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
  // Calls `body(Together<n>, line)` for the warp's lines out of `lines`, n of them in a row.
  template <class Body>
  WV_DEVICE void share_out(u32 lines, Body body) const {
    u64 done = in_rows<8, 1>(index, count, 0, 0, lines, body);
    WV_ROLLED
    for (; done + index < lines; done += count) {
      if (!body(Together<1>{}, done + index, true)) return;
    }
  }
  WV_DEVICE bool has_short() const { return index == count - 1; }
};

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
  share_out<8>(coop, whole, [&](auto together, u64 first, bool mine) {
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
  if (bytes % line_payload != 0 && has_short(coop)) {
    const u64 last = message.get_short(whole, bytes % line_payload);
    store16<scope::system>(lines + whole, numbered_pair(last, number));
  }
}

// What a lane stores of a wide line of which it has two words, of the last lane one.
WV_DEVICE vec16 wide_pair(u32 lane, u64 low, u64 high) {
  constexpr lane_mask whole = ~lane_mask{0};
  const u64 tops = u64{ballot(whole, low >> 63 != 0)} | u64{ballot(whole, high >> 63 != 0)} << 32;
  return marked_pair(low, lane == wide_pairs - 1 ? tops : high);
}

// A warp's lines, by all its lanes.
template <class Message>
WV_DEVICE void write_wide_by_warp(const Message& message, u32 bytes, MailLine* lines,
                                  WarpOf own) {
  const u32 lane = lane_id(), full = bytes / wide_payload;
  const bool two = lane != wide_pairs - 1;
  own.share_out(full, [&](auto together, u64 line, bool) {
    constexpr u32 count = decltype(together)::count;
    const u64 word = line * wide_words + lane;
    MailLine* pairs = lines + line * wide_pairs + lane;
    u64 low[count], high[count];
    WV_UNROLL
    for (u32 k = 0; k < count; ++k) {
      low[k] = message.get(word + k * wide_words);
      high[k] = two ? message.get(word + k * wide_words + wide_pairs) : 0;
    }
    WV_UNROLL
    for (u32 k = 0; k < count; ++k) {
      store16<scope::system>(pairs + k * wide_pairs, wide_pair(lane, low[k], high[k]));
    }
    return true;
  });
  if (bytes % wide_payload != 0 && own.has_short()) {
    const u32 word = full * wide_words + lane;
    const u64 low = word_of(message, bytes, word);
    const u64 high = two ? word_of(message, bytes, word + wide_pairs) : 0;
    store16<scope::system>(lines + full * wide_pairs + lane, wide_pair(lane, low, high));
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

// One member's wait for pairs of a message. Nothing is acquired but the pairs themselves.
struct LineWait {
  const Mail& mail;
  const MailLine* lines;
  u32 number;
  HeapDeadline deadline;
  HeapPace pace;

  // Until this member's pairs, Count of them, are what `arrived` accepts; if it has none, `mine` is
  // false. Lanes of a warp leave the loop together: to gather lanes that left it one by one takes as
  // long as a look.
  template <class Coop, u32 Count, class Arrived>
  WV_DEVICE Status await(vec16 (&held)[Count], u64 first, bool mine, Arrived arrived) {
    constexpr u32 apart = Coop::alone ? 1 : warp_size;
    const auto everybody = [](bool here) {
      if constexpr (of_warps<Coop>) return ballot(all_lanes(), !here) == 0;
      else return here;
    };
    const MailLine* own = lines + first;
    for (;;) {
      u32 missing = 0;
      bool all = true;
      WV_ROLLED
      for (u32 look = 0; look < HeapPace::looks; ++look) {
        WV_UNROLL
        for (u32 k = 0; k < Count; ++k) {
          if (mine) held[k] = load16<scope::system>(own + k * apart);
        }
        all = true;
        WV_UNROLL
        for (u32 k = 0; k < Count; ++k) {
          const bool here = !mine || arrived(held[k]);
          all = all && here;
          if (!here) missing = k;
        }
        if (everybody(all)) return Status{};
        give_way();
      }
      Status status = pace.next(*mail.heap, mail.from, deadline);
      if (everybody(status.ok())) continue;
      if constexpr (of_warps<Coop>) status = worst_of(wv::warp, status);
      return all ? status : failed(status, own + missing * apart);
    }
  }

  // Until the calling warp has Count wide lines in a row. What has come is not loaded again.
  template <u32 Count>
  WV_DEVICE Status await_wide(vec16 (&held)[Count], u64 first) {
    constexpr lane_mask whole = ~lane_mask{0};
    const MailLine* own = lines + first * wide_pairs + lane_id();
    const Marked arrived;
    WV_UNROLL
    for (u32 k = 0; k < Count; ++k) held[k] = vec16{0, 0};
    for (;;) {
      bool here = true;
      u32 missing = 0;
      WV_ROLLED
      for (u32 look = 0; look < HeapPace::looks; ++look) {
        WV_UNROLL
        for (u32 k = 0; k < Count; ++k) {
          if (!arrived(held[k])) held[k] = load16<scope::system>(own + k * wide_pairs);
        }
        here = true;
        WV_UNROLL
        for (u32 k = 0; k < Count; ++k) {
          if (!arrived(held[k])) missing = k;
          here = here && arrived(held[k]);
        }
        if (ballot(whole, here) == whole) return Status{};
        give_way();
      }
      Status status = pace.next(*mail.heap, mail.from, deadline);
      if (ballot(whole, !status.ok()) == 0) continue;
      status = worst_of(wv::warp, status);
      return here ? status : failed(status, own + missing * wide_pairs);
    }
  }

  WV_DEVICE Status failed(Status status, const MailLine* line) const {
    const u64 actual = load<order::relaxed, scope::system>(&line->first);
    record_fault(*mail.heap, HeapWait{wait_for::mail, mail.from, line, number}, status, actual);
    return status;
  }
};

// One member's narrow lines.
template <class Coop, class Message>
WV_DEVICE Status read_narrow(const Coop& coop, LineWait& wait, const Message& message, u32 bytes) {
  constexpr u32 apart = Coop::alone ? 1 : warp_size;
  const u32 whole = bytes / line_payload;
  const Numbered arrived{wait.number};
  Status status;
  share_out<8>(coop, whole, [&](auto together, u64 first, bool mine) {
    constexpr u32 count = decltype(together)::count;
    vec16 held[count];
    status = wait.await<Coop>(held, first, mine, arrived);
    if (!status.ok() || !mine) return status.ok();
    WV_UNROLL
    for (u32 k = 0; k < count; ++k) message.put(first + k * apart, payload_of(held[k]));
    return true;
  });
  if (status.ok() && bytes % line_payload != 0 && has_short(coop)) {
    vec16 held[1];
    status = wait.await<Thread>(held, whole, true, arrived);
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

// A warp's lines, by all its lanes.
template <class Message>
WV_DEVICE Status read_wide_by_warp(LineWait& wait, const Message& message, u32 bytes, WarpOf own) {
  const u32 lane = lane_id(), full = bytes / wide_payload;
  const bool two = lane != wide_pairs - 1;
  Status status;
  own.share_out(full, [&](auto together, u64 line, bool) {
    constexpr u32 count = decltype(together)::count;
    vec16 held[count];
    status = wait.await_wide(held, line);
    if (!status.ok()) return false;
    const u64 word = line * wide_words + lane;
    WV_UNROLL
    for (u32 k = 0; k < count; ++k) {
      const WideWords words = WideWords::of(held[k], lane);
      message.put(word + k * wide_words, words.low);
      if (two) message.put(word + k * wide_words + wide_pairs, words.high);
    }
    return true;
  });
  if (status.ok() && bytes % wide_payload != 0 && own.has_short()) {
    vec16 held[1];
    status = wait.await_wide(held, full);
    if (!status.ok()) return status;
    const WideWords words = WideWords::of(held[0], lane);
    const u32 word = full * wide_words + lane;
    put_word(message, bytes, word, words.low);
    if (two) put_word(message, bytes, word + wide_pairs, words.high);
  }
  return status;
}

// The same lines by the calling thread.
template <class Message>
WV_DEVICE Status read_wide_alone(LineWait& wait, const Message& message, u32 bytes, u32 first,
                                 u32 stride) {
  WV_ROLLED
  for (u32 line = first; line < wide_lines(bytes); line += stride) {
    vec16 last[1];
    Status status = wait.await<Thread>(last, line * wide_pairs + wide_pairs - 1, true, Marked{});
    WV_ROLLED
    for (u32 i = 0; i < wide_pairs && status.ok(); ++i) {
      vec16 held[1];
      status = wait.await<Thread>(held, line * wide_pairs + i, true, Marked{});
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
  if (lines_by_warps(coop)) return read_wide_by_warp(wait, message, bytes, WarpOf::of(coop));
  return read_wide_alone(wait, message, bytes, coop.thread_rank(), coop.size());
}

}  // namespace impl
}  // namespace wv
