#!/usr/bin/env bash
# Measures FlashInfer's one-sided kernels, DeepEP's low-latency ones and this project beside each other on two GPUs of
# this machine, in turns: the same tokens, and a comparison of all rows. Needs a built `warpverbs`; no cargo.
#
#   run.sh WARPVERBS
#
#   SOURCES  folder with DeepEP and flashinfer, see build.sh
#   PEERS    folder with the programs that build.sh makes of them (default: $OUT)
#   TURNS    how often each runs, up to 9 (default: 2)
#   TOKENS   tokens of a rank           (default: "1 8 32 128 512")
#   OUT      folder for the JSON        (default: a new one under /tmp)
#   PYTHON   which Python               (default: python3)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
ours=${1:?usage: run.sh WARPVERBS}
out=${OUT:-$(mktemp -d)}
peers=${PEERS:-$out} tokens=${TOKENS:-1 8 32 128 512} seed=${SEED:-7}
mkdir -p "$out"
[ -z "${SOURCES:-}" ] || "$here/build.sh" "$SOURCES" "$peers"
nvidia-smi --query-gpu=index,name,driver_version --format=csv,noheader
for turn in $(seq "${TURNS:-2}"); do
  for peer in flashinfer deepep; do
    [ ! -x "$peers/$peer" ] || timeout 120 "$peers/$peer" "$seed" 4 $tokens >"$out/$peer.$turn"
  done
  timeout 300 "$ours" perf ep --gpus cuda:0,cuda:1 --seed "$seed" --tokens "${tokens// /,}" --layout rank,expert \
    --combine reduced,exact --json >"$out/ours.$turn"
done
"${PYTHON:-python3}" "$here/compare.py" "$out"
