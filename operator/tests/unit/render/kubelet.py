"""What a kubelet does with the command, the arguments and the environment of a container.

The rules of ``$(NAME)``: k8s.io/kubernetes/third_party/forked/golang/expansion. Written anew
here, so that a test can ask what the process really gets.
"""

from collections.abc import Mapping
from typing import Any


def expand(text: str, known: Mapping[str, str]) -> str:
    result, at = [], 0
    while at < len(text):
        following = text[at + 1 : at + 2]
        if text[at] == "$" and following == "$":
            result.append("$")
            at += 2
        elif text[at] == "$" and following == "(" and (end := text.find(")", at)) >= 0:
            name = text[at + 2 : end]
            result.append(known.get(name, f"$({name})"))
            at = end + 1
        else:
            result.append(text[at])
            at += 1
    return "".join(result)


def environment(container: Mapping[str, Any], secrets: Mapping[str, str]) -> dict[str, str]:
    """Each entry may refer to those before it."""
    known: dict[str, str] = {}
    for variable in container.get("env", []):
        if "value" in variable:
            known[variable["name"]] = expand(variable["value"], known)
        else:
            reference = variable["valueFrom"].get("secretKeyRef", {})
            known[variable["name"]] = secrets.get(reference.get("key", ""), "from elsewhere")
    return known


def arguments(container: Mapping[str, Any]) -> list[str]:
    """The process's arguments after the command's own."""
    known = environment(container, {})
    return [expand(argument, known) for argument in container.get("args", [])]


def command(container: Mapping[str, Any]) -> list[str]:
    known = environment(container, {})
    return [expand(word, known) for word in container.get("command", [])]
