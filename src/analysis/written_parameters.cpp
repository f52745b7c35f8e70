// SPDX-License-Identifier: Apache-2.0
#include "imbrex/inspect/written_parameters.h"

#include <algorithm>
#include <map>

#include "ir/ir.h"

namespace imbrex {

std::vector<bool> written_parameters(const ir::Function& function) {
  // By value: the parameters that it is made of.
  std::map<const ir::Value*, std::vector<size_t>> made_of;
  for (size_t i = 0; i < function.params.size(); ++i)
    if (function.params[i]->type.kind == ir::TypeKind::kPointer) made_of[function.params[i]] = {i};
  std::vector<bool> written(function.params.size());
  const auto visit = [&](const ir::Op& op) {
    for (size_t i = 0; i < op.operands.size(); ++i) {
      const auto from = made_of.find(op.operands[i]);
      if (from == made_of.end()) continue;
      const std::vector<size_t> parameters = from->second;
      const std::vector<ir::OperandSpec>& specs = op.info().operands;
      const bool is_source = specs[std::min(i, specs.size() - 1)].name == "src";
      switch (op.info().effect) {
        case ir::Effect::kPure:
          for (const ir::Value* result : op.results) {
            std::vector<size_t>& all = made_of[result];
            all.insert(all.end(), parameters.begin(), parameters.end());
          }
          break;
        case ir::Effect::kReads:
          break;
        default:
          if (!is_source)
            for (size_t parameter : parameters) written[parameter] = true;
      }
    }
  };
  ir::walk(function.host, visit);
  ir::walk(function.body, visit);
  return written;
}

}  // namespace imbrex
