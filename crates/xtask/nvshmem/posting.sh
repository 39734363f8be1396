#!/usr/bin/env bash
# Kernels that post 8-byte puts to the same software device, which only consumes: NVSHMEM's IBGDA, as it is,
# beside this project by the direct way. Rings in host memory, doorbells by the GPU. Needs what ibgda.sh needs.
#
#   posting.sh WARPVERBS [ITERS]
#
#   NVCC, NVSHMEM_HOME, PYTHON, OUT, WARPVERBS_PRELOAD, RDMA_CORE  as of ibgda.sh
#   QPS     queue pairs to the peer (default: "1 8")
#   DEPTH   WQEs of a send queue (default: 8192; NVSHMEM's own is 1024)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/build.sh"
build posting
source "$here/ibgda.env"
export NVSHMEM_IBGDA_NIC_HANDLER=gpu NVSHMEM_QP_DEPTH=${DEPTH:-8192}

theirs() {
  local rank pids=()
  rm -f "$out/id"
  for rank in 0 1; do
    NVSHMEM_IBGDA_NUM_RC_PER_PE=$1 timeout "${LIMIT:-60}" "$ours" run --verbose -- \
      "$out/posting" "$rank" "$out/id" "$iters" >"$out/theirs.$1.$rank" 2>"$out/log.theirs.$1.$rank" &
    pids+=($!)
  done
  for rank in 0 1; do
    wait "${pids[$rank]}" || { tail -n 15 "$out/log.theirs.$1.$rank" >&2; return 1; }
  done
}

# One device for both ends: the far one is not posted to.
own() {
  timeout "${LIMIT:-60}" "$ours" run --consume -- "$ours" perf "$@" --gpu cuda:0 --nic mlx5_0 --way direct --json
}

failed=0
for qps in ${QPS:-1 8}; do
  theirs "$qps" || failed=1
done
for turn in 1 2 3; do
  own issue --ring pinned --depth "$NVSHMEM_QP_DEPTH" -n "$iters" -q "$(tr ' ' , <<<"${QPS:-1 8}")" \
    -g 1x1,1x32,32x128,132x256 >"$out/ours.$turn" || { echo "perf issue ended with $?" >&2; failed=1; }
done
own latency -n "$iters" >"$out/ours.latency" || failed=1
"$python" "$here/posting.py" "$out" || failed=1
exit $failed
