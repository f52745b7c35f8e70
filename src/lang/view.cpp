// SPDX-License-Identifier: Apache-2.0
#include "imbrex/lang/view.h"

#include <fmt/format.h>

#include "lang/tiles.h"
#include "layout/layout.h"

namespace imbrex {

namespace {

RegisterValue emit_view(const lang::Instruction& at, ir::Value* value, DataType dtype, const Shape& shape,
                        bool rows, const layout::Layout* layout = nullptr) {
  std::vector<ir::Attr> attributes{{"dtype", dtype}, {"shape", shape}};
  if (rows) attributes.push_back({"rows", true});
  if (layout != nullptr) attributes.push_back({"layout", *layout});
  return lang::result(at,
                      at.emit(ir::Opcode::kView, {value}, {lang::register_type(dtype, shape)}, attributes));
}

}  // namespace

RegisterValue view(const TileArg& a, DataType dtype, SourceLocation where) {
  const lang::Instruction at("view", where);
  ir::Value* value = lang::tile(at, a);
  Shape shape = value->type.shape;
  const int64_t bits = shape.empty() ? 0 : shape.back() * value->type.dtype.bits();
  if (bits == 0 || bits % dtype.bits() != 0)
    at.fail(fmt::format("{} bits along the last dimension are no whole number of {}", bits, dtype.name()),
            {lang::Instruction::describe("it", value)},
            "choose an extent that is a multiple of the element's bits");
  shape.back() = bits / dtype.bits();
  return emit_view(at, value, dtype, shape, false);
}

RegisterValue view(const TileArg& a, DataType dtype, const Shape& shape, SourceLocation where) {
  const lang::Instruction at("view", where);
  lang::check_shape(at, shape);
  return emit_view(at, lang::tile(at, a), dtype, shape, true);
}

RegisterValue view(const TileArg& a, DataType dtype, const layout::Layout& layout, SourceLocation where) {
  const lang::Instruction at("view", where);
  return emit_view(at, lang::tile(at, a), dtype, layout.shape(), true, &layout);
}

}  // namespace imbrex
