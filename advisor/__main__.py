"""``python -m advisor``: the advisor's commands.

Exit codes: 0 no error finding, 1 error findings, 2 the command or a file could not be used (one
line on stderr).
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import NoReturn

from advisor import cli_check, cli_export, cli_recommend, cli_regression, cli_rules
from advisor.values import plain
from dflash.errors import DFlashError

COMMANDS = {
    "check": cli_check,
    "recommend": cli_recommend,
    "export": cli_export,
    "rules": cli_rules,
    "regression": cli_regression,
}


class _Parser(argparse.ArgumentParser):
    """A parser whose complaint is one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {_one_line(message)}\n")


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    parser = _Parser(prog="python -m advisor", description="DFlash settings: what, why, how sure.")
    commands = parser.add_subparsers(dest="command", required=True, parser_class=_Parser)
    for name, module in COMMANDS.items():
        module.add_arguments(commands.add_parser(name, help=module.HELP, description=module.HELP))
    args = parser.parse_args(argv)
    try:
        code = COMMANDS[args.command].run(args)
        sys.stdout.flush()
        return code
    except DFlashError as error:
        print(f"{parser.prog} {args.command}: {_one_line(str(error))}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader (head, less) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _one_line(text: str) -> str:
    return plain(" ".join(text.split()))


if __name__ == "__main__":
    sys.exit(main())
