#!/usr/bin/env bash
# Builds the programs that run FlashInfer's and DeepEP's kernels, which are not changed: flashinfer and deepep in FOLDER.
# Files newer than their sources are kept. FlashInfer's kernels take two to ten minutes.
#
#   build.sh SOURCES FOLDER
#
#   SOURCES  folder with checkouts of deepseek-ai/DeepEP (DeepEP) and flashinfer-ai/flashinfer (flashinfer), or of one
#   NVCC     nvcc of CUDA 13 (default: nvcc on PATH, then /usr/local/cuda/bin/nvcc)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
sources=${1:?usage: build.sh SOURCES FOLDER} out=${2:?usage: build.sh SOURCES FOLDER}
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
if [ ! -d "$sources/flashinfer" ] && [ ! -d "$sources/DeepEP" ]; then
  echo "$sources has neither flashinfer nor DeepEP: expected a checkout of at least one" >&2
  exit 1
fi
if ! "$nvcc" --version >/dev/null; then
  echo "$nvcc does not run: NVCC names the nvcc of CUDA 13" >&2
  exit 1
fi
mkdir -p "$out/objects"
# make FILE INPUTS… -- FLAGS…: an object or a program, unless it is newer than all inputs. Another name until it is whole.
make() {
  local file=$1 input old=
  local inputs=()
  shift
  while [ "$1" != -- ]; do
    inputs+=("$1")
    shift
  done
  for input in "${inputs[@]}"; do
    [ "$file" -nt "$input" ] || old=1
  done
  [ -n "$old" ] || return 0
  echo "$(basename "$file") …"
  "$nvcc" -std=c++17 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a -w -I"$here" "${@:2}" -o "$file.part"
  mv "$file.part" "$file"
}
libraries=-L$(dirname "$nvcc")/../lib

flashinfer() {
  local inner=$sources/flashinfer/csrc/nv_internal name source objects=()
  local flags=(-DENABLE_BF16 -I"$sources/flashinfer/include" -I"$inner" -I"$inner/include")
  for name in tensorrt_llm/kernels/communicationKernels/moeAlltoAllKernels.cu cpp/common/{stringUtils,tllmException}.cpp; do
    source=$inner/$name
    objects+=("$out/objects/$(basename "${name%.*}").o")
    make "${objects[-1]}" "$source" -- -c "$source" "${flags[@]}"
  done
  make "$out/flashinfer" "$here"/{flashinfer.cu,rig.h} "${objects[@]}" -- "$libraries" "$here/flashinfer.cu" "${flags[@]}" "${objects[@]}"
}

deepep() {
  local kernels=$sources/DeepEP/csrc/kernels/legacy copy=$out/objects/deepep object=$out/objects/internode_ll.o
  local flags=(-I"$kernels" -I"$sources/DeepEP/csrc" -I"$sources/DeepEP/deep_ep/include")
  # Beside it lies what it includes: our stand-in instead of NVSHMEM.
  mkdir -p "$copy"
  cp -p "$kernels/internode_ll.cu" "$copy/"
  cp -p "$here/stand_in.cuh" "$copy/ibgda_device.cuh"
  make "$object" "$copy"/{internode_ll.cu,ibgda_device.cuh} -- -c "$copy/internode_ll.cu" "${flags[@]}"
  make "$out/deepep" "$here"/{deepep.cu,rig.h} "$object" -- "$libraries" "$here/deepep.cu" "${flags[@]}" "$object"
}

[ ! -d "$sources/flashinfer" ] || flashinfer
[ ! -d "$sources/DeepEP" ] || deepep
