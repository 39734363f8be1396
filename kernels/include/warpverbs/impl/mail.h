// Bodies of mail.h.
//
// Numbers: message n has the number n mod period + 1, in every narrow line, in slot n mod slots. A
// line that a short message leaves alone keeps an old number, which comes again a period later. So
// at the end of a period the receiver clears its lines before it gives the last credit, and the
// sender waits for all credits before it begins the next one.
//
// Wide lines have a mark in place of a number, and are zeroed after each message: not at once, but
// before the next wait for a message, whose sender has not answered yet, and before a credit.
#pragma once

#include "warpverbs/impl/mail_lines.h"

namespace wv {
namespace impl {

WV_DEVICE MailBlock* block_of(const Mail& mail) {
  return reinterpret_cast<MailBlock*>(mail.lines) - 1;
}
WV_DEVICE u32 slots_of(const Mail& mail) { return 1u << mail.box.log_slots; }
WV_DEVICE u32 half_of(const Mail& mail) { return slots_of(mail) / 2; }
WV_DEVICE u32 slot_of(const Mail& mail, u64 n) {
  return (static_cast<u32>(n) & (slots_of(mail) - 1)) * mail.slot_lines;
}
// Messages of the period before message `n`.
WV_DEVICE u32 in_period(const Mail& mail, u64 n) {
  return static_cast<u32>(n) & ((1u << mail.box.log_period) - 1);
}
WV_DEVICE u32 number_of(const Mail& mail, u64 n) { return in_period(mail, n) + 1; }
WV_DEVICE bool period_ends(const Mail& mail, u64 n) { return in_period(mail, n) == 0; }

// By one thread: until one more message may be under way, and a new period may begin.
WV_DEVICE Status await_credit(Mail& mail, bool begins, Timeout timeout) {
  const Signal* word = &block_of(mail)->credit;
  const u64 wanted = begins ? mail.sent : mail.sent + 1 - slots_of(mail);
  const HeapWait wait{wait_for::credit, mail.to, word, wanted};
  HeapDeadline deadline = HeapDeadline::of(*mail.heap, timeout);
  return await_word(
      *mail.heap, wait, deadline,
      [&] { return mail.credit = read_signal(word); }, [&](u64 credit) { return credit >= wanted; });
}

// Room for one more message at least. Asks memory only when what is known does not suffice.
template <class Coop>
WV_DEVICE Status make_room(const Coop& coop, Mail& mail, Timeout timeout) {
  const bool begins = mail.sent != 0 && period_ends(mail, mail.sent);
  const auto under_way = [&] { return mail.sent - mail.credit; };
  Status status;
  if (under_way() >= slots_of(mail) || (begins && under_way() != 0)) {
    status = once(coop, [&] { return await_credit(mail, begins, timeout); });
    mail.credit = coop.broadcast(mail.credit);
    if (!status.ok()) return status;
  }
  const u32 slots = slots_of(mail) - static_cast<u32>(under_way());
  const u32 period = (1u << mail.box.log_period) - in_period(mail, mail.sent);
  mail.room = slots < period ? slots : period;
  mail.send_number = number_of(mail, mail.sent);
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
    const WV_NIC::Nic::WriteInline op{{there.addr, there.key}, reinterpret_cast<const u8*>(leaving), bytes};
    return post_one<Each>(qp, op, unsignalled, deadline).status;
  }
  return post_range<Each>(qp, mlx5::opcode::rdma_write, near_range(heap, leaving), far, bytes,
                          unsignalled, deadline)
      .status;
}

// Why a message of this many bytes is neither sent nor received.
WV_DEVICE Status refused(const Mail& mail, u32 bytes, bool aligned) {
  if (!aligned) return Status::of(outcome::bad_address);
  if (!mail.status.ok()) return mail.status;
  return Status::of(bytes > mail.box.bytes ? outcome::too_long : outcome::no_peer);
}

template <class Route, class Coop, class Message>
WV_DEVICE Status send_message(const Coop& coop, Mail& mail, const Message& message, u32 bytes,
                              Timeout timeout) {
  const u32 wrong = u32{!message.aligned()} | u32{bytes > mail.box.bytes} |
                    u32{!allows(Route{}, mail.sends_by)};
  // Stores of the members are part of the message.
  coop.sync();
  Status status;
  // One branch for all that is rare: each delays the message.
  if ((wrong | u32{mail.room == 0}) != 0) {
    if (wrong != 0) return refused(mail, bytes, message.aligned());
    status = make_room(coop, mail, timeout);
    if (!status.ok()) return status;
  }
  MailLine* arriving = mail.lines + mail.send_slot;
  if (Route::may_be_direct && (!Route::may_be_rdma || mail.sends_by == reach::direct)) {
    const u64 there = reinterpret_cast<u64>(arriving) + mail.to_delta;
    write_lines(coop, message, bytes, reinterpret_cast<MailLine*>(there), mail.send_number);
    go_on_together(coop);
  } else if constexpr (Route::may_be_rdma) {
    // Its last message has been taken, so nobody reads the slot any more.
    MailLine* leaving = arriving + slots_of(mail) * mail.slot_lines;
    write_lines(coop, message, bytes, leaving, mail.send_number);
    status = by_leader(coop, [&] {
      return lines_by_rdma<Coop::alone>(*mail.heap, peer_of(*mail.heap, mail.to), leaving,
                                        arriving, static_cast<u32>(line_bytes(bytes)), timeout);
    });
    if (!status.ok()) return status;
  }
  mail.sent += 1;
  mail.room -= 1;
  mail.send_number += 1;
  mail.send_slot = slot_of(mail, mail.sent);
  return status;
}

// Zeroes the wide lines of the last message, which all members have read.
template <class Coop>
WV_DEVICE void zero_wide(const Coop& coop, Mail& mail) {
  if (mail.wide == 0) return;
  // Not between the lines that other members still send: the way out of a multiprocessor is narrow.
  coop.sync();
  MailLine* lines = mail.lines + slot_of(mail, mail.received - 1);
  WV_ROLLED
  for (u32 i = coop.thread_rank(); i < mail.wide * wide_pairs; i += coop.size()) {
    store16<scope::system>(lines + i, vec16{0, 0});
  }
  mail.wide = 0;
}

// At the end of a period no line keeps a number.
template <class Coop>
WV_DEVICE void clear_lines(const Coop& coop, const Mail& mail) {
  MailLine* lines = mail.lines;
  const u64 count = u64{mail.slot_lines} << mail.box.log_slots;
  WV_ROLLED
  for (u64 i = coop.thread_rank(); i < count; i += coop.size()) {
    store16<scope::system>(lines + i, vec16{0, 0});
  }
}

// Gives half of the slots back to the sender.
template <class Route, class Coop>
WV_DEVICE Status give_credit(const Coop& coop, Mail& mail, Timeout timeout) {
  mail.until_credit = half_of(mail);
  zero_wide(coop, mail);
  if (period_ends(mail, mail.received)) clear_lines(coop, mail);
  mail.take_number = number_of(mail, mail.received);
  return signal<Route>(coop, *mail.heap, &block_of(mail)->credit, SignalAdd{half_of(mail)},
                       mail.from, unsignalled, timeout);
}

// Each member takes the part that it has among `readers`: the group, or `thread` where every member
// takes all of it.
template <class Route, class Coop, class Readers, class Message>
WV_DEVICE Status receive_message(const Coop& coop, const Readers& readers, Mail& mail,
                                 const Message& message, u32 bytes, Timeout timeout) {
  if (!message.aligned() || bytes > mail.box.bytes || !allows(Route{}, mail.receives_by)) {
    return refused(mail, bytes, message.aligned());
  }
  zero_wide(coop, mail);
  LineWait wait{mail, mail.lines + mail.take_slot, mail.take_number, timeout.ns, LinePatience{}};
  const Status mine = read_lines(readers, wait, message, bytes);
  if (coop.any(!mine.ok())) return worst_of(coop, mine);
  if (bytes > narrow_most) mail.wide = wide_lines(bytes);
  mail.received += 1;
  mail.take_number += 1;
  mail.take_slot = slot_of(mail, mail.received);
  mail.until_credit -= 1;
  if (mail.until_credit == 0) {
    const Status given = give_credit<Route>(coop, mail, timeout);
    // The message is here. A signal that fails leaves its queue pair in the error state, so a retry
    // cannot succeed. A direct one cannot fail: `mail_open` has checked the address.
    if (Route::may_be_rdma && !given.ok()) {
      mail.status = given;
      mail.receives_by = reach::none;
    }
  }
  return Status{};
}

WV_DEVICE Status check_box(const Heap& heap, const Mailbox& box, u32 to, u32 from) {
  if (box.log_slots == 0 || box.log_slots > most_log_slots || box.log_period > 30 ||
      box.log_period < box.log_slots) {
    return Status::of(outcome::bad_address);
  }
  // Places in a block are told by u32 numbers of MailLines.
  if (mail_block_bytes(box) / sizeof(MailLine) > ~u32{0}) return Status::of(outcome::bad_address);
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
            reach::none, 0, nullptr, 0, 0, 0, 0, 0, 0, 0, 0};
  if (!mail.status.ok()) return mail;
  const impl::Way there = impl::way_to<route::any>(heap, to);
  const impl::Way back = impl::way_to<route::any>(heap, from);
  if (there.status.ok()) mail.sends_by = there.direct ? reach::direct : reach::rdma;
  if (back.status.ok()) mail.receives_by = back.direct ? reach::direct : reach::rdma;
  mail.to_delta = there.delta;
  MailBlock* block = at_offset<MailBlock>(heap, box.block);
  mail.lines = reinterpret_cast<MailLine*>(block + 1);
  mail.slot_lines = static_cast<u32>(slot_bytes(box.bytes) / sizeof(MailLine));
  coop.sync();
  mail.sent = load<order::relaxed, scope::gpu>(&block->sent);
  mail.received = load<order::relaxed, scope::gpu>(&block->received);
  mail.credit = read_signal(&block->credit);
  // Members must know the same credit: they wait for more together.
  mail.credit = coop.broadcast(mail.credit);
  mail.send_slot = impl::slot_of(mail, mail.sent);
  mail.take_slot = impl::slot_of(mail, mail.received);
  mail.take_number = impl::number_of(mail, mail.received);
  const u32 half = impl::half_of(mail);
  mail.until_credit = half - (static_cast<u32>(mail.received) & (half - 1));
  return mail;
}

template <class Coop>
WV_DEVICE Status mail_close(const Coop& coop, Mail& mail) {
  impl::zero_wide(coop, mail);
  if (mail.lines != nullptr && coop.thread_rank() == 0) {
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
  const impl::MailBytes message{static_cast<u8*>(const_cast<void*>(source))};
  return impl::send_message<Route>(coop, mail, message, bytes, timeout);
}

template <class Route, class Coop>
WV_DEVICE Status mail_recv(const Coop& coop, Mail& mail, void* target, u32 bytes,
                           Timeout timeout) {
  const impl::MailBytes message{static_cast<u8*>(target)};
  return impl::receive_message<Route>(coop, coop, mail, message, bytes, timeout);
}

template <class Route, class Coop>
WV_DEVICE Status mail_try_recv(const Coop& coop, Mail& mail, void* target, u32 bytes,
                               Timeout timeout) {
  if (!mail.status.ok()) return mail.status;
  const vec16 first = load16<scope::system>(mail.lines + mail.take_slot);
  const impl::Numbered numbered{mail.take_number};
  const bool begun = bytes <= narrow_most ? numbered(first) : impl::Marked{}(first);
  if (coop.broadcast(u32{begun}) == 0) return Status::of(outcome::no_room);
  return mail_recv<Route>(coop, mail, target, bytes, timeout);
}

template <class Route, class Coop>
WV_DEVICE Status mail_send_value(const Coop& coop, Mail& mail, u64 value, Timeout timeout) {
  return impl::send_message<Route>(coop, mail, impl::MailRegister{&value}, line_payload, timeout);
}

template <class Route, class Coop>
WV_DEVICE Status mail_recv_value(const Coop& coop, Mail& mail, u64& value, Timeout timeout) {
  return impl::receive_message<Route>(coop, thread, mail, impl::MailRegister{&value},
                                      line_payload, timeout);
}

}  // namespace wv
