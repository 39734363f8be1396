#!/bin/busybox sh
# Loads the modules of a list that are not loaded yet.
while read -r module; do
  [ -d "/sys/module/$(basename "$module" .ko | tr - _)" ] || insmod "/modules/$module" || exit 1
done <"/modules/$1"
