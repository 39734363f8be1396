#!/usr/bin/env bash
# Device-memory TCP on a real kernel: boots one guest with a test-only module (wvdev.c) that offers a
# receive queue for dmabufs, and has the example `device_memory` receive there. Installs nothing.
#   run.sh PROGRAM FOLDER SOURCES    the example, where to put what is built, and where packages of
#                                    kernel headers lie: /usr/src
# Exits with 77 and a reason if something is not installed.
set -euo pipefail
program=$1
folder=$2
sources=$3
here=$(cd "$(dirname "$0")" && pwd)

skip() {
  echo "$1"
  exit 77
}
need() { command -v "$1" >/dev/null || skip "$1 is not installed; it is in Debian's $2"; }
need qemu-system-x86_64 qemu-system-x86
need busybox busybox-static
need make make
need cpio cpio

headers=$("$here/headers.sh" "$sources") ||
  skip "$sources has no kernel headers of 6.12 or newer; they are in Debian's linux-headers-amd64, in that of Debian 12 linux-headers-6.12-amd64"
release=${headers##*/linux-headers-}
mkdir -p "$folder"
cd "$folder"
if [ ! -e "image/boot/vmlinuz-$release" ]; then
  rm -rf download && mkdir download
  (cd download && apt-get -q -o APT::Sandbox::User=root download "linux-image-$release" >/dev/null) ||
    skip "apt-get download linux-image-$release failed"
  dpkg-deb -x download/*.deb image
fi
grep -q CONFIG_NET_DEVMEM=y "image/boot/config-$release" || skip "$release is built without CONFIG_NET_DEVMEM"
grep -q CONFIG_UDMABUF=y "image/boot/config-$release" || skip "$release is built without CONFIG_UDMABUF"

rm -rf module root && mkdir module root root/bin root/proc root/sys root/dev root/run
cp "$here/wvdev.c" "$here/Makefile" module
make -s -C "$headers" "M=$PWD/module" modules >module/log 2>&1 || { cat module/log; exit 1; }
cp module/wvdev.ko root
cp "$here/init.sh" root/init
cp "$(command -v busybox)" "$program" root/bin
chmod +x root/init
ldd "$program" | grep -o '/[^ ]*' | while read -r library; do
  mkdir -p "root$(dirname "$library")"
  cp -L "$library" "root$library"
done
(cd root && find . | cpio --quiet -o -H newc) >initrd
timeout 600 qemu-system-x86_64 -accel tcg,thread=multi -cpu max -m 1024 -smp 2 -nographic -no-reboot \
  -nic none -kernel "image/boot/vmlinuz-$release" -initrd initrd -append "console=ttyS0 panic=-1 quiet" \
  </dev/null 2>&1 | sed -n '/bound: /,$p' | tee log
grep -q 'GUEST PASSED' log
