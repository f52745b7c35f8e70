// SPDX-License-Identifier: Apache-2.0
// What concerns the launch: registers moved between warp groups, dependent grids.
#include <fmt/format.h>

#include "codegen/generator.h"
#include "core/target.h"
#include "ir/entry_registers.h"

namespace imbrex::codegen {

void emit_Setmaxnreg(Generator& g, const ir::Op& op) {
  const Target& target = *find_target(g.function().target);
  if (!target.is_specific())
    g.fail(op, fmt::format("is not available for {}", target.name), {},
           fmt::format("make the kernel's target {}a", target.name));
  const int64_t entry = ir::registers_at_entry(g.function(), target);
  const int64_t wanted = op.int_attr("registers");
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
