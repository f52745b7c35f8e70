// SPDX-License-Identifier: Apache-2.0
#include "codegen/memory/packed.h"

#include <fmt/format.h>

#include "layout/queries.h"

namespace imbrex::codegen {

using layout::Axis;

namespace {

/// A number of elements that follow one another, or a place among them, in bytes.
Integer in_bytes(Generator& g, const ir::Op& op, const Integer& elements, DataType dtype,
                 std::string_view what) {
  const int64_t bits = dtype.bits(), unit = layout::whole_byte_elements(bits);
  if (!elements.known.is_multiple_of(unit) || elements.known.lo < 0)
    g.fail(op,
           fmt::format("{} of {} is not known to be a multiple of {} elements, which fill whole bytes", what,
                       dtype.name(), unit),
           {},
           fmt::format("compute it as a product with {}, or say so with assume(x % {} == 0)", unit, unit));
  if (elements.is_constant()) return Integers::constant(elements.constant() * bits / 8);
  return g.ints().mul(g.ints().div(elements, unit), Integers::constant(unit * bits / 8));
}

}  // namespace

GlobalBytes global_bytes(Generator& g, const ir::Op& op, const GlobalView& view,
                         std::span<const int64_t> dims, std::span<const Integer> offsets) {
  GlobalBytes bytes{view, {offsets.begin(), offsets.end()}, -1};
  bytes.view.dtype = uint8;
  const auto is_unit = [](const GlobalDim& d) { return d.stride.is_constant() && d.stride.constant() == 1; };
  for (GlobalDim& d : bytes.view.dims) {
    if (!is_unit(d)) {
      d.stride = in_bytes(g, op, d.stride, view.dtype, "a stride");
      continue;
    }
    d.extent = in_bytes(g, op, d.extent, view.dtype, "the extent of the contiguous dimension");
    d.offset = in_bytes(g, op, d.offset, view.dtype, "the start of a slice");
  }
  const auto root = [&](size_t view_dim) {
    const int at = view.view_dims[view_dim];
    return at < 0 ? nullptr : &view.dims[static_cast<size_t>(at)];
  };
  for (size_t v = 0; v < offsets.size(); ++v)
    if (const GlobalDim* d = root(v); d != nullptr && is_unit(*d))
      bytes.offsets[v] = in_bytes(g, op, offsets[v], view.dtype, "an offset along the contiguous dimension");
  for (size_t t = 0; t < dims.size(); ++t)
    if (const GlobalDim* d = dims[t] < 0 ? nullptr : root(static_cast<size_t>(dims[t])); d && is_unit(*d))
      bytes.tile_dim = static_cast<int>(t);
  if (bytes.tile_dim < 0)
    g.fail(op, fmt::format("elements of {} share bytes, and the tile has one of each row", view.dtype.name()),
           {}, "let the tile run along the contiguous dimension (stride 1)");
  return bytes;
}

SharedBytes shared_bytes(Generator& g, const ir::Op& op, const SharedView& view) {
  const int dim = layout::contiguous_run(view.layout, Axis::kAddress).dim;
  const auto as_bytes =
      dim < 0 ? std::nullopt : layout::view_as_width(view.layout, view.dtype.bits(), 8, dim, Axis::kAddress);
  if (!as_bytes || view.layout.element_bits() != view.dtype.bits())
    g.fail(op, fmt::format("elements of {} share bytes, and rows do not fill whole ones", view.dtype.name()),
           {"layout  " + view.layout.to_string()},
           fmt::format("make rows and slices multiples of {} elements",
                       layout::whole_byte_elements(view.dtype.bits())));
  SharedBytes bytes{view, dim};
  bytes.view.dtype = uint8;
  bytes.view.layout = *as_bytes;
  return bytes;
}

layout::Layout register_bytes(Generator& g, const ir::Op& op, const layout::Layout& registers, DataType dtype,
                              int dim) {
  const auto bytes = layout::view_as_width(registers, dtype.bits(), 8, dim);
  if (!bytes)
    g.fail(op, fmt::format("elements of {} share bytes, and no thread holds whole ones", dtype.name()),
           {"layout  " + registers.to_string()},
           fmt::format("choose a register layout that holds {} neighbouring elements in one thread",
                       layout::whole_byte_elements(dtype.bits())));
  return *bytes;
}

}  // namespace imbrex::codegen
