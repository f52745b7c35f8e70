// SPDX-License-Identifier: Apache-2.0
#include "imbrex/lang/cluster.h"

#include <fmt/format.h>

#include "imbrex/lang/control.h"
#include "lang/tiles.h"

namespace imbrex {

using lang::Instruction;

void cluster_sync(SourceLocation where) {
  Instruction("cluster_sync", where).emit(ir::Opcode::kClusterSync, {});
}

Barrier remote_barrier(const Barrier& barrier, const ScalarArg& rank, SourceLocation where) {
  const Instruction at("remote_barrier", where);
  ir::Value* local = at.use(barrier.handle());
  ir::Value* cta = lang::index_value(at, rank);
  return Barrier(at.handle(at.emit(ir::Opcode::kMbarrierRemote, {local, cta}, {local->type})->result()));
}

void arrive_and_expect_tx_multicast(const Barrier& barrier, const ScalarArg& bytes, const ScalarArg& mask,
                                    const mbarrier::ExpectOptions& options, SourceLocation where) {
  const Instruction at("arrive_and_expect_tx_multicast", where);
  const std::vector<int64_t>& extents = at.trace().function().cluster;
  const int64_t ctas = extents[0] * extents[1] * extents[2];
  const std::optional<int64_t> known = lang::number(mask);
  if (known && (*known <= 0 || *known >> ctas != 0))
    at.fail(fmt::format("mask {:#x}, in a cluster of {} CTAs", *known, ctas), {},
            "a bit for each CTA, at least one");
  if (at.trace().scope().threads != 1)
    at.fail(fmt::format("executed by {} threads, each of which would arrive", at.trace().scope().threads), {},
            "put it under single_thread()");
  const auto arrive = [&](int64_t rank) {
    mbarrier::arrive_and_expect_tx(remote_barrier(barrier, ScalarArg(rank, where), where), bytes, options,
                                   where);
  };
  for (int64_t rank = 0; rank < ctas; ++rank) {
    if (known && (*known >> rank & 1) != 0) arrive(rank);
    if (known) continue;
    const ScalarArg bit(detail::binary(detail::Arith::kAnd, mask, ScalarArg(int64_t{1} << rank, where)),
                        where);
    const Guard named =
        when(ScalarArg(detail::binary(detail::Arith::kNe, bit, ScalarArg(0, where)), where), where);
    arrive(rank);
  }
}

RegisterValue load_remote_shared(const SharedTensor& src, const ScalarArg& rank, SourceLocation where) {
  const Instruction at("load_remote_shared", where);
  ir::Value* tensor = at.use(src.handle());
  return lang::result(at, at.emit(ir::Opcode::kLoadShared, {tensor, lang::index_value(at, rank)},
                                  {lang::register_type(tensor->type.dtype, tensor->type.shape)}));
}

void store_remote_shared(const SharedTensor& dst, const TileArg& value, const ScalarArg& rank,
                         SourceLocation where) {
  const Instruction at("store_remote_shared", where);
  ir::Value* tensor = at.use(dst.handle());
  ir::Value* tile = lang::tile(at, value);
  at.emit(ir::Opcode::kStoreShared, {tensor, tile, lang::index_value(at, rank)});
}

}  // namespace imbrex
