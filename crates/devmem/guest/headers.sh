#!/usr/bin/env bash
# The newest kernel headers in a folder, such as /usr/src, of a kernel that knows device memory: 6.12 or
# later. Fails if there are none.
set -euo pipefail
shopt -s nullglob
found=("$1"/linux-headers-*-amd64)
printf '%s\n' "${found[@]##*/}" | grep -vE -- '-(cloud|rt)-|-[1-5]\.|-6\.([0-9]|1[01])\.' | sort -V | tail -n 1 |
  sed "s,^,$1/," | grep linux-headers
