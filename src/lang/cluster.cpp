// SPDX-License-Identifier: Apache-2.0
#include "imbrex/cluster.h"

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

}  // namespace imbrex
