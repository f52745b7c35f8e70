// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "ir/findings.h"

namespace imbrex::ir {
namespace {

constexpr int64_t kMaxCount = (1 << 20) - 1;  // arrivals and bytes that one phase can track

/// sem and scope come together; `strong` is the semantics that is not relaxed.
void verify_order(const Op& op, std::string_view strong, Findings& out) {
  const AttrValue* sem = op.attr("sem");
  const AttrValue* scope = op.attr("scope");
  if (!sem != !scope) return out.add(op, "sem and scope are given together or not at all");
  if (!sem) return;
  const std::string& sem_word = op.string_attr("sem");
  const std::string& scope_word = op.string_attr("scope");
  if (sem_word != strong && sem_word != "relaxed")
    out.add(op, "sem is '" + sem_word + "'", fmt::format("use {} or relaxed", strong));
  if (scope_word != "cta" && scope_word != "cluster")
    out.add(op, "scope is '" + scope_word + "'", "use cta or cluster");
}

}  // namespace

void verify_mbarrier(const Op& op, Findings& out) {
  if (op.code == Opcode::kMbarrierAlloc) {
    const auto& counts = op.ints_attr("counts");
    const auto& shape = op.result()->type.shape;
    for (const Op* outer = op.parent->parent; outer; outer = outer->parent->parent)
      if (has(outer->code, Fact::kLoop))
        return out.add(op, "a second trip of the loop would initialise barriers that are in use",
                       "allocate them before the loop");
    if (counts.empty()) return out.add(op, "needs at least one arrival count");
    for (int64_t count : counts)
      if (count < 1 || count > kMaxCount)
        return out.add(op, fmt::format("arrival count {} is outside 1 ... {}", count, kMaxCount));
    const int64_t n = static_cast<int64_t>(counts.size());
    if (shape != std::vector<int64_t>{n} && !(n == 1 && shape.empty()))
      out.add(op,
              fmt::format("{} counts give barrier[{}], declared as {}", n, n, op.result()->type.to_string()));
    return;
  }
  const Type& barrier = op.operands[0]->type;
  if (op.code == Opcode::kMbarrierAt) {
    if (barrier.rank() != 1) return out.add(op, "indexes an array of barriers, this is one barrier");
    const auto i = constant_int(op.operands[1]);
    if (i && (*i < 0 || *i >= barrier.shape[0]))
      return out.add(op, fmt::format("index {} is outside 0 ... {}", *i, barrier.shape[0] - 1));
    if (op.result()->type.rank() != 0)
      out.add(op, fmt::format("gives one barrier, declared as {}", op.result()->type.to_string()));
    return;
  }
  if (barrier.rank() != 0)
    return out.add(op, fmt::format("works on one barrier, not an array of {}", barrier.shape[0]), "index it");
  switch (op.code) {
    case Opcode::kMbarrierArrive:
      if (op.int_attr("count", 1) < 1 || op.int_attr("count", 1) > kMaxCount)
        out.add(op, fmt::format("count {} is outside 1 ... {}", op.int_attr("count"), kMaxCount));
      return verify_order(op, "release", out);
    case Opcode::kMbarrierArriveExpectTx:
    case Opcode::kMbarrierExpectTx:
      if (auto bytes = constant_int(op.operands[1]); bytes && (*bytes < 0 || *bytes > kMaxCount))
        out.add(op, fmt::format("{} bytes are outside 0 ... {}", *bytes, kMaxCount),
                "one phase of a barrier cannot track more; use several barriers");
      if (op.code == Opcode::kMbarrierArriveExpectTx) verify_order(op, "release", out);
      return;
    case Opcode::kMbarrierWait:
      return verify_order(op, "acquire", out);
    default:
      return;
  }
}

}  // namespace imbrex::ir
