// The exported QP: where everything lies that a kernel needs to post by itself. Its layout is in
// layout/qp.h. Native byte order; addresses are the poster's own.
#pragma once

#include "warpverbs/layout/qp.h"

namespace wv {

namespace mlx5 {
struct Nic;
}
namespace bnxt {
struct Nic;
}
namespace ionic {
struct Nic;
}

// A queue pair whose queues have the format of `Nic`: the bytes of a QpLayout, and a type by which
// calls are compiled for that format alone.
template <class Nic>
struct QpOf : QpLayout {};

// The NIC that kernels are compiled for, by the namespace of its format: the library's builder compiles a
// unit once for each, and a launch takes the one that its queue pairs have.
#if !defined(WV_NIC)
#define WV_NIC mlx5
#endif
using Qp = QpOf<WV_NIC::Nic>;
using Mlx5Qp = QpOf<mlx5::Nic>;
using BnxtQp = QpOf<bnxt::Nic>;
using IonicQp = QpOf<ionic::Nic>;

// `body(qp)` with the type that `qp.format` says, for kernels that serve all formats: `body` is
// compiled for each. All its results have one type.
template <class Nic, class Body>
WV_HD auto with_format(const QpOf<Nic>& qp, Body body) {
  const QpLayout& layout = qp;
  switch (layout.format) {
    case nic_format::bnxt: return body(static_cast<const BnxtQp&>(layout));
    case nic_format::ionic: return body(static_cast<const IonicQp&>(layout));
    case nic_format::mlx5: break;
  }
  return body(static_cast<const Mlx5Qp&>(layout));
}

}  // namespace wv
