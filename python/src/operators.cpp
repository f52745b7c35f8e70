// SPDX-License-Identifier: Apache-2.0
// The kernel library on arrays.
#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <map>
#include <optional>

#include "arrays.h"
#include "imbrex/kernels/attention.h"
#include "imbrex/kernels/layer_norm.h"
#include "imbrex/kernels/matmul.h"
#include "imbrex/kernels/softmax.h"
#include "report.h"

namespace imbrex::python {
using namespace nb::literals;
namespace {

/// Whether torch would differentiate a call on these arrays, of which some may be null.
bool needs_gradient(std::initializer_list<const Array*> arrays) {
  static PyObject* const name = PyUnicode_InternFromString("requires_grad");
  for (const Array* array : arrays) {
    if (array == nullptr || array->library != Library::kTorch) continue;
    const nb::object value = nb::steal(PyObject_GetAttr(array->object.ptr(), name));
    if (!value.is_valid()) throw nb::python_error();
    if (value.ptr() != Py_True) continue;
    static const nb::handle is_enabled = nb::object(nb::module_::import_("torch").attr("is_grad_enabled")).release();
    return is_enabled().ptr() == Py_True;
  }
  return false;
}

/// The operator by torch, which calls the kernel below its autograd.
template <class... Arguments>
nb::object differentiable(const char* name, Arguments&&... arguments) {
  return nb::module_::import_("imbrex._gradients")
      .attr("differentiable")(name, std::forward<Arguments>(arguments)...);
}

/// An array that may be left out.
struct Optional {
  std::optional<Array> array;
  Optional(const char* name, nb::handle object) {
    if (!object.is_none()) array.emplace(name, object);
  }
  explicit operator bool() const { return array.has_value(); }
  const Array* get() const { return array ? &*array : nullptr; }
};

/// Calls with the interpreter's lock released, and raises what was found.
template <class Call>
void run(const char* name, const Call& call) {
  LaunchReport report;
  {
    const nb::gil_scoped_release released;
    report = call();
  }
  if (!report.clean()) expect_clean(std::move(report), name);
}

Activation activation_of(nb::handle given) {
  if (given.is_none()) return Activation::kNone;
  const std::string name = to_text(given);
  static const std::map<std::string, Activation, std::less<>> kNames = {
      {"relu", Activation::kRelu},         {"gelu_tanh", Activation::kGelu}, {"gelu_fast", Activation::kGeluFast},
      {"gelu", Activation::kGeluErf},      {"silu", Activation::kSilu}};
  const auto found = kNames.find(name);
  if (found == kNames.end())
    refuse(fmt::format("activation is '{}'", name), "give None, 'relu', 'gelu', 'gelu_tanh', 'gelu_fast' or 'silu'");
  return found->second;
}

void expect(const Array& array, DataType dtype, std::span<const int64_t> shape) {
  if (array.dtype != dtype || !std::ranges::equal(array.shape(), shape))
    array.refuse(fmt::format("is {}", array.text()),
                 fmt::format("make it {}[{}]", dtype.name(), fmt::join(shape, ", ")));
}

/// What the call returns: `out`, or a new array, and for JAX's host arrays one of JAX.
nb::object result_of(const Array& like, nb::object made, bool is_given) {
  if (is_given || like.library != Library::kJax) return made;
  return nb::module_::import_("jax").attr("numpy").attr("asarray")(made);
}

nb::object matmul(nb::handle a_object, nb::handle b_object, nb::handle out_object, nb::handle bias_object,
                  nb::handle activation, float alpha, float beta, nb::handle residual_object,
                  nb::handle out_dtype, nb::handle scale_a_object, nb::handle scale_b_object,
                  const std::string& target) {
  Array a("a", a_object), b("b", b_object);
  const Optional bias("bias", bias_object), residual("residual", residual_object),
      scale_a("scale_a", scale_a_object), scale_b("scale_b", scale_b_object);
  if (out_object.is_none() && needs_gradient({&a, &b, bias.get(), residual.get()}))
    return differentiable("matmul", a_object, b_object, bias_object, activation, alpha, beta, residual_object, out_dtype,
                          scale_a_object, scale_b_object);
  for (const Array* t : {&a, &b})
    if (t->rank != 2 && t->rank != 3)
      t->refuse(fmt::format("is {}", t->text()), "give it two dimensions, or three for a batch");
  const int64_t m = a.extents[a.rank - 2], k = a.extents[a.rank - 1], n = b.extents[b.rank - 1];
  if (k != b.extents[b.rank - 2])
    b.refuse(fmt::format("is {}, a is {}: inner sizes {} and {} differ", b.text(), a.text(), k, b.extents[b.rank - 2]),
             "a is [m, k], b is [k, n]");
  const int64_t batch_a = a.rank == 3 ? a.extents[0] : 1, batch_b = b.rank == 3 ? b.extents[0] : 1;
  if (batch_a != batch_b && batch_a != 1 && batch_b != 1)
    b.refuse(fmt::format("is a batch of {}, a one of {}", batch_b, batch_a), "give them as many matrices, or one of them one");
  const bool is_known = a.dtype == float16 || a.dtype == bfloat16 || a.dtype == float8_e4m3;
  if (!is_known) a.refuse(fmt::format("is {}", a.text()), "convert it to float16, bfloat16 or float8_e4m3");
  if (b.dtype != a.dtype)
    b.refuse(fmt::format("is {}, a is {}", b.text(), a.text()), "convert one to the other's type");
  const int64_t batched[] = {std::max(batch_a, batch_b), m, n};
  const std::span<const int64_t> shape = std::span(batched).subspan(a.rank == 3 || b.rank == 3 ? 0 : 1);
  const DataType dtype = !out_dtype.is_none() ? dtype_of(out_dtype) : a.dtype.bits() == 16 ? a.dtype : bfloat16;
  const bool is_given = !out_object.is_none();
  nb::object made = is_given ? nb::borrow(out_object) : new_array(a, shape, dtype);
  Array c("out", made);
  if (is_given && !out_dtype.is_none()) expect(c, dtype, shape);

  if (c.elements() == 0) return result_of(a, std::move(made), is_given);
  MatmulOptions options;
  b.transpose();  // the kernels take b as [n, k]
  options.alpha = alpha;
  options.beta = beta;
  if (!activation.is_none()) options.activation = activation_of(activation);
  const Array* const all[] = {&a, &b, &c};
  const Device device = device_of(all, target);
  OnDevice on(device);
  const DeviceTensor &ta = on.add(a, false), &tb = on.add(b, false), &tc = on.add(c, true);
  const auto add = [&](const Optional& array) {
    if (!array) return DeviceTensor();
    const Array* const pair[] = {&a, &*array.array};
    device_of(pair, target);
    return on.add(*array.array, false);
  };
  options.bias = add(bias);
  options.residual = add(residual);
  options.scale_a = add(scale_a);
  options.scale_b = add(scale_b);
  options.stream = on.stream(a);
  run("matmul", [&] { return imbrex::matmul(ta, tb, tc, options, {}); });
  on.finish();
  return result_of(a, std::move(made), is_given);
}

/// Two arrays of one shape of which one is strided and of three dimensions: so is the other.
void same_rank(Array& x, Array& y) {
  const auto unfold = [](Array& t, const Array& like) {
    if (t.rank == like.rank) return;
    const int64_t rows = like.extents[1], n = like.extents[2];
    t.extents = like.extents;
    t.steps[0] = rows * n, t.steps[1] = n, t.steps[2] = 1;
    t.rank = 3;
  };
  x.rank < y.rank ? unfold(x, y) : unfold(y, x);
}

/// Makes [rows, columns] of an array of any rank, or leaves it as [batch, rows, columns]: what the kernels take.
void as_rows(Array& x) {
  if (x.rank == 0) x.refuse("has no dimensions", "give it at least one");
  if (x.rank == 2 || (x.rank == 3 && !x.is_dense())) return;
  if (x.rank > 3 && !x.is_dense())
    x.refuse(fmt::format("is {}", x.text()), "pass a dense array, or one of three dimensions");
  const int64_t n = x.extents[x.rank - 1], step = x.steps[x.rank - 1], rows = x.elements() / n;
  x.extents[0] = rows, x.extents[1] = n;
  x.steps[0] = n, x.steps[1] = x.rank == 1 ? step : 1;
  x.rank = 2;
}

nb::object softmax(nb::handle x_object, nb::handle out_object, const std::string& target) {
  Array x("x", x_object);
  if (x.dtype != float32) x.refuse(fmt::format("is {}", x.text()), "convert it to float32");
  const bool is_given = !out_object.is_none();
  if (!is_given && needs_gradient({&x})) return differentiable("softmax", x_object);
  nb::object made = is_given ? nb::borrow(out_object) : new_array(x, x.shape(), float32);
  Array y("out", made);
  expect(y, float32, x.shape());
  if (x.elements() == 0) return result_of(x, std::move(made), is_given);
  as_rows(x), as_rows(y);
  same_rank(x, y);
  const Array* const all[] = {&x, &y};
  OnDevice on(device_of(all, target));
  const DeviceTensor &tx = on.add(x, false), &ty = on.add(y, true);
  const Stream stream = on.stream(x);
  run("softmax", [&] { return imbrex::softmax(tx, ty, stream, {}); });
  on.finish();
  return result_of(x, std::move(made), is_given);
}

nb::object layer_norm(nb::handle x_object, nb::handle weight_object, nb::handle bias_object, double eps,
                      nb::handle out_object, const std::string& target) {
  Array x("x", x_object);
  const Array weight("weight", weight_object), bias("bias", bias_object);
  if (x.dtype != float32) x.refuse(fmt::format("is {}", x.text()), "convert it to float32");
  if (x.rank == 0) x.refuse("has no dimensions", "give it at least one");
  expect(weight, float32, x.shape().last(1));
  expect(bias, float32, x.shape().last(1));
  const bool is_given = !out_object.is_none();
  if (!is_given && needs_gradient({&x, &weight, &bias}))
    return differentiable("layer_norm", x_object, weight_object, bias_object, eps);
  nb::object made = is_given ? nb::borrow(out_object) : new_array(x, x.shape(), float32);
  Array y("out", made);
  expect(y, float32, x.shape());
  if (x.elements() == 0) return result_of(x, std::move(made), is_given);
  as_rows(x), as_rows(y);
  same_rank(x, y);
  const Array* const all[] = {&x, &weight, &bias, &y};
  OnDevice on(device_of(all, target));
  const DeviceTensor &tx = on.add(x, false), &tw = on.add(weight, false), &tb = on.add(bias, false),
                     &ty = on.add(y, true);
  const Stream stream = on.stream(x);
  run("layer_norm", [&] { return imbrex::layer_norm(tx, tw, tb, ty, static_cast<float>(eps), stream, {}); });
  on.finish();
  return result_of(x, std::move(made), is_given);
}

/// An array like `array`, but with rows of `columns`, in its order of memory: where it is a transposed view of [rows,
/// heads, size], so is the new one, and what comes next needs no copy.
nb::object new_like_heads(const Array& array, int64_t columns) {
  const int heads = array.rank - 3, rows = array.rank - 2;
  const bool are_rows_outside =
      array.steps[heads] < array.steps[rows] && array.extents[heads] > 1 && array.extents[rows] > 1;
  std::array<int64_t, kMostDimensions> extents = array.extents;
  extents[array.rank - 1] = columns;
  if (are_rows_outside) std::swap(extents[heads], extents[rows]);
  nb::object made = new_array(array, {extents.data(), static_cast<size_t>(array.rank)}, array.dtype);
  return are_rows_outside ? nb::object(made.attr("swapaxes")(heads, rows)) : made;
}

void check_heads(const Array& q, const Array& k, const Array& v) {
  if (q.rank != 3 && q.rank != 4)
    q.refuse(fmt::format("is {}", q.text()), "give it as [heads, rows, size] or [batch, heads, rows, size]");
  if (q.dtype != float16 && q.dtype != bfloat16)
    q.refuse(fmt::format("is {}", q.text()), "convert it to float16 or bfloat16");
  const auto check_size = [](const Array& t, int64_t d) {
    if (d == 0 || d % 16 != 0 || d > 256)
      t.refuse(fmt::format("has heads of size {}", d), "pad them with zeros to a multiple of 16, at most 256");
  };
  const int64_t d = q.extents[q.rank - 1];
  check_size(q, d);
  const bool fits = k.rank == q.rank && k.dtype == q.dtype && k.extents[k.rank - 1] == d &&
                    k.extents[k.rank - 3] > 0 && q.extents[q.rank - 3] % k.extents[k.rank - 3] == 0 &&
                    (q.rank == 3 || k.extents[0] == q.extents[0]);
  if (!fits)
    k.refuse(fmt::format("is {}, q is {}", k.text(), q.text()),
             "k has q's type, batch and head size, and as many heads, or a divisor of them");
  std::vector<int64_t> shape(k.shape().begin(), k.shape().end());
  if (v.rank == k.rank) shape.back() = v.extents[v.rank - 1];
  expect(v, q.dtype, shape);
  check_size(v, shape.back());
}

std::vector<int64_t> with_last(std::span<const int64_t> shape, int64_t last) {
  std::vector<int64_t> changed(shape.begin(), shape.end());
  changed.back() = last;
  return changed;
}

/// Attention, and the logarithms of the sums of its weights if `lse` is not null.
nb::object attention_into(nb::handle q_object, nb::handle k_object, nb::handle v_object, bool causal,
                          std::optional<float> scale, nb::handle out_object, const std::string& target,
                          nb::object* lse) {
  const Array q("q", q_object), k("k", k_object), v("v", v_object);
  check_heads(q, k, v);
  const bool is_given = !out_object.is_none();
  if (!is_given && lse == nullptr && needs_gradient({&q, &k, &v}))
    return differentiable("attention", q_object, k_object, v_object, "causal"_a = causal, "scale"_a = scale);
  const int64_t columns = v.extents[v.rank - 1];
  nb::object made = is_given ? nb::borrow(out_object) : new_like_heads(q, columns);
  const Array o("out", made);
  expect(o, q.dtype, with_last(q.shape(), columns));
  std::optional<Array> sums;
  if (lse != nullptr) {
    *lse = new_array(q, q.shape().first(q.rank - 1), float32);
    sums.emplace("log_sum_exp", *lse);
  }
  if (o.elements() == 0) return result_of(q, std::move(made), is_given);
  const Array* const all[] = {&q, &k, &v, &o};
  OnDevice on(device_of(all, target));
  const DeviceTensor &tq = on.add(q, false), &tk = on.add(k, false), &tv = on.add(v, false),
                     &to = on.add(o, true);
  AttentionOptions options;
  options.scale = scale.value_or(0);
  options.causal = causal;
  options.stream = on.stream(q);
  if (sums) options.log_sum_exp = on.add(*sums, true);
  run("attention", [&] { return imbrex::attention(tq, tk, tv, to, options, {}); });
  on.finish();
  return result_of(q, std::move(made), is_given);
}

nb::object attention(nb::handle q, nb::handle k, nb::handle v, bool causal, std::optional<float> scale,
                     nb::handle out, const std::string& target) {
  return attention_into(q, k, v, causal, scale, out, target, nullptr);
}

nb::tuple attention_forward(nb::handle q, nb::handle k, nb::handle v, bool causal, std::optional<float> scale) {
  nb::object sums, made = attention_into(q, k, v, causal, scale, nb::none(), "sm_90a", &sums);
  return nb::make_tuple(made, sums);
}

nb::tuple attention_backward(nb::handle grad_object, nb::handle q_object, nb::handle k_object, nb::handle v_object,
                             nb::handle o_object, nb::handle sums_object, bool causal, std::optional<float> scale) {
  const Array grad("grad", grad_object), q("q", q_object), k("k", k_object), v("v", v_object), o("o", o_object),
      sums("log_sum_exp", sums_object);
  check_heads(q, k, v);
  expect(o, q.dtype, with_last(q.shape(), v.extents[v.rank - 1]));
  expect(grad, q.dtype, o.shape());
  expect(sums, float32, q.shape().first(q.rank - 1));
  nb::object made[3];
  for (int i = 0; const Array* t : {&q, &k, &v}) made[i++] = new_like_heads(*t, t->extents[t->rank - 1]);
  const Array dq("dq", made[0]), dk("dk", made[1]), dv("dv", made[2]);
  if (o.elements() > 0) {
    const Array* const all[] = {&q, &k, &v, &o, &grad, &sums, &dq, &dk, &dv};
    OnDevice on(device_of(all, "sm_90a"));
    const DeviceTensor &tq = on.add(q, false), &tk = on.add(k, false), &tv = on.add(v, false), &to = on.add(o, false),
                       &tg = on.add(grad, false), &tdq = on.add(dq, true), &tdk = on.add(dk, true),
                       &tdv = on.add(dv, true);
    AttentionOptions options;
    options.scale = scale.value_or(0);
    options.causal = causal;
    options.log_sum_exp = on.add(sums, false);
    options.stream = on.stream(q);
    run("attention_backward",
        [&] { return imbrex::attention_backward(tq, tk, tv, to, tg, tdq, tdk, tdv, options, {}); });
    on.finish();
  }
  return nb::make_tuple(made[0], made[1], made[2]);
}

}  // namespace

void bind_operators(nb::module_& m) {
  const nb::object none = nb::none();
  m.def("matmul", &matmul, "a"_a, "b"_a, "out"_a.none() = none, "bias"_a.none() = none, "activation"_a.none() = none,
        "alpha"_a = 1.0f, "beta"_a = 0.0f, "residual"_a.none() = none, "out_dtype"_a.none() = none, "scale_a"_a.none() = none,
        "scale_b"_a.none() = none, "target"_a = "sm_90a");
  // As torch's dispatcher calls it: in the order of the operator's schema.
  m.def(
      "matmul_operator",
      [](nb::handle a, nb::handle b, nb::handle bias, nb::handle activation, float alpha, float beta,
         nb::handle residual, nb::handle out_dtype, nb::handle scale_a, nb::handle scale_b) {
        static const std::string target = "sm_90a";
        return matmul(a, b, nb::none(), bias, activation, alpha, beta, residual, out_dtype, scale_a, scale_b, target);
      },
      "a"_a, "b"_a, "bias"_a.none() = none, "activation"_a.none() = none, "alpha"_a = 1.0f, "beta"_a = 0.0f,
      "residual"_a.none() = none, "out_dtype"_a.none() = none, "scale_a"_a.none() = none, "scale_b"_a.none() = none);
  m.def("softmax", &softmax, "x"_a, nb::kw_only(), "out"_a.none() = none, "target"_a = "sm_90a");
  m.def("layer_norm", &layer_norm, "x"_a, "weight"_a, "bias"_a, "eps"_a = 1e-5, nb::kw_only(), "out"_a.none() = none,
        "target"_a = "sm_90a");
  m.def("attention", &attention, "q"_a, "k"_a, "v"_a, nb::kw_only(), "causal"_a = false, "scale"_a.none() = none,
        "out"_a.none() = none, "target"_a = "sm_90a");
  // For torch's autograd: what attention keeps for its gradients, and those.
  m.def("attention_forward", &attention_forward, "q"_a, "k"_a, "v"_a, nb::kw_only(), "causal"_a = false,
        "scale"_a.none() = none);
  m.def("attention_backward", &attention_backward, "grad"_a, "q"_a, "k"_a, "v"_a, "o"_a, "log_sum_exp"_a,
        nb::kw_only(), "causal"_a = false, "scale"_a.none() = none);
}

}  // namespace imbrex::python
