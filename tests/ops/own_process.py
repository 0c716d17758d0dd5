"""Files of tests that need a process of their own."""

import os
import subprocess
import sys


def run_tests(*files, options=(), **environment) -> str:
    """Run them with these environment variables; they must pass. Returns pytest's report."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *options]
    done = subprocess.run(
        [*command, *map(str, files)], env={**os.environ, **environment}, capture_output=True, text=True
    )
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout[-4000:] + done.stderr[-2000:]
    return done.stdout
