// SPDX-License-Identifier: Apache-2.0
#include "imbrex/lang/wgmma.h"

#include <fmt/format.h>

#include "lang/tiles.h"

namespace imbrex::wgmma {

using lang::Instruction;

namespace {

void emit_mma(const Instruction& at, ir::Value* a, const SharedTensor& b, const RegisterTensor& d,
              const MmaOptions& options) {
  ir::Value* shared_b = at.use(b.handle());
  ir::Value* variable = at.use(d.handle());
  ir::Value* scale_d = lang::condition(at, options.scale_d);
  std::vector<ir::Attr> attrs;
  if (options.negate_a) attrs.push_back({"negate_a", true});
  if (options.negate_b) attrs.push_back({"negate_b", true});
  if (options.saturate) attrs.push_back({"saturate", true});
  at.emit(ir::Opcode::kWgmmaMma, {a, shared_b, variable, scale_d}, {}, std::move(attrs));
}

}  // namespace

RegisterTensor accumulator(DataType dtype, const Shape& shape, SourceLocation where) {
  const Instruction at("wgmma::accumulator", where);
  lang::check_shape(at, shape);
  ir::Value* contents = at.emit(ir::Opcode::kUninitialized, {}, {lang::register_type(dtype, shape)},
                                {{"dtype", dtype}, {"shape", shape}})
                            ->result();
  return RegisterTensor(RegisterValue(at.handle(contents)), where);
}

void fence(SourceLocation where) { Instruction("wgmma::fence", where).emit(ir::Opcode::kWgmmaFence, {}); }

void mma(const SharedTensor& a, const SharedTensor& b, RegisterTensor& d, const MmaOptions& options,
         SourceLocation where) {
  const Instruction at("wgmma::mma", where);
  emit_mma(at, at.use(a.handle()), b, d, options);
}

void mma(const TileArg& a, const SharedTensor& b, RegisterTensor& d, const MmaOptions& options,
         SourceLocation where) {
  const Instruction at("wgmma::mma", where);
  emit_mma(at, lang::tile(at, a), b, d, options);
}

void commit_group(SourceLocation where) {
  Instruction("wgmma::commit_group", where).emit(ir::Opcode::kWgmmaCommitGroup, {});
}

void wait_group(int64_t pending, SourceLocation where) {
  Instruction("wgmma::wait_group", where).emit(ir::Opcode::kWgmmaWaitGroup, {}, {}, {{"pending", pending}});
}

}  // namespace imbrex::wgmma
