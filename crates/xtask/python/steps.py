"""Shared by the drivers: steps that are timed and counted, and a second process that answers lines."""

import base64
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import traceback

import numpy

#: How long anything may take that waits for another process.
PATIENCE = 20.0

SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 32))

if sys.argv[1:2] == ["--other"]:
    # Libraries print, some while they are imported: the lines of JSON have the standard output for themselves.
    LINES = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)


class Steps:
    """Runs steps one after the other and counts them as a test runner does."""

    def __init__(self):
        self.passed, self.failed, self.skipped = 0, 0, 0
        self.start = time.monotonic()
        print(f"seed {SEED}", flush=True)

    def step(self, name, call, *words):
        """Whether the call ended without an exception; says what it returned."""
        begin = time.monotonic()
        try:
            said = call(*words)
        except Exception as error:
            self.failed += 1
            traceback.print_exc()
            print(f"FAILED {name}: {type(error).__name__}: {error}", flush=True)
            return False
        self.passed += 1
        took = time.monotonic() - begin
        print(f"passed {name}, {took:.3f} s{': ' + said if said else ''}", flush=True)
        return True

    def skip(self, name, why):
        self.skipped += 1
        print(f"skipped {name}: {why}", flush=True)

    def end(self):
        """Prints the sum, and ends with 1 if a step failed."""
        words = [f"{self.passed} passed"]
        words += [f"{self.failed} failed"] if self.failed else []
        words += [f"{self.skipped} skipped"] if self.skipped else []
        took = time.monotonic() - self.start
        print(f"{', '.join(words)} in {took:.2f}s", flush=True)
        sys.exit(bool(self.failed))


def want(got, expected, what):
    if got == expected:
        return
    if isinstance(got, list) and isinstance(expected, list):
        wrong = [number for number, pair in enumerate(zip(got, expected)) if pair[0] != pair[1]]
        raise AssertionError(f"{what}: {len(wrong)} of {len(expected)} differ, at {wrong[:8]}")
    raise AssertionError(f"{what}: {got!r}, expected {expected!r}")


def until(call, what, patience=PATIENCE):
    """Asks until the answer is true, and gives it; polls as engines do."""
    end = time.monotonic() + patience
    while not (answer := call()):
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not in {patience} s")
        time.sleep(0.001)
    return answer


def blocks(seed, count, length):
    """Random blocks, the same in every process for one seed."""
    return numpy.random.default_rng(seed).integers(0, 256, (count, length), dtype=numpy.uint8)


def digests(array):
    return [hashlib.sha256(row.tobytes()).hexdigest() for row in array]


class Other:
    """A second process of the same program: a line of JSON there, a line of JSON back.

    Its other output goes to this program's standard error.
    """

    def __init__(self, *words):
        command = [sys.executable, sys.argv[0], "--other", *map(str, words)]
        environment = dict(os.environ, SEED=str(SEED))
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.hello = self._answer()

    def ask(self, **words):
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self):
        # An answer that does not come ends the other process, and with it the wait.
        timer = threading.Timer(4 * PATIENCE, self.process.kill)
        timer.start()
        line = self.process.stdout.readline()
        timer.cancel()
        if not line:
            raise RuntimeError(f"the other process ended with {self.process.wait()}")
        answer = json.loads(line)
        if isinstance(answer, dict) and "error" in answer:
            raise RuntimeError(f"the other process: {answer['error']}")
        return answer

    def signal(self, number):
        self.process.send_signal(number)
        if number == signal.SIGKILL:
            self.process.wait()

    def end(self):
        self.process.stdin.close()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        return self.process.returncode


def serve(hello, answer):
    """The other process's side: says hello, then answers lines until there are no more."""

    def say(value):
        LINES.write(json.dumps(value) + "\n")
        LINES.flush()

    say(hello())
    for line in sys.stdin:
        try:
            said = answer(**json.loads(line))
        except Exception as error:
            traceback.print_exc()
            said = {"error": f"{type(error).__name__}: {error}"}
        say(said)


def text(data):
    return base64.b64encode(data).decode()


def data(text):
    return base64.b64decode(text)
