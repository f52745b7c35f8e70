// SPDX-License-Identifier: Apache-2.0
#include "imbrex/lang/clc.h"

#include "lang/tiles.h"

namespace imbrex::clc {

using lang::Instruction;

void try_cancel(const SharedTensor& response, const Barrier& barrier, const CancelOptions& options,
                SourceLocation where) {
  const Instruction at("clc::try_cancel", where);
  std::vector<ir::Attr> attrs;
  if (options.multicast) attrs.push_back({"multicast", true});
  at.emit(ir::Opcode::kClcTryCancel, {at.use(response.handle()), at.use(barrier.handle())}, {},
          std::move(attrs));
}

Response query(const SharedTensor& response, SourceLocation where) {
  const Instruction at("clc::query", where);
  const ir::Type index = ir::Type::scalar(int32);
  const ir::Op* op = at.emit(ir::Opcode::kClcQuery, {at.use(response.handle())},
                             {ir::Type::scalar(boolean), index, index, index});
  const auto result = [&](size_t i) { return Expr(at.handle(op->results[i]), i == 0 ? boolean : int32); };
  return {result(0), result(1), result(2), result(3)};
}

}  // namespace imbrex::clc
