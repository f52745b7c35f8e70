// SPDX-License-Identifier: Apache-2.0
// Fences: membar, fence, fence.proxy, fence.mbarrier_init. The machine's memory is always coherent, so a
// fence only orders; what happens without one is for the checkers to find.
#include "vgpu/machine/cluster.h"
#include "vgpu/program/decode.h"

namespace imbrex::vgpu {

namespace {

using ptx::Mod;
using ptx::Op;

Step exec_nothing(Warp&, const Instruction&, Mask) { return Step::kNext; }

/// `kReach`: bits of Order.
template <uint8_t kReach>
Step exec_fence(Warp& w, const Instruction& n, Mask active) {
  w.cta().cluster().observe().fence(w.threads(n, active), kReach);
  return Step::kNext;
}

/// Without a space, for all of them.
template <bool kShared, bool kGlobal>
Step exec_proxy_fence(Warp& w, const Instruction& n, Mask active) {
  w.cta().cluster().observe().proxy_fence(w.threads(n, active), kShared, kGlobal);
  return Step::kNext;
}

}  // namespace

bool decode_fences(Decoder& d, Instruction& out) {
  for (size_t i = 0; i < d.operand_count(); ++i)
    if (d.operand(i).kind == ptx::OperandKind::address) out.a = d.address(i).base;
  const bool joins_proxies = (d.op() == Op::fence_proxy || d.op() == Op::membar_proxy) &&
                             (d.has(Mod::async) || d.has(Mod::async_generic));
  const bool is_thread_fence =
      d.op() == Op::fence || d.op() == Op::membar || d.op() == Op::fence_mbarrier_init;
  const bool is_of_cluster = d.has(Mod::cluster) || d.op() == Op::fence_mbarrier_init;
  const ExecFunction thread_fence = d.has(Mod::cta) ? exec_fence<kCtaScope>
                                    : is_of_cluster ? exec_fence<0>
                                    : d.has(Mod::gpu) || d.has(Mod::gl)
                                        ? exec_fence<kGpuScope>
                                        : exec_fence<kGpuScope | kSystemScope>;
  const bool is_shared = d.has(Mod::shared_cta) || d.has(Mod::shared_cluster);
  const ExecFunction proxy_fence = is_shared            ? exec_proxy_fence<true, false>
                                   : d.has(Mod::global) ? exec_proxy_fence<false, true>
                                                        : exec_proxy_fence<true, true>;
  set_body(out, joins_proxies ? proxy_fence : is_thread_fence ? thread_fence : exec_nothing);
  return true;
}

}  // namespace imbrex::vgpu
