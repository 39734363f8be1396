#!/usr/bin/env bash
# Measures FlashInfer's one-sided kernels, DeepEP's low-latency ones and this project beside each other on two GPUs of
# this machine, in turns: the same tokens, and a comparison of all rows. Prints a table, and leaves rows.json and what
# each program said in OUT. Needs a built `warpverbs`; no cargo.
#
#   run.sh [WARPVERBS]      default: the one beside this script
#
#   PEERS    folder with the programs that build.sh makes, or one of them (default: that of this script)
#   TURNS    how often each runs, up to 9 (default: 2)
#   TOKENS   tokens of a rank           (default: "1 8 32 128 512")
#   SEED     of tokens and experts      (default: 7)
#   OUT      folder for the JSON        (default: a new one under /tmp)
#   PYTHON   which Python               (default: python3)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
ours=${1:-$here/warpverbs}
out=${OUT:-$(mktemp -d)}
peers=${PEERS:-$here} tokens=${TOKENS:-1 8 32 128 512} seed=${SEED:-7}
failed=0
for program in "$ours" "$peers/flashinfer" "$peers/deepep"; do
  [ -x "$program" ] || echo "$program: no such program, its rows are left out" >&2
done
if [ ! -x "$ours" ] || [ ! -x "$peers/flashinfer" -a ! -x "$peers/deepep" ]; then
  echo "expected warpverbs, and flashinfer or deepep" >&2
  exit 1
fi
gpus=$(nvidia-smi --query-gpu=index,name,driver_version --format=csv,noheader || true)
echo "$gpus"
if [ "$(wc -l <<<"$gpus")" -lt 2 ]; then
  echo "two GPUs with a link between them are needed" >&2
  exit 1
fi
mkdir -p "$out"
# Of an earlier run, which may have had more turns.
rm -f "$out"/{ours,flashinfer,deepep}.[0-9] "$out/rows.json"

# measure FILE SECONDS PROGRAM…: its JSON. A program that fails or hangs does not keep the others from being measured.
measure() {
  local file=$1 begin=$SECONDS status=0
  timeout --foreground -k 5 "${@:2}" >"$out/$file" || status=$?
  echo "$file: $((SECONDS - begin)) s"
  if [ $status != 0 ]; then
    echo "FAILED, status $status: ${*:3}" >&2
    failed=$((failed + 1))
    rm -f "$out/$file"
  fi
}
for turn in $(seq "${TURNS:-2}"); do
  for peer in flashinfer deepep; do
    # A word for each number of tokens.
    # shellcheck disable=SC2086
    [ ! -x "$peers/$peer" ] || measure "$peer.$turn" 120 "$peers/$peer" "$seed" 4 $tokens
  done
  measure "ours.$turn" 300 "$ours" perf ep --gpus cuda:0,cuda:1 --seed "$seed" --tokens "${tokens// /,}" --layout rank,expert \
    --combine reduced,exact --json
done
"${PYTHON:-python3}" "$here/compare.py" "$out"
echo "$out"
if [ $failed != 0 ]; then
  echo "$failed program(s) failed" >&2
  exit 1
fi
