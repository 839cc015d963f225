"""How much memory a piece of code takes, measured in a fresh process.

`ru_maxrss` is no use for it: on Linux a child begins with its parent's peak.
"""

import subprocess
import sys
import textwrap

PRELUDE = """
import re
from contextlib import contextmanager

def _bytes(entry):
    return 1024 * int(re.search(entry + r":\\s+(\\d+)", open("/proc/self/status").read())[1])

@contextmanager
def measured():
    before = _bytes("VmRSS")
    yield
    print("rise", _bytes("VmHWM") - before)
"""


def peak_rise(code: str, *arguments: object) -> int:
    """Bytes by which the peak of a fresh process rises during the ``with measured():`` block of ``code``."""
    command = [sys.executable, "-c", PRELUDE + textwrap.dedent(code), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split("rise")[1].split()[0])
