#!/bin/sh
# The cmake of ibverbs-sys' build script: configures rdma-core, which is when its headers are put where bindgen looks for
# them, and builds nothing of it. The options below decide over libraries and programs, not over those headers.
[ "$1" = --build ] && exit 0
exec cmake -DENABLE_RESOLVE_NEIGH=0 -DNO_PYVERBS=1 "$@"
