// SPDX-License-Identifier: Apache-2.0
// imbrex.attention, its gradients, and attention to caches.
#include "imbrex/kernels/attention.h"

#include <fmt/format.h>

#include <algorithm>

#include "operators.h"

namespace imbrex::python {
using namespace nb::literals;
namespace {

/// An array like `array`, but with rows of `columns`, in its order of memory: where it is a transposed view of [rows,
/// heads, size], so is the new one, and what comes next needs no copy.
nb::object new_like_heads(const Array& array, int64_t columns, DataType dtype) {
  const int heads = array.rank - 3, rows = array.rank - 2;
  const bool are_rows_outside =
      array.steps[heads] < array.steps[rows] && array.extents[heads] > 1 && array.extents[rows] > 1;
  std::array<int64_t, kMostDimensions> extents = array.extents;
  extents[array.rank - 1] = columns;
  if (are_rows_outside) std::swap(extents[heads], extents[rows]);
  nb::object made = new_array(array, {extents.data(), static_cast<size_t>(array.rank)}, dtype);
  return are_rows_outside ? nb::object(made.attr("swapaxes")(heads, rows)) : made;
}

void check_size_of_heads(const Array& t) {
  const int64_t d = t.extents[t.rank - 1];
  if (d == 0 || d % 16 != 0 || d > 256)
    t.refuse(fmt::format("has heads of size {}", d), "pad them with zeros to a multiple of 16, at most 256");
}

void check_query(const Array& q, bool may_be_float8 = false) {
  if (q.rank != 3 && q.rank != 4)
    q.refuse(fmt::format("is {}", q.text()), "give it as [heads, rows, size] or [batch, heads, rows, size]");
  if (q.dtype != float16 && q.dtype != bfloat16 && !(may_be_float8 && q.dtype == float8_e4m3))
    q.refuse(fmt::format("is {}", q.text()), may_be_float8 ? "convert it to float16, bfloat16 or float8_e4m3"
                                                           : "convert it to float16 or bfloat16");
  check_size_of_heads(q);
}

void check_heads(const Array& q, const Array& k, const Array& v, bool may_be_float8 = false) {
  check_query(q, may_be_float8);
  const int64_t d = q.extents[q.rank - 1];
  const bool fits = k.rank == q.rank && k.dtype == q.dtype && k.extents[k.rank - 1] == d &&
                    k.extents[k.rank - 3] > 0 && q.extents[q.rank - 3] % k.extents[k.rank - 3] == 0 &&
                    (q.rank == 3 || k.extents[0] == q.extents[0]);
  if (!fits)
    k.refuse(fmt::format("is {}, q is {}", k.text(), q.text()),
             "k has q's type, batch and head size, and as many heads, or a divisor of them");
  std::vector<int64_t> shape(k.shape().begin(), k.shape().end());
  if (v.rank == k.rank) shape.back() = v.extents[v.rank - 1];
  expect(v, q.dtype, shape);
  check_size_of_heads(v);
}

/// What attention does beside the scale, as Python passes it.
struct Steps {
  Optional alibi_slopes, sinks, q_begins, kv_begins;
  bool causal;
  std::optional<float> scale;
  int64_t window_left, window_right, prefix;
  float soft_cap;
  bool deterministic;

  Steps(nb::handle alibi_slopes, nb::handle sinks, nb::handle q_begins, nb::handle kv_begins, bool causal,
        std::optional<float> scale, int64_t window_left, int64_t window_right, int64_t prefix, float soft_cap,
        bool deterministic)
      : alibi_slopes{"alibi_slopes", alibi_slopes},
        sinks{"sinks", sinks},
        q_begins{"q_begins", q_begins},
        kv_begins{"kv_begins", kv_begins},
        causal(causal),
        scale(scale),
        window_left(window_left),
        window_right(window_right),
        prefix(prefix),
        soft_cap(soft_cap),
        deterministic(deterministic) {}

  AttentionOptions options(Call& call) const {
    AttentionOptions o;
    o.scale = scale.value_or(0);
    o.causal = causal;
    o.window_left = window_left;
    o.window_right = window_right;
    o.prefix = prefix;
    o.soft_cap = soft_cap;
    o.deterministic = deterministic;
    o.alibi_slopes = call.in(alibi_slopes);
    o.sinks = call.in(sinks);
    o.q_begins = call.in(q_begins);
    o.kv_begins = call.in(kv_begins);
    o.stream = call.stream();
    return o;
  }
};

/// What elements of float8 are multiplied by.
struct Scales {
  Optional q, k, v;
};

/// Attention, and the logarithms of the sums of its weights if `lse` is not null.
nb::object attention_into(const Array& q, const Array& k, const Array& v, const Steps& steps,
                          const Scales& scales, nb::handle out_dtype, nb::handle out_object,
                          const std::string& target, nb::object* lse) {
  const int64_t columns = v.extents[v.rank - 1];
  const bool is_given = !out_object.is_none();
  const DataType dtype = !out_dtype.is_none()     ? dtype_of(out_dtype)
                         : is_given               ? Array("out", out_object).dtype
                         : q.dtype == float8_e4m3 ? bfloat16
                                                  : q.dtype;
  Result out(q, is_given ? nb::borrow(out_object) : new_like_heads(q, columns, dtype), is_given);
  const Array& o = out.array;
  expect(o, q.dtype == float8_e4m3 ? dtype : q.dtype, with_last(q.shape(), columns));
  std::optional<Array> sums;
  if (lse != nullptr) {
    *lse = new_array(q, q.shape().first(q.rank - 1), float32);
    sums.emplace("log_sum_exp", *lse);
  }
  if (out.is_empty()) return out.take();
  Call call("attention",
            {&q, &k, &v, steps.alibi_slopes.get(), steps.sinks.get(), steps.q_begins.get(),
             steps.kv_begins.get(), scales.q.get(), scales.k.get(), scales.v.get(), &o},
            target);
  const DeviceTensor &tq = call.in(q), &tk = call.in(k), &tv = call.in(v), &to = call.out(o);
  AttentionOptions options = steps.options(call);
  options.q_scales = call.in(scales.q);
  options.k_scales = call.in(scales.k);
  options.v_scales = call.in(scales.v);
  if (sums) options.log_sum_exp = call.out(*sums);
  call.run([&] { return imbrex::attention(tq, tk, tv, to, options, {}); });
  return out.take();
}

nb::object attention(nb::handle q_object, nb::handle k_object, nb::handle v_object, nb::handle slopes,
                     nb::handle sinks, nb::handle q_begins, nb::handle kv_begins, nb::handle q_scales,
                     nb::handle k_scales, nb::handle v_scales, bool causal, std::optional<float> scale,
                     int64_t window_left, int64_t window_right, int64_t prefix, float soft_cap,
                     bool deterministic, nb::handle out_dtype, nb::handle out, const std::string& target) {
  const Array q("q", q_object), k("k", k_object), v("v", v_object);
  check_heads(q, k, v, true);
  const Steps steps(slopes, sinks, q_begins, kv_begins, causal, scale, window_left, window_right, prefix,
                    soft_cap, deterministic);
  const Scales scales{{"q_scales", q_scales}, {"k_scales", k_scales}, {"v_scales", v_scales}};
  if (out.is_none() && needs_gradient({&q, &k, &v, steps.alibi_slopes.get(), steps.sinks.get(),
                                       scales.q.get(), scales.k.get(), scales.v.get()}))
    return differentiable("attention", q_object, k_object, v_object, slopes, sinks, q_begins, kv_begins,
                          q_scales, k_scales, v_scales, "causal"_a = causal, "scale"_a = scale,
                          "window_left"_a = window_left, "window_right"_a = window_right, "prefix"_a = prefix,
                          "soft_cap"_a = soft_cap, "deterministic"_a = deterministic,
                          "out_dtype"_a = out_dtype);
  return attention_into(q, k, v, steps, scales, out_dtype, out, target, nullptr);
}

nb::tuple attention_forward(nb::handle q_object, nb::handle k_object, nb::handle v_object, nb::handle slopes,
                            nb::handle sinks, nb::handle q_begins, nb::handle kv_begins, bool causal,
                            std::optional<float> scale, int64_t window_left, int64_t window_right,
                            int64_t prefix, float soft_cap, bool deterministic) {
  const Array q("q", q_object), k("k", k_object), v("v", v_object);
  check_heads(q, k, v);
  const Steps steps(slopes, sinks, q_begins, kv_begins, causal, scale, window_left, window_right, prefix,
                    soft_cap, deterministic);
  const nb::object none = nb::none();
  const Scales scales{{"q_scales", none}, {"k_scales", none}, {"v_scales", none}};
  nb::object sums, made = attention_into(q, k, v, steps, scales, none, none, "sm_90a", &sums);
  return nb::make_tuple(made, sums);
}

nb::tuple attention_backward(nb::handle grad_object, nb::handle q_object, nb::handle k_object,
                             nb::handle v_object, nb::handle o_object, nb::handle sums_object,
                             nb::handle slopes, nb::handle sinks, nb::handle q_begins, nb::handle kv_begins,
                             bool causal, std::optional<float> scale, int64_t window_left,
                             int64_t window_right, int64_t prefix, float soft_cap, bool deterministic) {
  const Array grad("grad", grad_object), q("q", q_object), k("k", k_object), v("v", v_object),
      o("o", o_object), sums("log_sum_exp", sums_object);
  check_heads(q, k, v);
  expect(o, q.dtype, with_last(q.shape(), v.extents[v.rank - 1]));
  expect(grad, q.dtype, o.shape());
  expect(sums, float32, q.shape().first(q.rank - 1));
  const Steps steps(slopes, sinks, q_begins, kv_begins, causal, scale, window_left, window_right, prefix,
                    soft_cap, deterministic);
  nb::object made[3];
  for (int i = 0; const Array* t : {&q, &k, &v})
    made[i++] = new_like_heads(*t, t->extents[t->rank - 1], t->dtype);
  const Array dq("dq", made[0]), dk("dk", made[1]), dv("dv", made[2]);
  if (o.elements() > 0) {
    Call call("attention_backward",
              {&q, &k, &v, &o, &grad, &sums, steps.alibi_slopes.get(), steps.sinks.get(),
               steps.q_begins.get(), steps.kv_begins.get(), &dq, &dk, &dv},
              "sm_90a");
    const DeviceTensor &tq = call.in(q), &tk = call.in(k), &tv = call.in(v), &to = call.in(o),
                       &tg = call.in(grad), &tdq = call.out(dq), &tdk = call.out(dk), &tdv = call.out(dv);
    AttentionOptions options = steps.options(call);
    options.log_sum_exp = call.in(sums);
    call.run([&] { return imbrex::attention_backward(tq, tk, tv, to, tg, tdq, tdk, tdv, options, {}); });
  }
  return nb::make_tuple(made[0], made[1], made[2]);
}

/// What calls on caches have alike, as Python passes it.
struct Decoding {
  Optional lengths, page_table;
  bool causal;
  std::optional<float> scale;
  int64_t parts;

  AttentionDecodeOptions options(Call& call) const {
    AttentionDecodeOptions o;
    o.scale = scale.value_or(0);
    o.causal = causal;
    o.lengths = call.in(lengths);
    o.page_table = call.in(page_table);
    o.parts = parts;
    o.stream = call.stream();
    return o;
  }
};

void check_decode_query(const Array& q) {
  if (q.rank != 4) q.refuse(fmt::format("is {}", q.text()), "give it as [batch, heads, rows, size]");
}

nb::object attention_decode(nb::handle q_object, nb::handle k_object, nb::handle v_object, nb::handle lengths,
                            nb::handle table, nb::handle slopes_object, nb::handle sinks_object,
                            nb::handle k_scales_object, nb::handle v_scales_object, bool causal,
                            std::optional<float> scale, int64_t window_left, float soft_cap, int64_t parts,
                            nb::handle out_object, const std::string& target) {
  const Array q("q", q_object), k("k", k_object), v("v", v_object);
  const Decoding decoding{{"lengths", lengths}, {"page_table", table}, causal, scale, parts};
  const Optional slopes("alibi_slopes", slopes_object), sinks("sinks", sinks_object),
      k_scales("k_scales", k_scales_object), v_scales("v_scales", v_scales_object);
  check_query(q);
  check_decode_query(q);
  for (const Array* cache : {&k, &v})
    if (cache->rank != 4 || (cache->dtype != q.dtype && cache->dtype != float8_e4m3))
      cache->refuse(
          fmt::format("is {}, q is {}", cache->text(), q.text()),
          "it is of q's type or float8_e4m3, [batch, heads, rows, size], or [pages, heads, rows, size] with "
          "a page table");
  const bool is_given = !out_object.is_none();
  Result out(q, is_given ? nb::borrow(out_object) : new_like_heads(q, q.extents[3], q.dtype), is_given);
  const Array& o = out.array;
  expect(o, q.dtype, q.shape());
  if (out.is_empty()) return out.take();
  Call call("attention_decode",
            {&q, &k, &v, decoding.lengths.get(), decoding.page_table.get(), slopes.get(), sinks.get(),
             k_scales.get(), v_scales.get(), &o},
            target);
  const DeviceTensor &tq = call.in(q), &tk = call.in(k), &tv = call.in(v), &to = call.out(o);
  AttentionDecodeOptions options = decoding.options(call);
  options.window_left = window_left;
  options.soft_cap = soft_cap;
  options.alibi_slopes = call.in(slopes);
  options.sinks = call.in(sinks);
  options.k_scales = call.in(k_scales);
  options.v_scales = call.in(v_scales);
  call.run([&] { return imbrex::attention_decode(tq, tk, tv, to, options, {}); });
  return out.take();
}

nb::object attention_latent_decode(nb::handle q_object, nb::handle cache_object, nb::handle lengths,
                                   nb::handle table, nb::handle slopes_object, nb::handle sinks_object,
                                   int64_t value_size, bool causal, std::optional<float> scale,
                                   int64_t window_left, float soft_cap, int64_t parts, nb::handle out_object,
                                   const std::string& target) {
  const Array q("q", q_object), cache("cache", cache_object);
  const Decoding decoding{{"lengths", lengths}, {"page_table", table}, causal, scale, parts};
  const Optional slopes("alibi_slopes", slopes_object), sinks("sinks", sinks_object);
  check_decode_query(q);
  if (cache.rank != 4 || (cache.dtype != q.dtype && cache.dtype != float8_e4m3))
    cache.refuse(fmt::format("is {}, q is {}", cache.text(), q.text()),
                 "it is of q's type or float8_e4m3, [batch, 1, rows, size], or [pages, 1, rows, size] with a "
                 "page table");
  if (value_size < 1)
    q.refuse(fmt::format("comes with a value_size of {}", value_size),
             "values have 128, 256, 384 or 512 elements");
  const bool is_given = !out_object.is_none();
  Result out(q, is_given ? nb::borrow(out_object) : new_like_heads(q, value_size, q.dtype), is_given);
  const Array& o = out.array;
  expect(o, q.dtype, with_last(q.shape(), value_size));
  if (out.is_empty()) return out.take();
  Call call("attention_latent_decode",
            {&q, &cache, decoding.lengths.get(), decoding.page_table.get(), slopes.get(), sinks.get(), &o},
            target);
  const DeviceTensor &tq = call.in(q), &tc = call.in(cache), &to = call.out(o);
  AttentionDecodeOptions options = decoding.options(call);
  options.window_left = window_left;
  options.soft_cap = soft_cap;
  options.alibi_slopes = call.in(slopes);
  options.sinks = call.in(sinks);
  call.run([&] { return imbrex::attention_latent_decode(tq, tc, to, options, {}); });
  return out.take();
}

}  // namespace

void bind_attention(nb::module_& m) {
  const nb::object none = nb::none();
  m.def("attention", &attention, "q"_a, "k"_a, "v"_a, "alibi_slopes"_a.none() = none, "sinks"_a.none() = none,
        "q_begins"_a.none() = none, "kv_begins"_a.none() = none, "q_scales"_a.none() = none,
        "k_scales"_a.none() = none, "v_scales"_a.none() = none, nb::kw_only(), "causal"_a = false,
        "scale"_a.none() = none, "window_left"_a = -1, "window_right"_a = -1, "prefix"_a = 0,
        "soft_cap"_a = 0.0f, "deterministic"_a = true, "out_dtype"_a.none() = none, "out"_a.none() = none,
        "target"_a = "sm_90a");
  m.def("attention_decode", &attention_decode, "q"_a, "k"_a, "v"_a, "lengths"_a.none() = none,
        "page_table"_a.none() = none, "alibi_slopes"_a.none() = none, "sinks"_a.none() = none,
        "k_scales"_a.none() = none, "v_scales"_a.none() = none, nb::kw_only(), "causal"_a = false,
        "scale"_a.none() = none, "window_left"_a = -1, "soft_cap"_a = 0.0f, "parts"_a = 0,
        "out"_a.none() = none, "target"_a = "sm_90a");
  m.def("attention_latent_decode", &attention_latent_decode, "q"_a, "cache"_a, "lengths"_a.none() = none,
        "page_table"_a.none() = none, "alibi_slopes"_a.none() = none, "sinks"_a.none() = none, nb::kw_only(),
        "value_size"_a = 512, "causal"_a = false, "scale"_a.none() = none, "window_left"_a = -1,
        "soft_cap"_a = 0.0f, "parts"_a = 0, "out"_a.none() = none, "target"_a = "sm_90a");
  // For torch's autograd: what attention keeps for its gradients, and those.
  m.def("attention_forward", &attention_forward, "q"_a, "k"_a, "v"_a, "alibi_slopes"_a.none() = none,
        "sinks"_a.none() = none, "q_begins"_a.none() = none, "kv_begins"_a.none() = none, nb::kw_only(),
        "causal"_a = false, "scale"_a.none() = none, "window_left"_a = -1, "window_right"_a = -1,
        "prefix"_a = 0, "soft_cap"_a = 0.0f, "deterministic"_a = true);
  m.def("attention_backward", &attention_backward, "grad"_a, "q"_a, "k"_a, "v"_a, "o"_a, "log_sum_exp"_a,
        "alibi_slopes"_a.none() = none, "sinks"_a.none() = none, "q_begins"_a.none() = none,
        "kv_begins"_a.none() = none, nb::kw_only(), "causal"_a = false, "scale"_a.none() = none,
        "window_left"_a = -1, "window_right"_a = -1, "prefix"_a = 0, "soft_cap"_a = 0.0f,
        "deterministic"_a = true);
}

}  // namespace imbrex::python
