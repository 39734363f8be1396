// What kernels that drive many queue pairs at once are given, and what they report.
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
