// Signals: u64 words, 8-byte aligned, that one side raises and the other waits for.
//
// A signal follows everything posted before it on its queue pair: who sees it, with the acquire
// that read_signal and wait_signal do, sees the bytes of the puts before it. Nothing orders
// signals of different queue pairs. Do not mix SignalSet and SignalAdd on one word at one time.
#pragma once

#include "warpverbs/coop.h"
#include "warpverbs/put.h"
#include "warpverbs/qp.h"
#include "warpverbs/status.h"

namespace wv {

enum class compare : u32 { eq, ne, ge, gt, le, lt };

// `what` is SignalAdd or SignalSet.
template <class Coop, class Signal, class Nic>
WV_DEVICE Posted signal(const Coop& coop, const QpOf<Nic>& qp, Remote at, Signal what, Flags = {},
                        Timeout = {});

WV_DEVICE u64 read_signal(const u64* word);

// Waits until `*word how value`, unsigned. The queue pair gives deadline and abort word, and takes
// the fault: expected is `value`, actual what the word was.
template <class Coop, class Nic>
WV_DEVICE Status wait_signal(const Coop& coop, const QpOf<Nic>& qp, const u64* word, compare how,
                             u64 value, Timeout = {});

}  // namespace wv

#include "warpverbs/impl/signal.h"
