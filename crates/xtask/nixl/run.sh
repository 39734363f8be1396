#!/usr/bin/env bash
# Measures NIXL and this project beside each other on this machine, in turns: the same lists, loops and
# comparison of all bytes. Needs a built `warpverbs`, and Python with numpy and NIXL's wheel; no cargo.
#
#   run.sh WARPVERBS
#
#   NIXL      folder with the wheel's content, if Python does not find it by itself
#   PYTHON    which Python                       (default: python3)
#   TURNS     how often each runs                (default: 3)
#   DURATION seconds for each row               (default: 0.2)
#   GPUS      two CUDA devices, such as 0,1; without it host memory alone
#   TABLES    host, sockets, gpu                 (default: all that GPUS allows)
#   OUT       folder for the JSON                (default: a new one under /tmp)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
ours=${1:?usage: run.sh WARPVERBS}
out=${OUT:-$(mktemp -d)}
python=${PYTHON:-python3}
seconds=${DURATION:-0.2}
tables=${TABLES:-host sockets${GPUS:+ gpu}}
gpus=${GPUS:-0,0}
export PYTHONPATH="${NIXL:-}${PYTHONPATH:+:$PYTHONPATH}"
mkdir -p "$out"

# A limit for each program: a row that hangs must not keep the others from being measured.
nixl() { timeout 120 "$python" "$here/driver.py" --seconds "$seconds" "$@"; }
agent() { timeout 120 "$ours" perf agent local -D "$seconds" --json "$@"; }
layouts=(--layouts adjacent,scattered)

host() {
  local shapes=8,4K,64K,1M,4Kx256,4Kx4096
  nixl --mem host --shapes $shapes "${layouts[@]}" >"$out/host.nixl.$1"
  agent -m host,shared -s $shapes "${layouts[@]}" >"$out/host.ours.$1"
}
sockets() {
  local shapes=8,1M,4Kx4096
  # The network that both use; UCX by itself leaves loopback out where it can.
  UCX_TLS=tcp UCX_NET_DEVICES=lo nixl --mem host --shapes $shapes "${layouts[@]}" >"$out/sockets.nixl.$1"
  agent -m host -s $shapes "${layouts[@]}" --nic soft --require network >"$out/sockets.ours.$1"
  agent -m host -s $shapes "${layouts[@]}" --require tcp >"$out/tcp.ours.$1"
}
gpu() {
  local shapes=8,64K,1M,16M,128M,4Kx256,64Kx256,4Kx4096 mixed=8,1M,16M,4Kx256,4Kx4096
  local first=${gpus%,*} second=${gpus#*,}
  nixl --mem gpu --gpus "$gpus" --shapes $shapes --layouts scattered >"$out/gpu.nixl.$1"
  agent -m gpu,malloc -s $shapes --gpu "cuda:$first" --peer-gpu "cuda:$second" >"$out/gpu.ours.$1"
  nixl --mem gpu --gpus "$first,$first" --shapes 8,4Kx4096 --layouts scattered >"$out/one.nixl.$1"
  agent -m gpu -s 8,4Kx4096 --gpu "cuda:$first" >"$out/one.ours.$1"
  nixl --mem host:gpu,gpu:host --gpus "$gpus" --shapes $mixed --layouts scattered >"$out/mixed.nixl.$1"
  agent -m host:gpu,gpu:host,shared:gpu,gpu:shared,pinned:gpu -s $mixed \
    --gpu "cuda:$first" --peer-gpu "cuda:$second" >"$out/mixed.ours.$1"
}

"$python" -c 'import importlib.metadata as m; print(*(f"{d.name} {d.version}" for d in m.distributions() if d.name.startswith("nixl")))'
if [[ $tables == *gpu* ]]; then
  nvidia-smi --query-gpu=index,name,driver_version,clocks.sm --format=csv,noheader
fi
for turn in $(seq "${TURNS:-3}"); do
  for table in $tables; do
    "$table" "$turn" || echo "$table, turn $turn: a program failed" >&2
  done
done
"$python" "$here/compare.py" "$out"
