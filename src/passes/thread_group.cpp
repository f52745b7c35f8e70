// SPDX-License-Identifier: Apache-2.0
#include "passes/thread_group.h"

#include <fmt/format.h>

namespace imbrex::passes {

ThreadGroup ThreadGroup::narrowed(const ir::Op& thread_group) const {
  return {begin + thread_group.int_attr("begin"), thread_group.int_attr("threads"), &thread_group};
}

std::string ThreadGroup::describe() const {
  if (threads == 1) return fmt::format("one thread (thread {})", begin);
  if (threads == 32 && begin % 32 == 0) return fmt::format("warp {}", begin / 32);
  return fmt::format("threads {} ... {}", begin, begin + threads - 1);
}

const ir::Op* enclosing_thread_group(const ir::Op& op) {
  for (const ir::Op* outer = op.parent->parent; outer; outer = outer->parent->parent)
    if (outer->code == ir::Opcode::kThreadGroup) return outer;
  return nullptr;
}

ThreadGroup thread_group_of(const ir::Function& function, const ir::Op& op) {
  const ir::Op* scope = enclosing_thread_group(op);
  if (!scope) return {0, function.threads(), nullptr};
  return thread_group_of(function, *scope).narrowed(*scope);
}

}  // namespace imbrex::passes
