// SPDX-License-Identifier: Apache-2.0
// What works row by row: softmax, norms, gated units, rotary embedding, cross-entropy, the largest elements,
// float8, transposing.
#include <fmt/format.h>

#include <algorithm>

#include "imbrex/kernels/layer_norm.h"
#include "imbrex/kernels/rows/cross_entropy.h"
#include "imbrex/kernels/rows/gated.h"
#include "imbrex/kernels/rows/quantise.h"
#include "imbrex/kernels/rows/rms_norm.h"
#include "imbrex/kernels/rows/rope.h"
#include "imbrex/kernels/rows/top_k.h"
#include "imbrex/kernels/rows/transpose.h"
#include "imbrex/kernels/softmax.h"
#include "operators.h"

namespace imbrex::python {
using namespace nb::literals;
namespace {

/// Floating-point numbers that the kernels take, in at least one dimension.
void expect_rows(const Array& x) {
  if (x.dtype != float16 && x.dtype != bfloat16 && x.dtype != float32)
    x.refuse(fmt::format("is {}", x.text()), "convert it to float16, bfloat16 or float32");
  if (x.rank == 0) x.refuse("has no dimensions", "give it at least one");
}
/// The same, of this shape.
void expect_rows(const Array& x, std::span<const int64_t> shape) {
  expect_rows(x);
  expect_shape(x, shape);
}

/// Makes of arrays of one shape, or of one shape but for the last extent, what the kernels take: all [rows, columns], or
/// all [batch, rows, columns] where one of three dimensions is not dense.
void as_rows(std::initializer_list<Array*> arrays) {
  const bool is_batch =
      std::ranges::any_of(arrays, [](const Array* x) { return x->rank == 3 && !x->is_dense(); });
  for (Array* x : arrays) {
    if (x->rank == 2 || is_batch) continue;
    if (x->rank > 3 && !x->is_dense())
      x->refuse(fmt::format("is {}", x->text()), "pass a dense array, or one of three dimensions");
    const int64_t n = x->extents[x->rank - 1], step = x->steps[x->rank - 1], rows = x->elements() / n;
    x->extents[0] = rows, x->extents[1] = n;
    x->steps[0] = n, x->steps[1] = x->rank == 1 ? step : 1;
    x->rank = 2;
  }
}

nb::object softmax(nb::handle x_object, nb::handle out_object, const std::string& target) {
  Array x("x", x_object);
  expect_rows(x);
  if (out_object.is_none() && needs_gradient({&x})) return differentiable("softmax", x_object);
  Result out(x, out_object, x.shape(), x.dtype);
  Array& y = out.array;
  expect_rows(y, x.shape());
  if (out.is_empty()) return out.take();
  as_rows({&x, &y});
  Call call("softmax", {&x, &y}, target);
  const DeviceTensor &tx = call.in(x), &ty = call.out(y);
  call.run([&] { return imbrex::softmax(tx, ty, call.stream(), {}); });
  return out.take();
}

nb::object softmax_backward(nb::handle grad_object, nb::handle y_object) {
  Array grad("grad", grad_object), y("y", y_object);
  expect_rows(y);
  expect_rows(grad, y.shape());
  Result out(y, nb::none(), y.shape(), y.dtype);
  Array& dx = out.array;
  if (out.is_empty()) return out.take();
  as_rows({&grad, &y, &dx});
  Call call("softmax_backward", {&y, &grad, &dx}, "sm_90a");
  const DeviceTensor &tg = call.in(grad), &ty = call.in(y), &tx = call.out(dx);
  call.run([&] { return imbrex::softmax_backward(tg, ty, tx, call.stream(), {}); });
  return out.take();
}

nb::object layer_norm(nb::handle x_object, nb::handle weight_object, nb::handle bias_object, double eps,
                      nb::handle out_object, const std::string& target) {
  Array x("x", x_object);
  const Array weight("weight", weight_object), bias("bias", bias_object);
  expect_rows(x);
  for (const Array* each : {&weight, &bias}) expect_rows(*each, x.shape().last(1));
  if (out_object.is_none() && needs_gradient({&x, &weight, &bias}))
    return differentiable("layer_norm", x_object, weight_object, bias_object, eps);
  Result out(x, out_object, x.shape(), x.dtype);
  Array& y = out.array;
  expect_rows(y, x.shape());
  if (out.is_empty()) return out.take();
  as_rows({&x, &y});
  Call call("layer_norm", {&x, &weight, &bias, &y}, target);
  const DeviceTensor &tx = call.in(x), &tw = call.in(weight), &tb = call.in(bias), &ty = call.out(y);
  call.run([&] { return imbrex::layer_norm(tx, tw, tb, ty, static_cast<float>(eps), call.stream(), {}); });
  return out.take();
}

nb::tuple layer_norm_backward(nb::handle grad_object, nb::handle x_object, nb::handle weight_object, double eps) {
  Array grad("grad", grad_object), x("x", x_object);
  const Array weight("weight", weight_object);
  expect_rows(x);
  expect_rows(grad, x.shape());
  expect_rows(weight, x.shape().last(1));
  Result of_x(x, nb::none(), x.shape(), x.dtype), of_weight(weight, nb::none(), weight.shape(), weight.dtype),
      of_bias(weight, nb::none(), weight.shape(), weight.dtype);
  Array& dx = of_x.array;
  if (!of_x.is_empty()) {
    as_rows({&grad, &x, &dx});
    Call call("layer_norm_backward", {&x, &grad, &weight, &dx}, "sm_90a");
    const DeviceTensor &tg = call.in(grad), &tx = call.in(x), &tw = call.in(weight), &tdx = call.out(dx),
                       &tdw = call.out(of_weight.array), &tdb = call.out(of_bias.array);
    call.run([&] {
      return imbrex::layer_norm_backward(tg, tx, tw, tdx, tdw, tdb, static_cast<float>(eps), call.stream(), {});
    });
  }
  return nb::make_tuple(of_x.take(), of_weight.take(), of_bias.take());
}

nb::object rms_norm(nb::handle x_object, nb::handle weight_object, double eps, nb::handle out_object,
                    const std::string& target) {
  Array x("x", x_object);
  const Array weight("weight", weight_object);
  expect_rows(x);
  expect_rows(weight, x.shape().last(1));
  if (out_object.is_none() && needs_gradient({&x, &weight}))
    return differentiable("rms_norm", x_object, weight_object, eps);
  Result out(x, out_object, x.shape(), x.dtype);
  Array& y = out.array;
  expect_rows(y, x.shape());
  if (out.is_empty()) return out.take();
  as_rows({&x, &y});
  Call call("rms_norm", {&x, &weight, &y}, target);
  const DeviceTensor &tx = call.in(x), &tw = call.in(weight), &ty = call.out(y);
  call.run([&] { return imbrex::rms_norm(tx, tw, ty, static_cast<float>(eps), call.stream(), {}); });
  return out.take();
}

nb::object rms_factors(nb::handle x_object, double eps, const std::string& target) {
  const Array x("x", x_object);
  expect_rows(x);
  if (x.rank != 2) x.refuse(fmt::format("is {}", x.text()), "give it as [rows, columns]");
  Result out(x, nb::none(), x.shape().first(1), float32);
  if (out.is_empty()) return out.take();
  Call call("rms_factors", {&x, &out.array}, target);
  const DeviceTensor &tx = call.in(x), &factors = call.out(out.array);
  call.run([&] { return imbrex::rms_factors(tx, factors, static_cast<float>(eps), call.stream(), {}); });
  return out.take();
}

nb::tuple rms_norm_backward(nb::handle grad_object, nb::handle x_object, nb::handle weight_object, double eps) {
  Array grad("grad", grad_object), x("x", x_object);
  const Array weight("weight", weight_object);
  expect_rows(x);
  expect_rows(grad, x.shape());
  expect_rows(weight, x.shape().last(1));
  Result of_x(x, nb::none(), x.shape(), x.dtype), of_weight(weight, nb::none(), weight.shape(), weight.dtype);
  Array& dx = of_x.array;
  if (!of_x.is_empty()) {
    as_rows({&grad, &x, &dx});
    Call call("rms_norm_backward", {&x, &grad, &weight, &dx}, "sm_90a");
    const DeviceTensor &tg = call.in(grad), &tx = call.in(x), &tw = call.in(weight), &tdx = call.out(dx),
                       &tdw = call.out(of_weight.array);
    call.run([&] {
      return imbrex::rms_norm_backward(tg, tx, tw, tdx, tdw, static_cast<float>(eps), call.stream(), {});
    });
  }
  return nb::make_tuple(of_x.take(), of_weight.take());
}

nb::object gated(nb::handle gate_object, nb::handle up_object, nb::handle activation, nb::handle out_object,
                 const std::string& target) {
  Array gate("gate", gate_object), up("up", up_object);
  expect_rows(gate);
  expect_rows(up, gate.shape());
  const Activation function = activation_of(activation);
  if (out_object.is_none() && needs_gradient({&gate, &up}))
    return differentiable("gated", gate_object, up_object, activation);
  Result out(gate, out_object, gate.shape(), gate.dtype);
  Array& y = out.array;
  expect_rows(y, gate.shape());
  if (out.is_empty()) return out.take();
  as_rows({&gate, &up, &y});
  Call call("gated", {&gate, &up, &y}, target);
  const DeviceTensor &tg = call.in(gate), &tu = call.in(up), &ty = call.out(y);
  call.run([&] { return imbrex::gated(tg, tu, ty, function, call.stream(), {}); });
  return out.take();
}

nb::tuple gated_backward(nb::handle grad_object, nb::handle gate_object, nb::handle up_object, nb::handle activation) {
  Array grad("grad", grad_object), gate("gate", gate_object), up("up", up_object);
  expect_rows(gate);
  for (const Array* each : {&up, &grad}) expect_rows(*each, gate.shape());
  const Activation function = activation_of(activation);
  Result of_gate(gate, nb::none(), gate.shape(), gate.dtype), of_up(up, nb::none(), up.shape(), up.dtype);
  Array &dgate = of_gate.array, &dup = of_up.array;
  if (!of_gate.is_empty()) {
    as_rows({&grad, &gate, &up, &dgate, &dup});
    Call call("gated_backward", {&gate, &up, &grad, &dgate, &dup}, "sm_90a");
    const DeviceTensor &ty = call.in(grad), &tg = call.in(gate), &tu = call.in(up), &tdg = call.out(dgate),
                       &tdu = call.out(dup);
    call.run([&] { return imbrex::gated_backward(ty, tg, tu, tdg, tdu, function, call.stream(), {}); });
  }
  return nb::make_tuple(of_gate.take(), of_up.take());
}

nb::object rope(nb::handle x_object, nb::handle cos_object, nb::handle sin_object, nb::handle positions_object,
                bool interleaved, bool inverse, nb::handle out_object, const std::string& target) {
  const Array x("x", x_object), cos("cos", cos_object), sin("sin", sin_object);
  const Optional positions("positions", positions_object);
  expect_rows(x);
  if (x.rank != 3) x.refuse(fmt::format("is {}", x.text()), "give it as [tokens, heads, head size]");
  if (out_object.is_none() && needs_gradient({&x}))
    return differentiable("rope", x_object, cos_object, sin_object, positions_object, "interleaved"_a = interleaved,
                          "inverse"_a = inverse);
  Result out(x, out_object, x.shape(), x.dtype);
  const Array& y = out.array;
  expect_rows(y, x.shape());
  if (out.is_empty()) return out.take();
  Call call("rope", {&x, &cos, &sin, positions.get(), &y}, target);
  const DeviceTensor &tx = call.in(x), &tc = call.in(cos), &ts = call.in(sin), &ty = call.out(y);
  RopeOptions options;
  options.interleaved = interleaved;
  options.inverse = inverse;
  options.positions = call.in(positions);
  options.stream = call.stream();
  call.run([&] { return imbrex::rope(tx, tc, ts, ty, options, {}); });
  return out.take();
}

/// The loss of each row; where `gradient` is not null, the gradient of their sum and no loss.
nb::object cross_entropy_into(nb::handle logits_object, nb::handle classes_object, const std::string& target,
                              bool wants_gradient) {
  const Array logits("logits", logits_object), classes("classes", classes_object);
  expect_rows(logits);
  if (logits.rank != 2) logits.refuse(fmt::format("is {}", logits.text()), "give it as [rows, classes]");
  expect(classes, int32, logits.shape().first(1));
  if (!wants_gradient && needs_gradient({&logits}))
    return differentiable("cross_entropy", logits_object, classes_object);
  Result out = wants_gradient ? Result(logits, nb::none(), logits.shape(), logits.dtype)
                              : Result(logits, nb::none(), logits.shape().first(1), float32);
  if (out.is_empty()) return out.take();
  Call call("cross_entropy", {&logits, &classes, &out.array}, target);
  const DeviceTensor &tl = call.in(logits), &tc = call.in(classes), &to = call.out(out.array), none;
  call.run([&] {
    return imbrex::cross_entropy(tl, tc, wants_gradient ? none : to, wants_gradient ? to : none, 1, call.stream(), {});
  });
  return out.take();
}

nb::object cross_entropy(nb::handle logits, nb::handle classes, const std::string& target) {
  return cross_entropy_into(logits, classes, target, false);
}

nb::object cross_entropy_gradient(nb::handle logits, nb::handle classes) {
  return cross_entropy_into(logits, classes, "sm_90a", true);
}

nb::tuple top_k(nb::handle x_object, int64_t k, const std::string& target) {
  Array x("x", x_object);
  expect_rows(x);
  if (k < 1 || k > 64 || k > x.shape().back())
    refuse(fmt::format("k is {}, x is {}", k, x.text()), "k is at least 1, at most 64 and at most the columns");
  if (needs_gradient({&x})) return nb::cast<nb::tuple>(differentiable("top_k", x_object, k));
  const std::vector<int64_t> shape = with_last(x.shape(), k);
  Result of_values(x, nb::none(), shape, x.dtype), of_indices(x, nb::none(), shape, int32);
  Array &values = of_values.array, &indices = of_indices.array;
  if (!of_values.is_empty()) {
    if (x.rank == 3 && !x.is_dense()) x.refuse(fmt::format("is {}", x.text()), "pass a dense array, or a matrix");
    as_rows({&x, &values, &indices});
    Call call("top_k", {&x, &values, &indices}, target);
    const DeviceTensor &tx = call.in(x), &tv = call.out(values), &ti = call.out(indices);
    call.run([&] { return imbrex::top_k(tx, tv, ti, call.stream(), {}); });
  }
  return nb::make_tuple(of_values.take(), of_indices.take());
}

nb::tuple quantise_float8(nb::handle x_object, nb::handle gate_object, int block, nb::handle activation,
                          const std::string& target) {
  Array x("x", x_object);
  Optional gate("gate", gate_object);
  expect_rows(x);
  if (gate) expect_rows(*gate.array, x.shape());
  check_block(block);
  QuantiseOptions options;
  options.block = block;
  options.activation = activation_of(activation);
  // Scales of blocks lie as grouped_matmul takes them, those of a block's rows side by side.
  const int64_t blocks = block == 0 ? 1 : (x.shape().back() + block - 1) / block;
  std::vector<int64_t> shape = with_last(x.shape(), blocks);
  const bool is_turned = block != 0 && x.rank > 1;
  if (is_turned) std::swap(shape[x.rank - 1], shape[x.rank - 2]);
  nb::object scales = new_array(x, shape, float32);
  if (is_turned) scales = scales.attr("swapaxes")(x.rank - 1, x.rank - 2);
  Result of_q(x, nb::none(), x.shape(), float8_e4m3), of_scale(x, std::move(scales), false, "scale");
  Array &q = of_q.array, &scale = of_scale.array;
  if (!of_q.is_empty()) {
    if (is_turned && x.rank > 3) x.refuse(fmt::format("is {}", x.text()), "give it at most three dimensions");
    if (gate)
      as_rows({&x, &*gate.array, &q, &scale});
    else
      as_rows({&x, &q, &scale});
    Call call("quantise_float8", {&x, gate.get(), &q, &scale}, target);
    const DeviceTensor &tx = call.in(x), &tq = call.out(q), &ts = call.out(scale);
    options.gate = call.in(gate);
    options.stream = call.stream();
    call.run([&] { return imbrex::quantise_float8(tx, tq, ts, options, {}); });
  }
  return nb::make_tuple(of_q.take(), of_scale.take());
}

/// A tensor of matrices as one batch of them.
void as_matrices(Array& x) {
  if (x.rank <= 3) return;
  if (!x.is_dense()) x.refuse(fmt::format("is {}", x.text()), "pass a dense array, or one of three dimensions");
  const int64_t m = x.extents[x.rank - 2], n = x.extents[x.rank - 1];
  x.extents = {x.elements() / (m * n), m, n};
  x.steps = {m * n, n, 1};
  x.rank = 3;
}

nb::object transpose(nb::handle x_object, nb::handle out_object, const std::string& target) {
  Array x("x", x_object);
  if (x.rank < 2) x.refuse(fmt::format("is {}", x.text()), "give it at least two dimensions");
  if (out_object.is_none() && needs_gradient({&x})) return differentiable("transpose", x_object);
  std::vector<int64_t> shape(x.shape().begin(), x.shape().end());
  std::swap(shape[x.rank - 1], shape[x.rank - 2]);
  Result out(x, out_object, shape, x.dtype);
  Array& y = out.array;
  expect(y, x.dtype, shape);
  if (out.is_empty()) return out.take();
  as_matrices(x);
  as_matrices(y);
  Call call("transpose", {&x, &y}, target);
  const DeviceTensor &tx = call.in(x), &ty = call.out(y);
  call.run([&] { return imbrex::transpose(tx, ty, call.stream(), {}); });
  return out.take();
}

}  // namespace

void bind_rows(nb::module_& m) {
  const nb::object none = nb::none();
  m.def("softmax", &softmax, "x"_a, nb::kw_only(), "out"_a.none() = none, "target"_a = "sm_90a");
  m.def("layer_norm", &layer_norm, "x"_a, "weight"_a, "bias"_a, "eps"_a = 1e-5, nb::kw_only(), "out"_a.none() = none,
        "target"_a = "sm_90a");
  m.def("rms_norm", &rms_norm, "x"_a, "weight"_a, "eps"_a = 1e-6, nb::kw_only(), "out"_a.none() = none,
        "target"_a = "sm_90a");
  m.def("rms_factors", &rms_factors, "x"_a, "eps"_a = 1e-6, nb::kw_only(), "target"_a = "sm_90a");
  m.def("gated", &gated, "gate"_a, "up"_a, "activation"_a.none() = "silu", nb::kw_only(), "out"_a.none() = none,
        "target"_a = "sm_90a");
  m.def("rope", &rope, "x"_a, "cos"_a, "sin"_a, "positions"_a.none() = none, nb::kw_only(), "interleaved"_a = false,
        "inverse"_a = false, "out"_a.none() = none, "target"_a = "sm_90a");
  m.def("cross_entropy", &cross_entropy, "logits"_a, "classes"_a, nb::kw_only(), "target"_a = "sm_90a");
  m.def("top_k", &top_k, "x"_a, "k"_a, nb::kw_only(), "target"_a = "sm_90a");
  m.def("quantise_float8", &quantise_float8, "x"_a, "gate"_a.none() = none, nb::kw_only(), "block"_a = 0,
        "activation"_a.none() = "silu", "target"_a = "sm_90a");
  m.def("transpose", &transpose, "x"_a, nb::kw_only(), "out"_a.none() = none, "target"_a = "sm_90a");
  // For torch's autograd.
  m.def("softmax_backward", &softmax_backward, "grad"_a, "y"_a);
  m.def("layer_norm_backward", &layer_norm_backward, "grad"_a, "x"_a, "weight"_a, "eps"_a);
  m.def("rms_norm_backward", &rms_norm_backward, "grad"_a, "x"_a, "weight"_a, "eps"_a);
  m.def("gated_backward", &gated_backward, "grad"_a, "gate"_a, "up"_a, "activation"_a.none());
  m.def("cross_entropy_gradient", &cross_entropy_gradient, "logits"_a, "classes"_a);
}

}  // namespace imbrex::python
