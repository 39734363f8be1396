#!/bin/busybox sh
# Process 1 of the guest: a sender behind wvdev1, in a network namespace of its own, and a receiver
# that binds a dmabuf to wvdev0. Twice: with headers split cleanly, and with some payload beside the
# headers of every fifth packet, and the queue found by itself.
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
ulimit -l unlimited
insmod /wvdev.ko || poweroff -f
bytes=16000000
# Kernels of the host SIMT device are slow in an emulated guest.
less=4000000
unshare -n sh -c '
  echo $$ >/sender
  until ip addr add 10.77.0.2/24 dev wvdev1 2>/dev/null; do sleep 0.1; done
  ip link set wvdev1 up
  # A listener is there as soon as its queue is bound.
  until device_memory client 10.77.0.1 7000 '$bytes' 2>/dev/null; do sleep 0.3; done
  until device_memory client 10.77.0.1 7001 '$less' 2>/dev/null; do sleep 0.3; done' &
until [ -s /sender ]; do sleep 0.1; done
ip link set wvdev1 netns "$(cat /sender)"
ip addr add 10.77.0.1/24 dev wvdev0
ip link set wvdev0 up
failed=0
device_memory server wvdev0:1 7000 $bytes || failed=1
echo 5 >/sys/module/wvdev/parameters/linear_every
WARPVERBS_UNPACK=kernel device_memory server auto 7001 $less || failed=1
dmesg | grep -E 'WARNING|BUG|TCP: Found' && failed=1
[ $failed = 0 ] && echo "GUEST PASSED"
poweroff -f
