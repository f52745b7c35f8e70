# SPDX-License-Identifier: Apache-2.0
"""What works row by row, on NumPy's arrays, against float64."""
import math

import numpy as np
import pytest

import imbrex

ml_dtypes = pytest.importorskip("ml_dtypes", reason="SKIPPED: needs ml_dtypes: pip install ml_dtypes")

TYPES = {np.dtype(np.float32): 1e-5, np.dtype(np.float16): 2e-3, np.dtype(ml_dtypes.bfloat16): 1e-2}
types = pytest.mark.parametrize("dtype", TYPES, ids=str)


def close(got, expected, dtype=None):
    assert got.shape == expected.shape and (dtype is None or got.dtype == dtype)
    tolerance = TYPES[got.dtype]
    return np.abs(got.astype(np.float64) - expected).max() <= tolerance * np.abs(expected).max()


def exact_softmax(x):
    powers = np.exp(x.astype(float) - x.astype(float).max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@types
@pytest.mark.parametrize("shape", [(3, 33), (2, 3, 40), (2, 2, 2, 8), (17,), (2, 5000)])
def test_softmax(random, shape, dtype):
    x = random(*shape, dtype=dtype)
    assert close(imbrex.softmax(x), exact_softmax(x), dtype)


@types
def test_norms(random, dtype):
    x, weight, bias = random(2, 3, 33, dtype=dtype), random(33, dtype=dtype), random(33)
    d, w = x.astype(float), weight.astype(float)
    centred = d - d.mean(-1, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-3) * w + bias
    assert close(imbrex.layer_norm(x, weight, bias, 1e-3), expected, dtype)
    expected = d / np.sqrt((d**2).mean(-1, keepdims=True) + 1e-3) * w
    assert close(imbrex.rms_norm(x, weight, 1e-3), expected, dtype)


def test_a_result_of_another_type_and_in_place(random):
    x, weight = random(4, 64, dtype=np.float16), random(64)
    expected = x.astype(float) / np.sqrt((x.astype(float) ** 2).mean(-1, keepdims=True) + 1e-6) * weight
    out = np.full((4, 64), np.nan, np.float32)
    assert imbrex.rms_norm(x, weight, out=out) is out and close(out, expected)
    assert imbrex.rms_norm(x, weight, out=x) is x and close(x, expected)


FORMS = {
    "silu": lambda x: x * sigmoid(x),
    "gelu": lambda x: 0.5 * x * (1 + np.vectorize(math.erf)(x / np.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "relu": lambda x: np.maximum(x, 0),
    None: lambda x: x,
}


@pytest.mark.parametrize("activation", FORMS)
def test_gated(random, activation):
    halves = random(6, 80, dtype=np.float16)
    gate, up = halves[:, :40], halves[:, 40:]
    expected = FORMS[activation](gate.astype(float)) * up.astype(float)
    assert close(imbrex.gated(gate, up, activation), expected, np.float16)


@pytest.mark.parametrize("interleaved", [False, True])
def test_rope(random, interleaved):
    x, angle = random(5, 3, 16), random(9, 8)
    places = np.array([8, 0, 3, 3, 1], np.int32)
    cos, sin = np.cos(angle), np.sin(angle)
    pairs = x.astype(float).reshape(5, 3, 8, 2) if interleaved else x.astype(float).reshape(5, 3, 2, 8).swapaxes(2, 3)
    c, s = (t[places][:, None].astype(float) for t in (cos, sin))
    turned = np.stack([pairs[..., 0] * c - pairs[..., 1] * s, pairs[..., 1] * c + pairs[..., 0] * s], -1)
    expected = (turned if interleaved else turned.swapaxes(2, 3)).reshape(x.shape)
    got = imbrex.rope(x, cos, sin, places, interleaved=interleaved)
    assert close(got, expected)
    assert close(imbrex.rope(got, cos, sin, places, interleaved=interleaved, inverse=True), x.astype(float))


@types
def test_cross_entropy(random, dtype):
    x, classes = random(7, 33, dtype=dtype), np.array([0, 32, 5, -1, 8, 8, 31], np.int32)
    expected = np.where(classes < 0, 0, -np.log(exact_softmax(x)[np.arange(7), classes]))
    assert close(imbrex.cross_entropy(x, classes), expected, np.float32)


def test_top_k(random):
    x = random(2, 4, 50, dtype=np.float16)
    values, columns = imbrex.top_k(x, 5)
    order = np.argsort(-x.astype(float), -1, kind="stable")[..., :5]
    assert columns.dtype == np.int32 and (columns == order).all()
    assert (values == np.take_along_axis(x, order, -1)).all()


@pytest.mark.parametrize("block", [0, 128])
@pytest.mark.parametrize("shape", [(5, 300), (2, 5, 300)])
def test_quantise_float8(random, shape, block):
    x, gate = random(*shape), random(*shape)
    for value, (q, scale) in [
        (x.astype(float), imbrex.quantise_float8(x, block=block)),
        (x * FORMS["silu"](gate.astype(float)), imbrex.quantise_float8(x, gate, block=block)),
    ]:
        columns = block or 300
        parts = [value[..., i : i + columns] for i in range(0, 300, columns)]
        expected = np.stack([np.abs(part).max(-1) / 448 for part in parts], -1)
        assert q.dtype == ml_dtypes.float8_e4m3fn and scale.shape == (*shape[:-1], len(parts))
        assert np.abs(scale / expected - 1).max() < 1e-5
        again = q.astype(float) * np.repeat(scale.astype(float), columns, -1)[..., :300]
        assert np.abs(again - value).max() <= np.abs(value).max() / 16
        assert block == 0 or scale.swapaxes(-1, -2).flags.c_contiguous


@pytest.mark.parametrize("dtype", [np.int8, np.float16, np.float32])
@pytest.mark.parametrize("shape", [(1, 7), (33, 65), (2, 5, 9), (2, 3, 17, 4)])
def test_transpose(random, shape, dtype):
    x = (random(*shape) * 20).astype(dtype)
    y = imbrex.transpose(x)
    assert y.flags.c_contiguous and (y == x.swapaxes(-1, -2)).all()
    out = np.full(y.shape, 99, dtype)
    assert imbrex.transpose(x, out=out) is out and (out == y).all()


def test_transpose_of_a_slice(random):
    x = random(40, 64)[3:20, 8:19]
    assert (imbrex.transpose(x) == x.T).all()


def test_empty_arrays_are_empty_results():
    x = np.zeros((0, 8), np.float32)
    assert imbrex.rms_norm(x, x[:, 0:8].sum(0)).shape == (0, 8)
    assert imbrex.gated(x, x).shape == (0, 8)
    assert [t.shape for t in imbrex.top_k(x, 2)] == [(0, 2), (0, 2)]
    assert [t.shape for t in imbrex.quantise_float8(x)] == [(0, 8), (0, 1)]
    assert imbrex.cross_entropy(x, np.zeros(0, np.int32)).shape == (0,)


REFUSED = {
    "softmax's type": (lambda x, w: imbrex.softmax(x.astype(np.float64)), "x is float64[4, 8]"),
    "no dimensions": (lambda x, w: imbrex.rms_norm(x[0, 0:1].reshape(()), w), "x has no dimensions"),
    "result's shape": (lambda x, w: imbrex.softmax(x, out=x[:2]), "out is float32[2, 8]"),
    "result's type": (lambda x, w: imbrex.rms_norm(x, w, out=x.astype(np.int32)), "out is int32[4, 8]"),
    "weight's shape": (lambda x, w: imbrex.rms_norm(x, w[:4]), "weight is float32[4]"),
    "bias's type": (lambda x, w: imbrex.layer_norm(x, w, w.astype(np.int32)), "bias is int32[8]"),
    "shapes differ": (lambda x, w: imbrex.gated(x, x[:, :4]), "up is float32[4, 4]"),
    "activation": (lambda x, w: imbrex.gated(x, x, "tanh"), "activation is 'tanh'"),
    "transposed in place": (lambda x, w: imbrex.transpose(x[:, :4], out=x[:, :4]), "x lies where y does"),
    "transposed row": (lambda x, w: imbrex.transpose(w), "x is float32[8]"),
    "transposed shape": (lambda x, w: imbrex.transpose(x, out=x), "out is float32[4, 8]"),
    "heads": (lambda x, w: imbrex.rope(x, x, x), "x is float32[4, 8]"),
    "odd heads": (lambda x, w: imbrex.rope(x[:, None, :7], x, x), "rope: "),
    "classes": (lambda x, w: imbrex.cross_entropy(x, np.zeros(4, np.int64)), "classes is int64[4]"),
    "k": (lambda x, w: imbrex.top_k(x, 9), "k is 9, x is float32[4, 8]"),
    "block": (lambda x, w: imbrex.quantise_float8(x, block=64), "block is 64"),
    "read-only": (lambda x, w: imbrex.softmax(x, out=np.broadcast_to(x[0], (4, 8))), "out is read-only"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refuses(random, what):
    call, words = REFUSED[what]
    with pytest.raises(imbrex.LaunchError) as caught:
        call(random(4, 8), random(8))
    assert words in str(caught.value) and "help: " in str(caught.value)
