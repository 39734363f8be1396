#!/usr/bin/env bash
# NVSHMEM's IBGDA, as it is, on the software NIC of `warpverbs run`: two processes, one NVIDIA GPU each,
# whose kernels post to queues that the NIC reads. Needs nvcc, NVSHMEM's wheel (nvidia-nvshmem-cu13 3.4)
# and libmlx5; no NIC, no cargo.
#
#   ibgda.sh WARPVERBS [ITERS]
#
#   NVCC, NVSHMEM_HOME, PYTHON, OUT  as of run.sh
#   WARPVERBS_PRELOAD  libwarpverbs_preload.so (default: beside WARPVERBS)
#   RDMA_CORE          folder with libibverbs.so.1 and libmlx5.so.1 (default: the system's)
#   HANDLERS           who rings: cpu_host_memory, gpu (default: both)
#   HEAPS              where the heap lies: DEVICE, SYSMEM (default: both)
#   BUFFERS            where queues, CQs and records lie: hostmem, gpumem, auto, default (default: hostmem
#                      and default, which is what NVSHMEM does if nothing is set: GPU memory)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/build.sh"
build ibgda
source "$here/ibgda.env"

failed=0
for buffers in ${BUFFERS:-hostmem default}; do
  force=("NVSHMEM_IBGDA_FORCE_NIC_BUF_MEMTYPE=$buffers")
  [ "$buffers" = default ] && force=(-u NVSHMEM_IBGDA_FORCE_NIC_BUF_MEMTYPE)
  for heap in ${HEAPS:-DEVICE SYSMEM}; do
    for handler in ${HANDLERS:-cpu_host_memory gpu}; do
      echo "heap $heap, doorbells by $handler, queues $buffers"
      rm -f "$out/id"
      log=$out/log.$buffers.$heap.$handler
      pids=()
      for rank in 0 1; do
        env "${force[@]}" NVSHMEM_HEAP_KIND=$heap NVSHMEM_IBGDA_NIC_HANDLER=$handler NVSHMEM_DEBUG=INFO \
          timeout "${LIMIT:-120}" "$ours" run --verbose -- "$out/ibgda" "$rank" "$out/id" "$iters" \
          >"$log.said.$rank" 2>"$log.$rank" &
        pids+=($!)
      done
      for rank in 0 1; do
        wait "${pids[$rank]}" || { failed=1; tail -n 15 "$log.$rank"; }
        grep '^rank' "$log.said.$rank" || true
      done
      # NVSHMEM's own words for where the queues are.
      cat "$log".* | grep -o 'NIC buffer will be on .*' | sort -u || true
    done
  done
done
exit $failed
