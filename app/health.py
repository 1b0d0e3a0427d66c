"""``/healthz``: whether the page answers, and what it is busy with. No names, no texts."""

from __future__ import annotations

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from app.footer import versions
from app.session import EnginePool, Sessions


class Health:
    """Answers from memory only, so that it never waits behind a generation."""

    def __init__(self, pool: EnginePool, sessions: Sessions) -> None:
        self._pool = pool
        self._sessions = sessions
        self._versions = versions()
        self._started_s = time.monotonic()

    def state(self) -> dict[str, Any]:
        """What the endpoint says."""
        return {
            "status": "ok",
            "uptime_s": round(time.monotonic() - self._started_s, 1),
            "device_is_busy": self._pool.device.locked(),
            "num_open_pairs": len(self._pool),
            "num_sessions": len(self._sessions),
            "versions": self._versions,
        }

    def route(self) -> Route:
        """The route for ``launch(app_kwargs={"routes": [...]})``."""

        async def healthz(request: Request) -> JSONResponse:
            return JSONResponse(self.state(), headers={"Cache-Control": "no-store"})

        return Route("/healthz", healthz)
