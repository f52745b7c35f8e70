// SPDX-License-Identifier: Apache-2.0
#include "imbrex/lang/mma.h"

#include <fmt/format.h>

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

}  // namespace imbrex
