#!/bin/busybox sh
# Runs the commands that arrive at a port, one a line, each behind a token and a limit in seconds.
# Output goes back as it comes; "@@TOKEN STATUS" on a line of its own ends it.
exec 3<>"$1"
echo "@@ready" >&3
while read -r token seconds command <&3; do
  timeout -s KILL "$seconds" sh -c "$command" </dev/null >&3 2>&1
  printf '\n@@%s %d\n' "$token" "$?" >&3
done
