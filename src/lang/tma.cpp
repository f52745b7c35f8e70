// SPDX-License-Identifier: Apache-2.0
#include "imbrex/lang/tma.h"

#include <fmt/format.h>

#include "lang/tiles.h"

namespace imbrex::tma {

using lang::Instruction;

namespace {

/// The operands of a copy of four rows: their numbers, then the column. Such a copy has no choice of dimensions.
std::vector<ir::Value*> four_rows(const Instruction& at, const std::array<ScalarArg, 4>& rows,
                                  const ScalarArg& column, const Shape& dims, std::vector<ir::Attr>& attrs) {
  if (!dims.empty()) at.fail("the tile runs along both dimensions of the matrix: leave out dims");
  attrs.push_back({"dims", Shape{0, 1}});
  attrs.push_back({"four_rows", true});
  Scalars offsets(rows.begin(), rows.end());
  offsets.push_back(column);
  return lang::index_values(at, offsets);
}

/// A mask that is known is an attribute, another one follows the offsets.
void add_receivers(const Instruction& at, std::vector<ir::Value*>& offsets, std::vector<ir::Attr>& attrs,
                   const LoadOptions& options) {
  if (ir::Value* mask = lang::multicast_mask(at, options.multicast_mask, attrs)) {
    offsets.push_back(mask);
    attrs.push_back({"masked", true});
  }
  if (options.cta_group != 1) attrs.push_back({"cta_group", int64_t{options.cta_group}});
  lang::add_cache_policy(attrs, options.cache_policy);
}

}  // namespace

void global_to_shared(const GlobalTensor& src, const SharedTensor& dst, const Scalars& offsets,
                      const Barrier& barrier, const LoadOptions& options, SourceLocation where) {
  const Instruction at("tma::global_to_shared", where);
  ir::Value* from = at.use(src.handle());
  ir::Value* to = at.use(dst.handle());
  std::vector<ir::Attr> attrs = {{"dims", lang::tile_dims(from, to->type.shape.size(), options.dims)}};
  std::vector<ir::Value*> operands = lang::index_values(at, offsets);
  add_receivers(at, operands, attrs, options);
  operands.insert(operands.begin(), {from, to, at.use(barrier.handle())});
  at.emit(ir::Opcode::kTmaGlobalToShared, std::move(operands), {}, std::move(attrs));
}

void gather4(const GlobalTensor& src, const SharedTensor& dst, const std::array<ScalarArg, 4>& rows,
             const ScalarArg& column, const Barrier& barrier, const LoadOptions& options,
             SourceLocation where) {
  const Instruction at("tma::gather4", where);
  std::vector<ir::Attr> attrs;
  std::vector<ir::Value*> operands = four_rows(at, rows, column, options.dims, attrs);
  add_receivers(at, operands, attrs, options);
  operands.insert(operands.begin(), {at.use(src.handle()), at.use(dst.handle()), at.use(barrier.handle())});
  at.emit(ir::Opcode::kTmaGlobalToShared, std::move(operands), {}, std::move(attrs));
}

void scatter4(const SharedTensor& src, const GlobalTensor& dst, const std::array<ScalarArg, 4>& rows,
              const ScalarArg& column, const StoreOptions& options, SourceLocation where) {
  const Instruction at("tma::scatter4", where);
  if (options.reduce != Reduce::kNone)
    at.fail("there is no reduction into four rows", {}, "leave out reduce");
  std::vector<ir::Attr> attrs;
  std::vector<ir::Value*> operands = four_rows(at, rows, column, options.dims, attrs);
  lang::add_cache_policy(attrs, options.cache_policy);
  operands.insert(operands.begin(), {at.use(src.handle()), at.use(dst.handle())});
  at.emit(ir::Opcode::kTmaSharedToGlobal, std::move(operands), {}, std::move(attrs));
}

void shared_to_global(const SharedTensor& src, const GlobalTensor& dst, const Scalars& offsets,
                      const StoreOptions& options, SourceLocation where) {
  static constexpr const char* kReduce[] = {"", "add", "min", "max", "and", "or", "xor"};
  const Instruction at("tma::shared_to_global", where);
  ir::Value* from = at.use(src.handle());
  ir::Value* to = at.use(dst.handle());
  std::vector<ir::Attr> attrs = {{"dims", lang::tile_dims(to, from->type.shape.size(), options.dims)}};
  if (options.reduce != Reduce::kNone)
    attrs.push_back({"reduce", std::string(kReduce[static_cast<int>(options.reduce)])});
  lang::add_cache_policy(attrs, options.cache_policy);
  std::vector<ir::Value*> operands = lang::index_values(at, offsets);
  operands.insert(operands.begin(), {from, to});
  at.emit(ir::Opcode::kTmaSharedToGlobal, std::move(operands), {}, std::move(attrs));
}

void commit_group(SourceLocation where) {
  Instruction("tma::commit_group", where).emit(ir::Opcode::kTmaCommitGroup, {});
}

void wait_group(int64_t pending, const WaitOptions& options, SourceLocation where) {
  std::vector<ir::Attr> attrs = {{"pending", pending}};
  if (options.read) attrs.push_back({"read", true});
  Instruction("tma::wait_group", where).emit(ir::Opcode::kTmaWaitGroup, {}, {}, std::move(attrs));
}

}  // namespace imbrex::tma
