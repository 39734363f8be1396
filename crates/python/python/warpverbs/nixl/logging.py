"""NIXL's logger: lines on the standard output, their level by NIXL_LOG_LEVEL."""

from __future__ import annotations

import logging
import os
import sys

LEVELS = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


class _Stdout(logging.StreamHandler):
    """Writes to what `sys.stdout` is at the time, which tests replace."""

    def __init__(self) -> None:
        logging.Handler.__init__(self, logging.INFO)

    @property
    def stream(self):
        return sys.stdout


def setup_logging() -> None:
    """Gives the logger `nixl` its handler and level, once."""
    logger = logging.getLogger("nixl")
    if any(isinstance(handler, _Stdout) for handler in logger.handlers):
        return
    handler = _Stdout()
    line = "%(asctime)s NIXL %(levelname)-7s %(filename)s:%(lineno)d %(message)s"
    handler.setFormatter(logging.Formatter(line, "%Y-%m-%d %H:%M:%S"))
    logger.addHandler(handler)
    logger.propagate = False
    wanted = os.environ.get("NIXL_LOG_LEVEL", "")
    level = LEVELS.get(wanted.upper())
    logger.setLevel(logging.INFO if level is None else level)
    if level is not None:
        logger.info("Log level set to %s from NIXL_LOG_LEVEL environment variable", wanted.upper())
    elif wanted:
        logger.warning("NIXL_LOG_LEVEL=%r is none of %s; INFO is used", wanted, ", ".join(LEVELS))


def get_logger(name: str) -> logging.Logger:
    """The logger of a module, below `nixl`."""
    setup_logging()
    return logging.getLogger("nixl." + name.removeprefix("warpverbs.nixl.").lstrip("_"))
