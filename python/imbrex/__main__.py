# SPDX-License-Identifier: Apache-2.0
"""The `imbrex` command: `python -m imbrex list`."""
import sys

from . import _imbrex


def main() -> int:
    sys.stdout.flush()
    return _imbrex.command(["imbrex", *sys.argv[1:]], [sys.executable, "-m", "imbrex"])


if __name__ == "__main__":
    sys.exit(main())
