# Of gfx assembly: each kernel's memory operations with a scope, its cache operations, and `wait` where all
# earlier accesses were waited for in between. Plain accesses are left out, atomic ones are not.
/^[A-Za-z_][A-Za-z0-9_]*:/ { name = $1; sub(/:.*/, "", name); print name; wait = 0 }
/^\t(flat|global)_(load|store|atomic)_|^\tbuffer_(wbl2|inv)/ {
  op = $1
  for (i = 2; i <= NF; i++) if ($i ~ /^sc[01]$/) op = op " " $i
  if (op ~ / / || op ~ /atomic|buffer/) {
    if (wait) print "  wait"
    print "  " op
    wait = 0
  }
}
/^\ts_waitcnt.*vmcnt\(0\)/ { wait = 1 }
