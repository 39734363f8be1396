// Arguments and reports of kernels that drive many queue pairs at once.
#pragma once

#include "warpverbs/warpverbs.h"

// One queue pair, and what is moved by it.
struct Target {
  const wv::Qp* qp;
  wv::Local local;
  wv::Remote remote;
};

// Keeps the first bad status in report[0].
WV_DEVICE void note(wv::u64* report, wv::Status status) {
  if (!status.ok()) {
    (void)wv::compare_exchange<wv::order::relaxed, wv::scope::gpu>(report, 0, wv::u64{status.code});
  }
}

// Raises report[1] to the complement of now, so that the earliest start of all is the largest.
WV_DEVICE void note_start(wv::u64* report) {
  wv::raise<wv::order::relaxed, wv::scope::gpu>(report + 1, ~wv::now_ns());
}

// Raises report[2] to now.
WV_DEVICE void note_end(wv::u64* report) {
  wv::raise<wv::order::relaxed, wv::scope::gpu>(report + 2, wv::now_ns());
}

// `n` operations by the lanes of a warp, as many as fit at a time, and their completion: `post(group)`
// posts one for each member of the group.
template <class Post>
WV_DEVICE wv::Status post_by_lanes(const wv::Qp& qp, wv::u32 n, Post post) {
  const wv::lane_mask all = wv::whole_warp();
  const wv::u32 lanes = wv::warp.size();
  wv::Status status;
  for (; n >= lanes && status.ok(); n -= lanes) status = post(wv::warp).status;
  if (status.ok() && wv::lane_id() < n) status = post(wv::thread).status;
  wv::sync_warp(all);
  if (wv::ballot(all, status.ok()) != all) return status;
  return wv::quiet(wv::warp, qp);
}

// The caller's part of `total` that `parts` share.
WV_DEVICE wv::u32 part_of(wv::u32 total, wv::u32 parts, wv::u32 part) {
  return total / parts + (part < total % parts ? 1 : 0);
}

// `iters` operations on each of `count` targets, the grid's warps shared out over them:
// `work(target, n)` does a warp's part on one.
template <class Work>
WV_DEVICE void share_out(const Target* targets, wv::u32 count, wv::u32 iters, wv::u64* report,
                         Work work) {
  if (count == 0) return;
  const wv::u32 warps_per_block = (wv::block_size() + wv::warp_size - 1) / wv::warp_size;
  const wv::u32 warps = wv::grid_size() * warps_per_block;
  const wv::u32 me = wv::block_index() * warps_per_block + wv::warp_index();
  if (wv::lane_id() == 0) note_start(report);
  for (wv::u32 i = me % count; i < count; i += warps) {
    const Target target = targets[i];
    const wv::u32 sharers = warps > count ? (warps - 1 - i) / count + 1 : 1;
    const wv::u32 n = part_of(iters, sharers, warps > count ? me / count : 0);
    note(report, work(target, n));
  }
  if (wv::lane_id() == 0) note_end(report);
}
