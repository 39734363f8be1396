#!/usr/bin/env bash
# Measures NVSHMEM and this project beside each other on two GPUs of this machine, in turns: the same
# loops, sizes, blocks and threads. Needs two NVIDIA GPUs, nvcc and NVSHMEM's wheel
# (nvidia-nvshmem-cu13), and a built `warpverbs`; no cargo.
#
#   run.sh WARPVERBS [ITERS]
#
#   NVCC          nvcc of CUDA 13          (default: nvcc on PATH, then /usr/local/cuda/bin/nvcc)
#   NVSHMEM_HOME  folder with include and lib (default: that of Python's nvidia.nvshmem)
#   PYTHON        which Python             (default: python3)
#   TURNS         how often each runs      (default: 2)
#   OUT           folder for the JSON      (default: a new one under /tmp)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/build.sh"
build exchange

theirs() {
  local rank pids=()
  rm -f "$out/id"
  for rank in 0 1; do
    LD_LIBRARY_PATH="$home/lib:${LD_LIBRARY_PATH:-}" NVSHMEM_DISABLE_NVLS=1 NVSHMEM_REMOTE_TRANSPORT=none \
      timeout 300 "$out/exchange" "$rank" "$out/id" "$iters" 100 >"$out/theirs.$1.$rank" &
    pids+=($!)
  done
  for rank in 0 1; do wait "${pids[$rank]}"; done
}

nvidia-smi --query-gpu=index,name,driver_version,clocks.sm --format=csv,noheader
for turn in $(seq "${TURNS:-2}"); do
  theirs "$turn"
  "$ours" perf shmem --gpus cuda:0,cuda:1 -n "$iters" --json >"$out/ours.$turn"
done
"$python" "$here/compare.py" "$out"
