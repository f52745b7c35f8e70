// SPDX-License-Identifier: Apache-2.0
#include "imbrex/lang/launch.h"

#include <fmt/format.h>

#include "lang/arithmetic.h"

namespace imbrex {

using lang::Instruction;

void grid(const ScalarArg& x, const ScalarArg& y, const ScalarArg& z, SourceLocation where) {
  const Instruction at("grid", where);
  if (at.trace().has_grid) at.fail("the grid is given twice");
  if (at.trace().scopes().size() != 1) at.fail("inside a loop, a when() block or a thread group");
  std::vector<const ScalarArg*> given = {&x, &y, &z};
  while (given.size() > 1 && lang::number(*given.back()) == 1) given.pop_back();
  std::vector<ir::Value*> extents;
  for (const ScalarArg* extent : given) {
    if (auto n = lang::number(*extent); n && *n <= 0)
      at.fail(fmt::format("an extent is {}, not positive", *n));
    extents.push_back(lang::index_value(at, *extent));
  }
  at.emit(ir::Opcode::kLaunchGrid, std::move(extents));
  at.trace().has_grid = true;
}

void warps(int64_t count, SourceLocation where) {
  const Instruction at("warps", where);
  if (count < 1 || count > 32) at.fail(fmt::format("{} warps; a CTA has 1 to 32", count));
  if (at.trace().has_thread_groups) at.fail("must come before the first thread group");
  at.trace().function().warps = static_cast<int>(count);
  at.trace().scope().threads = 32 * count;
}

void cluster(int64_t x, int64_t y, int64_t z, SourceLocation where) {
  const Instruction at("cluster", where);
  if (x < 1 || y < 1 || z < 1 || x * y * z > 16)
    at.fail(fmt::format("a cluster of {} x {} x {} CTAs; it has 1 to 16", x, y, z));
  at.trace().function().cluster = {x, y, z};
}

void setmaxnreg(int64_t registers, SourceLocation where) {
  Instruction("setmaxnreg", where).emit(ir::Opcode::kSetmaxnreg, {}, {}, {{"registers", registers}});
}

void griddepcontrol::wait(SourceLocation where) {
  Instruction("griddepcontrol::wait", where).emit(ir::Opcode::kGriddepcontrolWait, {});
}

void griddepcontrol::launch_dependents(SourceLocation where) {
  Instruction("griddepcontrol::launch_dependents", where)
      .emit(ir::Opcode::kGriddepcontrolLaunchDependents, {});
}

Expr cluster_rank(SourceLocation where) {
  const Instruction at("cluster_rank", where);
  return Expr(at.handle(at.emit(ir::Opcode::kClusterRank, {}, {ir::Type::scalar(int32)})->result()), int32);
}

ClusterIndices cluster_idx(SourceLocation where) {
  const Instruction at("cluster_idx", where);
  const std::vector<int64_t>& extents = at.trace().function().cluster;
  const ScalarArg rank(cluster_rank(where), where), columns(extents[0], where), rows(extents[1], where);
  const ScalarArg row(detail::binary(detail::Arith::kDiv, rank, columns), where);
  return {detail::binary(detail::Arith::kRem, rank, columns), detail::binary(detail::Arith::kRem, row, rows),
          detail::binary(detail::Arith::kDiv, row, rows)};
}

int64_t cluster_dim(int axis, SourceLocation where) {
  const Instruction at("cluster_dim", where);
  if (axis < 0 || axis > 2) at.fail(fmt::format("axis {}; a cluster has axes 0, 1 and 2", axis));
  return at.trace().function().cluster[static_cast<size_t>(axis)];
}

int64_t cluster_size(SourceLocation where) {
  const std::vector<int64_t>& extents = Instruction("cluster_size", where).trace().function().cluster;
  return extents[0] * extents[1] * extents[2];
}

int64_t thread_group_begin(SourceLocation where) {
  int64_t begin = 0;
  for (const lang::OpenScope& scope : Instruction("thread_group_begin", where).trace().scopes())
    if (scope.kind == lang::ScopeKind::kGroup) begin += scope.op->int_attr("begin");
  return begin;
}

int64_t thread_group_size(SourceLocation where) {
  return Instruction("thread_group_size", where).trace().scope().threads;
}

Expr thread_index(SourceLocation where) {
  const Instruction at("thread_index", where);
  const Expr index(at.handle(at.emit(ir::Opcode::kThreadIdx, {}, {ir::Type::scalar(int32)})->result()),
                   int32);
  const int64_t begin = thread_group_begin(where);
  if (begin == 0) return index;
  return detail::binary(detail::Arith::kSub, ScalarArg(index, where), ScalarArg(begin, where));
}

void max_registers(int64_t count, SourceLocation where) {
  const Instruction at("max_registers", where);
  if (count < 8 || count > 255) at.fail(fmt::format("{} registers per thread; there are 8 to 255", count));
  at.trace().function().max_registers = count;
}

}  // namespace imbrex
