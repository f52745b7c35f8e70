// SPDX-License-Identifier: Apache-2.0
// imbrex.gated_matmul and imbrex.quantised_matmul.
#include "imbrex/kernels/fused_matmul.h"

#include <fmt/format.h>

#include <utility>

#include "operators.h"

namespace imbrex::python {
using namespace nb::literals;
namespace {

/// b or up as the kernels take it, [n, k].
void turn_weights(Array& b, const Array& a) {
  if (b.dtype != a.dtype)
    b.refuse(fmt::format("is {}, a is {}", b.text(), a.text()), "convert one to the other's type");
  if (b.rank != 2 || b.extents[0] != a.extents[1])
    b.refuse(fmt::format("is {}", b.text()), fmt::format("give it as [{}, n]", a.extents[1]));
  b.transpose();
  if (!b.is_dense())
    b.refuse(fmt::format("has strides [{}, {}], and its columns do not lie one after the other", b.steps[1], b.steps[0]),
             "pass a view of weights that lie as [n, k]: w.T");
}

/// The operands of a call; `up` may be left out.
struct Operands {
  Array a, b;
  Optional up;
  Optional scale_a, scale_b;
  Operands(nb::handle a_object, nb::handle b_object, nb::handle up_object, nb::handle scale_a_object,
           nb::handle scale_b_object)
      : a("a", a_object),
        b("b", b_object),
        up("up", up_object),
        scale_a("scale_a", scale_a_object),
        scale_b("scale_b", scale_b_object) {
    if (a.rank != 2) a.refuse(fmt::format("is {}", a.text()), "give it as [m, k]");
    if (a.dtype != float16 && a.dtype != bfloat16 && a.dtype != float8_e4m3)
      a.refuse(fmt::format("is {}", a.text()), "convert it to float16, bfloat16 or float8_e4m3");
  }
  void turn() {
    turn_weights(b, a);
    if (up) turn_weights(*up.array, a);
  }
  int64_t rows() const { return a.extents[0]; }
  int64_t columns() const { return b.extents[0]; }
};

nb::object gated_matmul(nb::handle a_object, nb::handle b_object, nb::handle up_object, nb::handle activation,
                        nb::handle out_dtype, nb::handle scale_a_object, nb::handle scale_b_object,
                        nb::handle out_object, const std::string& target) {
  Operands in(a_object, b_object, up_object, scale_a_object, scale_b_object);
  if (out_object.is_none() && needs_gradient({&in.a, &in.b, in.up.get()}))
    return differentiable("gated_matmul", a_object, b_object, up_object, activation, out_dtype, scale_a_object,
                          scale_b_object);
  in.turn();
  const DataType dtype = !out_dtype.is_none() ? dtype_of(out_dtype) : in.a.dtype.bits() == 16 ? in.a.dtype : bfloat16;
  const int64_t shape[] = {in.rows(), in.columns()};
  Result out(in.a, out_object, shape, dtype);
  if (out.array.dtype.bits() != 16)
    out.array.refuse(fmt::format("is {}", out.array.text()), "for float8 and its scales call quantised_matmul(a, b, up)");
  expect_shape(out.array, shape);
  if (out.is_empty()) return out.take();
  Call call("gated_matmul", {&in.a, &in.b, in.up.get(), in.scale_a.get(), in.scale_b.get(), &out.array}, target);
  const DeviceTensor &a = call.in(in.a), &b = call.in(in.b), &up = call.in(*in.up.array), &c = call.out(out.array);
  const FusedMatmulOptions options{.activation = activation_of(activation),
                                   .scale_a = call.in(in.scale_a),
                                   .scale_b = call.in(in.scale_b),
                                   .scale_c = {},
                                   .stream = call.stream()};
  call.run([&] { return imbrex::gated_matmul(a, b, up, c, options, {}); });
  return out.take();
}

nb::tuple quantised_matmul(nb::handle a_object, nb::handle b_object, nb::handle up_object, int block,
                           nb::handle activation, nb::handle scale_a_object, nb::handle scale_b_object,
                           const std::string& target) {
  Operands in(a_object, b_object, up_object, scale_a_object, scale_b_object);
  in.turn();
  check_block(block);
  const int64_t blocks = block == 0 ? 1 : (in.columns() + block - 1) / block;
  const int64_t shape[] = {in.rows(), in.columns()}, scales[] = {blocks, in.rows()};
  Result of_q(in.a, nb::none(), shape, float8_e4m3);
  // Those of a block's rows side by side, as products take them.
  Result of_scale(in.a, new_array(in.a, scales, float32), false, "scale");
  Array &q = of_q.array, &scale = of_scale.array;
  if (!of_q.is_empty()) {
    Call call("quantised_matmul", {&in.a, &in.b, in.up.get(), in.scale_a.get(), in.scale_b.get(), &q, &scale}, target);
    const DeviceTensor &a = call.in(in.a), &b = call.in(in.b), &c = call.out(q);
    const FusedMatmulOptions options{.activation = activation_of(activation),
                                     .scale_a = call.in(in.scale_a),
                                     .scale_b = call.in(in.scale_b),
                                     .scale_c = block == 0 ? call.out(scale)[0] : call.out(scale),
                                     .stream = call.stream()};
    const DeviceTensor up = call.in(in.up);
    call.run([&] {
      return up.is_null() ? imbrex::quantised_matmul(a, b, c, options, {})
                          : imbrex::gated_matmul(a, b, up, c, options, {});
    });
  }
  nb::object turned = of_scale.take().attr("swapaxes")(1, 0);
  return nb::make_tuple(of_q.take(), turned);
}

}  // namespace

void bind_fused(nb::module_& m) {
  const nb::object none = nb::none();
  m.def("gated_matmul", &gated_matmul, "a"_a, "b"_a, "up"_a, "activation"_a.none() = "silu", "out_dtype"_a.none() = none,
        "scale_a"_a.none() = none, "scale_b"_a.none() = none, nb::kw_only(), "out"_a.none() = none,
        "target"_a = "sm_90a");
  m.def("quantised_matmul", &quantised_matmul, "a"_a, "b"_a, "up"_a.none() = none, nb::kw_only(),
        "block"_a = 128, "activation"_a.none() = none, "scale_a"_a.none() = none, "scale_b"_a.none() = none, "target"_a = "sm_90a");
}

}  // namespace imbrex::python
