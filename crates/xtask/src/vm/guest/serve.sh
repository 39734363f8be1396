#!/bin/busybox sh
# Runs the commands that arrive at a port, one a line, each behind a token and a limit in seconds.
# Output goes back as it comes; "@@TOKEN STATUS" on a line of its own ends it.
exec 3<>"$1"
echo "@@ready" >&3
while read -r token seconds command <&3; do
  # `timeout` ends the first process only. The others of the command's session end with it.
  timeout -s KILL "$seconds" setsid sh -c "$command" </dev/null >&3 2>&1 &
  session=$!
  wait $session
  status=$?
  tries=50
  while kill -KILL -- -$session 2>/dev/null; do
    tries=$((tries - 1))
    [ $tries -gt 0 ] || { echo "SIGKILL does not end all processes of '$command'" >&3; break; }
    sleep 0.1
  done
  printf '\n@@%s %d\n' "$token" $status >&3
done
