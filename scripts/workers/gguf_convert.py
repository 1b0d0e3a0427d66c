"""Runs llama.cpp's own convert_hf_to_gguf.py on a tokenizer whose splitting it does not know.

    python gguf_convert.py LLAMA_CPP_FOLDER CONVERTER_ARGUMENTS...

A GGUF names one of llama.cpp's built-in splittings; the converter finds the name by a checksum
and stops at a tokenizer of one's own. The demo pair's pieces are: a newline with the spaces after
it, digits alone, words, and no merge reaches over a border. So llama.cpp is given a splitting that
only sets digits apart, and is told to look for a newline and its spaces as whole tokens first.
Imports none of ours.
"""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

SPLITTING = "superbpe"
NEWLINE_AND_SPACES = re.compile("\u010a\u0120*")  # as byte-level BPE spells them


def main() -> None:
    """Convert with the tokenizer's splitting named."""
    folder = Path(sys.argv.pop(1))
    sys.path[:0] = [str(folder), str(folder / "gguf-py")]
    import gguf
    from conversion.base import TextModel

    read_vocabulary = TextModel.get_vocab_base

    def with_whole_newlines(self: TextModel) -> tuple[list[str], list[int], str]:
        tokens, kinds, name = read_vocabulary(self)
        for index, token in enumerate(tokens):
            if NEWLINE_AND_SPACES.fullmatch(token):
                tokens[index] = token.replace("\u010a", "\n").replace("\u0120", " ")
                kinds[index] = gguf.TokenType.USER_DEFINED
        return tokens, kinds, name

    TextModel.get_vocab_base = with_whole_newlines
    TextModel.get_vocab_base_pre = lambda self, tokenizer: SPLITTING
    runpy.run_path(str(folder / "convert_hf_to_gguf.py"), run_name="__main__")


if __name__ == "__main__":
    main()
