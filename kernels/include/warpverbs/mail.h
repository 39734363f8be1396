// Mail: messages that carry their own notice. A message arrives one flight after it was sent, with
// no fence and no acknowledgement: each 8 aligned bytes of it arrive as one and say that they have.
// Up to 4 KiB, 4 bytes of payload travel beside 4 of the message's number; of longer messages 63
// bits beside a mark (impl/mail_lines.h).
//
// A mailbox is a block of the symmetric heap, zero before its first use. Through one block a rank
// sends to one other rank, and receives from one: a pair has one, and so has a ring. Both sides say
// the same number of slots and the same largest message. A mail does not make earlier puts visible:
// only signals do.
//
//   wv::Mail mail = wv::mail_open(coop, heap, box, to, from);   once in a kernel
//   wv::mail_send(coop, mail, source, bytes);  wv::mail_recv(coop, mail, target, bytes);
//   wv::mail_close(coop, mail);
//
// A Mail lives in registers, the same in every member of its group. Only one group at a time has a
// block open.
#pragma once

#include "warpverbs/layout/team.h"
#include "warpverbs/shm.h"

namespace wv {

struct Mailbox {
  u64 block;  // where in the heap
  u32 bytes;  // of the largest message
  u8 log_slots;   // log2 of the messages under way at once, at least 1
  u8 log_period;  // log2 of the messages after which numbers begin anew: 30, or less in tests
  u16 reserved;
};

struct MailLine {
  u32 low, first, high, second;  // `first` and `second` are the message's number
};

constexpr u32 wide_payload = 8 * wide_words;

// Wide lines of a message.
WV_HD constexpr u32 wide_lines(u32 bytes) {
  return static_cast<u32>((u64{bytes} + wide_payload - 1) / wide_payload);
}
// Bytes that a message takes on its way. A message of 0 bytes takes a line as well: it has to arrive.
WV_HD constexpr u64 line_bytes(u32 bytes) {
  const u64 narrow = bytes == 0 ? 1 : (u64{bytes} + line_payload - 1) / line_payload;
  return sizeof(MailLine) * (bytes <= narrow_most ? narrow : u64{wide_lines(bytes)} * wide_pairs);
}
// Bytes of a slot: the largest message, or the longest in narrow lines, which may take more.
WV_HD constexpr u64 slot_bytes(u32 most) {
  const u64 narrow = line_bytes(most < narrow_most ? most : narrow_most);
  return line_bytes(most) > narrow ? line_bytes(most) : narrow;
}
// Size of the block of a box.
WV_HD constexpr u64 mail_block_bytes(const Mailbox& box) {
  return sizeof(MailBlock) + 2 * (slot_bytes(box.bytes) << box.log_slots);
}

static_assert(sizeof(Mailbox) == 16, "Mailbox");
static_assert(sizeof(MailLine) == 16, "MailLine");

struct Mail {
  const Heap* heap;
  Mailbox box;
  Status status;  // why it is not open, or takes no more messages
  u32 to, from;
  u64 sent, received;
  u64 credit;  // as last seen
  // Found out once, so that a message costs no look at the heap.
  reach sends_by, receives_by;
  u64 to_delta;
  MailLine* lines;  // of slot 0, as they arrive
  u32 slot_lines;
  u32 wide;  // lines of the last message received that are still to be zeroed
  // Of the next messages, worked out before there is need: what a call computes first delays it.
  u32 send_number, take_number;
  u32 send_slot, take_slot;  // offsets from `lines`, in MailLines
  u32 room;                  // messages that may leave without a look at the credit
  u32 until_credit;          // messages to take until the next one is given
};

// `heap` stays where it is. Ranks may be no_rank: nothing is sent or received then. bad_address if
// the block does not lie in the heap, no_peer for ranks that are not reached.
template <class Coop>
WV_DEVICE Mail mail_open(const Coop& coop, const Heap& heap, const Mailbox& box, u32 to, u32 from);

// Keeps the numbers for the next kernel. Returns mail.status: the sender of a mail that was open waits
// for credits that will not come.
template <class Coop>
WV_DEVICE Status mail_close(const Coop& coop, Mail& mail);

// The source, 8-byte aligned, is any memory, and free once the members have synchronised. Waits
// while all slots are taken. too_long beyond the box; after a failure nothing was sent.
template <class Route = route::any, class Coop>
WV_DEVICE Status mail_send(const Coop& coop, Mail& mail, const void* source, u32 bytes,
                           Timeout = {});

// Waits for the next message, which has `bytes`. The target, 8-byte aligned, is any memory; all
// members see it on return. After a failure the message is still to be received. If the message has
// come and its slots cannot be given back, this call still succeeds: the next one to receive
// and mail_close return the cause.
template <class Route = route::any, class Coop>
WV_DEVICE Status mail_recv(const Coop& coop, Mail& mail, void* target, u32 bytes, Timeout = {});

// no_room if the next message has not begun to arrive, else as mail_recv.
template <class Route = route::any, class Coop>
WV_DEVICE Status mail_try_recv(const Coop& coop, Mail& mail, void* target, u32 bytes,
                               Timeout = {});

// A message of 8 bytes from and to a register.
template <class Route = route::any, class Coop>
WV_DEVICE Status mail_send_value(const Coop& coop, Mail& mail, u64 value, Timeout = {});
template <class Route = route::any, class Coop>
WV_DEVICE Status mail_recv_value(const Coop& coop, Mail& mail, u64& value, Timeout = {});

}  // namespace wv

#include "warpverbs/impl/mail.h"
