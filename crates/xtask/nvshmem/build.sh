# Sourced by run.sh, ibgda.sh and posting.sh, which say what the variables are: the arguments of both, and a program
# that is linked with NVSHMEM's wheel.
ours=${1:?usage: $(basename "$0") WARPVERBS [ITERS]}
iters=${2:-2000}
out=${OUT:-$(mktemp -d)}
python=${PYTHON:-python3}
mkdir -p "$out"

nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
home=${NVSHMEM_HOME:-$("$python" -c 'import nvidia.nvshmem as n; print(list(n.__path__)[0])')} ||
  { echo "no NVSHMEM: set NVSHMEM_HOME or install nvidia-nvshmem-cu13" >&2; exit 1; }

# build NAME: NAME.cu beside this file becomes $out/NAME, unless that is newer.
build() {
  [ "$out/$1" -nt "$here/$1.cu" ] && return
  local host arch
  host=$(find "$home/lib" -name 'libnvshmem_host.so*' | sort | head -n 1)
  arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)
  "$nvcc" -std=c++17 -rdc=true -arch="sm_$arch" -I"$home/include" -L"$(dirname "$nvcc")/../lib" -o "$out/$1" \
    "$here/$1.cu" "$home/lib/libnvshmem_device.a" -Xlinker "$host"
}
