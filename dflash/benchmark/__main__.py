"""``python -m dflash.benchmark``: a table for people, then one line of JSON for programs.

Exit codes: 0 done, 2 the command or a file could not be used (one line on stderr), 130 stopped
with Ctrl-C after reporting what there was.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence

from dflash.benchmark.commands import run
from dflash.benchmark.options import parser
from dflash.errors import DFlashError
from dflash.whole_file import StorageError, write_whole


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and print it. Returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    args = parser().parse_args(arguments)
    command = shlex.join(["python", "-m", "dflash.benchmark", *arguments])
    try:
        result = run(args, command)
    except DFlashError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped before anything was measured", file=sys.stderr)
        return 130
    print(result.text)
    print(json.dumps(result.data, separators=(",", ":"), allow_nan=False))
    code = 130 if result.interrupted else 0
    for path, text in result.files.items():
        try:
            write_whole(path, text)
        except StorageError as error:
            print(f"error: {error}", file=sys.stderr)
            code = 2
    return code


if __name__ == "__main__":
    sys.exit(main())
