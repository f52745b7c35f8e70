# SPDX-License-Identifier: Apache-2.0
"""The stub of the extension names what the extension has; what users call is documented and annotated."""
import inspect
import re
from pathlib import Path

import imbrex
from imbrex import _imbrex


def test_the_stub_is_the_extension():
    text = (Path(imbrex.__file__).parent / "_imbrex.pyi").read_text()
    named = set(re.findall(r"^(?:def|class) (\w+)", text, re.M))
    assert named == {name for name in dir(_imbrex) if not name.startswith("_")}
    for name in named:
        if inspect.isclass(thing := getattr(_imbrex, name)) and not issubclass(thing, Exception):
            body = re.search(rf"^class {name}\b.*?(?=^\S|\Z)", text, re.M | re.S).group()
            members = {m for m in vars(thing) if not m.startswith("_")}
            assert members <= set(re.findall(r"def (\w+)", body)), name


def test_what_users_call_is_documented():
    for name in imbrex.__all__:
        thing = getattr(imbrex, name)
        assert thing.__doc__ or not callable(thing), name
        if inspect.isfunction(thing):
            signature = inspect.signature(thing)
            assert all(p.annotation is not p.empty for p in signature.parameters.values()), name
    assert (Path(imbrex.__file__).parent / "py.typed").exists()
