// SPDX-License-Identifier: Apache-2.0
// The kernel library on arrays.
#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <cmath>
#include <map>
#include <optional>

#include "arrays.h"
#include "imbrex/kernels/attention.h"
#include "imbrex/kernels/layer_norm.h"
#include "imbrex/kernels/matmul.h"
#include "imbrex/kernels/softmax.h"
#include "report.h"

namespace imbrex::python {
namespace {

/// The kernel for a device, with tuned configurations: made on the first request and kept.
template <class K>
Kernel<K>& kernel_on(const Device& device) {
  static auto& kernels = *new std::map<const void*, Kernel<K>>;  // with the interpreter's lock held
  const void* const key = &device.backend();
  auto found = kernels.find(key);
  if (found == kernels.end()) found = kernels.emplace(key, Kernel<K>::tuned(device)).first;
  return found->second;
}

bool requires_grad(const Array& array) {
  if (array.library != Library::kTorch) return false;
  static PyObject* const name = PyUnicode_InternFromString("requires_grad");
  const nb::object value = nb::steal(PyObject_GetAttr(array.object.ptr(), name));
  if (!value.is_valid()) throw nb::python_error();
  return value.ptr() == Py_True;
}

/// An array that may be left out.
struct Optional {
  std::optional<Array> array;
  Optional(const char* name, nb::handle object) {
    if (!object.is_none()) array.emplace(name, object);
  }
  explicit operator bool() const { return array.has_value(); }
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

void expect_rank(const Array& array, int rank) {
  if (array.rank != rank) array.refuse(fmt::format("is {}", array.text()), fmt::format("give it {} dimensions", rank));
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
                  const std::string& target, bool with_grad) {
  Array a("a", a_object), b("b", b_object);
  const Optional bias("bias", bias_object), residual("residual", residual_object),
      scale_a("scale_a", scale_a_object), scale_b("scale_b", scale_b_object);
  if (with_grad && a.library == Library::kTorch && out_object.is_none() &&
      (requires_grad(a) || requires_grad(b) || (bias && requires_grad(*bias.array)) ||
       (residual && requires_grad(*residual.array))))
    return nb::module_::import_("imbrex._torch")
        .attr("matmul_with_grad")(a_object, b_object, bias_object, activation, alpha, beta, residual_object, out_dtype);
  expect_rank(a, 2);
  expect_rank(b, 2);
  if (a.extents[1] != b.extents[0])
    b.refuse(fmt::format("is {}, a is {}: inner sizes {} and {} differ", b.text(), a.text(), a.extents[1], b.extents[0]),
             "a is [m, k], b is [k, n]");
  const bool is_known = a.dtype == float16 || a.dtype == bfloat16 || a.dtype == float8_e4m3;
  if (!is_known) a.refuse(fmt::format("is {}", a.text()), "convert it to float16, bfloat16 or float8_e4m3");
  if (b.dtype != a.dtype)
    b.refuse(fmt::format("is {}, a is {}", b.text(), a.text()), "convert one to the other's type");
  const int64_t shape[] = {a.extents[0], b.extents[1]};
  const DataType dtype = !out_dtype.is_none() ? dtype_of(out_dtype) : a.dtype.bits() == 16 ? a.dtype : bfloat16;
  const bool is_given = !out_object.is_none();
  nb::object made = is_given ? nb::borrow(out_object) : new_array(a, shape, dtype);
  Array c("out", made);
  if (is_given && !out_dtype.is_none()) expect(c, dtype, shape);

  if (c.elements() == 0) return result_of(a, std::move(made), is_given);
  MatmulOptions options;
  b.transpose();  // the kernels take b as [n, k]
  if (a.is_cuda) {
    const auto is_row_major = [](const Array& t) { return t.steps[1] == 1 || t.extents[1] == 1; };
    if (!is_row_major(a)) a.transpose(), options.a_is_km = true;
    if (!is_row_major(b)) b.transpose(), options.b_is_kn = true;
  }
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
  run("matmul", [&] { return imbrex::matmul(ta, tb, tc, options); });
  on.finish();
  return result_of(a, std::move(made), is_given);
}

/// The rows of an array of any rank: its last dimension, and all others as one.
std::array<int64_t, 2> rows_of(const Array& x) {
  if (x.rank == 0) x.refuse("has no dimensions", "give it at least one");
  const int64_t n = x.extents[x.rank - 1];
  return {n == 0 ? 0 : x.elements() / n, n};
}

void expect_dense(const Array& x) {
  if (x.is_cuda && !x.is_dense()) x.refuse(fmt::format("is {}", x.text()), "pass a dense array: x.contiguous()");
}

nb::object softmax(nb::handle x_object, nb::handle out_object, const std::string& target) {
  const Array x("x", x_object);
  const auto [m, n] = rows_of(x);
  if (x.dtype != float32) x.refuse(fmt::format("is {}", x.text()), "convert it to float32");
  expect_dense(x);
  const bool is_given = !out_object.is_none();
  nb::object made = is_given ? nb::borrow(out_object) : new_array(x, x.shape(), float32);
  const Array y("out", made);
  expect(y, float32, x.shape());
  expect_dense(y);
  const Array* const all[] = {&x, &y};
  const Device device = device_of(all, target);
  OnDevice on(device);
  const DeviceTensor &tx = on.add(x, false), &ty = on.add(y, true);
  const Stream stream = on.stream(x);
  Kernel<kernels::Softmax>& kernel = kernel_on<kernels::Softmax>(device);
  if (m > 0) run("softmax", [&] { return kernel.on(stream)(m, n, tx, ty); });
  on.finish();
  return result_of(x, std::move(made), is_given);
}

nb::object layer_norm(nb::handle x_object, nb::handle weight_object, nb::handle bias_object, float eps,
                      nb::handle out_object, const std::string& target) {
  const Array x("x", x_object), weight("weight", weight_object), bias("bias", bias_object);
  const auto [m, n] = rows_of(x);
  const int64_t columns[] = {n};
  if (x.dtype != float32) x.refuse(fmt::format("is {}", x.text()), "convert it to float32");
  expect_dense(x);
  expect(weight, float32, columns);
  expect(bias, float32, columns);
  const bool is_given = !out_object.is_none();
  nb::object made = is_given ? nb::borrow(out_object) : new_array(x, x.shape(), float32);
  const Array y("out", made);
  expect(y, float32, x.shape());
  expect_dense(y);
  const Array* const all[] = {&x, &weight, &bias, &y};
  const Device device = device_of(all, target);
  OnDevice on(device);
  const DeviceTensor &tx = on.add(x, false), &tw = on.add(weight, false), &tb = on.add(bias, false),
                     &ty = on.add(y, true);
  const Stream stream = on.stream(x);
  Kernel<kernels::LayerNorm>& kernel = kernel_on<kernels::LayerNorm>(device);
  if (m > 0) run("layer_norm", [&] { return kernel.on(stream)(m, n, eps, tx, tw, tb, ty); });
  on.finish();
  return result_of(x, std::move(made), is_given);
}

/// Heads, rows, columns of [..., heads, rows, columns]: leading dimensions count as heads.
std::array<int64_t, 3> heads_of(const Array& t) {
  if (t.rank != 3 && t.rank != 4)
    t.refuse(fmt::format("is {}", t.text()), "give it as [heads, rows, size] or [batch, heads, rows, size]");
  const int64_t rows = t.extents[t.rank - 2], columns = t.extents[t.rank - 1];
  return {t.rank == 3 ? t.extents[0] : t.extents[0] * t.extents[1], rows, columns};
}

nb::object attention(nb::handle q_object, nb::handle k_object, nb::handle v_object, bool causal,
                     std::optional<float> scale, nb::handle out_object, const std::string& target) {
  const Array q("q", q_object), k("k", k_object), v("v", v_object);
  const auto [heads, rows, d] = heads_of(q);
  const auto [kv_heads, kv_rows, kv_d] = heads_of(k);
  if (q.dtype != float16 && q.dtype != bfloat16)
    q.refuse(fmt::format("is {}", q.text()), "convert it to float16 or bfloat16");
  if (d == 0 || d % 16 != 0 || d > 128)
    q.refuse(fmt::format("has heads of size {}", d), "pad them with zeros to a multiple of 16, at most 128");
  const int64_t own = q.extents[q.rank - 3], shared = k.extents[k.rank - 3];
  if (k.rank != q.rank || k.dtype != q.dtype || kv_d != d || shared == 0 || own % shared != 0 ||
      (q.rank == 4 && k.extents[0] != q.extents[0]))
    k.refuse(fmt::format("is {}, q is {}", k.text(), q.text()),
             "k has q's type, batch and head size, and as many heads, or a divisor of them");
  expect(v, q.dtype, k.shape());
  const bool is_given = !out_object.is_none();
  nb::object made = is_given ? nb::borrow(out_object) : new_array(q, q.shape(), q.dtype);
  const Array o("out", made);
  expect(o, q.dtype, q.shape());
  for (const Array* t : {&q, &k, &v, &o}) expect_dense(*t);
  const Array* const all[] = {&q, &k, &v, &o};
  const Device device = device_of(all, target);
  OnDevice on(device);
  const DeviceTensor &tq = on.add(q, false), &tk = on.add(k, false), &tv = on.add(v, false),
                     &to = on.add(o, true);
  const Stream stream = on.stream(q);
  const float factor = scale ? *scale : 1 / std::sqrt(static_cast<float>(d));
  Kernel<kernels::Attention>& kernel = kernel_on<kernels::Attention>(device);
  const int64_t group = own / shared;
  if (heads * rows > 0)
    run("attention", [&, heads = heads, rows = rows, kv_rows = kv_rows, d = d] {
      return kernel.on(stream)(heads, rows, kv_rows, d, group, causal, factor, q.dtype, tq, tk, tv, to);
    });
  on.finish();
  return result_of(q, std::move(made), is_given);
}

}  // namespace

void bind_operators(nb::module_& m) {
  using namespace nb::literals;
  const nb::object none = nb::none();
  m.def("matmul", &matmul, "a"_a, "b"_a, "out"_a.none() = none, "bias"_a.none() = none, "activation"_a.none() = none,
        "alpha"_a = 1.0f, "beta"_a = 0.0f, "residual"_a.none() = none, "out_dtype"_a.none() = none, "scale_a"_a.none() = none,
        "scale_b"_a.none() = none, "target"_a = "sm_90a", "with_grad"_a = true);
  m.def("softmax", &softmax, "x"_a, nb::kw_only(), "out"_a.none() = none, "target"_a = "sm_90a");
  m.def("layer_norm", &layer_norm, "x"_a, "weight"_a, "bias"_a, "eps"_a = 1e-5f, nb::kw_only(), "out"_a.none() = none,
        "target"_a = "sm_90a");
  m.def("attention", &attention, "q"_a, "k"_a, "v"_a, nb::kw_only(), "causal"_a = false, "scale"_a.none() = none,
        "out"_a.none() = none, "target"_a = "sm_90a");
}

}  // namespace imbrex::python
