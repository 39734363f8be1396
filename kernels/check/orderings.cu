// The PTX of the names of order and scope, wrapper by wrapper and for the steps of the posting
// protocol. orderings.txt holds the operations that each kernel must consist of; kernels/check.sh
// compares.
#include "warpverbs/barrier.h"
#include "warpverbs/mail.h"
#include "warpverbs/shm.h"
#include "warpverbs/stop.h"
#include "warpverbs/warpverbs.h"

namespace impl = wv::impl;
using wv::order, wv::scope, wv::u8, wv::u32, wv::u64, wv::vec16;
using wv::Qp, wv::QueueState, wv::PostState, wv::Received;

// clang-format off
WV_KERNEL(load_relaxed_gpu)(u64* p) { p[1] = wv::load<order::relaxed, scope::gpu>(p); }
WV_KERNEL(load_acquire_gpu)(u64* p) { p[1] = wv::load<order::acquire, scope::gpu>(p); }
WV_KERNEL(load_acquire_sys)(u32* p) { p[1] = wv::load<order::acquire, scope::system>(p); }
WV_KERNEL(load_relaxed_byte)(u8* p) { p[1] = wv::load<order::relaxed, scope::gpu>(p); }
WV_KERNEL(load16_acquire_gpu)(u64* p) { p[2] = wv::load16<order::acquire, scope::gpu>(p).hi; }
WV_KERNEL(store_relaxed_sys)(u32* p) { wv::store<order::relaxed, scope::system>(p, 1); }
WV_KERNEL(store_release_gpu)(u32* p) { wv::store<order::release, scope::gpu>(p, 1); }
WV_KERNEL(store_release_sys)(u64* p) { wv::store<order::release, scope::system>(p, 1); }
WV_KERNEL(store_release_cta)(u64* p) { wv::store<order::release, scope::block>(p, 1); }
WV_KERNEL(write16_plain)(u64* p) { wv::write16(p, vec16{1, 2}); }
WV_KERNEL(add_relaxed_gpu)(u64* p) { p[1] = wv::fetch_add<order::relaxed, scope::gpu>(p, 1); }
WV_KERNEL(add_acq_rel_gpu)(u32* p) { p[1] = wv::fetch_add<order::acq_rel, scope::gpu>(p, 1); }
WV_KERNEL(xor_release_sys)(u64* p) { p[1] = wv::fetch_xor<order::release, scope::system>(p, 1); }
WV_KERNEL(or_release_gpu)(u64* p) { p[1] = wv::fetch_or<order::release, scope::gpu>(p, 1); }
WV_KERNEL(max_relaxed_gpu)(u64* p) { p[1] = wv::fetch_max<order::relaxed, scope::gpu>(p, 1); }
WV_KERNEL(exchange_acq_rel_gpu)(u32* p) { p[1] = wv::exchange<order::acq_rel, scope::gpu>(p, 1); }
WV_KERNEL(cas_acquire_gpu)(u32* p) { p[1] = wv::compare_exchange<order::acquire, scope::gpu>(p, 0, 1); }
WV_KERNEL(cas_acq_rel_sys)(u64* p) { p[1] = wv::compare_exchange<order::acq_rel, scope::system>(p, 0, 1); }
WV_KERNEL(flip_release_gpu)(u64* p) { wv::flip<order::release, scope::gpu>(p, 1); }
WV_KERNEL(flip_relaxed_gpu)(u64* p) { wv::flip<order::relaxed, scope::gpu>(p, 1); }
WV_KERNEL(increase_release_sys)(u64* p) { wv::increase<order::release, scope::system>(p, 1); }
WV_KERNEL(read16_plain)(u64* p) { p[2] = wv::read16(p).hi; }
WV_KERNEL(raise_relaxed_gpu)(u64* p) { wv::raise<order::relaxed, scope::gpu>(p, 1); }
WV_KERNEL(fence_acq_rel_gpu)() { wv::fence<order::acq_rel, scope::gpu>(); }
WV_KERNEL(fence_release_sys)() { wv::fence<order::release, scope::system>(); }
WV_KERNEL(fence_seq_cst_sys)() { wv::fence<order::seq_cst, scope::system>(); }
// clang-format on

// The protocol itself.
WV_KERNEL(publish_group)(const Qp* qp, u64 base) {
  impl::publish(impl::SendQueue(*qp), impl::Group(wv::whole_warp()), base, 32);
}
WV_KERNEL(publish_alone)(const Qp* qp, u64 base) {
  impl::publish(impl::SendQueue(*qp), impl::Alone{}, base, 1, impl::token_is::alone);
}
WV_KERNEL(await)(const Qp* qp, u64 upto, u32* status) {
  *status = wv::poll_cq(*qp, upto).code;
}
WV_KERNEL(see_signal)(const u64* word, u64* out) { *out = wv::read_signal(word); }
WV_KERNEL(give_back_cqes)(const Qp* qp) {
  wv::update_cq_dbrec(*qp);
}
WV_KERNEL(try_reserve_one)(const Qp* qp, u64* base) {
  const impl::SendQueue q(*qp);
  *base = impl::try_reserve(q, 1, 0, [] {}).base;
}
WV_KERNEL(take_receive_one)(const Qp* qp, u64* done, Received* out) {
  (void)impl::take_receive(*qp, *done, *out);
}
WV_KERNEL(scratch_slot)(PostState* state, u64* cell) {
  const u32 slot = impl::try_take_scratch(state);
  cell[slot] = 1;
  impl::give_scratch(state, slot);
}
WV_KERNEL(poll_lock)(QueueState* q, u64* done) {
  u64 now = 0;
  if (!impl::try_lock(q, now)) return;
  impl::raise_completed(q, now + 1);
  impl::unlock(q, now + 2);
  *done = impl::load_poll_word(q).completed();
}
WV_KERNEL(hand_over)(u32* token, u32* kept) { *kept = impl::offer_token(token); }
WV_KERNEL(place_in_block)(u32* out) { *out = wv::lane_id() + impl::Group(wv::whole_warp()).rank; }
WV_KERNEL(stop_enter)(wv::StopRecord* record, u32* entered) { *entered = wv::enter(record); }
WV_KERNEL(stop_leave)(wv::StopRecord* record) { wv::leave(record); }

// The heap, on the direct route.
using direct = wv::route::direct;
WV_KERNEL(heap_put)(const wv::Heap* heap, u64* to, const u64* from, u64 bytes, u32 pe) {
  (void)wv::put<direct>(wv::block, *heap, to, from, bytes, pe);
}
WV_KERNEL(heap_signal_add)(const wv::Heap* heap, wv::Signal* at) {
  (void)wv::signal<direct>(wv::block, *heap, at, wv::SignalAdd{1}, 1);
}
WV_KERNEL(heap_signal_set)(const wv::Heap* heap, wv::Signal* at) {
  (void)wv::signal<direct>(wv::warp, *heap, at, wv::SignalSet{1}, 1);
}
WV_KERNEL(heap_signal_each)(const wv::Heap* heap, wv::Signal* at) {
  (void)wv::signal_each<direct>(wv::thread, *heap, 1, [&](u32 i) { return wv::SignalTo{at, i}; },
                                wv::SignalAdd{1});
}
WV_KERNEL(heap_see_signal)(const wv::Signal* at, u64* out) { *out = wv::read_signal(at); }
WV_KERNEL(heap_atomic)(const wv::Heap* heap, u64* at, u64* old) {
  (void)wv::fetch_add<direct>(wv::thread, *heap, at, u64{1}, *old, 1);
}
WV_KERNEL(heap_fence)(const wv::Heap* heap) { (void)wv::fence(wv::block, *heap, 1); }
WV_KERNEL(heap_barrier)(const wv::Heap* heap, const wv::Team* team) {
  (void)wv::barrier<direct>(wv::block, *heap, *team);
}
WV_KERNEL(heap_mail_send)(wv::Mail* mail, u64 value) {
  (void)wv::mail_send_value<direct>(wv::thread, *mail, value);
}
WV_KERNEL(heap_mail_recv)(wv::Mail* mail, u64* value) {
  (void)wv::mail_recv_value<direct>(wv::thread, *mail, *value);
}
