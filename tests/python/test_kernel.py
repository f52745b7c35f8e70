# SPDX-License-Identifier: Apache-2.0
"""Kernels compiled from C++, and those of the library."""
import subprocess
import sys

import numpy as np
import pytest

import imbrex

SCALE = """
#include "imbrex/lang.h"
#include "scale_body.h"
"""
BODY = """
using namespace imbrex;
struct Scale {
  int block = 128;
  bool negate = false;
  static auto space() { return Space<Scale>().choose<&Scale::block>({128, 256, 512}); }
  void operator()(Int32 n, float factor, DataType dtype, Ptr<> x_ptr, Ptr<> y_ptr) const {
    grid(cdiv(n, block));
    warps(4);
    auto x = global_view(x_ptr, dtype, {n});
    auto y = global_view(y_ptr, dtype, {n});
    Int32 first = block * block_idx.x;
    store_global(y, (load_global(x, {first}, {block}).to(float32) * (negate ? -factor : factor)).to(dtype), {first});
  }
};
"""


@pytest.fixture
def source(tmp_path, monkeypatch):
    monkeypatch.setenv("IMBREX_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "scale.cpp").write_text(SCALE)
    (tmp_path / "scale_body.h").write_text(BODY)
    return tmp_path / "scale.cpp"


def test_a_kernel_from_its_source(source, random):
    kernel = imbrex.Kernel(source, "Scale", block=256, negate=True)
    assert kernel.name == "Scale" and kernel.target == "sm_80" and kernel.configuration == {"block": 256}
    x = random(1000, dtype=np.float16)
    for array, dtype in [(x, "float16"), (x.astype(np.float32), np.float32)]:
        y = np.full_like(array, np.nan)
        kernel(1000, 2.5, dtype, array, y)
        assert np.abs(y.astype(float) + 2.5 * array.astype(float)).max() < 1e-2

    assert "store_global" in kernel.ir(1000, 2.5, "float16", None, None)
    assert ".visible .entry scale" in kernel.ptx(1000, 2.5, "float16", None, None, target="sm_90a")
    assert "<pre" in kernel.ptx(1000, 2.5, "float16", None, None)._repr_html_()
    timeline = kernel.timeline(1000, 2.5, "float16", x, y)
    assert timeline._repr_svg_().startswith("<svg") and timeline.microseconds > 0

    best = kernel.tune(1000, 2.5, "float16", x, x.copy())
    assert best.configuration in kernel.space and len(best.tuned) == 3
    assert kernel.configured(block=512).configuration == {"block": 512}
    with pytest.raises(imbrex.CompileError, match="block"):
        kernel.configured(blocks=512)


def test_a_changed_header_is_compiled_anew(source, random):
    x = random(256)
    for factor in ["2", "3", "2"]:
        (source.parent / "scale_body.h").write_text(BODY.replace("-factor : factor", f"-factor : {factor} * factor"))
        y = np.full_like(x, np.nan)
        imbrex.Kernel(source, "Scale")(256, 1.0, "float32", x, y)
        assert np.abs(y - float(factor) * x).max() < 1e-6


def test_members_are_values_of_one_library(source):
    folder = source.parent / "cache" / "python"
    imbrex.Kernel(source, "Scale", block=256)
    libraries = sorted(folder.glob("*.so"))
    assert imbrex.Kernel(source, "Scale", block=512).configuration == {"block": 512}
    assert sorted(folder.glob("*.so")) == libraries and len(libraries) == 1


REFUSED = {
    "too few": (lambda k, x: k(1000), imbrex.LaunchError, "1 arguments given, 5 expected"),
    "a word for a number": (lambda k, x: k("n", 1.0, "float32", x, x), imbrex.LaunchError, "argument 1 is 'n'"),
    "no array": (lambda k, x: k(10, 1.0, "float32", x, [1]), imbrex.LaunchError, "argument 5 is a list"),
    "too small": (lambda k, x: k(2000, 1.0, "float32", x, x), imbrex.LaunchError, "too small"),
    "null": (lambda k, x: k(1000, 1.0, "float32", x, None), imbrex.LaunchError, "null"),
    "read-only": (lambda k, x: k(1000, 1.0, "float32", x, read_only(x)), imbrex.LaunchError, "argument 5 is read-only"),
}


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def test_reads_what_is_read_only(source, random):
    x, y = read_only(random(256)), np.full(256, np.nan, np.float32)
    imbrex.Kernel(source, "Scale")(256, 2.0, "float32", x, y)
    assert (y == 2 * x).all()


@pytest.mark.parametrize("what", REFUSED)
def test_refuses(random, what):
    call, kind, words = REFUSED[what]
    kernel = imbrex.Kernel(SCALE.replace('#include "scale_body.h"', BODY), "Scale")
    with pytest.raises(kind) as caught:
        call(kernel, random(1000))
    assert words in str(caught.value)


def test_says_what_the_compiler_says(source):
    (source.parent / "scale_body.h").write_text(BODY.replace("cdiv(n, block)", "cdiw(n, block)"))
    with pytest.raises(imbrex.CompileError, match="cdiw"):
        imbrex.Kernel(source, "Scale")
    with pytest.raises(imbrex.CompileError, match="blok"):
        imbrex.Kernel(source, "Scale", blok=1)
    with pytest.raises(imbrex.LaunchError, match="there is no file"):
        imbrex.Kernel("missing.cpp", "Scale")
    with pytest.raises(imbrex.LaunchError, match="no name of a C"):
        imbrex.Kernel(source, "Scale; system(0)")
    with pytest.raises(imbrex.CompileError, match="the name given to imbrex.Kernel:1:.*Skale"):
        imbrex.Kernel(source, "Skale")
    with pytest.raises(imbrex.CompileError, match="the members given to imbrex.Kernel:1:.*blok"):
        imbrex.Kernel(source, "Scale", blok=128)


def test_without_a_compiler(source, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(imbrex.CompileError, match="CXX is 'no-such-compiler'.*\n.*help"):
        imbrex.Kernel(source, "Scale")


def test_the_kernels_of_the_library(random):
    assert "softmax" in imbrex.kernels and "hopper_matmul_h7" in imbrex.kernels and len(imbrex.kernels) > 20
    kernel = imbrex.kernels["softmax"].configured(rows=2)
    x = random(5, 33)
    y = np.full_like(x, np.nan)
    kernel(5, 33, x, y)
    powers = np.exp(x.astype(float))
    assert np.abs(y - powers / powers.sum(1, keepdims=True)).max() < 1e-6
    assert kernel.run(5, 33, x, y).clean
    with pytest.raises(KeyError) as unknown:
        imbrex.kernels["softmaxx"]
    assert str(unknown.value) == "error: no kernel is called 'softmaxx'\n  help: did you mean 'softmax'?"


def test_a_page_about_a_kernel():
    page = imbrex.kernels["vector_add"].explain(n=1000)
    assert "<html" in page.html and "<iframe" in page._repr_html_()
    with pytest.raises(imbrex.LaunchError):
        imbrex.kernels["vector_add"].explain(m=1000)


def test_the_command_starts_workers_of_its_own():
    words = ["tune", "hopper_matmul_h8", "--m", "256", "--n", "512", "--k", "256", "--device", "virtual", "--gpus", "2"]
    done = subprocess.run([sys.executable, "-m", "imbrex", *words], text=True, capture_output=True, timeout=300)
    assert done.returncode == 0 and "best" in done.stdout, done.stdout + done.stderr
