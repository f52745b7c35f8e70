// SPDX-License-Identifier: Apache-2.0
// Clusters: their barrier, barriers of other CTAs, and cluster launch control.
#include <algorithm>

#include "codegen/memory/mbarrier.h"
#include "codegen/memory/shared_memory.h"
#include "imbrex/core/error.h"

namespace imbrex::codegen {

namespace {

/// A response is read and written as one 16-byte word.
const SharedView& response_view(Generator& g, const ir::Op& op) {
  const SharedView& view = g.get<SharedView>(op.operands[0]);
  if (!starts_at_multiple(view, 16))
    g.fail(op, "the response is not known to start at a multiple of 16 bytes of shared memory", {},
           "give it a shared_tensor(int32, clc::kResponseShape) of its own, or stages of that");
  return view;
}

}  // namespace

Integer remote_base(Generator& g, ir::Value* rank_value) {
  // The window is linear: what is mapped, once, is where the CTA's shared memory begins.
  const Integer rank = g.integer(rank_value);
  const int64_t cta = rank.is_constant() ? -1 - rank.constant() : rank.id;
  const Operand base = g.e().hoisted(g.ints().name(kRemoteBase, cta), rank.depth, [&] {
    return Operand(g.e().make(ScalarType::b32, Op::mapa, {Mod::shared_cluster, ScalarType::u32},
                              {g.shared_base().value, rank.value}));
  });
  // Sixteen windows of 2^24 bytes; the place in each is the same.
  return g.ints().leaf(kRemoteBase, cta, base, false, {0, int64_t{1} << 28, g.shared_base().known.multiple},
                       rank.depth);
}

void emit_ClusterSync(Generator& g, const ir::Op& op) {
  g.require_arch(op, 90, "a cluster barrier");
  g.e().emit(Op::barrier_cluster_arrive, {Mod::aligned}, {});
  g.e().emit(Op::barrier_cluster_wait, {Mod::aligned}, {});
}

void emit_MbarrierRemote(Generator& g, const ir::Op& op) {
  g.require_arch(op, 90, "a barrier of another CTA");
  BarrierView view = g.get<BarrierView>(op.operands[0]);
  if (view.remote) g.fail(op, "the barrier is another CTA's already");
  view.remote = remote_base(g, op.operands[1]);
  g.bind(op.result(), std::move(view));
}

void emit_ClcTryCancel(Generator& g, const ir::Op& op) {
  g.require_arch(op, 100, "cluster launch control");
  const SharedView& response = response_view(g, op);
  const BarrierView& barrier = g.get<BarrierView>(op.operands[1]);
  if (barrier.remote) g.fail(op, "the response arrives at a barrier of this CTA");
  std::vector<Suffix> words{Mod::async, Mod::shared_cta, Mod::mbarrier_complete_tx_bytes};
  if (op.bool_attr("multicast", false)) words.push_back(Mod::multicast_cluster_all);
  words.push_back(ScalarType::b128);
  const Operand operands[] = {g.shared_operand(response.terms, response.offset), barrier_operand(g, barrier)};
  const std::optional<Reg> issuer = g.issuer();
  ptx::Instruction& request = g.e().emit(Op::clusterlaunchcontrol_try_cancel, words, operands);
  if (issuer) request.when(*issuer);
}

void emit_ClcQuery(Generator& g, const ir::Op& op) {
  g.require_arch(op, 100, "cluster launch control");
  Emitter& e = g.e();
  const SharedView& view = response_view(g, op);
  const Reg response = e.make(ScalarType::b128, Op::ld, {Mod::shared, ScalarType::b128},
                              {g.shared_operand(view.terms, view.offset)});
  const Reg is_canceled = e.make(ScalarType::pred, Op::clusterlaunchcontrol_query_cancel,
                                 {Mod::is_canceled, ScalarType::pred, ScalarType::b128}, {response});
  // Of a response that says no, the indices must not be asked for.
  Operand index[3];
  for (Operand& i : index) i = e.make(ScalarType::b32, Op::mov, {ScalarType::b32}, {0});
  e.emit(Op::clusterlaunchcontrol_query_cancel,
         {Mod::get_first_ctaid, Mod::v4, ScalarType::b32, ScalarType::b128},
         {e.builder().vec({index[0], index[1], index[2], ptx::sink()}), response})
      .when(is_canceled);
  g.bind(op.results[0], is_canceled);
  for (size_t i = 0; i < 3; ++i) g.bind(op.results[i + 1], index[i]);
}

}  // namespace imbrex::codegen
