"""The benchmark: ``python -m dflash.benchmark``. Knows the measuring protocol and its report.

Knows engines by their protocol only; the two exceptions, transformers' own ``generate`` and the
target forward behind a logit margin, live in ``library``.
"""
