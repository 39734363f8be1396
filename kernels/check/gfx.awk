# Of gfx assembly: each kernel's memory operations with a scope, its cache operations, and `wait` where all earlier
# accesses were waited for in between, or behind the last cache operation. Plain accesses are left out, atomic ones are
# not. gfx11 and gfx12 have a counter for stores alone: `wait loads`, `wait stores`. On gfx90a and gfx11 a relaxed store
# looks like a plain one, so there all stores count.
/\.amdgcn_target/ { counters = /gfx1/ ? 2 : 1; stores = /gfx(90a|11)/ }
function waited(  what) {
  if ("loads" in wait) print counters == 2 ? "  wait loads" : "  wait"
  if ("stores" in wait) print "  wait stores"
  delete wait
}
function ended() {
  if (last ~ /buffer|_wb|_inv/) waited()
  delete wait
  last = ""
}
/^[A-Za-z_][A-Za-z0-9_]*:/ { ended(); name = $1; sub(/:.*/, "", name); print name }
/^\t(flat|global)_(load|store|atomic|wb|inv)|^\tbuffer_(wb|inv|gl[01]_inv)/ {
  op = $1
  for (i = 2; i <= NF; i++) if ($i ~ /^(sc[01]|glc|dlc|scope:.*|th:.*)$/) op = op " " $i
  if (op ~ / / || op ~ /atomic|buffer|_wb|_inv/ || stores && op ~ /store/) {
    waited()
    print "  " op
    last = op
  }
}
/^\ts_waitcnt.*vmcnt\(0\)|^\ts_wait_loadcnt(_dscnt)? 0x0/ { wait["loads"] }
/^\ts_waitcnt_vscnt.*0x0|^\ts_wait_storecnt(_dscnt)? 0x0/ { wait["stores"] }
END { ended() }
