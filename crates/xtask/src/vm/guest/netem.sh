#!/bin/busybox sh
# Faults in what eth0 sends, in the words of tc: netem loss 1% corrupt 0.5%. The path is named since
# busybox has a tc of its own, without netem.
modules-of netem && /bin/tc qdisc replace dev eth0 root netem "$@"
