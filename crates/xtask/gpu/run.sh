#!/bin/sh
# Runs the tests of this folder that need a GPU or NVRTC, each in a process of its own. `cargo xtask gpu`
# fills the folder. Needs nothing but a shell and coreutils.
#
#   ./run.sh [WORDS]    tests whose program and name contain WORDS
#   LIMIT=600           seconds for each test
#   UNDER=COMMAND       runs each under a tool: UNDER="compute-sanitizer --report-api-errors no --error-exitcode 1"
#
# The last line says how many passed, failed and were skipped; the status is 0 if none failed and
# some test was run.
set -u
cd "$(dirname "$0")" || exit 2
words=${1:-} limit=${LIMIT:-600} under=${UNDER:-}
logs=$(mktemp -d) || exit 2
trap 'rm -rf "$logs"' EXIT
passed=0 failed=0 skipped=0
: >"$logs/why"

gpus=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | sort | uniq -c | sed 's/^ *\([0-9]*\) /\1 x /' | paste -sd ';' -)

while read -r program test needs; do
  case "$program $test" in *"$words"*) ;; *) continue ;; esac
  log=$logs/log
  # A command and its flags.
  # shellcheck disable=SC2086
  timeout -k 10 "$limit" $under "./$program" --exact "$test" --include-ignored --nocapture \
    --test-threads 1 >"$log" 2>&1 </dev/null
  status=$?
  if [ $status -ne 0 ] || ! grep -aq 'test result: ok\. 1 passed' "$log"; then
    failed=$((failed + 1))
    [ $status -eq 124 ] && echo "  (no end within $limit s)" >>"$log"
    echo "FAILED   $program $test, which $needs: status $status"
    tail -n 25 "$log" | sed 's/^/    /'
  elif grep -aq 'SKIPPED' "$log"; then
    skipped=$((skipped + 1))
    echo "skipped  $program $test"
    grep -a 'SKIPPED' "$log" | head -n 1 | sed 's/.*SKIPPED:* *//; s/^[a-z_:0-9]*: //' >>"$logs/why"
  else
    passed=$((passed + 1))
    echo "ok       $program $test"
  fi
done <tests.txt

why=$(sort "$logs/why" | uniq -c | sed 's/^ *\([0-9]*\) \(.*\)/\2 (\1)/' | paste -sd ';' -)
echo "GPU tests on ${gpus:-no GPU that nvidia-smi knows}: $passed passed, $failed failed, $skipped skipped${why:+: $why}"
[ $failed -eq 0 ] && [ $((passed + skipped)) -gt 0 ]
