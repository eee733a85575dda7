"""One model call from inside the box, as any agent makes it: a segment without one ends an interaction.

Only bash is used, which every image of a Harbor task has; curl and Python are in few of them.
"""

import json
from urllib.parse import urlsplit

import verifiers.v1 as vf

__all__ = ["take_turn"]

# Only the status of the reply counts here: what was said is recorded on its way. Sizes in bytes, hence the locale.
_SCRIPT = r"""
export LC_ALL=C
exec 3<>"/dev/tcp/$1/$2" || exit 1
printf 'POST %s HTTP/1.1\r\nHost: %s:%s\r\nAuthorization: Bearer %s\r\n' "$3" "$1" "$2" "$4" >&3
printf 'Connection: close\r\nContent-Type: application/json\r\nContent-Length: %s\r\n\r\n%s' "${#5}" "$5" >&3
read -r reply <&3
cat <&3 >/dev/null
case $reply in *' 200 '*) ;; *) echo "$reply"; exit 1 ;; esac
"""


async def take_turn(ctx: vf.ModelContext, runtime: vf.Runtime, endpoint: str, secret: str, data: vf.TaskData) -> None:
    """Send the task's prompt to the model at `endpoint` and let its reply be recorded.

    Raises:
        RuntimeError: there was no reply; the message quotes what came.
    """
    address = urlsplit(f"{endpoint.rstrip('/')}/chat/completions")
    body = json.dumps({"model": ctx.model, "messages": _messages(data)})
    arguments = [str(address.hostname), str(address.port or 80), address.path, secret, body]
    result = await runtime.run(["bash", "-c", _SCRIPT, "turn", *arguments], {})
    if result.exit_code != 0:
        raise RuntimeError(f"the model stand-in did not answer: {(result.stdout + result.stderr).strip()[-500:]}")


def _messages(data: vf.TaskData) -> list[dict[str, str]]:
    """The conversation so far, as text."""
    if data.prompt is None or isinstance(data.prompt, str):
        return [{"role": "user", "content": data.prompt or "Go on."}]
    return [{"role": _ROLES.get(message.role, "user"), "content": _text(message.content)} for message in data.prompt]


_ROLES = {"system": "system", "assistant": "assistant"}


def _text(content: object) -> str:
    return content if isinstance(content, str) else json.dumps(content, default=str)
