# SPDX-License-Identifier: Apache-2.0
"""The kernel library on NumPy's arrays, against float64."""
import numpy as np
import pytest

import imbrex


def error(got, expected):
    assert got.shape == expected.shape
    return np.abs(got.astype(np.float64) - expected).max() / np.abs(expected).max()


@pytest.mark.parametrize("m, n, k", [(65, 30, 40), (1, 1, 8), (130, 257, 64), (7, 5, 3)])
def test_matmul(random, m, n, k):
    a, b = random(m, k, dtype=np.float16), random(k, n, dtype=np.float16)
    c = imbrex.matmul(a, b)
    assert c.dtype == np.float16
    assert error(c, a.astype(float) @ b.astype(float)) < 1e-3


def test_matmul_of_batches(random):
    a, b = random(3, 20, 16, dtype=np.float16), random(3, 16, 24, dtype=np.float16)
    assert error(imbrex.matmul(a, b), a.astype(float) @ b.astype(float)) < 1e-3
    assert error(imbrex.matmul(a, b[0]), a.astype(float) @ b[0].astype(float)) < 1e-3
    assert error(imbrex.matmul(a[1], b), a[1].astype(float) @ b.astype(float)) < 1e-3


def test_empty_arrays_are_empty_results():
    assert imbrex.matmul(np.zeros((0, 8), np.float16), np.zeros((8, 4), np.float16)).shape == (0, 4)
    assert imbrex.softmax(np.zeros((0, 8), np.float32)).shape == (0, 8)


def test_matmul_of_views_takes_what_the_view_shows(random):
    a, b = random(16, 65, dtype=np.float16), random(96, 80, dtype=np.float16)
    expected = a.T.astype(float) @ b[::3, ::2][:16].astype(float)
    assert error(imbrex.matmul(a.T, b[::3, ::2][:16]), expected) < 1e-3


def test_matmul_with_everything(random):
    m, n, k = 20, 24, 32
    a, b, bias = random(m, k, dtype=np.float16), random(k, n, dtype=np.float16), random(n)
    residual, scale = random(m, n), np.array([0.5], np.float32)
    sums = 0.25 * 0.5 * (a.astype(float) @ b.astype(float)) + bias + 2 * residual
    out = np.full((m, n), np.nan, np.float32)
    got = imbrex.matmul(
        a, b, out=out, bias=bias, activation="relu", alpha=0.25, beta=2, residual=residual, scale_a=scale
    )
    assert got is out
    assert error(out, np.maximum(sums, 0)) < 1e-5


def test_matmul_adds_to_out(random):
    a, b, out = random(16, 16, dtype=np.float16), random(16, 16, dtype=np.float16), random(16, 16)
    expected = a.astype(float) @ b.astype(float) + 3 * out
    assert error(imbrex.matmul(a, b, out=out, beta=3), expected) < 1e-5


def test_matmul_writes_into_a_part_of_an_array(random):
    a, b, all = random(16, 16, dtype=np.float16), random(16, 8, dtype=np.float16), np.zeros((16, 24), np.float32)
    imbrex.matmul(a, b, out=all[:, 8:16])
    assert error(all[:, 8:16], a.astype(float) @ b.astype(float)) < 1e-5
    assert not all[:, :8].any() and not all[:, 16:].any()


@pytest.mark.parametrize("dtype", ["float16", "float32", np.float32, np.dtype("float16")])
def test_matmul_gives_the_type_asked_for(random, dtype):
    a = random(16, 16, dtype=np.float16)
    assert imbrex.matmul(a, a, out_dtype=dtype).dtype == np.dtype(dtype)


def attention(q, k, v, causal):
    q, k, v = (t.astype(float) for t in (q, k, v))
    k, v = (np.repeat(t, q.shape[-3] // t.shape[-3], axis=-3) for t in (k, v))
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    if causal:
        rows, columns = scores.shape[-2:]
        scores = np.where(np.arange(columns) <= np.arange(rows)[:, None] + columns - rows, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


@pytest.mark.parametrize("causal", [False, True])
def test_attention(random, causal):
    q, k, v = (random(2, heads, rows, 32, dtype=np.float16) for heads, rows in [(4, 20), (2, 24), (2, 24)])
    assert error(imbrex.attention(q, k, v, causal=causal), attention(q, k, v, causal)) < 3e-3
    assert error(imbrex.attention(q[0], k[0], v[0], causal=causal), attention(q[0], k[0], v[0], causal)) < 3e-3


def exact_steps(q, k, v, causal=False, window=(-1, -1), prefix=0, soft_cap=0.0, alibi_slopes=None, sinks=None):
    q, k, v = (x.astype(float) for x in (q, k, v))
    heads, rows, columns = q.shape[-3], q.shape[-2], k.shape[-2]
    k, v = (np.repeat(x, heads // x.shape[-3], -3) for x in (k, v))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if soft_cap:
        scores = soft_cap * np.tanh(scores / soft_cap)
    place, column = np.arange(rows)[:, None] + columns - rows, np.arange(columns)
    if alibi_slopes is not None:
        scores = scores + alibi_slopes[:, None, None] * (column - place)
    sees = np.ones((rows, columns), bool)
    if causal:
        sees &= column <= place
    if prefix:
        sees &= (column <= place) | (column < prefix)
    for side, far in zip((-1, 1), window):
        if far >= 0:
            sees &= side * (column - place) <= far
    scores = np.where(sees, scores, -np.inf)
    powers = np.exp(scores)
    sums = powers.sum(-1, keepdims=True)
    if sinks is not None:
        sums = sums + np.exp(sinks)[:, None, None]
    return powers / np.where(sums == 0, 1, sums) @ v


STEPS = {
    "window": {"window": (5, 2)},
    "causal window": {"causal": True, "window": (7, -1)},
    "prefix": {"prefix": 6},
    "soft cap": {"soft_cap": 1.5, "causal": True},
    "alibi": {"alibi_slopes": np.array([0.5, 0.25, 0.125, 0.0625], np.float32)},
    "sinks": {"sinks": np.array([0.5, -1, 2, 0], np.float32), "causal": True},
}


@pytest.mark.parametrize("what", STEPS)
def test_attention_with(random, what):
    q, k, v = (random(2, heads, rows, 32, dtype=np.float16) for heads, rows in [(4, 20), (2, 24), (2, 24)])
    got = imbrex.attention(q, k, v, **STEPS[what])
    assert error(got, exact_steps(q, k, v, **STEPS[what])) < 3e-3
    assert error(got, exact_steps(q, k, v)) > 1e-2  # so that the step is seen to do something


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("parts", [0, 1, 3])
def test_attention_decode(random, causal, parts):
    room, lengths = 150, np.array([150, 0, 71], np.int32)
    q, k, v = (random(3, *shape, dtype=np.float16) for shape in [(4, 2, 64), (2, room, 64), (2, room, 64)])
    expected = np.zeros(q.shape)
    for i, n in enumerate(lengths):
        if n > 0:
            expected[i] = exact_steps(q[i], k[i, :, :n], v[i, :, :n], causal=causal)
        k[i, :, n:], v[i, :, n:] = np.nan, np.nan  # what lies beyond a sequence may be anything
    assert error(imbrex.attention_decode(q, k, v, lengths, causal=causal, parts=parts), expected) < 3e-3


def test_attention_decode_of_pages(random):
    lengths, table = np.array([40, 17], np.int32), np.array([[4, 0, 2], [1, 5, 99]], np.int32)
    q, k, v = random(2, 4, 1, 64, dtype=np.float16), *(random(6, 2, 16, 64, dtype=np.float16) for _ in range(2))
    got = imbrex.attention_decode(q, k, v, lengths, page_table=table)
    for i, n in enumerate(lengths):
        rows = [np.concatenate(t[table[i][: -(-n // 16)]], axis=1)[None, :, :n] for t in (k, v)]
        assert error(got[i : i + 1], exact_steps(q[i : i + 1], *rows)) < 3e-3


def test_attention_of_packed_sequences(random):
    q_begins, kv_begins = np.array([0, 5, 5, 40], np.int32), np.array([0, 9, 20, 50], np.int32)
    q, k, v = random(4, 44, 32, dtype=np.float16), *(random(2, 60, 32, dtype=np.float16) for _ in range(2))
    k[:, 50:], v[:, 50:] = np.nan, np.nan
    out = np.full(q.shape, 7, np.float16)
    imbrex.attention(q, k, v, causal=True, q_begins=q_begins, kv_begins=kv_begins, out=out)
    for b, e, kb, ke in zip(q_begins, q_begins[1:], kv_begins, kv_begins[1:]):
        if b < e:
            assert error(out[:, b:e], exact_steps(q[:, b:e], k[:, kb:ke], v[:, kb:ke], causal=True)) < 3e-3
    assert (out[:, 40:] == 7).all()


def float8(x, axes):
    """float8_e4m3, and the scales by which it is multiplied."""
    float8_e4m3fn = pytest.importorskip("ml_dtypes", reason="SKIPPED: needs ml_dtypes: pip install ml_dtypes").float8_e4m3fn
    scale = np.abs(x).max(axes) / 448
    return (x / np.expand_dims(scale, axes)).astype(float8_e4m3fn), scale.astype(np.float32)


def test_attention_of_float8(random):
    (q, q_scale), (k, k_scale), (v, v_scale) = (float8(random(2, h, rows, 32), (2, 3)) for h, rows in [(4, 20), (2, 24), (2, 24)])
    got = imbrex.attention(q, k, v, causal=True, q_scales=q_scale, k_scales=k_scale, v_scales=v_scale, out_dtype="float16")
    exact = [t.astype(float) * s[..., None, None] for t, s in ((q, q_scale), (k, k_scale), (v, v_scale))]
    assert got.dtype == np.float16 and error(got, exact_steps(*exact, causal=True)) < 0.1
    assert imbrex.attention(q, k, v).dtype.name == "bfloat16"
    with pytest.raises(imbrex.LaunchError, match="not all"):
        imbrex.attention(q, k, v, q_scales=q_scale)


def test_attention_of_float8_with_scales_of_rows_of_packed_sequences(random):
    begins = np.array([0, 130, 140], np.int32)  # blocks: two of the first sequence, one of the second
    numbers, q, k, v = [], *(random(2, 140, 32) for _ in range(3))
    for x in (q, k, v):
        scales = np.zeros((2, 140 // 128 + 2), np.float32)
        elements = []
        for number, (first, last) in zip((0, 1, 2), [(0, 128), (128, 130), (130, 140)]):
            block, scales[:, number] = float8(x[:, first:last], (1, 2))
            elements.append(block)
        numbers.append((np.concatenate(elements, 1), scales))
    (q8, q_scales), (k8, k_scales), (v8, v_scales) = numbers
    scales = dict(q_scales=q_scales, k_scales=k_scales, v_scales=v_scales)
    got = imbrex.attention(q8, k8, v8, causal=True, q_begins=begins, kv_begins=begins, out_dtype="float16", **scales)
    for first, last in zip(begins, begins[1:]):
        q1, k1, v1 = (x[:, first:last] for x in (q, k, v))
        assert error(got[:, first:last], exact_steps(q1, k1, v1, causal=True)) < 0.1


def test_attention_decode_from_caches_of_float8_in_pages(random):
    lengths, table = np.array([40, 17], np.int32), np.array([[4, 0, 2], [1, 5, 99]], np.int32)
    q = random(2, 4, 1, 64, dtype=np.float16)
    (k, k_scale), (v, v_scale) = (float8(random(6, 2, 16, 64), (0, 2, 3)) for _ in range(2))
    got = imbrex.attention_decode(q, k, v, lengths, page_table=table, k_scales=k_scale, v_scales=v_scale)
    for i, n in enumerate(lengths):
        rows = [
            np.concatenate(t[table[i][: -(-n // 16)]].astype(float) * s[:, None, None], axis=1)[None, :, :n]
            for t, s in ((k, k_scale), (v, v_scale))
        ]
        assert error(got[i : i + 1], exact_steps(q[i : i + 1], *rows)) < 5e-3


DECODE_STEPS = {
    "window": {"window": 7},
    "soft cap": {"soft_cap": 1.5},
    "alibi": {"alibi_slopes": STEPS["alibi"]["alibi_slopes"]},
    "sinks": {"sinks": STEPS["sinks"]["sinks"]},
}


@pytest.mark.parametrize("what", DECODE_STEPS)
def test_attention_decode_with(random, what):
    steps = DECODE_STEPS[what]
    q, k, v = (random(1, heads, rows, 32, dtype=np.float16) for heads, rows in [(4, 3), (2, 80), (2, 80)])
    exact = {**steps, **({"window": (steps["window"], -1)} if "window" in steps else {})}
    got = imbrex.attention_decode(q, k, v, causal=True, parts=2, **steps)
    assert error(got, exact_steps(q, k, v, causal=True, **exact)) < 3e-3
    assert error(got, exact_steps(q, k, v, causal=True)) > 1e-2


def test_attention_latent_decode(random):
    lengths = np.array([70, 0, 9], np.int32)
    q, cache = random(3, 5, 2, 192, dtype=np.float16), random(3, 1, 80, 192, dtype=np.float16)
    got = imbrex.attention_latent_decode(q, cache, lengths, value_size=128, causal=True, parts=2)
    assert got.shape == (3, 5, 2, 128)
    for i, n in enumerate(lengths):
        rows = cache[i : i + 1, :, :n]
        if n:
            assert error(got[i : i + 1], exact_steps(q[i : i + 1], rows, rows[..., :128], causal=True)) < 3e-3
        else:
            assert not got[i].any()
    steps = dict(soft_cap=2.0, alibi_slopes=random(5), sinks=random(5))
    got = imbrex.attention_latent_decode(q, cache, value_size=128, causal=True, window=20, parts=2, **steps)
    assert error(got, exact_steps(q, cache, cache[..., :128], causal=True, window=(20, -1), **steps)) < 3e-3


def test_attention_latent_decode_from_a_cache_of_float8(random):
    q, cache = random(2, 5, 1, 192, dtype=np.float16), random(2, 1, 80, 192, dtype=np.float16)
    values, scale = float8(cache[..., :128], -1)
    # Elements, factors as many as fill 16 bytes, the rest of the key.
    factors = np.zeros((2, 1, 80, 4), np.float32)
    factors[..., 0] = scale
    rows = np.concatenate([x.view(np.uint8) for x in (values, factors, np.ascontiguousarray(cache[..., 128:]))], -1)
    assert rows.shape[-1] == 128 + 16 + 2 * 64
    meant = np.concatenate([values.astype(float) * scale[..., None], cache[..., 128:].astype(float)], -1)
    got = imbrex.attention_latent_decode(q, rows.view(values.dtype), np.array([80, 33], np.int32), value_size=128)
    for i, n in enumerate([80, 33]):
        seen = meant[i : i + 1, :, :n]
        assert error(got[i : i + 1], exact_steps(q[i : i + 1], seen, seen[..., :128])) < 3e-3


@pytest.mark.parametrize("dtype", [np.float16, "bfloat16"])
def test_grouped_matmul(random, dtype):
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes", reason="SKIPPED: needs ml_dtypes: pip install ml_dtypes").bfloat16
    a, w = random(50, 32, dtype=dtype), random(4, 40, 32, dtype=dtype)
    first = np.array([0, 7, 7, 33, 47], np.int32)
    out = np.full((50, 40), 3, dtype)
    assert imbrex.grouped_matmul(a, w.swapaxes(1, 2), first, out=out) is out
    expected = np.concatenate([a[b:e].astype(float) @ w[g].T.astype(float) for g, (b, e) in enumerate(zip(first, first[1:]))])
    assert error(out[:47], expected) < 1e-2 and (out[47:] == 3).all()
    counts, room = np.array([3, 0, 12, 5], np.int32), random(4, 12, 32, dtype=dtype)
    got = imbrex.grouped_matmul(room, w.swapaxes(1, 2), counts, masked=True)
    for g, n in enumerate(counts):
        if n:
            assert error(got[g, :n], room[g, :n].astype(float) @ w[g].T.astype(float)) < 1e-2


@pytest.mark.parametrize("block", [0, 128])
def test_grouped_matmul_of_float8(random, block):
    pytest.importorskip("ml_dtypes", reason="SKIPPED: needs ml_dtypes: pip install ml_dtypes")
    x, w, first = random(40, 256), random(2, 128, 256), np.array([0, 25, 40], np.int32)
    a, scale_a = imbrex.quantise_float8(x, block=block)
    if block:
        scale_b = np.abs(w).reshape(2, 1, 128, 2, 128).max((2, 4)) / 448
        b = (w / np.repeat(np.repeat(scale_b, 128, 1), 128, 2)).astype(a.dtype)
        scales = {"scale_a": scale_a.T, "scale_b": scale_b.astype(np.float32)}
    else:
        b, scale_b = imbrex.quantise_float8(w)
        scales = {"scale_a": scale_a[:, 0], "scale_b": scale_b[..., 0]}
    got = imbrex.grouped_matmul(a, b.swapaxes(1, 2), first, **scales, out_dtype="float16")
    expected = np.concatenate([x[:25].astype(float) @ w[0].T, x[25:].astype(float) @ w[1].T])
    assert got.dtype == np.float16 and error(got, expected) < 0.05


def test_matmul_of_float8_with_scales_of_blocks(random):
    pytest.importorskip("ml_dtypes", reason="SKIPPED: needs ml_dtypes: pip install ml_dtypes")
    x, w, bias = random(40, 256), random(128, 256), random(128, dtype=np.float32)
    a, scale_a = imbrex.quantise_float8(x, block=128)
    scale_b = (np.abs(w).reshape(1, 128, 2, 128).max((1, 3)) / 448).astype(np.float32)
    b = (w / np.repeat(np.repeat(scale_b, 128, 0), 128, 1)).astype(a.dtype)
    got = imbrex.matmul(a, b.T, bias=bias, scale_a=scale_a.T, scale_b=scale_b, out_dtype="float16")
    assert got.dtype == np.float16 and error(got, x.astype(float) @ w.T + bias) < 0.05
    with pytest.raises(imbrex.LaunchError, match="scales of blocks"):
        imbrex.matmul(a, b.T, scale_a=scale_a.T)


def silu(x):
    return x / (1 + np.exp(-x))


@pytest.mark.parametrize("dtype", [np.float16, "bfloat16"])
def test_gated_matmul(random, dtype):
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes", reason="SKIPPED: needs ml_dtypes: pip install ml_dtypes").bfloat16
    a, w = random(50, 64, dtype=dtype), random(80, 64, dtype=dtype)
    b, up, exact = w[:40].T, w[40:].T, [a.astype(float) @ t.T.astype(float) for t in (w[:40], w[40:])]
    assert error(imbrex.gated_matmul(a, b, up), silu(exact[0]) * exact[1]) < 1e-2
    out = np.zeros((50, 40), dtype)
    assert imbrex.gated_matmul(a, b, up, "relu", out=out) is out
    assert error(out, np.maximum(exact[0], 0) * exact[1]) < 1e-2
    factors = imbrex.rms_factors(a, 1e-5)
    by_hand = 1 / np.sqrt((a.astype(float) ** 2).mean(1) + 1e-5)
    assert factors.dtype == np.float32 and error(factors, by_hand) < 1e-3
    gate, factor = (by_hand[:, None] * t for t in exact)
    assert error(imbrex.gated_matmul(a, b, up, scale_a=factors), silu(gate) * factor) < 1e-2


@pytest.mark.parametrize("block", [128, 0])
@pytest.mark.parametrize("gated", [False, True])
def test_quantised_matmul(random, gated, block):
    pytest.importorskip("ml_dtypes", reason="SKIPPED: needs ml_dtypes: pip install ml_dtypes")
    a, w = random(50, 64, dtype=np.float16), random(288, 64, dtype=np.float16)
    b, up = w[:144].T, w[144:].T
    q, scale = imbrex.quantised_matmul(a, b, *([up] if gated else []), block=block, activation="silu" if gated else None)
    exact = a.astype(float) @ b.astype(float)
    if gated:
        exact = silu(exact) * (a.astype(float) @ up.astype(float))
    assert q.shape == (50, 144) and q.dtype.name == "float8_e4m3fn" and scale.shape == (50, 2 if block else 1)
    assert scale.T.flags.c_contiguous  # as products take them
    assert error(q.astype(float) * np.repeat(scale, block or 144, 1)[:, :144], exact) < 0.05
    if not block:
        assert np.abs(scale[:, 0] / (np.abs(exact).max(1) / 448) - 1).max() < 0.01


REFUSED = {
    "order of gated weights": (lambda a, b: imbrex.gated_matmul(a, b.copy(), b), "b has strides"),
    "shape of up": (lambda a, b: imbrex.gated_matmul(a, b.T, b[:8].T), "up is [8, 16], not [16, 16]"),
    "float8 of gated_matmul": (lambda a, b: imbrex.gated_matmul(a, b.T, b.T, out_dtype="float8_e4m3"), "quantised_matmul"),
    "blocks of a quantised product": (lambda a, b: imbrex.quantised_matmul(a, b.T, block=64), "block is 64"),
    "a is a list": (lambda a, b: imbrex.matmul([1, 2], b), "a is a list, not an array"),
    "inner sizes": (lambda a, b: imbrex.matmul(a, b[:8]), "inner sizes 16 and 8 differ"),
    "rank": (lambda a, b: imbrex.matmul(a[0], b), "a is float16[16]"),
    "type of elements": (lambda a, b: imbrex.matmul(a.astype(complex), b), "a has elements of complex128"),
    "type": (lambda a, b: imbrex.matmul(a.astype(np.float32), b), "a is float32[16, 16]"),
    "types differ": (lambda a, b: imbrex.matmul(a, b.astype(np.float32)), "b is float32[16, 16], a is float16"),
    "batches": (lambda a, b: imbrex.matmul(np.stack([a] * 2), np.stack([b] * 3)), "b is a batch of 3, a one of 2"),
    "read-only": (lambda a, b: imbrex.matmul(a, b, out=read_only()), "out is read-only"),
    "result's shape": (lambda a, b: imbrex.matmul(a, b, out=np.zeros((2, 2), np.float16)), "[16, 16]"),
    "activation": (lambda a, b: imbrex.matmul(a, b, activation="tanh"), "activation is 'tanh'"),
    "name of a type": (lambda a, b: imbrex.matmul(a, b, out_dtype="float17"), "'float17' is no element type"),
    "size of heads": (lambda a, b: imbrex.attention(a[None, :, :7], a[None, :, :7], a[None, :, :7]), "heads of size 7"),
    "rank of decode": (lambda a, b: imbrex.attention_decode(a[None], a[None], a[None]), "q is float16[1, 16, 16]"),
    "slopes": (lambda a, b: imbrex.attention(a[None], a[None], a[None], alibi_slopes=a[0]), "alibi_slopes"),
    "prefix and window": (lambda a, b: imbrex.attention(a[None], a[None], a[None], window=(-5, 1)), "window"),
    "pages without lengths": (lambda a, b: imbrex.attention_decode(*[a[None, None]] * 3, page_table=np.zeros((1, 1), np.int32)), "page table without lengths"),
    "only one of the beginnings": (lambda a, b: imbrex.attention(a[None], a[None], a[None], q_begins=np.zeros(2, np.int32)), "only one of q_begins and kv_begins"),
    "type of a cache": (lambda a, b: imbrex.attention_decode(a[None, None], *[a[None, None].astype(np.float32)] * 2), "float8_e4m3"),
    "size of values": (lambda a, b: imbrex.attention_latent_decode(a[None, None], a[None, None], value_size=16), "heads of 16 with values of 16"),
    "group sizes": (lambda a, b: imbrex.grouped_matmul(a, b[None], np.zeros(2, np.int64)), "rows is int64[2]"),
    "number of groups": (lambda a, b: imbrex.grouped_matmul(a, b[None], np.zeros(3, np.int32)), "b is float16[1, 16, 16]"),
    "weights' order": (lambda a, b: imbrex.grouped_matmul(a, b[None], np.array([0, 16], np.int32)), "b has strides"),
    "big-endian": (lambda a, b: imbrex.softmax(np.zeros((2, 2), ">f4")), "big-endian"),
    "target": (lambda a, b: imbrex.matmul(a, b, target="sm_80"), "sm_90a"),
}


def read_only():
    array = np.zeros((16, 16), np.float16)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("what", REFUSED)
def test_refuses(random, what):
    call, words = REFUSED[what]
    with pytest.raises(imbrex.LaunchError) as caught:
        call(random(16, 16, dtype=np.float16), random(16, 16, dtype=np.float16))
    assert words in str(caught.value) and isinstance(caught.value, ValueError)
    assert "help: " in str(caught.value)


class OnlyDlpack:
    """An array that offers DLPack and nothing else, in an old or a new version of it."""

    def __init__(self, array, is_old):
        self.array, self.is_old = array, is_old

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **named):
        if self.is_old and "max_version" in named:
            raise TypeError("max_version")
        return self.array.__dlpack__(**named)


def test_strided_rows(random):
    x = random(6, 5, 40)[::2, :, :33]
    powers = np.exp(x.astype(float))
    out = np.full((3, 5, 33), np.nan, np.float32)
    imbrex.softmax(x, out=out)
    assert error(out, powers / powers.sum(-1, keepdims=True)) < 1e-6


@pytest.mark.parametrize("is_old", [False, True])
def test_takes_dlpack(random, is_old):
    x, out = random(3, 7), np.full((3, 7), np.nan, np.float32)
    imbrex.softmax(OnlyDlpack(x, is_old), out=OnlyDlpack(out, is_old))
    assert error(out, np.exp(x.astype(float)) / np.exp(x.astype(float)).sum(1, keepdims=True)) < 1e-6
    with pytest.raises(imbrex.LaunchError, match="pass the result's array as out="):
        imbrex.softmax(OnlyDlpack(x, is_old))


def test_a_cuda_array_where_there_is_no_gpu():
    class Fake:
        __cuda_array_interface__ = {"shape": (2, 2), "typestr": "<f4", "data": (4096, False), "version": 3}

    if imbrex.has_cuda():
        pytest.skip("there is one")
    with pytest.raises(imbrex.DeviceError):
        imbrex.softmax(Fake(), out=Fake())
    with pytest.raises(imbrex.LaunchError, match="out is on the host, x on CUDA device 0"):
        imbrex.softmax(Fake(), out=np.zeros((2, 2), np.float32))
