#!/bin/busybox sh
# The state of this guest, for the report of a case that failed: its processes, where their threads
# are in the kernel, its network, and the end of the kernel's log.
show() { echo "-- $1"; cat "$1"; }
ps -o pid,ppid,stat,args | grep -v '\[.*\]$'
for thread in /proc/[0-9]*/task/[0-9]*; do
  name=$(cat "$thread/comm") state=$(cut -d ' ' -f 3 "$thread/stat")
  case $name in init | serve | state | sh | sleep) continue ;; esac
  # Threads of the kernel, which have no command line, only if they run or cannot be interrupted.
  [ -n "$(cat "$thread/cmdline")" ] || case $state in R | D) ;; *) continue ;; esac
  echo "-- $thread: $name, $state, $(cut -d ' ' -f 14,15 "$thread/stat") ticks, system call $(cat "$thread/syscall")"
  cat "$thread/stack"
done 2>/dev/null
for file in udp udp6 tcp tcp6 arp dev softnet_stat; do show "/proc/net/$file"; done
echo "-- interrupts"
grep virtio /proc/interrupts
echo "-- dmesg"
dmesg | tail -n 40
echo "-- rdma resource show"
rdma resource show
