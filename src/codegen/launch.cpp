// SPDX-License-Identifier: Apache-2.0
// What concerns the launch: registers moved between warp groups, dependent grids.
#include <fmt/format.h>

#include <algorithm>

#include "codegen/generator.h"
#include "core/target.h"

namespace imbrex::codegen {

namespace {

/// Registers of a thread when the kernel begins: the number given to ptxas, or an equal share of the SM's.
int64_t registers_at_entry(const ir::Function& function, const Target& target) {
  if (function.max_registers) return *function.max_registers / 8 * 8;
  // Shares are of whole warp groups.
  const int64_t threads = (function.threads() + 127) / 128 * 128;
  return std::min<int64_t>(target.registers_per_sm / threads / 8 * 8, 256);
}

}  // namespace

void emit_Setmaxnreg(Generator& g, const ir::Op& op) {
  const Target& target = *find_target(g.function().target);
  if (!target.is_specific())
    g.fail(op, fmt::format("is not available for {}", target.name), {},
           fmt::format("make the kernel's target {}a", target.name));
  const int64_t entry = registers_at_entry(g.function(), target), wanted = op.int_attr("registers");
  if (wanted == entry) return;
  g.e().emit(Op::setmaxnreg, {wanted > entry ? Mod::inc : Mod::dec, Mod::sync, Mod::aligned, ScalarType::u32},
             {wanted});
}

void emit_GriddepcontrolWait(Generator& g, const ir::Op&) {
  g.kernel().waits_for_grids = true;
  g.e().emit(Op::griddepcontrol, {Mod::wait}, {});
}

void emit_GriddepcontrolLaunchDependents(Generator& g, const ir::Op&) {
  g.e().emit(Op::griddepcontrol, {Mod::launch_dependents}, {});
}

}  // namespace imbrex::codegen
