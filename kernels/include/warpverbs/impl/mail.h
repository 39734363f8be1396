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
  return at_offset<MailBlock>(*mail.heap, mail.box.block);
}
// Lines of message `n`, in the own heap: as they arrive, or as they leave.
WV_DEVICE MailLine* lines_of_message(const Mail& mail, u64 n, bool leaving) {
  MailLine* lines = reinterpret_cast<MailLine*>(block_of(mail) + 1);
  const u64 slot = n & ((u64{1} << mail.box.log_slots) - 1);
  const u64 area = leaving ? u64{1} << mail.box.log_slots : 0;
  return lines + (area + slot) * lines_of(mail.box.bytes);
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

// 8 bytes at a time, the last ones in part.
struct MailBytes {
  u8* at;
  u32 bytes;

  WV_DEVICE u64 get(u64 i) const {
    const u32 left = bytes - static_cast<u32>(i) * line_payload;
    const u64* word = reinterpret_cast<const u64*>(at) + i;
    if (left >= line_payload) return load<order::relaxed, scope::gpu>(word);
    u64 value = 0;
    for (u32 k = 0; k < left; ++k) {
      value |= u64{load<order::relaxed, scope::gpu>(at + i * line_payload + k)} << 8 * k;
    }
    return value;
  }
  WV_DEVICE void put(u64 i, u64 value) const {
    const u32 left = bytes - static_cast<u32>(i) * line_payload;
    u64* word = reinterpret_cast<u64*>(at) + i;
    if (left >= line_payload) return store<order::relaxed, scope::gpu>(word, value);
    for (u32 k = 0; k < left; ++k) {
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
};

// Lines of a message on their way out.
template <class Message>
struct LeavingLines {
  using Element = u64;
  const Message& message;
  MailLine* lines;
  u32 number;

  WV_DEVICE u64 read(u64 i) const { return message.get(i); }
  WV_DEVICE void write(u64 i, u64 payload) const {
    store16<scope::system>(lines + i, line_of(payload, number));
  }
};

// By one thread: until `sent` messages may be under way, and a new period may begin.
WV_DEVICE Status await_credit(Mail& mail, Timeout timeout) {
  const Signal* word = &block_of(mail)->credit;
  const bool all = period_ends(mail, mail.sent);
  const u64 slots = u64{1} << mail.box.log_slots;
  const u64 wanted = all ? mail.sent : mail.sent + 1 - slots;
  const HeapWait wait{wait_for::credit, mail.to, word, wanted};
  return await_word(
      *mail.heap, wait, deadline_of(*mail.heap, timeout),
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
                          unsignalled, deadline);
}

template <class Route, class Coop, class Message>
WV_DEVICE Status send_message(const Coop& coop, Mail& mail, const Message& message, u32 bytes,
                              Timeout timeout) {
  if (!mail.status.ok()) return mail.status;
  if (bytes > mail.box.bytes) return Status::of(outcome::too_long);
  const Way way = way_to<Route>(*mail.heap, mail.to);
  if (!way.status.ok()) return way.status;
  // What the members wrote is part of the message.
  coop.sync();
  Status status = take_credit(coop, mail, timeout);
  if (!status.ok()) return status;
  const u64 lines = lines_of(bytes);
  const u32 number = number_of(mail, mail.sent);
  MailLine* arriving = lines_of_message(mail, mail.sent, false);
  if (Route::may_be_direct && way.direct) {
    const LeavingLines<Message> out{message, way.at(arriving), number};
    copy_elements<4>(coop.thread_rank(), coop.size(), out, lines);
  } else if constexpr (Route::may_be_rdma) {
    // Its last message has been taken, so nobody reads the slot any more.
    MailLine* leaving = lines_of_message(mail, mail.sent, true);
    const LeavingLines<Message> out{message, leaving, number};
    copy_elements<4>(coop.thread_rank(), coop.size(), out, lines);
    status = by_leader(coop, [&] {
      return lines_by_rdma<Coop::alone>(*mail.heap, way.peer, leaving, arriving,
                                        static_cast<u32>(lines * sizeof(MailLine)), timeout);
    });
    if (!status.ok()) return status;
  }
  mail.sent += 1;
  return status;
}

// The first InFlight lines from `first` on, `stride` apart, once they have come.
template <u32 InFlight>
struct ArrivingLines {
  vec16 held[InFlight];

  // Whether all are there. `missing` is one that is not.
  WV_DEVICE bool look(const MailLine* lines, u64 first, u32 stride, u64 count, u32 number,
                      u32& missing) {
    bool all = true;
    WV_UNROLL
    for (u32 k = 0; k < InFlight; ++k) {
      const u64 i = first + u64{k} * stride;
      if (i < count) held[k] = load16<scope::system>(lines + i);
    }
    WV_UNROLL
    for (u32 k = 0; k < InFlight; ++k) {
      const u64 i = first + u64{k} * stride;
      if (i < count && !has_number(held[k], number)) {
        all = false;
        missing = k;
      }
    }
    return all;
  }
};

// One member's lines. Nothing of them is acquired but they themselves.
template <u32 InFlight, class Message>
WV_DEVICE Status receive_lines(const Mail& mail, const MailLine* lines, u32 number,
                               const Message& message, u32 rank, u32 stride, u64 count,
                               Timeout timeout) {
  HeapPace pace;
  Deadline deadline{0};
  for (u64 first = rank; first < count; first += u64{stride} * InFlight) {
    ArrivingLines<InFlight> arriving;
    u32 missing = 0;
    while (!arriving.look(lines, first, stride, count, number, missing)) {
      if (deadline.end == 0) deadline = deadline_of(*mail.heap, timeout);
      const Status status = pace.next(*mail.heap, mail.from, deadline);
      if (!status.ok()) {
        const MailLine* line = lines + first + u64{missing} * stride;
        const u64 actual = load<order::relaxed, scope::system>(&line->first);
        record_fault(*mail.heap, HeapWait{wait_for::mail, mail.from, line, number}, status, actual);
        return status;
      }
    }
    WV_UNROLL
    for (u32 k = 0; k < InFlight; ++k) {
      const u64 i = first + u64{k} * stride;
      if (i < count) message.put(i, payload_of(arriving.held[k]));
    }
  }
  return Status{};
}

// At the end of a period no line keeps a number.
template <class Coop>
WV_DEVICE void clear_lines(const Coop& coop, const Mail& mail) {
  MailLine* lines = lines_of_message(mail, 0, false);
  const u64 count = lines_of(mail.box.bytes) << mail.box.log_slots;
  for (u64 i = coop.thread_rank(); i < count; i += coop.size()) {
    store16<scope::system>(lines + i, vec16{0, 0});
  }
}

// Counts a message as taken; half of the slots at a time are given back to the sender.
template <class Route, class Coop>
WV_DEVICE Status give_credit(const Coop& coop, Mail& mail, Timeout timeout) {
  mail.received += 1;
  const u64 half = u64{1} << (mail.box.log_slots - 1);
  if (mail.received % half != 0) return Status{};
  if (period_ends(mail, mail.received)) clear_lines(coop, mail);
  return signal<Route>(coop, *mail.heap, &block_of(mail)->credit, SignalAdd{half}, mail.from,
                       unsignalled, timeout);
}

template <class Route, u32 InFlight, class Coop, class Message>
WV_DEVICE Status receive_message(const Coop& coop, Mail& mail, const Message& message, u32 rank,
                                 u32 stride, u32 bytes, Timeout timeout) {
  if (!mail.status.ok()) return mail.status;
  if (bytes > mail.box.bytes) return Status::of(outcome::too_long);
  const Status way = way_to<Route>(*mail.heap, mail.from).status;
  if (!way.ok()) return way;
  const MailLine* lines = lines_of_message(mail, mail.received, false);
  const Status mine = receive_lines<InFlight>(mail, lines, number_of(mail, mail.received), message, rank,
                                        stride, lines_of(bytes), timeout);
  if (!coop.any(!mine.ok())) return give_credit<Route>(coop, mail, timeout);
  // One answer for all members, who may have seen different ends.
  if (coop.any(mine.kind() == outcome::aborted)) return Status::of(outcome::aborted);
  const bool lost = coop.any(mine.kind() == outcome::peer_lost);
  return Status::of(lost ? outcome::peer_lost : outcome::timeout);
}

WV_DEVICE Status check_box(const Heap& heap, const Mailbox& box, u32 to, u32 from) {
  if (box.log_slots == 0 || box.log_slots > 16 || box.log_period > 31 ||
      box.log_period < box.log_slots) {
    return Status::of(outcome::bad_address);
  }
  if (box.block % sizeof(MailLine) != 0 || !holds_range(heap, box.block, mail_block_bytes(box))) {
    return Status::of(outcome::bad_address);
  }
  if ((to != no_rank && to >= heap.world) || (from != no_rank && from >= heap.world)) {
    return Status::of(outcome::no_peer);
  }
  return Status{};
}

}  // namespace impl

template <class Coop>
WV_DEVICE Mail mail_open(const Coop& coop, const Heap& heap, const Mailbox& box, u32 to,
                         u32 from) {
  Mail mail{&heap, box, impl::check_box(heap, box, to, from), to, from, 0, 0, 0};
  if (!mail.status.ok()) return mail;
  coop.sync();
  MailBlock* block = impl::block_of(mail);
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
  const impl::MailBytes message{static_cast<u8*>(const_cast<void*>(source)), bytes};
  return impl::send_message<Route>(coop, mail, message, bytes, timeout);
}

template <class Route, class Coop>
WV_DEVICE Status mail_recv(const Coop& coop, Mail& mail, void* target, u32 bytes,
                           Timeout timeout) {
  if (reinterpret_cast<u64>(target) % 8 != 0) return Status::of(outcome::bad_address);
  const impl::MailBytes message{static_cast<u8*>(target), bytes};
  return impl::receive_message<Route, 4>(coop, mail, message, coop.thread_rank(), coop.size(),
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
  return impl::receive_message<Route, 1>(coop, mail, impl::MailRegister{&value}, 0, 1,
                                         line_payload, timeout);
}

}  // namespace wv
