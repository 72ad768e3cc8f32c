"""A stand-in for an OpenEnv server that speaks its protocol, with faults on demand."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

from aiohttp import WSMsgType, web

Behaviour = Callable[[dict[str, Any], dict[str, Any]], Any]


def guessing(message: dict[str, Any], state: dict[str, Any]) -> Any:
    """Guess the seed's last digit. A world is a connection's `state`."""
    if message["type"] == "reset":
        state["seed"] = message["data"]["seed"]
        return {"observation": {"text": f"Guess, seed {state['seed']}."}, "reward": None, "done": False}
    if "message" not in message["data"]:
        return {"message": "action.message is missing", "code": "VALIDATION_ERROR"}
    right = message["data"]["message"] == str(state["seed"] % 10)
    return {"observation": {"text": "Yes." if right else "No."}, "reward": float(right), "done": right}


class Server:
    """A stand-in for an OpenEnv server, on a free port of loopback."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.connections = 0
        self.is_pinging = False
        self.ponged = threading.Event()
        self._loop = asyncio.new_event_loop()
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,))
        self._thread.start()
        started.wait()

    def _run(self, started: threading.Event) -> None:
        async def serve() -> web.AppRunner:
            app = web.Application()
            app.router.add_get("/ws", self._play)
            runner = web.AppRunner(app, shutdown_timeout=0.1)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            return runner

        runner = self._loop.run_until_complete(serve())
        started.set()
        self._loop.run_forever()
        self._loop.run_until_complete(runner.cleanup())
        self._loop.close()

    async def _play(self, request: web.Request) -> web.WebSocketResponse:
        self.connections += 1
        socket, state = web.WebSocketResponse(autoping=False), dict[str, Any]()
        await socket.prepare(request)
        async for message in socket:
            if message.type is WSMsgType.PONG:
                self.ponged.set()
                continue
            pings = self.is_pinging  # before the answer, after which a test may change it
            answer = self.behaviour(json.loads(message.data), state)
            if answer is None:  # it hangs
                continue
            if answer == "die":
                break
            for each in answer if isinstance(answer, list) else [answer]:
                if isinstance(each, dict):
                    kind = "error" if "code" in each else "observation"
                    each = json.dumps({"type": kind, "data": each})
                await socket.send_str(each)
            if pings:
                await socket.ping()
        return socket

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
