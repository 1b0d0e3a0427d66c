"""One call from request to recommendation: what the command line, the page and agents share."""

from __future__ import annotations

from advisor.gather import Request, gather
from advisor.recommend import recommend
from advisor.schema import Recommendation


def recommend_for(request: Request) -> Recommendation:
    """Read what the request names and recommend. Raises ``DFlashError`` children."""
    gathered = gather(request)
    return recommend(gathered.situation, gathered.findings)
