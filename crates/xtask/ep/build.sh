#!/usr/bin/env bash
# Builds the programs that run FlashInfer's and DeepEP's kernels, which are not changed: flashinfer and deepep in FOLDER.
# Objects of their kernels that are there already are kept. FlashInfer's kernels take two to seven minutes.
#
#   build.sh SOURCES FOLDER
#
#   SOURCES  folder with checkouts of deepseek-ai/DeepEP (DeepEP) and flashinfer-ai/flashinfer (flashinfer)
#   NVCC     nvcc of CUDA 13 (default: nvcc on PATH, then /usr/local/cuda/bin/nvcc)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
sources=${1:?usage: build.sh SOURCES FOLDER} out=${2:?usage: build.sh SOURCES FOLDER}
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
mkdir -p "$out/objects"
compile() { "$nvcc" -std=c++17 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a -w -I"$here" "$@"; }
link() { compile -L"$(dirname "$nvcc")/../lib" "$@"; }
# object NAME SOURCE FLAGS…: an object, unless it is newer than its source.
object() {
  local object=$out/objects/$1.o source=$2
  shift 2
  [ "$object" -nt "$source" ] || compile -c -o "$object" "$source" "$@"
}

flashinfer() {
  local inner=$sources/flashinfer/csrc/nv_internal name
  local flags=(-DENABLE_BF16 -I"$sources/flashinfer/include" -I"$inner" -I"$inner/include")
  object moe "$inner/tensorrt_llm/kernels/communicationKernels/moeAlltoAllKernels.cu" "${flags[@]}"
  for name in stringUtils tllmException; do
    object "$name" "$inner/cpp/common/$name.cpp" "${flags[@]}"
  done
  link -o "$out/flashinfer" "$here/flashinfer.cu" "${flags[@]}" "$out"/objects/{moe,stringUtils,tllmException}.o
}

deepep() {
  local kernels=$sources/DeepEP/csrc/kernels/legacy copy=$out/objects/deepep
  local flags=(-I"$kernels" -I"$sources/DeepEP/csrc" -I"$sources/DeepEP/deep_ep/include")
  # Beside it lies what it includes: our stand-in instead of NVSHMEM.
  mkdir -p "$copy"
  cp -p "$kernels/internode_ll.cu" "$copy/"
  cp "$here/stand_in.cuh" "$copy/ibgda_device.cuh"
  object internode_ll "$copy/internode_ll.cu" "${flags[@]}"
  link -o "$out/deepep" "$here/deepep.cu" "${flags[@]}" "$out/objects/internode_ll.o"
}

[ ! -d "$sources/flashinfer" ] || flashinfer
[ ! -d "$sources/DeepEP" ] || deepep
