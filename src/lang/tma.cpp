// SPDX-License-Identifier: Apache-2.0
#include "imbrex/lang/tma.h"

#include <fmt/format.h>

#include "lang/tiles.h"

namespace imbrex::tma {

using lang::Instruction;

namespace {

void add_policy(std::vector<ir::Attr>& attrs, CachePolicy policy) {
  static constexpr const char* kWords[] = {"", "evict_first", "evict_normal", "evict_last"};
  if (policy != CachePolicy::kDefault)
    attrs.push_back({"cache_policy", std::string(kWords[static_cast<int>(policy)])});
}

}  // namespace

void global_to_shared(const GlobalTensor& src, const SharedTensor& dst, const Scalars& offsets,
                      const Barrier& barrier, const LoadOptions& options, SourceLocation where) {
  const Instruction at("tma::global_to_shared", where);
  if (options.multicast_mask < 0 || options.multicast_mask > 0xffff)
    at.fail(fmt::format("multicast_mask is {}; it has one bit for each of 16 CTAs", options.multicast_mask));
  ir::Value* from = at.use(src.handle());
  ir::Value* to = at.use(dst.handle());
  std::vector<ir::Attr> attrs = {{"dims", lang::tile_dims(from, to->type.shape.size(), options.dims)}};
  if (options.multicast_mask) attrs.push_back({"multicast_mask", int64_t{options.multicast_mask}});
  if (options.cta_group != 1) attrs.push_back({"cta_group", int64_t{options.cta_group}});
  add_policy(attrs, options.cache_policy);
  std::vector<ir::Value*> operands = lang::index_values(at, offsets);
  operands.insert(operands.begin(), {from, to, at.use(barrier.handle())});
  at.emit(ir::Opcode::kTmaGlobalToShared, std::move(operands), {}, std::move(attrs));
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
  add_policy(attrs, options.cache_policy);
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
