// SPDX-License-Identifier: Apache-2.0
// Clusters and cluster launch control.
#include <fmt/format.h>

#include "ir/findings.h"

namespace imbrex::ir {
namespace {

constexpr int64_t kResponseBits = 128;
constexpr int64_t kMaxCluster = 16;

/// A response is 16 bytes without structure.
bool verify_response(const Op& op, Findings& out) {
  const Type& response = op.operands[0]->type;
  if (response.rank() == 1 && response.elements() * response.dtype.bits() == kResponseBits) return true;
  out.add(op,
          fmt::format("a response is a vector of 16 bytes, not {} {}", response.dtype.name(),
                      shape_text(response.shape)),
          "use shared_tensor(int32, clc::kResponseShape)");
  return false;
}

void verify_one_barrier(const Op& op, const Type& barrier, Findings& out) {
  if (barrier.rank() != 0)
    out.add(op, fmt::format("works on one barrier, not an array of {}", barrier.shape[0]), "index it");
}

}  // namespace

void verify_rank(const Op& op, size_t at, Findings& out) {
  if (op.operands.size() <= at) return;
  if (const auto rank = constant_int(op.operands[at]); rank && (*rank < 0 || *rank >= kMaxCluster))
    out.add(op, fmt::format("rank {} is outside 0 ... {}", *rank, kMaxCluster - 1));
}

void verify_cluster(const Op& op, Findings& out) {
  switch (op.code) {
    case Opcode::kClcTryCancel:
      if (verify_response(op, out)) verify_one_barrier(op, op.operands[1]->type, out);
      return;
    case Opcode::kClcQuery:
      verify_response(op, out);
      return;
    case Opcode::kMbarrierRemote:
      verify_one_barrier(op, op.operands[0]->type, out);
      return verify_rank(op, 1, out);
    default:
      return;
  }
}

}  // namespace imbrex::ir
