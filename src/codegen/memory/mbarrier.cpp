// SPDX-License-Identifier: Apache-2.0
// mbarrier objects: 8 bytes each in shared memory.
#include "codegen/memory/mbarrier.h"

#include <fmt/format.h>

#include <algorithm>

#include "codegen/memory/shared_memory.h"
#include "imbrex/core/error.h"
#include "ptx/object_names.h"

namespace imbrex::codegen {

namespace {

constexpr int64_t kBarrierBytes = 8;

/// The barrier of an op that only the CTA that holds it may execute.
Operand own_barrier(Generator& g, const ir::Op& op) {
  const BarrierView& view = g.get<BarrierView>(op.operands[0]);
  if (view.remote)
    g.fail(op, "the barrier is another CTA's", {}, "only the CTA that holds a barrier waits for it");
  return barrier_operand(g, view);
}

/// The words of sem and scope, which PTX wants both or not at all, followed by `tail`.
std::vector<Suffix> ordered_words(Generator& g, const ir::Op& op, std::initializer_list<Suffix> head,
                                  Mod default_sem, std::initializer_list<Suffix> tail) {
  std::vector<Suffix> words(head);
  if (op.attr("sem") || op.attr("scope")) {
    g.require_arch(op, 90, "a memory order on an mbarrier");
    const std::string sem = op.attr("sem") ? op.string_attr("sem") : "";
    const std::string scope = op.attr("scope") ? op.string_attr("scope") : "cta";
    if (sem != "" && sem != "relaxed" && sem != "acquire" && sem != "release")
      g.fail(op, fmt::format("unknown memory order '{}'", sem), {},
             "orders are relaxed, acquire and release");
    if (scope != "cta" && scope != "cluster")
      g.fail(op, fmt::format("unknown scope '{}'", scope), {}, "scopes are cta and cluster");
    words.push_back(sem == "relaxed" ? Mod::relaxed : default_sem);
    words.push_back(scope == "cta" ? Mod::cta : Mod::cluster);
  }
  words.insert(words.end(), tail);
  return words;
}

/// The window of the barrier, and for one of another CTA the order that reaches it.
std::vector<Suffix> arrival_words(Generator& g, const ir::Op& op, std::initializer_list<Suffix> head) {
  if (!g.get<BarrierView>(op.operands[0]).remote)
    return ordered_words(g, op, head, Mod::release, {Mod::shared_cta, ScalarType::b64});
  std::vector<Suffix> words(head);
  const bool is_relaxed = op.attr("sem") && op.string_attr("sem") == "relaxed";
  words.insert(words.end(), {is_relaxed ? Mod::relaxed : Mod::release, Mod::cluster, Mod::shared_cluster,
                             ScalarType::b64});
  return words;
}

/// Relaxed arrivals came later than the rest.
void raise_version(Generator& g, const ir::Op& op) {
  if (op.attr("sem") && op.string_attr("sem") == "relaxed")
    g.e().module().version = std::max(g.e().module().version, 86);
}

}  // namespace

Operand barrier_operand(Generator& g, const BarrierView& barrier) {
  if (!barrier.remote) return g.shared_operand(barrier.terms, barrier.offset);
  const Integer address = g.ints().add(*barrier.remote, sum_of(g, barrier.terms));
  return ptx::address(address.value.reg(), barrier.offset);
}

std::optional<Operand> multicast_mask(Generator& g, const ir::Op& op, const ir::Value* mask) {
  Emitter& e = g.e();
  if (!mask) {
    if (!op.attr("multicast_mask")) return std::nullopt;
    return e.to_register(ScalarType::b16, op.int_attr("multicast_mask"));
  }
  const Reg wide = e.to_register(ScalarType::b32, g.ints().narrow(g.integer(mask)).value);
  return e.make(ScalarType::b16, Op::cvt, {ScalarType::u16, ScalarType::u32}, {wide});
}

void emit_MbarrierAlloc(Generator& g, const ir::Op& op) {
  if (!op.attr("offset")) throw InternalError("codegen: mbarrier_alloc without an offset");
  const int64_t offset = op.int_attr("offset");
  const std::vector<int64_t>& counts = op.ints_attr("counts");
  Emitter& e = g.e();
  const ptx::LabelId end = e.label(ptx::ready_label(op.result()->name));
  const Reg is_first = e.make(ScalarType::pred, Op::setp, {Mod::eq, ScalarType::u32},
                              {e.to_register(ScalarType::b32, g.thread_index(g.group()).value), 0});
  e.branch_unless(is_first, end);
  e.enter_scope();
  for (size_t i = 0; i < counts.size(); ++i)
    e.emit(Op::mbarrier_init, {Mod::shared_cta, ScalarType::b64},
           {g.shared_operand({}, offset + static_cast<int64_t>(i) * kBarrierBytes), counts[i]});
  // Other CTAs and the asynchronous units see the initialisation only behind this fence.
  if (g.arch() >= 90) e.emit(Op::fence_mbarrier_init, {Mod::release, Mod::cluster}, {});
  e.leave_scope();
  e.bind(end);
  g.bind(op.result(), BarrierView{offset, {}});
}

void emit_MbarrierAt(Generator& g, const ir::Op& op) {
  BarrierView view = g.get<BarrierView>(op.operands[0]);
  const Integer i = g.ints().narrow(g.integer(op.operands[1]));
  if (i.is_constant())
    view.offset += i.constant() * kBarrierBytes;
  else
    view.terms.push_back({i, kBarrierBytes});
  g.bind(op.result(), std::move(view));
}

void emit_MbarrierArrive(Generator& g, const ir::Op& op) {
  raise_version(g, op);
  const int64_t count = op.int_attr("count", 1);
  const std::vector<Suffix> words = arrival_words(g, op, {});
  const Operand barrier = barrier_operand(g, g.get<BarrierView>(op.operands[0]));
  if (g.arch() >= 90) {
    if (count == 1)
      g.e().emit(Op::mbarrier_arrive, words, std::array<Operand, 2>{ptx::sink(), barrier});
    else
      g.e().emit(Op::mbarrier_arrive, words, std::array<Operand, 3>{ptx::sink(), barrier, count});
    return;
  }
  // sm_80 arrives one at a time, and wants the state taken.
  for (int64_t i = 0; i < count; ++i)
    g.e().emit(Op::mbarrier_arrive, words, std::array<Operand, 2>{ptx::sink(), barrier});
}

void emit_MbarrierArriveExpectTx(Generator& g, const ir::Op& op) {
  g.require_arch(op, 90, "announcing bytes");
  raise_version(g, op);
  const Operand barrier = barrier_operand(g, g.get<BarrierView>(op.operands[0]));
  g.e().emit(Op::mbarrier_arrive, arrival_words(g, op, {Mod::expect_tx}),
             std::array<Operand, 3>{ptx::sink(), barrier, g.scalar(op.operands[1])});
}

void emit_MbarrierExpectTx(Generator& g, const ir::Op& op) {
  g.require_arch(op, 90, "announcing bytes");
  const BarrierView& view = g.get<BarrierView>(op.operands[0]);
  g.e().emit(Op::mbarrier_expect_tx,
             {Mod::relaxed, view.remote ? Mod::cluster : Mod::cta,
              view.remote ? Mod::shared_cluster : Mod::shared_cta, ScalarType::b64},
             {barrier_operand(g, view), g.scalar(op.operands[1])});
}

void emit_MbarrierWait(Generator& g, const ir::Op& op) {
  Emitter& e = g.e();
  // The address and the parity are made before the loop.
  const Operand barrier = own_barrier(g, op);
  const Operand parity = g.scalar(op.operands[1]);
  const std::vector<Suffix> words =
      ordered_words(g, op, {Mod::parity}, Mod::acquire, {Mod::shared_cta, ScalarType::b64});
  const ptx::LabelId again = e.label("wait");
  e.bind(again);
  const Reg done = e.reg(ScalarType::pred);
  e.emit(g.arch() >= 90 ? Op::mbarrier_try_wait : Op::mbarrier_test_wait, words,
         std::array<Operand, 3>{done, barrier, parity});
  e.branch_unless(done, again);
}

}  // namespace imbrex::codegen
