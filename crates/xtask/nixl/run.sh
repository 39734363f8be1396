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
# Of an earlier run, which may have had more turns.
rm -f "$out"/*.nixl.[0-9]* "$out"/*.ours.[0-9]*
failed=0

# Runs a program whose JSON goes to FILE. A program that fails or hangs must not keep the others from being
# measured; each ends with this script, however that ends.
measure() {
  local file=$1 status=0
  shift
  setpriv --pdeathsig TERM timeout --foreground -k 5 120 "$@" >"$file" || status=$?
  if [ $status != 0 ]; then
    echo "FAILED, status $status: $(basename "$file"): $*" >&2
    failed=$((failed + 1))
  fi
}
nixl() { measure "$out/$1.nixl.$turn" "$python" "$here/driver.py" --seconds "$seconds" "${@:2}"; }
agent() { measure "$out/$1.ours.$turn" "$ours" perf agent local -D "$seconds" --json "${@:2}"; }
layouts=(--layouts adjacent,scattered)

host() {
  local shapes=8,4K,64K,1M,4Kx256,4Kx4096
  nixl host --mem host --shapes $shapes "${layouts[@]}"
  agent host -m host,shared -s $shapes "${layouts[@]}"
}
sockets() {
  local shapes=8,1M,4Kx4096
  # The network that both use; UCX by itself leaves loopback out where it can.
  UCX_TLS=tcp UCX_NET_DEVICES=lo nixl sockets --mem host --shapes $shapes "${layouts[@]}"
  agent sockets -m host -s $shapes "${layouts[@]}" --nic soft --require network
  agent tcp -m host -s $shapes "${layouts[@]}" --require tcp
}
gpu() {
  local shapes=8,64K,1M,16M,128M,4Kx256,64Kx256,4Kx4096 mixed=8,1M,16M,4Kx256,4Kx4096
  local first=${gpus%,*} second=${gpus#*,}
  nixl gpu --mem gpu --gpus "$gpus" --shapes $shapes --layouts scattered
  agent gpu -m gpu,malloc -s $shapes --gpu "cuda:$first" --peer-gpu "cuda:$second"
  nixl one --mem gpu --gpus "$first,$first" --shapes 8,4Kx4096 --layouts scattered
  agent one -m gpu -s 8,4Kx4096 --gpu "cuda:$first"
  nixl mixed --mem host:gpu,gpu:host --gpus "$gpus" --shapes $mixed --layouts scattered
  agent mixed -m host:gpu,gpu:host,shared:gpu,gpu:shared,pinned:gpu -s $mixed \
    --gpu "cuda:$first" --peer-gpu "cuda:$second"
}

"$python" - <<'END'
import importlib.metadata, importlib.util, sys
found = [f"{d.name} {d.version}" for d in importlib.metadata.distributions() if d.name.startswith("nixl")]
if not found or importlib.util.find_spec("numpy") is None:
    sys.exit(f"{sys.executable} has no {'numpy' if found else 'NIXL'}: NIXL names a folder with both, see the first lines of this script")
print(*found)
END
if [[ $tables == *gpu* ]]; then
  nvidia-smi --query-gpu=index,name,driver_version,clocks.sm --format=csv,noheader
fi
for turn in $(seq "${TURNS:-3}"); do
  for table in $tables; do
    "$table"
  done
done
"$python" "$here/compare.py" "$out"
if [ $failed != 0 ]; then
  echo "$failed program(s) failed" >&2
  exit 1
fi
