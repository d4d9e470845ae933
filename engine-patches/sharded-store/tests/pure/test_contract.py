"""The names this package relies on, in the sources of LMCache and vLLM: releases as they came.

Sources are read, nothing is imported: so also a release that cannot be run here is checked. They
are taken from KVSERVING_TEST_SOURCES (folders or wheels, separated by colons), else from what is
installed; without any there is nothing to check.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import zipfile
from functools import cache
from pathlib import Path

import pytest

from kvserving_sharded_store.contract import (
    FRONT_END,
    LMCACHE,
    LMCACHE_IN_VLLM,
    SITES,
    VLLM,
    Function,
)


def _given() -> list[Path]:
    given = [Path(part) for part in os.environ.get("KVSERVING_TEST_SOURCES", "").split(":") if part]
    for name in ("vllm", "lmcache"):
        found = importlib.util.find_spec(name)
        if found is not None and found.origin is not None:
            given.append(Path(found.origin).parents[1])
    return given


@cache
def text_of(source: Path, module: str) -> str | None:
    path = module.replace(".", "/")
    for name in (f"{path}.py", f"{path}/__init__.py"):
        if source.is_dir():
            if (source / name).exists():
                return (source / name).read_text()
            continue
        with zipfile.ZipFile(source) as wheel:
            if name in wheel.namelist():
                return wheel.read(name).decode()
    return None


def parameters(source: Path, function: Function) -> str | None:
    text = text_of(source, function.module)
    if text is None:
        return None
    body = ast.parse(text).body
    *outer, last = function.name.split(".")
    for part in outer:
        body = next(n for n in body if isinstance(n, ast.ClassDef) and n.name == part).body
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = next(n for n in body if isinstance(n, kinds) and n.name == last)
    names = [each.arg for each in (*found.args.posonlyargs, *found.args.args)]
    names += [each.arg for each in found.args.kwonlyargs]
    names += [each.arg for each in (found.args.vararg, found.args.kwarg) if each is not None]
    return " ".join(name for name in names if name not in {"self", "cls"})


SOURCES = _given()
FUNCTIONS = (*LMCACHE, *LMCACHE_IN_VLLM, *VLLM, *FRONT_END)


@pytest.mark.skipif(not SOURCES, reason="no sources of LMCache or vLLM here")
@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_functions_take_what_is_expected(source: Path) -> None:
    top = {f.module.partition(".")[0] for f in FUNCTIONS}
    here = {name for name in top if text_of(source, name) is not None}
    assert here, f"{source} holds neither vLLM nor LMCache"
    wrong = {}
    for function in FUNCTIONS:
        if function.module.partition(".")[0] in here:
            found = parameters(source, function)
            if found != function.parameters:
                wrong[f"{function.module}.{function.name}"] = found
    assert wrong == {}


@pytest.mark.skipif(not SOURCES, reason="no sources of LMCache or vLLM here")
@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_call_sites_and_attributes_are_there(source: Path) -> None:
    if text_of(source, "vllm") is None:
        pytest.skip("no vLLM in it")
    missing = [site for site in SITES if site[1] not in (text_of(source, site[0]) or "")]
    assert missing == []
