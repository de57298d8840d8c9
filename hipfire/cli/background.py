"""Starts a serve in the background for a command that needs one: as a program of its own, `hipfire serve -d --wait`."""

import os
import subprocess
import sys
from pathlib import Path

import click

import hipfire
from hipfire.config.environment import Environment

_PACKAGE_PARENT = Path(hipfire.__file__).parents[1]


def start_serve(environment: Environment, model: str | None) -> str:
    """Start it, with its progress on our stderr, and return its address. Exits with 1 where it said why it cannot."""
    variables = dict(environment.variables)
    # The program must be found although -P keeps Python from looking into the working directory, which may have a
    # numpy.py or another hipfire.
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_PACKAGE_PARENT), variables.get("PYTHONPATH")]))
    command = [sys.executable, "-P", "-m", "hipfire", "serve", "-d", "--wait", *([] if model is None else [model])]
    done = subprocess.run(command, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        raise click.exceptions.Exit(1)
    return os.fsdecode(done.stdout).strip()
