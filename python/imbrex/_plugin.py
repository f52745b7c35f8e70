# SPDX-License-Identifier: Apache-2.0
"""From a C++ source to the shared library that the kernel is traced from. Its text and that of every header it
includes, the compiler and Imbrex itself are the key under which it is kept."""
from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from . import _imbrex

_HERE = Path(__file__).parent
_INCLUDE = _HERE / "include"
# Hidden: two libraries with kernels of the same name must not see each other's.
_FLAGS = "-std=c++20 -O0 -g0 -fPIC -shared -w -ffp-contract=off -fvisibility=hidden".split()


def cache_folder() -> Path:
    asked = os.environ.get("IMBREX_CACHE_DIR")
    base = Path(asked) if asked else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "imbrex"
    return base / "python"


def compiler() -> str:
    """The path of the C++ compiler. CompileError where there is none."""
    asked = os.environ.get("CXX")
    for name in [asked] if asked else ["c++", "g++", "clang++"]:
        found = shutil.which(name)
        if found:
            return found
    what = f"CXX is '{asked}', which is no program" if asked else "there is no C++ compiler: none of c++, g++, clang++"
    raise _imbrex.CompileError(f"{what}\n  help: install GCC 12 or Clang 14, or later, or set CXX")


def _digest(*parts: str | bytes) -> str:
    made = hashlib.sha256()
    for part in parts:
        made.update(part if isinstance(part, bytes) else part.encode())
        made.update(b"\0")
    return made.hexdigest()[:24]


def _identity(path: str | os.PathLike) -> str:
    facts = os.stat(path)
    return f"{path} {facts.st_size} {facts.st_mtime_ns}"


def _recorded(record: Path) -> str | None:
    """The library that was compiled, if the files it was compiled from are what they were."""
    try:
        facts = json.loads(record.read_text())
        same = all(_digest(Path(path).read_bytes()) == digest for path, digest in facts["files"].items())
        return facts["library"] if same and (record.parent / facts["library"]).exists() else None
    except (OSError, ValueError, KeyError):
        return None


def build(source: str | os.PathLike, name: str, members: tuple[str, ...], flags: list[str]) -> str:
    """The path of the shared library with this kernel. CompileError with the compiler's words."""
    if not re.fullmatch(r"[A-Za-z_][\w:<>, ]*", name):
        raise _imbrex.LaunchError(f"'{name}' is no name of a C++ struct\n  help: pass the kernel's struct, \"ns::Scale\"")
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(source, str) and "\n" in source:
        path = folder / f"source_{_digest(source)}.cpp"
        if not path.exists():
            _write(path, source)
    else:
        path = Path(source).absolute()
        if not path.is_file():
            raise _imbrex.LaunchError(f"there is no file {path}\n  help: pass a C++ source, or its text")
    program = compiler()
    extension = _imbrex.__file__
    key = _digest(str(path), name, *members, *flags, _identity(program), _identity(extension))
    record = folder / f"{key}.json"
    if known := _recorded(record):
        return str(folder / known)
    listed = ", ".join(f"imbrex::detail::member<&Kernel::{member}>()" for member in members)
    # Errors in what the caller of imbrex.Kernel gave name that, not a file of ours.
    glue = (
        f'#include "{path}"\n#include "imbrex/lang/plugin.h"\nnamespace {{\n'
        f'#line 1 "the name given to imbrex.Kernel"\nusing Kernel = {name};\n}}\n'
        f'#line 1 "the members given to imbrex.Kernel"\nIMBREX_PLUGIN(Kernel{", " if listed else ""}{listed})\n'
    )
    with tempfile.TemporaryDirectory(dir=folder) as work:
        unit, made, rules = (os.path.join(work, file) for file in ("plugin.cpp", "plugin.so", "plugin.d"))
        Path(unit).write_text(glue)
        command = [program, *_FLAGS, *flags, f"-I{path.parent}", f"-I{_INCLUDE}", unit, "-o", made, "-MMD", "-MF", rules]
        done = subprocess.run([*command, extension], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise _imbrex.CompileError(f"{path} does not compile as a kernel '{name}'\n{_first(done.stderr)}")
        # Under a name of its content: a process that has loaded an older one keeps it.
        library = f"{key}_{_digest(Path(made).read_bytes())}.so"
        os.replace(made, folder / library)
        includes = [file for file in _files(Path(rules).read_text()) if not _is_ours(file, unit)]
        digests = {file: _digest(Path(file).read_bytes()) for file in includes}
        _write(record, json.dumps({"library": library, "files": digests}))
    return str(folder / library)


def _is_ours(file: str, unit: str) -> bool:
    """Not the user's: the extension's identity stands for Imbrex's headers, the compiler's for the system's."""
    return file == unit or file.startswith(str(_INCLUDE)) or file.startswith("/usr/")


def _files(rules: str) -> list[str]:
    """The files of make's rule."""
    text = rules.split(":", 1)[1].replace("\\\n", " ")
    return [word.replace("\0", " ") for word in text.replace("\\ ", "\0").split()]


def _first(messages: str) -> str:
    """The first errors: what follows from them says little."""
    lines = messages.splitlines()
    errors = [i for i, line in enumerate(lines) if ": error:" in line or ": fatal error:" in line]
    if not errors:
        return messages[-4000:]
    end = errors[3] if len(errors) > 3 else len(lines)
    shown = lines[errors[0] : end][:40]
    return "\n".join(shown)


def _write(path: Path, text: str) -> None:
    """Whole or not at all, whatever other processes do."""
    handle, made = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(made, path)
