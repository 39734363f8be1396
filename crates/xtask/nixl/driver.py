"""Measures transfers of NIXL's agent between two processes of this machine, by its Python package.

    driver.py --shapes 8,1M,4Kx256 [--ops write,read] [--mem host,gpu,host:gpu] [--gpus A,B]
              [--layouts adjacent,scattered] [--seconds 0.2] [--warmup 5] [--makes 20]

Prints JSON with the rows of `warpverbs perf agent --json`, as far as they are comparable: the same
shapes, layouts, loops and comparison of all bytes. Timed calls go to NIXL's bindings directly, not
through its Python wrapper, which python.py measures. Needs numpy and NIXL's wheel on the path; memory of GPUs comes from
libcuda, so torch is not needed. UCX is configured by its variables, such as UCX_TLS.
"""

import argparse
import json
import os
import sys

from ends import Case, Memory, Target, agent_of, nixl, shape


def measure(args):
    api, rows = nixl(), []
    for pair in args.mem.split(","):
        here, _, there = pair.partition(":")
        there = there or here
        gpus = [int(gpu) for gpu in args.gpus.split(",")]
        shapes = [shape(text) for text in args.shapes.split(",")]
        size = max(size * count for size, count in shapes)
        peer = Target()
        agent = agent_of(api, "initiator")
        local = Memory(agent, here, size, gpus[0])
        remote = peer.ask("register", there, size, gpus[-1])
        agent.add_remote_agent(remote[0])
        peer.ask("peer", agent.get_agent_metadata())
        for op in args.ops.split(","):
            for size, count in shapes:
                for layout in args.layouts.split(",") if count > 1 else ["adjacent"]:
                    case = Case(api, agent, op, size, count, layout)
                    case.lists(local, remote)
                    row = {"op": op, "local": here, "remote": there, "bytes": size, "blocks": count, "layout": layout, "threads": 1}
                    row.update(case.making(args.makes))
                    case.fill(peer, local, len(rows) + 1)
                    row.update(case.run(args.warmup, args.seconds))
                    case.check(peer, local)
                    rows.append(dict(row, data="equal"))
        peer.end()
    print(json.dumps({"schema": 1, "command": "nixl", "tls": os.environ.get("UCX_TLS"), "rows": rows}))
    sys.stdout.flush()
    # NIXL's threads may wait for the peer that has ended.
    os._exit(0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shapes", default="8,1M,4Kx256,4Kx4096")
    parser.add_argument("--ops", default="write,read")
    parser.add_argument("--mem", default="host")
    parser.add_argument("--gpus", default="0")
    parser.add_argument("--layouts", default="adjacent,scattered")
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--makes", type=int, default=20)
    args = parser.parse_args()
    measure(args)


main()
