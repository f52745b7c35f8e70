// SPDX-License-Identifier: Apache-2.0
#include "imbrex/lang/mma.h"

#include <fmt/format.h>

#include "core/target.h"
#include "ir/mma_types.h"
#include "lang/tiles.h"

namespace imbrex {

RegisterValue mma(const TileArg& a_tile, const TileArg& b_tile, const TileArg& c_tile,
                  const MmaOptions& options, SourceLocation where) {
  const lang::Instruction at("mma", where);
  ir::Value* a = lang::tile(at, a_tile);
  ir::Value* b = lang::tile(at, b_tile);
  ir::Value* c = lang::tile(at, c_tile);
  if ((options.warps_m == 0) != (options.warps_n == 0) || options.warps_m < 0 || options.warps_n < 0)
    at.fail(fmt::format("warps_m is {} and warps_n is {}; give both, or neither", options.warps_m,
                        options.warps_n));
  std::vector<ir::Attr> attrs;
  if (options.warps_m > 0)
    attrs = {{"warps_m", int64_t{options.warps_m}}, {"warps_n", int64_t{options.warps_n}}};
  return lang::result(at, at.emit(ir::Opcode::kMma, {a, b, c},
                                  {lang::register_type(c->type.dtype, c->type.shape)}, std::move(attrs)));
}

RegisterValue mma_scaled(const TileArg& a_tile, const TileArg& scale_a, const TileArg& b_tile,
                         const TileArg& scale_b, const TileArg& c_tile, const MmaScaledOptions& options,
                         SourceLocation where) {
  const lang::Instruction at("mma_scaled", where);
  if ((options.warps_m == 0) != (options.warps_n == 0) || options.warps_m < 0 || options.warps_n < 0)
    at.fail(fmt::format("warps_m is {} and warps_n is {}; give both, or neither", options.warps_m,
                        options.warps_n));
  std::vector<ir::Value*> operands;
  for (const TileArg* tile : {&a_tile, &b_tile, &c_tile, &scale_a, &scale_b})
    operands.push_back(lang::tile(at, *tile));
  std::vector<ir::Attr> attrs;
  if (options.warps_m > 0)
    attrs = {{"warps_m", int64_t{options.warps_m}}, {"warps_n", int64_t{options.warps_n}}};
  if (options.a_type) attrs.push_back({"a_type", *options.a_type});
  if (options.b_type) attrs.push_back({"b_type", *options.b_type});
  const ir::Type& c = operands[2]->type;
  const ir::Type type = lang::register_type(c.dtype, c.shape);
  return lang::result(at, at.emit(ir::Opcode::kMmaScaled, std::move(operands), {type}, std::move(attrs)));
}

namespace {

/// What products are summed in where nobody says.
DataType sum_type(DataType a, DataType b) {
  if (a == float64 || b == float64) return float64;
  if (a.is_float() || b.is_float()) return float32;
  return a.bits() == 64 || b.bits() == 64 ? int64 : int32;
}

/// Whether the group's warps can share the product on tensor cores, and its operands are not rounded.
bool suits_tensor_cores(const lang::Instruction& at, const ir::Type& a, const ir::Type& b,
                        const ir::Type& c) {
  if (!ir::mma_sync_takes(a, b, c) || a.dtype.bits() == 32) return false;
  const Target* target = find_target(at.trace().function().target);
  if (a.dtype.is_float() && a.dtype.bits() == 8 && (target == nullptr || !target_has(*target, "sm_89")))
    return false;
  const int64_t warps = at.trace().scope().threads / 32;
  for (int64_t rows = 1; rows <= warps; ++rows)
    if (warps % rows == 0 && a.shape[0] % (16 * rows) == 0 && b.shape[1] % (8 * (warps / rows)) == 0)
      return at.trace().scope().threads % 32 == 0;
  return false;
}

RegisterValue product(const lang::Instruction& at, ir::Value* a, ir::Value* b, ir::Value* c) {
  const ir::Opcode code =
      suits_tensor_cores(at, a->type, b->type, c->type) ? ir::Opcode::kMma : ir::Opcode::kDot;
  return lang::result(at, at.emit(code, {a, b, c}, {lang::register_type(c->type.dtype, c->type.shape)}));
}

}  // namespace

RegisterValue dot(const TileArg& a, const TileArg& b, const TileArg& c, SourceLocation where) {
  const lang::Instruction at("dot", where);
  return product(at, lang::tile(at, a), lang::tile(at, b), lang::tile(at, c));
}

RegisterValue dot(const TileArg& a_tile, const TileArg& b_tile, SourceLocation where) {
  const lang::Instruction at("dot", where);
  ir::Value *a = lang::tile(at, a_tile), *b = lang::tile(at, b_tile);
  if (a->type.rank() != 2 || b->type.rank() != 2)
    at.fail(fmt::format("works on matrices, not on {} and {}", lang::shape_text(a->type.shape),
                        lang::shape_text(b->type.shape)));
  const RegisterValue c =
      zeros(sum_type(a->type.dtype, b->type.dtype), {a->type.shape[0], b->type.shape[1]}, where);
  return product(at, a, b, at.use(c.handle()));
}

}  // namespace imbrex
