// SPDX-License-Identifier: Apache-2.0
// imbrex.matmul.
#include "imbrex/kernels/matmul.h"

#include <fmt/format.h>

#include <algorithm>

#include "operators.h"

namespace imbrex::python {
using namespace nb::literals;
namespace {

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
  Result out(a, out_object, shape, dtype);
  const Array& c = out.array;
  if (out.is_given() && !out_dtype.is_none()) expect(c, dtype, shape);
  if (out.is_empty()) return out.take();

  MatmulOptions options;
  b.transpose();  // the kernels take b as [n, k]
  options.alpha = alpha;
  options.beta = beta;
  if (!activation.is_none()) options.activation = activation_of(activation);
  Call call("matmul", {&a, &b, &c, bias.get(), residual.get(), scale_a.get(), scale_b.get()}, target);
  const DeviceTensor &ta = call.in(a), &tb = call.in(b), &tc = call.out(c);
  options.bias = call.in(bias);
  options.residual = call.in(residual);
  options.scale_a = call.in(scale_a);
  options.scale_b = call.in(scale_b);
  options.stream = call.stream();
  call.run([&] { return imbrex::matmul(ta, tb, tc, options, {}); });
  return out.take();
}

}  // namespace

void bind_matmul(nb::module_& m) {
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
}

}  // namespace imbrex::python
