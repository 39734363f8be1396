// What the names of order and scope become in PTX. Each kernel must contain the instruction in the
// comment after it, and no other memory operation that is stronger; kernels/check.sh compares.
#include "warpverbs/warpverbs.h"

using namespace wv;

// clang-format off
WV_KERNEL(load_relaxed_gpu)(u64* p) { p[1] = load<order::relaxed, scope::gpu>(p); }          // ld.relaxed.gpu.global.u64
WV_KERNEL(load_acquire_gpu)(u64* p) { p[1] = load<order::acquire, scope::gpu>(p); }          // ld.acquire.gpu.global.u64
WV_KERNEL(load_acquire_sys)(u32* p) { p[1] = load<order::acquire, scope::system>(p); }       // ld.acquire.sys.global.u32
WV_KERNEL(load_relaxed_byte)(u8* p) { p[1] = load<order::relaxed, scope::gpu>(p); }          // ld.relaxed.gpu.global.u8
WV_KERNEL(load16_acquire_gpu)(u64* p) { p[2] = load16<order::acquire, scope::gpu>(p).hi; }   // ld.acquire.gpu.global.v2.u64
WV_KERNEL(store_relaxed_sys)(u32* p) { store<order::relaxed, scope::system>(p, 1); }         // st.relaxed.sys.global.u32
WV_KERNEL(store_release_gpu)(u32* p) { store<order::release, scope::gpu>(p, 1); }            // st.release.gpu.global.u32
WV_KERNEL(store_release_sys)(u64* p) { store<order::release, scope::system>(p, 1); }         // st.release.sys.global.u64
WV_KERNEL(store_release_cta)(u64* p) { store<order::release, scope::block>(p, 1); }          // st.release.cta.global.u64
WV_KERNEL(store16_sys)(u64* p) { store16<scope::system>(p, vec16{1, 2}); }                   // st.relaxed.sys.global.v2.u64
WV_KERNEL(write16_plain)(u64* p) { write16(p, vec16{1, 2}); }                                // st.global.v2.u64
WV_KERNEL(add_relaxed_gpu)(u64* p) { p[1] = fetch_add<order::relaxed, scope::gpu>(p, 1); }   // atom.relaxed.gpu.global.add.u64
WV_KERNEL(add_acq_rel_gpu)(u32* p) { p[1] = fetch_add<order::acq_rel, scope::gpu>(p, 1); }   // atom.acq_rel.gpu.global.add.u32
WV_KERNEL(xor_release_sys)(u64* p) { p[1] = fetch_xor<order::release, scope::system>(p, 1); } // atom.release.sys.global.xor.b64
WV_KERNEL(or_release_gpu)(u64* p) { p[1] = fetch_or<order::release, scope::gpu>(p, 1); }     // atom.release.gpu.global.or.b64
WV_KERNEL(and_relaxed_gpu)(u32* p) { p[1] = fetch_and<order::relaxed, scope::gpu>(p, 1); }   // atom.relaxed.gpu.global.and.b32
WV_KERNEL(max_relaxed_gpu)(u64* p) { p[1] = fetch_max<order::relaxed, scope::gpu>(p, 1); }   // atom.relaxed.gpu.global.max.u64
WV_KERNEL(exchange_acq_rel_gpu)(u32* p) { p[1] = exchange<order::acq_rel, scope::gpu>(p, 1); } // atom.acq_rel.gpu.global.exch.b32
WV_KERNEL(cas_acquire_gpu)(u32* p) { p[1] = compare_exchange<order::acquire, scope::gpu>(p, 0, 1); } // atom.acquire.gpu.global.cas.b32
WV_KERNEL(cas_acq_rel_sys)(u64* p) { p[1] = compare_exchange<order::acq_rel, scope::system>(p, 0, 1); } // atom.acq_rel.sys.global.cas.b64
WV_KERNEL(flip_release_gpu)(u64* p) { flip<order::release, scope::gpu>(p, 1); }              // red.release.gpu.global.xor.b64
WV_KERNEL(flip_relaxed_gpu)(u64* p) { flip<order::relaxed, scope::gpu>(p, 1); }              // red.relaxed.gpu.global.xor.b64
WV_KERNEL(raise_relaxed_gpu)(u64* p) { raise<order::relaxed, scope::gpu>(p, 1); }            // red.relaxed.gpu.global.max.u64
WV_KERNEL(fence_acq_rel_gpu)() { fence<order::acq_rel, scope::gpu>(); }                      // fence.acq_rel.gpu
WV_KERNEL(fence_release_sys)() { fence<order::release, scope::system>(); }                   // fence.acq_rel.sys
WV_KERNEL(fence_seq_cst_sys)() { fence<order::seq_cst, scope::system>(); }                   // fence.sc.sys
// clang-format on

// The protocol itself. Ready bits, token, doorbell with record, CQE, `completed`, poll token.
WV_KERNEL(publish_group)(const Qp* qp, u64 base) {  // red.release.gpu.global.xor.b64 atom.acq_rel.gpu.global.add.u32 ld.acquire.gpu.global.v2.u64 st.relaxed.sys.global.u32 st.release.sys.global.u64 atom.acq_rel.gpu.global.cas.b32
  impl::publish(impl::SendQueue(*qp), impl::Group(whole_warp()), base, 32);
}
WV_KERNEL(publish_alone)(const Qp* qp, u64 base) {  // st.relaxed.sys.global.u32 st.release.sys.global.u64 red.relaxed.gpu.global.xor.b64 atom.acq_rel.gpu.global.cas.b32
  impl::publish_held(impl::SendQueue(*qp), base, 1, true);
}
WV_KERNEL(await)(const Qp* qp, u64 upto, u32* status) {  // ld.acquire.gpu.global.u64 atom.acquire.gpu.global.cas.b32 ld.acquire.sys.global.u64 st.release.gpu.global.u64 st.release.gpu.global.u32
  *status = poll_cq(*qp, upto).code;
}
WV_KERNEL(see_signal)(const u64* word, u64* out) { *out = read_signal(word); }  // ld.acquire.sys.global.u64
