// SPDX-License-Identifier: Apache-2.0
// imbrex.grouped_matmul, and the gradient of its weights.
#include "imbrex/kernels/grouped/grouped_matmul.h"

#include <fmt/format.h>

#include <algorithm>

#include "operators.h"

namespace imbrex::python {
using namespace nb::literals;
namespace {

int64_t count_of(const Array& rows, bool masked) {
  if (rows.dtype != int32 || rows.rank != 1 || rows.extents[0] < (masked ? 1 : 2))
    rows.refuse(fmt::format("is {}", rows.text()),
                masked ? "give int32[groups], the rows that each group has"
                       : "give int32[groups + 1], the first row of each group and the end of the last");
  return rows.extents[0] - (masked ? 0 : 1);
}

/// a is [m, columns], or [groups, room, columns] where groups are masked.
void check_rows(const Array& a, int64_t groups, bool masked) {
  if (a.rank != (masked ? 3 : 2) || (masked && a.extents[0] != groups))
    a.refuse(fmt::format("is {}", a.text()), masked ? fmt::format("give it as [{}, room, columns]", groups)
                                                    : "give it as [rows of all groups, columns]");
}

void check_type(const Array& a, const Array& b) {
  if (a.dtype != float16 && a.dtype != bfloat16 && a.dtype != float8_e4m3)
    a.refuse(fmt::format("is {}", a.text()), "convert it to float16, bfloat16 or float8_e4m3");
  if (b.dtype != a.dtype)
    b.refuse(fmt::format("is {}, a is {}", b.text(), a.text()), "convert one to the other's type");
}

Groups groups_of(const DeviceTensor& rows, bool masked) {
  return masked ? Groups::with_counts(rows) : Groups::contiguous(rows);
}

nb::object grouped_matmul(nb::handle a_object, nb::handle b_object, nb::handle rows_object, bool masked,
                          nb::handle out_dtype, nb::handle scale_a_object, nb::handle scale_b_object,
                          nb::handle out_object, const std::string& target) {
  const Array a("a", a_object), rows("rows", rows_object);
  Array b("b", b_object);
  const Optional scale_a("scale_a", scale_a_object), scale_b("scale_b", scale_b_object);
  const int64_t groups = count_of(rows, masked);
  check_rows(a, groups, masked);
  check_type(a, b);
  const int64_t k = a.extents[a.rank - 1];
  if (b.rank != 3 || b.extents[0] != groups || b.extents[1] != k)
    b.refuse(fmt::format("is {}", b.text()), fmt::format("give it as [{}, {}, n], a matrix for each group", groups, k));
  if (out_object.is_none() && needs_gradient({&a, &b}))
    return differentiable("grouped_matmul", a_object, b_object, rows_object, masked, out_dtype, scale_a_object,
                          scale_b_object);
  const DataType dtype = !out_dtype.is_none() ? dtype_of(out_dtype) : a.dtype.bits() == 16 ? a.dtype : bfloat16;
  const std::vector<int64_t> shape = with_last(a.shape(), b.extents[2]);
  Result out(a, out_object, shape, dtype);
  const Array& c = out.array;
  expect_shape(c, shape);
  if (out.is_empty()) return out.take();
  b.transpose();  // the kernels take b as [groups, n, k]
  if (!b.is_dense())
    b.refuse(fmt::format("has strides [{}, {}, {}], and its columns do not lie one after the other", b.steps[0],
                         b.steps[2], b.steps[1]),
             "pass a view of weights that lie as [groups, n, k]: w.mT, or w.swapaxes(1, 2)");
  Call call("grouped_matmul", {&a, &b, &rows, scale_a.get(), scale_b.get(), &c}, target);
  const DeviceTensor &ta = call.in(a), &tb = call.in(b), &tc = call.out(c);
  const Groups of = groups_of(call.in(rows), masked);
  GroupedMatmulOptions options;
  options.scale_a = call.in(scale_a);
  options.scale_b = call.in(scale_b);
  options.stream = call.stream();
  call.run([&] { return imbrex::grouped_matmul(ta, tb, tc, of, options, {}); });
  return out.take();
}

/// The gradient of a: grad b^T, and 0 in rows that belong to no group. b is dense.
nb::object rows_gradient(nb::handle grad_object, nb::handle b_object, nb::handle rows_object, bool masked) {
  const Array grad("grad", grad_object), b("b", b_object), rows("rows", rows_object);
  check_rows(grad, count_of(rows, masked), masked);
  check_type(grad, b);
  nb::object made = new_array(grad, with_last(grad.shape(), b.extents[1]), grad.dtype);
  made.attr("zero_")();
  Result out(grad, std::move(made));
  if (out.is_empty() || grad.elements() == 0) return out.take();
  Call call("grouped_matmul", {&grad, &b, &rows, &out.array}, "sm_90a");
  const DeviceTensor &tg = call.in(grad), &tb = call.in(b), &tc = call.out(out.array);
  const Groups of = groups_of(call.in(rows), masked);
  GroupedMatmulOptions options;
  options.stream = call.stream();
  call.run([&] { return imbrex::grouped_matmul(tg, tb, tc, of, options, {}); });
  return out.take();
}

nb::object weight_gradient(nb::handle a_object, nb::handle b_object, nb::handle rows_object, bool masked) {
  const Array a("a", a_object), b("b", b_object), rows("rows", rows_object);
  const int64_t groups = count_of(rows, masked);
  for (const Array* each : {&a, &b}) check_rows(*each, groups, masked);
  check_type(a, b);
  expect_shape(b, with_last(a.shape(), b.extents[b.rank - 1]));
  const int64_t shape[] = {groups, a.extents[a.rank - 1], b.extents[b.rank - 1]};
  Result out(a, nb::none(), shape, a.dtype);
  if (out.is_empty()) return out.take();
  Call call("grouped_matmul_weight_gradient", {&a, &b, &rows, &out.array}, "sm_90a");
  const DeviceTensor &ta = call.in(a), &tb = call.in(b), &tc = call.out(out.array);
  const Groups of = groups_of(call.in(rows), masked);
  call.run([&] { return imbrex::grouped_matmul_weight_gradient(ta, tb, tc, of, call.stream(), {}); });
  return out.take();
}

}  // namespace

void bind_grouped(nb::module_& m) {
  const nb::object none = nb::none();
  m.def("grouped_matmul", &grouped_matmul, "a"_a, "b"_a, "rows"_a, "masked"_a = false, "out_dtype"_a.none() = none,
        "scale_a"_a.none() = none, "scale_b"_a.none() = none, nb::kw_only(), "out"_a.none() = none,
        "target"_a = "sm_90a");
  // For torch's autograd.
  m.def("grouped_matmul_rows_gradient", &rows_gradient, "grad"_a, "b"_a, "rows"_a, "masked"_a = false);
  m.def("grouped_matmul_weight_gradient", &weight_gradient, "a"_a, "b"_a, "rows"_a, "masked"_a = false);
}

}  // namespace imbrex::python
