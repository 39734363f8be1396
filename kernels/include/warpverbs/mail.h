// Mail: messages that carry their own notice. A message arrives one flight after it was sent, with
// no fence and no acknowledgement: 8 bytes of it travel in a line of 16 that also has a sequence
// number, twice, so that whoever sees the number sees the bytes.
//
// A mailbox is a block of the symmetric heap, zero before its first use. Through one block a rank
// sends to one other rank, and receives from one: a pair has one, and so has a ring. Both sides say
// the same number of slots and the same largest message. What a mail says nothing of are puts: only
// signals bring those along.
//
//   wv::Mail mail = wv::mail_open(coop, heap, box, to, from);   once in a kernel
//   wv::mail_send(coop, mail, source, bytes);  wv::mail_recv(coop, mail, target, bytes);
//   wv::mail_close(coop, mail);
//
// A Mail lives in registers, the same in every member of its group. Only one group at a time has a
// block open.
#pragma once

#include "warpverbs/shm.h"

namespace wv {

struct Mailbox {
  u64 block;  // where in the heap
  u32 bytes;  // of the largest message
  u8 log_slots;   // log2 of the messages under way at once, at least 1
  u8 log_period;  // log2 of the messages after which numbers begin anew: 31, or less in tests
  u16 reserved;
};

struct MailBlock {
  u64 sent;       // messages
  u64 received;
  Signal credit;  // messages of this rank that its peer has taken
  u64 pad[4];
  // Lines of all slots as they arrive, then as they leave by RDMA: see mail_block_bytes.
};

struct MailLine {
  u32 low, first, high, second;  // `first` and `second` are the message's number
};

constexpr u32 line_payload = 8;
// Size of the block of a box.
WV_HD constexpr u64 lines_of(u32 bytes) { return (u64{bytes} + line_payload - 1) / line_payload; }
WV_HD constexpr u64 mail_block_bytes(const Mailbox& box) {
  return sizeof(MailBlock) + 2 * (lines_of(box.bytes) << box.log_slots) * sizeof(MailLine);
}

static_assert(sizeof(Mailbox) == 16, "Mailbox");
static_assert(sizeof(MailBlock) == 64 && sizeof(MailLine) == 16, "MailBlock");

struct Mail {
  const Heap* heap;
  Mailbox box;
  Status status;  // why it is not open, if it is not
  u32 to, from;
  u64 sent, received;
  u64 credit;  // as last seen
  // Found out once, so that a message costs no look at the heap.
  reach sends_by, receives_by;
  u64 to_delta;
  MailLine* lines;  // of slot 0, as they arrive
  u32 slot_lines;
};

// `heap` stays where it is. Ranks may be no_rank: nothing is sent or received then. bad_address if
// the block does not lie in the heap, no_peer for ranks that are not reached.
template <class Coop>
WV_DEVICE Mail mail_open(const Coop& coop, const Heap& heap, const Mailbox& box, u32 to, u32 from);

// Keeps the numbers for the next kernel. Returns mail.status.
template <class Coop>
WV_DEVICE Status mail_close(const Coop& coop, const Mail& mail);

// The source, 8-byte aligned, is any memory, and free once the members have synchronised. Waits
// while all slots are taken. too_long beyond the box; after a failure nothing was sent. A message of 0
// bytes takes its slot and does not wait for its sender.
template <class Route = route::any, class Coop>
WV_DEVICE Status mail_send(const Coop& coop, Mail& mail, const void* source, u32 bytes,
                           Timeout = {});

// Waits for the next message, which has `bytes`. The target, 8-byte aligned, is any memory; all
// members see it on return. After a failure the message is still to be received.
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
