#!/usr/bin/env bash
# Compiles every kernel with every compiler that is here, and looks at what came out. Installs
# nothing; what is missing is skipped, and said so.
#
#   CXX     host compilers for the SIMT device      (default: g++ clang++)
#   NVCC    nvcc of CUDA 13                         (default: nvcc on PATH)
#   NVDISASM nvdisasm of CUDA 13                    (default: nvdisasm on PATH)
#   CLANG   a clang++ that knows amdgcn             (default: clang++-19, which knows all of HIP_ARCHS, or clang++)
#   CUDA_ARCHS of the kernels (default: 80 90 100), which may be none
#   HIP_ARCHS of the kernels (default: gfx90a gfx942 gfx1100 gfx1201)   HIP_KERNELS: some of the files (default: all)
#   STRICT=1: what is skipped fails
#
# NVRTC has a test of its own: cargo test --workspace --test it nvrtc:: -- --ignored
set -euo pipefail
cd "$(dirname "$0")"

CXX=${CXX:-g++ clang++}
NVCC=${NVCC:-nvcc}
NVDISASM=${NVDISASM:-nvdisasm}
CLANG=${CLANG:-$(command -v clang++-19 || echo clang++)}
CUDA_ARCHS=${CUDA_ARCHS-80 90 100}
HIP_ARCHS=${HIP_ARCHS:-gfx90a gfx942 gfx1100 gfx1201}
out=$(mktemp -d)
sources=(src/*.cu ../crates/*/kernels/*.cu)
# faults.cu breaks rules of the SIMT device, and traps.
hip_sources=()
for file in ${HIP_KERNELS:-"${sources[@]}"}; do
  [ "$file" = ../crates/test-kernels/kernels/faults.cu ] || hip_sources+=("$file")
done
trap 'rm -rf "$out"' EXIT
failed=0

skip() {
  echo "SKIPPED: $1"
  if [ "${STRICT:-0}" = 1 ]; then failed=1; fi
}
fail() {
  echo "FAILED: $1"
  failed=1
}
# Unless something failed so far.
ok() {
  if [ $failed = 0 ]; then echo "ok: $1"; fi
}

# Calls `compile FILE LOG` for each file, as many at once as there are cores. LOG gets what it prints, which
# is shown if it fails. Fills `broken` with the files that failed. Variables that `compile` uses must be exported.
each() {
  logs=$out/logs
  rm -rf "$logs" && mkdir "$logs"
  export -f compile
  # shellcheck disable=SC2016
  printf '%s\0' "$@" | xargs -0 -P "$(nproc)" -I{} bash -c '
    log=$1/$(tr / _ <<<"$2"); compile "$2" "$log" >"$log" 2>&1 || touch "$log.failed"' each "$logs" {}
  broken=()
  local file log
  for file in "$@"; do
    log=$logs/$(tr / _ <<<"$file")
    [ ! -e "$log.failed" ] || { cat "$log"; broken+=("$file"); }
  done
}

# Each public header by itself, then each kernel file.
host() {
  local file
  export cxx=$1
  command -v "$cxx" >/dev/null || { skip "$cxx is not here: kernels not compiled for the SIMT device with it"; return; }
  export flags="-std=c++20 -Wall -Wextra -Werror -Wno-unused-function -Iinclude -Isrc -fsyntax-only -x c++"
  compile() { "$cxx" $flags -include "$1" /dev/null; }
  each include/warpverbs/*.h include/warpverbs/{layout,mlx5,bnxt,ionic}/*.h
  for file in "${broken[@]}"; do fail "$cxx: $file is not complete by itself"; done
  compile() { "$cxx" $flags "$1"; }
  each "${sources[@]}"
  for file in "${broken[@]}"; do fail "$cxx: $file"; done
  # An immediate is not taken for flags.
  printf '%s\n' '#include "warpverbs/put.h"' 'wv::Posted f(const wv::Qp& q, wv::u32 imm) {' \
    '  (void)imm; return wv::put(wv::thread, q, wv::Local{}, wv::Remote{}, 8, FLAGS); }' >"$out/flags.cc"
  "$cxx" $flags -DFLAGS=wv::fenced "$out/flags.cc" || fail "$cxx: flags are refused"
  "$cxx" $flags -DFLAGS=imm "$out/flags.cc" 2>/dev/null && fail "$cxx: an integer is taken for flags"
  ok "$cxx, headers one by one and kernels, for the SIMT device"
}

# A queue's fast path has no business in local memory. Two kernels of tests may use it, which pass what they
# do next from call to call.
cuda() {
  local file log
  export arch=$1 NVCC
  compile() {
    "$NVCC" -cubin -arch="sm_$arch" -std=c++20 -Werror all-warnings -Iinclude -Isrc -Xptxas -v -o "$2.cubin" "$1"
  }
  each "${sources[@]}"
  for file in "${broken[@]}"; do fail "nvcc sm_$arch: $file"; done
  for file in "${sources[@]}"; do
    log=$logs/$(tr / _ <<<"$file")
    [ ! -e "$log.failed" ] || continue
    awk -v file="$file" -v arch="$arch" '
      /Compiling entry function/ { split($0, part, "\047"); name = part[2] }
      /bytes stack frame/ { stack = $0; sub(/^ */, "", stack); sub(/ bytes stack frame.*/, "", stack) }
      /Used [0-9]+ registers/ {
        match($0, /Used [0-9]+/); registers = substr($0, RSTART + 5, RLENGTH - 5)
        printf "   sm_%s %-18s %-16s %3d registers %3d bytes of stack\n", arch, file, name, registers, stack
        if (stack + 0 > 0 && name != "mixed" && name != "formats_steps") bad = 1
      }
      END { exit bad }' "$log" || fail "nvcc sm_$arch: $file keeps something in local memory"
  done
  ok "nvcc sm_$arch"
}

# Every kernel of orderings.cu consists of the operations in orderings.txt, and of no other.
orderings() {
  local arch=$1
  "$NVCC" -ptx -arch="sm_$arch" -std=c++20 -Iinclude -o "$out/orderings.ptx" check/orderings.cu ||
    { fail "nvcc sm_$arch: check/orderings.cu"; return; }
  awk '
    /\.entry / { match($0, /\.entry [a-z0-9_]+/); print substr($0, RSTART + 7, RLENGTH - 7) }
    # The definition of a function of wv::impl that is not inlined; its declaration has no list.
    /^\.func.*\($/ { sub(/.*_ZN2wv4impl[0-9]+/, ""); sub(/E.*/, ""); print }
    {
      for (i = 1; i <= NF; i++) {
        op = $i; sub(/;$/, "", op)
        if (op ~ /^(fence|membar|atom|red)\./ || op ~ /^(ld|st)\.(relaxed|acquire|release|volatile|mmio)\./) {
          print "  " op
          break
        }
      }
    }' "$out/orderings.ptx" >"$out/found"
  # Lanes are told apart by the hardware's numbers, whatever the block's shape.
  local register
  for register in laneid lanemask_lt; do
    awk '/\.entry place_in_block/ { on = 1 } on { print } on && /^}/ { exit }' "$out/orderings.ptx" |
      grep -q "%$register" || fail "sm_$arch: %$register is not used"
  done
  python3 check/compare.py check/orderings.txt "$out/found" || fail "sm_$arch: orderings differ from check/orderings.txt"
  ok "orderings in PTX for sm_$arch"
}

# The same in the machine's code, for the kernels of check/sass_sm_90.txt.
sass() {
  command -v "$NVDISASM" >/dev/null || { skip "no nvdisasm: orderings in SASS not compared"; return; }
  "$NVCC" -cubin -arch=sm_90 -std=c++20 -Iinclude -o "$out/orderings.cubin" check/orderings.cu &&
    "$NVDISASM" -c "$out/orderings.cubin" >"$out/orderings.sass" ||
    { fail "nvcc and nvdisasm sm_90: check/orderings.cu"; return; }
  awk '
    /^\.text\./ { sub(/^\.text\./, ""); sub(/:.*/, ""); print }
    {
      for (i = 1; i <= NF; i++) {
        op = $i; sub(/;$/, "", op)
        if (op ~ /^(MEMBAR|FENCE|CCTL|ATOMG?|REDG?)\./ || op ~ /^(LD|ST)G?\..*(STRONG|MMIO)/) {
          print "  " op
          break
        }
      }
    }' "$out/orderings.sass" >"$out/found"
  python3 check/compare.py check/sass_sm_90.txt "$out/found" some || fail "sm_90: SASS differs from check/sass_sm_90.txt"
  ok "orderings in SASS for sm_90"
}

# Each kernel's registers, spills and waves of a SIMD that fit at once, and how many accesses of a file are by pointers
# that may as well be to memory of the block or the lane (flat). Then the kernels of check/lockstep.cu: what
# takes a lock in a loop gives it back there. And, by clang 19, the orders in the machine's code.
hip() {
  local file
  export arch=$1 CLANG
  if ! echo | "$CLANG" -x hip --cuda-device-only --offload-arch="$arch" -nogpuinc -nogpulib -E - >/dev/null 2>&1; then
    skip "$CLANG does not know $arch"
    return
  fi
  # A kernel that nobody bounded is compiled for blocks of 1024 threads, and told that fewer waves fit than that could use.
  compile() {
    "$CLANG" -x hip --cuda-device-only --offload-arch="$arch" -nogpuinc -nogpulib -std=c++20 -O2 -Wall \
      -Wno-unused-function -Wno-pass-failed -Iinclude -Isrc -S -o "$2.s" "$1"
  }
  each "${hip_sources[@]}" check/lockstep.cu check/orderings.cu
  for file in "${broken[@]}"; do fail "$CLANG $arch: $file"; done
  for file in "${hip_sources[@]}"; do
    awk -v file="$file" -v arch="$arch" '
      /^; Kernel info:/ { kernel = 1 }
      /^; Occupancy:/ && kernel { occupancy[++kernels] = $3; kernel = 0 }
      /^\t(flat|global)_(load|store|atomic)_/ { accesses += 1; flat += /^\tflat_/ }
      /^    \.name: / { name = $2 }
      /^    \.sgpr_spill_count:/ { scalars = $2 }
      /^    \.vgpr_count:/ { registers = $2 }
      /^    \.vgpr_spill_count:/ {
        printf "   %s %-18s %-16s %3d registers %3d and %3d spilled %2d waves\n", arch, file, name, registers, $2, scalars, occupancy[++told]
      }
      END { printf "   %s %-18s %d of %d accesses flat\n", arch, file, flat, accesses }' "$logs/$(tr / _ <<<"$file").s"
  done
  python3 check/loops.py "$logs/check_lockstep.cu.s" || fail "$CLANG $arch: lanes would wait for each other"
  if [ -e "check/$arch.txt" ] && "$CLANG" --version | grep -q 'version 19\.'; then
    awk -f check/gfx.awk "$logs/check_orderings.cu.s" >"$out/found"
    python3 check/compare.py "check/$arch.txt" "$out/found" some || fail "$arch: the machine's code differs from check/$arch.txt"
    ok "orderings for $arch"
  fi
  ok "$CLANG $arch"
}

for cxx in $CXX; do host "$cxx"; done
if command -v "$NVCC" >/dev/null; then
  for arch in $CUDA_ARCHS; do cuda "$arch"; done
  for arch in 80 90 100; do orderings "$arch"; done
  sass
else
  skip "no nvcc: kernels not compiled for CUDA, orderings not compared"
fi
if command -v "$CLANG" >/dev/null; then
  for arch in $HIP_ARCHS; do hip "$arch"; done
else
  skip "no clang: kernels not compiled for HIP"
fi
exit $failed
