// SPDX-License-Identifier: Apache-2.0
#include "imbrex/lang/cluster.h"

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
