# SPDX-License-Identifier: Apache-2.0
"""PTX on the virtual GPU, findings, and tests that fail with them."""
import numpy as np
import pytest

import imbrex

pytest_plugins = ["pytester"]

SAXPY = """.version 7.0
.target sm_80
.address_size 64
.visible .entry saxpy(.param .u32 n, .param .f32 a, .param .u64 x, .param .u64 y) {
  .reg .pred %p<2>; .reg .b32 %r<6>; .reg .f32 %f<5>; .reg .b64 %rd<7>;
  ld.param.u32 %r1, [n]; ld.param.f32 %f1, [a]; ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y];
  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  setp.ge.u32 %p1, %r5, %r1; @%p1 bra DONE;
  mul.wide.u32 %rd3, %r5, 4; add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;
  ld.global.f32 %f2, [%rd4]; ld.global.f32 %f3, [%rd5];
  fma.rn.f32 %f4, %f1, %f2, %f3; st.global.f32 [%rd5], %f4;
DONE: ret;
}
"""
UNGUARDED = SAXPY.replace("setp.ge.u32 %p1, %r5, %r1; @%p1 bra DONE;", "")
RACE = UNGUARDED.replace("mad.lo.s32 %r5, %r2, %r3, %r4;", "mov.u32 %r5, 0;")


@pytest.mark.parametrize("number", [2.5, np.float32(2.5), np.float32(2.5).tobytes()])
def test_ptx(random, number, tmp_path):
    x, y = random(1000), random(1000)
    expected = 2.5 * x.astype(float) + y
    file = tmp_path / "saxpy.ptx"
    file.write_text(SAXPY)
    report = imbrex.VirtualGpu("sm_90a").run(file, grid=8, block=128, arguments=[1000, number, x, y])
    assert report.clean and report.findings == [] and report.completed
    assert np.abs(y - expected).max() < 1e-5
    assert report.statistics["ctas"] == 8 and "nothing found" in str(report)


def test_findings_are_objects(random):
    x, y = random(1000), random(1000)
    report = imbrex.VirtualGpu("sm_80").run(UNGUARDED, 8, 128, [1000, 2.0, x, y])
    assert not report.clean
    finding = report.findings[0]
    assert finding.kind == "out-of-bounds" and finding.place.ptx_line > 4 and finding.actor.cta == (7, 0, 0)
    assert finding.message in str(finding) and "ld.global" in finding.place.ptx
    text = report._repr_html_()
    assert "out-of-bounds" in text and "<script" not in text and finding.place.ptx in text.replace("&gt;", ">")

    report = imbrex.VirtualGpu("sm_80").run(RACE, 8, 128, [1000, 2.0, x, y])
    races = [f for f in report.findings if f.kind == "race"]
    assert races and races[0].other_place.ptx_line > 4


def test_what_chips_make_right_may_be_a_note():
    same = """.version 7.0
.target sm_80
.address_size 64
.visible .entry same(.param .u64 x) {
  .reg .pred %p<2>; .reg .b64 %rd<2>; .reg .b32 %r<3>;
  ld.param.u64 %rd1, [x]; mov.u32 %r1, 7; mov.u32 %r2, %tid.x; setp.lt.u32 %p1, %r2, 32;
  @%p1 st.global.u32 [%rd1], %r1;
  @!%p1 st.global.u32 [%rd1], %r1;
  ret;
}
"""
    y = np.zeros(4, np.int32)
    strict = imbrex.VirtualGpu("sm_80").run(same, 1, 64, [y])
    assert {f.severity for f in strict.findings} == {"finding"} and strict.notes == []
    report = imbrex.VirtualGpu("sm_80", strict=False).run(same, 1, 64, [y])
    assert report.clean and y[0] == 7 and "race" in report._repr_html_()
    assert {(f.severity, f.rule) for f in report.notes} == {("note", "equal-values")}


def test_names_of_sources_are_quoted_as_text(random):
    evil = UNGUARDED.replace("saxpy", "s").replace(".address_size 64", '.address_size 64\n.file 1 "<b>.cu"')
    evil = evil.replace("ld.global.f32 %f2", ".loc 1 3 0\n  ld.global.f32 %f2")
    report = imbrex.VirtualGpu("sm_80").run(evil, 8, 128, [1000, 2.0, random(1000), random(1000)])
    assert "<b>.cu" not in report._repr_html_() and "&lt;b&gt;.cu" in report._repr_html_()


def test_read_only_arrays_are_read_only(random):
    x, y = random(128), random(128)
    before = y.copy()
    x.flags.writeable = y.flags.writeable = False
    with pytest.raises(imbrex.LaunchError, match="argument 4 .y. is read-only, and the kernel wrote to it\n.*help"):
        imbrex.VirtualGpu("sm_80").run(SAXPY, 1, 128, [128, 2.0, x, y])
    assert (y == before).all()
    y = before.copy()
    assert imbrex.VirtualGpu("sm_80").run(SAXPY, 1, 128, [128, 2.0, x, y]).clean and (y != before).any()


REFUSED = {
    "no grid": (lambda g, x: g.run(SAXPY), "grid is missing"),
    "arguments": (lambda g, x: g.run(SAXPY, 1, 32, [1, 2.0, x]), "3 arguments given, 4 expected"),
    "float for int": (lambda g, x: g.run(SAXPY, 1, 32, [1, 2.0, 1.5, "x"]), "argument 4 (y) is"),
    "array for number": (lambda g, x: g.run(SAXPY, 1, 32, [x, 2.0, x, x]), "argument 1 (n) is an array"),
    "too large": (lambda g, x: g.run(SAXPY, 1, 32, [1 << 40, 2.0, x, x]), "argument 1 (n) is 1099511627776"),
    "block": (lambda g, x: g.run(SAXPY, 1, 2048, [1, 2.0, x, x]), "1024"),
    "entry": (lambda g, x: g.run(SAXPY, 1, 32, [1, 2.0, x, x], entry="saxpi"), "saxpy"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refuses(random, what):
    call, words = REFUSED[what]
    with pytest.raises(imbrex.LaunchError) as caught:
        call(imbrex.VirtualGpu("sm_80"), random(32))
    assert words in str(caught.value)


def test_what_is_no_ptx():
    with pytest.raises(imbrex.ParseError):
        imbrex.VirtualGpu("sm_80").run("int main()\n{}", 1, 32)
    with pytest.raises(imbrex.LaunchError, match="sm_11"):
        imbrex.VirtualGpu("sm_11")
    with pytest.raises(imbrex.LaunchError, match="checks is 'maybe'"):
        imbrex.VirtualGpu("sm_80", checks="maybe")


CHECKED = """
import numpy as np, imbrex
UNGUARDED = '''%s'''
count = 0

@imbrex.checked
def test_wrong():
    x, y = np.ones(1000, np.float32), np.ones(1000, np.float32)
    imbrex.VirtualGpu("sm_80").run(UNGUARDED, 8, 128, [1000, 2.0, x, y])

@imbrex.checked(seeds=3)
def test_right():
    global count
    count += 1
    assert abs(imbrex.softmax(np.ones((2, 4), np.float32)).sum() - 2) < 1e-6

def test_count():
    assert count == SEEDS
"""


@pytest.mark.parametrize("option, seeds", [([], 3), (["--imbrex-seeds", "5"], 5)])
def test_a_checked_test_fails_with_the_finding(pytester, option, seeds):
    pytester.makepyfile(CHECKED.replace("SEEDS", str(seeds)) % UNGUARDED)
    result = pytester.runpytest_inprocess("-p", "imbrex.pytest_plugin", *option) if not has_plugin() else pytester.runpytest_inprocess(*option)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*the virtual GPU found something wrong*", "seed 0:*out-of-bounds*"])
    result.stdout.no_fnmatch_line("*Traceback*")


def has_plugin():
    from importlib.metadata import entry_points

    return any(point.name == "imbrex" for point in entry_points(group="pytest11"))
