# SPDX-License-Identifier: Apache-2.0
"""The programs of docs/python.md, in order, and the example notebook."""
import importlib.util
import json
import os
import re
from pathlib import Path

import pytest

SOURCE = Path(os.environ.get("IMBREX_SOURCE_DIR", Path(__file__).parents[2]))


def test_the_programs_of_the_page(capsys):
    text = (SOURCE / "docs/python.md").read_text()
    snippets = re.findall(r"(<!-- needs torch -->\n)?```python\n(.*?)```", text, re.S)
    assert len(snippets) >= 7
    names = {"__name__": "page"}
    for needs_torch, snippet in snippets:
        if needs_torch and importlib.util.find_spec("torch") is None:
            continue
        exec(compile(snippet, "docs/python.md", "exec"), names)
    for file, snippet in re.findall(r"<!-- from (.*?) -->\n```python\n(.*?)```", text, re.S):
        assert snippet in (SOURCE / file).read_text()
    names["test_scale"]()
    printed = capsys.readouterr().out
    # What the page says is printed, is.
    for shown in re.findall(r"```\n\n((?:    .*\n)+)", text):
        for line in shown.splitlines():
            assert line.strip() in printed


def displayed(value):
    for name in ("_repr_html_", "_repr_svg_"):
        if hasattr(value, name):
            return getattr(value, name)()
    return repr(value)


def test_the_notebook(monkeypatch, tmp_path):
    """Each cell runs, and what its last line shows can be shown."""
    import ast

    notebook = json.loads((SOURCE / "examples/imbrex.ipynb").read_text())
    assert notebook["nbformat"] == 4
    monkeypatch.chdir(tmp_path)
    names, shown = {"__name__": "notebook"}, []
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "cell", "exec"), names)
        if last is not None:
            shown.append(displayed(eval(compile(ast.Expression(last.value), "cell", "eval"), names)))
    everything = "\n".join(shown)
    for part in ("<svg", "<iframe", "out-of-bounds", ".visible", "store_global"):
        assert part in everything


def test_the_transformer():
    path = SOURCE / "examples/transformer_block.py"
    spec = importlib.util.spec_from_file_location("transformer_block", path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    assert example.on_the_virtual_gpu() < 2e-3
