#!/bin/busybox sh
# Process 1 of a guest: devices, modules, the address, then one server for each port.
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm /tmp
mount -t tmpfs tmp /dev/shm
mount -t tmpfs tmp /tmp
modules-of order
for word in $(cat /proc/cmdline); do
  case $word in
    wv.addr=*) addr=${word#*=} ;;
    wv.addr6=*) addr6=${word#*=} ;;
    wv.mtu=*) mtu=${word#*=} ;;
    wv.shell) shell=1 ;;
  esac
done
ulimit -l unlimited
ip link set lo up
ip link set eth0 mtu "$mtu"
ip addr add "$addr/24" dev eth0
# Nobody else is here who could have the address: it need not be probed for.
echo 0 >/proc/sys/net/ipv6/conf/eth0/accept_dad
ip addr add "$addr6/64" dev eth0
ip link set eth0 up
for port in /sys/class/virtio-ports/*; do
  serve "/dev/${port##*/}" &
done
if [ -n "$shell" ]; then
  echo "This is $addr; rxe-up makes rxe0, exit ends both guests."
  setsid cttyhack sh
  poweroff -f
fi
while :; do sleep 3600; done
