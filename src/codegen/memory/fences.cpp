// SPDX-License-Identifier: Apache-2.0
// Fences between proxies and around tcgen05 operations.
#include "codegen/generator.h"

namespace imbrex::codegen {

void emit_FenceProxyAsync(Generator& g, const ir::Op& op) {
  g.require_arch(op, 90, "the async proxy");
  const std::string& space = op.string_attr("space");
  if (space == "shared")
    g.e().emit(Op::fence_proxy, {Mod::async, Mod::shared_cta}, {});
  else if (space == "global")
    g.e().emit(Op::fence_proxy, {Mod::async, Mod::global}, {});
  else
    g.e().emit(Op::fence_proxy, {Mod::async}, {});
}

void emit_Tcgen05FenceBefore(Generator& g, const ir::Op& op) {
  g.require_arch(op, 100, "tcgen05");
  g.e().emit(ptx::Op::tcgen05_fence_before_thread_sync, {}, {});
}

void emit_Tcgen05FenceAfter(Generator& g, const ir::Op& op) {
  g.require_arch(op, 100, "tcgen05");
  g.e().emit(ptx::Op::tcgen05_fence_after_thread_sync, {}, {});
}

void emit_Tcgen05WaitLoad(Generator& g, const ir::Op& op) {
  g.require_arch(op, 100, "tcgen05");
  g.e().emit(ptx::Op::tcgen05_wait_ld, {Mod::sync, Mod::aligned}, {});
}

void emit_Tcgen05WaitStore(Generator& g, const ir::Op& op) {
  g.require_arch(op, 100, "tcgen05");
  g.e().emit(ptx::Op::tcgen05_wait_st, {Mod::sync, Mod::aligned}, {});
}

}  // namespace imbrex::codegen
