// Bodies of mail.h.
//
// Numbers: message n has the number n mod period + 1, in every line, in slot n mod slots. A line
// that a short message leaves alone keeps an old number, which comes again a period later. So at
// the end of a period the receiver clears its lines before it gives the last credit, and the
// sender waits for all credits before it begins the next one.
#pragma once

#include "warpverbs/impl/heap_wait.h"
#include "warpverbs/mail.h"

namespace wv {
namespace impl {

WV_DEVICE MailBlock* block_of(const Mail& mail) {
  return reinterpret_cast<MailBlock*>(mail.lines) - 1;
}
// Lines of message `n`, in the own heap: as they arrive, or as they leave.
WV_DEVICE MailLine* lines_of_message(const Mail& mail, u64 n, bool leaving) {
  const u64 slots = u64{1} << mail.box.log_slots;
  const u64 slot = (n & (slots - 1)) + (leaving ? slots : 0);
  return mail.lines + slot * mail.slot_lines;
}
WV_DEVICE u32 number_of(const Mail& mail, u64 n) {
  return static_cast<u32>(n & ((u64{1} << mail.box.log_period) - 1)) + 1;
}
WV_DEVICE bool period_ends(const Mail& mail, u64 n) {
  return (n & ((u64{1} << mail.box.log_period) - 1)) == 0;
}

// 16 bytes of a line whose both halves have the number.
WV_DEVICE vec16 line_of(u64 payload, u32 number) {
  const u64 high = u64{number} << 32;
  return {high | (payload & 0xffffffff), high | payload >> 32};
}
WV_DEVICE bool has_number(vec16 line, u32 number) {
  return static_cast<u32>(line.lo >> 32) == number && static_cast<u32>(line.hi >> 32) == number;
}
WV_DEVICE u64 payload_of(vec16 line) { return (line.lo & 0xffffffff) | line.hi << 32; }

// A message in memory, in words of 8 bytes, of which the last may be short.
struct MailBytes {
  u8* at;

  WV_DEVICE u64 get(u32 i) const {
    return load<order::relaxed, scope::gpu>(reinterpret_cast<const u64*>(at) + i);
  }
  WV_DEVICE void put(u32 i, u64 value) const {
    store<order::relaxed, scope::gpu>(reinterpret_cast<u64*>(at) + i, value);
  }
  WV_DEVICE u64 get_short(u32 i, u32 bytes) const {
    u64 value = 0;
    for (u32 k = 0; k < bytes; ++k) {
      value |= u64{load<order::relaxed, scope::gpu>(at + i * line_payload + k)} << 8 * k;
    }
    return value;
  }
  WV_DEVICE void put_short(u32 i, u64 value, u32 bytes) const {
    for (u32 k = 0; k < bytes; ++k) {
      store<order::relaxed, scope::gpu>(at + i * line_payload + k,
                                        static_cast<u8>(value >> 8 * k));
    }
  }
};

// A message that is one register.
struct MailRegister {
  u64* value;

  WV_DEVICE u64 get(u32) const { return *value; }
  WV_DEVICE void put(u32, u64 v) const { *value = v; }
  WV_DEVICE u64 get_short(u32, u32) const { return *value; }
  WV_DEVICE void put_short(u32, u64 v, u32) const { *value = v; }
};

// How many lines a member has in its registers at a time.
template <u32 Count>
struct Together {
  static constexpr u32 count = Count;
};

// Calls `body(Together, first)` for a member's lines out of `lines`: first, first + stride, …, as
// many of them as Together says, until one call returns a status that is not ok. Whole powers of
// two, because a bound checked for every line costs more than the line.
template <class Body>
WV_DEVICE Status for_lines(u32 rank, u32 stride, u32 lines, Body body) {
  u32 first = rank;
  Status status;
  for (; status.ok() && u64{first} + u64{7} * stride < lines; first += 8 * stride) {
    status = body(Together<8>{}, first);
  }
  if (status.ok() && first + 3 * stride < lines) {
    status = body(Together<4>{}, first);
    first += 4 * stride;
  }
  if (status.ok() && first + stride < lines) {
    status = body(Together<2>{}, first);
    first += 2 * stride;
  }
  if (status.ok() && first < lines) status = body(Together<1>{}, first);
  return status;
}

// Who has the short line behind `whole` ones.
WV_DEVICE bool has_line(u32 rank, u32 stride, u32 whole) {
  return stride == 1 || rank == whole % stride;
}

// Writes the lines of a message to where they leave or arrive, by all members.
template <class Coop, class Message>
WV_DEVICE void write_lines(const Coop& coop, const Message& message, u32 bytes, MailLine* lines,
                           u32 number) {
  const u32 rank = coop.thread_rank(), stride = coop.size(), whole = bytes / line_payload;
  (void)for_lines(rank, stride, whole, [&](auto together, u32 first) {
    constexpr u32 count = decltype(together)::count;
    u64 held[count];
    WV_UNROLL
    for (u32 k = 0; k < count; ++k) held[k] = message.get(first + k * stride);
    WV_UNROLL
    for (u32 k = 0; k < count; ++k) {
      store16<scope::system>(lines + first + k * stride, line_of(held[k], number));
    }
    return Status{};
  });
  if (bytes % line_payload != 0 && has_line(rank, stride, whole)) {
    const u64 last = message.get_short(whole, bytes % line_payload);
    store16<scope::system>(lines + whole, line_of(last, number));
  }
}

// By one thread: until `sent` messages may be under way, and a new period may begin.
WV_DEVICE Status await_credit(Mail& mail, Timeout timeout) {
  const Signal* word = &block_of(mail)->credit;
  const bool all = period_ends(mail, mail.sent);
  const u64 slots = u64{1} << mail.box.log_slots;
  const u64 wanted = all ? mail.sent : mail.sent + 1 - slots;
  const HeapWait wait{wait_for::credit, mail.to, word, wanted};
  HeapDeadline deadline = HeapDeadline::of(*mail.heap, timeout);
  return await_word(
      *mail.heap, wait, deadline,
      [&] { return mail.credit = read_signal(word); }, [&](u64 credit) { return credit >= wanted; });
}

// Room for one more message. Asks memory only when what is known does not suffice.
template <class Coop>
WV_DEVICE Status take_credit(const Coop& coop, Mail& mail, Timeout timeout) {
  const u64 slots = u64{1} << mail.box.log_slots;
  const bool begins = mail.sent != 0 && period_ends(mail, mail.sent);
  if (mail.sent - mail.credit < slots && !(begins && mail.credit != mail.sent)) return Status{};
  const Status status = once(coop, [&] { return await_credit(mail, timeout); });
  mail.credit = coop.broadcast(mail.credit);
  return status;
}

// Lines from the own heap to the peer's, by one thread.
template <bool Each>
WV_D WV_NOINLINE Status lines_by_rdma(const Heap& heap, const Peer* peer, const MailLine* leaving,
                                      const MailLine* arriving, u32 bytes, Timeout timeout) {
  const Qp& qp = qp_to(peer);
  const Deadline deadline = deadline_of(heap, timeout);
  const Segmented far = far_range(heap, peer, arriving);
  const Piece there = far.piece(0);
  if (bytes <= u32{qp.inline_words} * 4 && bytes <= there.bytes) {
    const WriteInline op{{there.addr, there.key}, reinterpret_cast<const u8*>(leaving), bytes};
    return post_one<Each>(qp, op, unsignalled, deadline).status;
  }
  return post_range<Each>(qp, mlx5::opcode::rdma_write, near_range(heap, leaving), far, bytes,
                          unsignalled, deadline)
      .status;
}

template <class Route, class Coop, class Message>
WV_DEVICE Status send_message(const Coop& coop, Mail& mail, const Message& message, u32 bytes,
                              Timeout timeout) {
  if (!mail.status.ok()) return mail.status;
  if (bytes > mail.box.bytes) return Status::of(outcome::too_long);
  if (mail.sends_by == reach::none || !allows(Route{}, mail.sends_by)) {
    return Status::of(outcome::no_peer);
  }
  // What the members wrote is part of the message.
  coop.sync();
  Status status = take_credit(coop, mail, timeout);
  if (!status.ok()) return status;
  const u32 number = number_of(mail, mail.sent);
  MailLine* arriving = lines_of_message(mail, mail.sent, false);
  if (Route::may_be_direct && mail.sends_by == reach::direct) {
    const u64 there = reinterpret_cast<u64>(arriving) + mail.to_delta;
    write_lines(coop, message, bytes, reinterpret_cast<MailLine*>(there), number);
  } else if constexpr (Route::may_be_rdma) {
    // Its last message has been taken, so nobody reads the slot any more.
    MailLine* leaving = lines_of_message(mail, mail.sent, true);
    write_lines(coop, message, bytes, leaving, number);
    status = by_leader(coop, [&] {
      const u32 wire = static_cast<u32>(lines_of(bytes) * sizeof(MailLine));
      return lines_by_rdma<Coop::alone>(*mail.heap, peer_of(*mail.heap, mail.to), leaving,
                                        arriving, wire, timeout);
    });
    if (!status.ok()) return status;
  }
  mail.sent += 1;
  return status;
}

// One member's wait for lines of a message. Nothing of them is acquired but they themselves.
struct LineWait {
  const Mail& mail;
  const MailLine* lines;
  u32 number;
  HeapDeadline deadline;
  HeapPace pace;

  // Until `Count` lines, `stride` apart, have come.
  template <u32 Count>
  WV_DEVICE Status await(vec16 (&held)[Count], u32 first, u32 stride) {
    for (;;) {
      WV_UNROLL
      for (u32 k = 0; k < Count; ++k) held[k] = load16<scope::system>(lines + first + k * stride);
      bool all = true;
      u32 missing = 0;
      WV_UNROLL
      for (u32 k = 0; k < Count; ++k) {
        const bool here = has_number(held[k], number);
        all = all && here;
        if (!here) missing = k;
      }
      if (all) return Status{};
      const Status status = pace.next(*mail.heap, mail.from, deadline);
      if (!status.ok()) return failed(status, lines + first + missing * stride);
    }
  }

  WV_DEVICE Status failed(Status status, const MailLine* line) const {
    const u64 actual = load<order::relaxed, scope::system>(&line->first);
    record_fault(*mail.heap, HeapWait{wait_for::mail, mail.from, line, number}, status, actual);
    return status;
  }
};

// One member's lines.
template <class Message>
WV_DEVICE Status read_lines(LineWait wait, const Message& message, u32 bytes, u32 rank,
                            u32 stride) {
  const u32 whole = bytes / line_payload;
  Status status = for_lines(rank, stride, whole, [&](auto together, u32 first) {
    constexpr u32 count = decltype(together)::count;
    vec16 held[count];
    const Status come = wait.await(held, first, stride);
    if (!come.ok()) return come;
    WV_UNROLL
    for (u32 k = 0; k < count; ++k) message.put(first + k * stride, payload_of(held[k]));
    return Status{};
  });
  if (status.ok() && bytes % line_payload != 0 && has_line(rank, stride, whole)) {
    vec16 held[1];
    status = wait.await(held, whole, stride);
    if (status.ok()) message.put_short(whole, payload_of(held[0]), bytes % line_payload);
  }
  return status;
}

// At the end of a period no line keeps a number.
template <class Coop>
WV_DEVICE void clear_lines(const Coop& coop, const Mail& mail) {
  MailLine* lines = lines_of_message(mail, 0, false);
  const u64 count = u64{mail.slot_lines} << mail.box.log_slots;
  for (u64 i = coop.thread_rank(); i < count; i += coop.size()) {
    store16<scope::system>(lines + i, vec16{0, 0});
  }
}

// Counts a message as taken; half of the slots at a time are given back to the sender.
template <class Route, class Coop>
WV_DEVICE Status give_credit(const Coop& coop, Mail& mail, Timeout timeout) {
  mail.received += 1;
  const u64 half = u64{1} << (mail.box.log_slots - 1);
  if ((mail.received & (half - 1)) != 0) return Status{};
  if (period_ends(mail, mail.received)) clear_lines(coop, mail);
  return signal<Route>(coop, *mail.heap, &block_of(mail)->credit, SignalAdd{half}, mail.from,
                       unsignalled, timeout);
}

template <class Route, class Coop, class Message>
WV_DEVICE Status receive_message(const Coop& coop, Mail& mail, const Message& message, u32 rank,
                                 u32 stride, u32 bytes, Timeout timeout) {
  if (!mail.status.ok()) return mail.status;
  if (bytes > mail.box.bytes) return Status::of(outcome::too_long);
  if (mail.receives_by == reach::none || !allows(Route{}, mail.receives_by)) {
    return Status::of(outcome::no_peer);
  }
  const LineWait wait{mail, lines_of_message(mail, mail.received, false),
                      number_of(mail, mail.received), HeapDeadline::of(*mail.heap, timeout),
                      HeapPace{}};
  const Status status = worst_of(coop, read_lines(wait, message, bytes, rank, stride));
  return status.ok() ? give_credit<Route>(coop, mail, timeout) : status;
}

WV_DEVICE Status check_box(const Heap& heap, const Mailbox& box, u32 to, u32 from) {
  if (box.log_slots == 0 || box.log_slots > 16 || box.log_period > 31 ||
      box.log_period < box.log_slots) {
    return Status::of(outcome::bad_address);
  }
  if (box.block % sizeof(MailLine) != 0 || !holds_range(heap, box.block, mail_block_bytes(box))) {
    return Status::of(outcome::bad_address);
  }
  if ((to != no_rank && to >= fixed(heap.world)) || (from != no_rank && from >= fixed(heap.world))) {
    return Status::of(outcome::no_peer);
  }
  return Status{};
}

}  // namespace impl

template <class Coop>
WV_DEVICE Mail mail_open(const Coop& coop, const Heap& heap, const Mailbox& box, u32 to,
                         u32 from) {
  Mail mail{&heap, box, impl::check_box(heap, box, to, from), to, from, 0, 0, 0, reach::none,
            reach::none, 0, nullptr, 0};
  if (!mail.status.ok()) return mail;
  const impl::Way there = impl::way_to<route::any>(heap, to);
  const impl::Way back = impl::way_to<route::any>(heap, from);
  if (there.status.ok()) mail.sends_by = there.direct ? reach::direct : reach::rdma;
  if (back.status.ok()) mail.receives_by = back.direct ? reach::direct : reach::rdma;
  mail.to_delta = there.delta;
  MailBlock* block = at_offset<MailBlock>(heap, box.block);
  mail.lines = reinterpret_cast<MailLine*>(block + 1);
  mail.slot_lines = static_cast<u32>(lines_of(box.bytes));
  coop.sync();
  mail.sent = load<order::relaxed, scope::gpu>(&block->sent);
  mail.received = load<order::relaxed, scope::gpu>(&block->received);
  mail.credit = read_signal(&block->credit);
  // Members must know the same credit: they wait for more together.
  mail.credit = coop.broadcast(mail.credit);
  return mail;
}

template <class Coop>
WV_DEVICE Status mail_close(const Coop& coop, const Mail& mail) {
  if (mail.status.ok() && coop.thread_rank() == 0) {
    MailBlock* block = impl::block_of(mail);
    store<order::relaxed, scope::gpu>(&block->sent, mail.sent);
    store<order::relaxed, scope::gpu>(&block->received, mail.received);
  }
  coop.sync();
  return mail.status;
}

template <class Route, class Coop>
WV_DEVICE Status mail_send(const Coop& coop, Mail& mail, const void* source, u32 bytes,
                           Timeout timeout) {
  if (reinterpret_cast<u64>(source) % 8 != 0) return Status::of(outcome::bad_address);
  const impl::MailBytes message{static_cast<u8*>(const_cast<void*>(source))};
  return impl::send_message<Route>(coop, mail, message, bytes, timeout);
}

template <class Route, class Coop>
WV_DEVICE Status mail_recv(const Coop& coop, Mail& mail, void* target, u32 bytes,
                           Timeout timeout) {
  if (reinterpret_cast<u64>(target) % 8 != 0) return Status::of(outcome::bad_address);
  const impl::MailBytes message{static_cast<u8*>(target)};
  return impl::receive_message<Route>(coop, mail, message, coop.thread_rank(), coop.size(),
                                         bytes, timeout);
}

template <class Route, class Coop>
WV_DEVICE Status mail_try_recv(const Coop& coop, Mail& mail, void* target, u32 bytes,
                               Timeout timeout) {
  if (!mail.status.ok()) return mail.status;
  const vec16 first = load16<scope::system>(impl::lines_of_message(mail, mail.received, false));
  const bool begun = impl::has_number(first, impl::number_of(mail, mail.received));
  if (coop.broadcast(u32{begun}) == 0) return Status::of(outcome::no_room);
  return mail_recv<Route>(coop, mail, target, bytes, timeout);
}

template <class Route, class Coop>
WV_DEVICE Status mail_send_value(const Coop& coop, Mail& mail, u64 value, Timeout timeout) {
  return impl::send_message<Route>(coop, mail, impl::MailRegister{&value}, line_payload, timeout);
}

template <class Route, class Coop>
WV_DEVICE Status mail_recv_value(const Coop& coop, Mail& mail, u64& value, Timeout timeout) {
  // Every member looks at the one line.
  return impl::receive_message<Route>(coop, mail, impl::MailRegister{&value}, 0, 1, line_payload,
                                      timeout);
}

}  // namespace wv
