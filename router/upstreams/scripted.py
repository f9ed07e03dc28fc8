"""The `scripted` upstream: answers from a script inside the process, for tests, demos and dry runs.

`options: {text: "...", delay_s: 0.1, status: 503, gap_s: 0.05}` in the deployment, or a `Script` passed in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from router.config import Deployment
from router.errors import ConnectFailed, Truncated
from router.seams import Call, Reply
from router.upstreams.scripts import (
    Close,
    Head,
    Reset,
    Script,
    Seen,
    Send,
    Step,
    Wait,
    chat_answer,
    chat_stream,
    status,
)


class ScriptedUpstream:
    """Plays a script without a socket; `seams.Upstream`."""

    def __init__(self, deployment: Deployment, script: Script | None = None) -> None:
        self.deployment = deployment
        self.script = script or _from_options(deployment)
        self.seen: list[Seen] = []

    async def start(self) -> None:
        pass

    async def wait_ready(self, timeout_s: float) -> None:
        pass

    async def open(self, call: Call) -> Reply:
        seen = Seen(path=call.path, headers=call.headers, body=call.body)
        self.seen = [*self.seen[-99:], seen]  # bounded: a demo may run for days
        steps = list(self.script(seen))
        while steps:
            match steps.pop(0):
                case Wait(seconds):
                    await asyncio.sleep(seconds)
                case Head(code, headers):
                    return ScriptedReply(code, headers, steps)
                case _:
                    break
        raise ConnectFailed("the scripted upstream gave no answer")

    async def aclose(self) -> None:
        pass


class ScriptedReply:
    """The rest of a script after its head; `seams.Reply`."""

    ended = False

    def __init__(self, code: int, headers: Mapping[str, str], steps: list[Step]) -> None:
        self.status = code
        self.headers = headers
        self._steps = steps

    def whole(self) -> None:
        return None

    def pour(self, take: Callable[[bytes], bool]) -> None:
        return None

    async def read(self) -> bytes:
        while self._steps:
            match self._steps.pop(0):
                case Send(data):
                    return data
                case Wait(seconds):
                    await asyncio.sleep(seconds)
                case Reset() | Close():
                    raise Truncated("the scripted upstream broke off")
                case Head():
                    pass
        return b""

    async def aclose(self) -> None:
        self._steps = []


def _from_options(deployment: Deployment) -> Script:
    options = deployment.options
    text = str(options.get("text", f"This is {deployment.name}, answering from a script."))
    code, delay_s, gap_s = (
        int(options.get("status", 200)),
        float(options.get("delay_s", 0)),
        float(options.get("gap_s", 0)),
    )

    def script(seen: Seen) -> Sequence[Step]:
        if code != 200:
            return status(code)
        if seen.json().get("stream"):
            return chat_stream([word + " " for word in text.split()], first_s=delay_s, gap_s=gap_s)
        return chat_answer(text, delay_s=delay_s)

    return script
