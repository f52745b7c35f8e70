// SPDX-License-Identifier: Apache-2.0
#include "imbrex/lang/mbarrier.h"

#include <fmt/format.h>

#include "imbrex/lang/fence.h"
#include "lang/arithmetic.h"

namespace imbrex {

using lang::Instruction;

namespace {

ir::Type barrier_type(std::vector<int64_t> shape) {
  return ir::Type::tensor(ir::TypeKind::kBarrier, uint64, std::move(shape));
}

/// The attributes sem and scope, which come together; `strong` is what the operation means when it is not
/// relaxed.
std::vector<ir::Attr> ordering(const Instruction& at, Sem strong, Sem sem, Scope scope) {
  if (sem == Sem::kAcqRel || scope == Scope::kGpu || scope == Scope::kSystem)
    at.fail("barriers order the threads of a CTA or of a cluster, by acquire or release", {},
            "use Scope::kCta or Scope::kCluster");
  static constexpr const char* kSem[] = {"", "relaxed", "acquire", "release"};
  static constexpr const char* kScope[] = {"cta", "cta", "cluster"};
  if (sem == Sem::kDefault && scope == Scope::kDefault) return {};
  if (sem == Sem::kDefault) sem = strong;
  return {{"sem", std::string(kSem[static_cast<int>(sem)])},
          {"scope", std::string(kScope[static_cast<int>(scope)])}};
}

}  // namespace

Barrier BarrierArray::operator[](const ScalarArg& i) const {
  const Instruction at("[]", i.where);
  ir::Value* array = at.use(handle_);
  ir::Value* index = lang::index_value(at, i);
  return Barrier(at.handle(at.emit(ir::Opcode::kMbarrierAt, {array, index}, {barrier_type({})})->result()));
}

namespace mbarrier {

BarrierArray alloc(const std::vector<int64_t>& counts, SourceLocation where) {
  return alloc(counts, "", where);
}

BarrierArray alloc(const std::vector<int64_t>& counts, std::string_view member, SourceLocation where) {
  const Instruction at("mbarrier::alloc", where);
  const int64_t size = static_cast<int64_t>(counts.size());
  ir::Value* result =
      at.emit(ir::Opcode::kMbarrierAlloc, {}, {barrier_type({size})}, {{"counts", counts}})->result();
  if (member.empty()) at.name_result(result);
  if (result->name.empty()) at.name_member(result, member);
  return BarrierArray(at.handle(result), size);
}

BarrierArray alloc(std::initializer_list<int64_t> counts, SourceLocation where) {
  return alloc(std::vector<int64_t>(counts), where);
}

Barrier alloc(int64_t count, SourceLocation where) {
  return alloc(std::vector<int64_t>{count}, where)[ScalarArg(0, where)];
}

void arrive(const Barrier& barrier, const ArriveOptions& options, SourceLocation where) {
  const Instruction at("mbarrier::arrive", where);
  std::vector<ir::Attr> attrs = ordering(at, Sem::kRelease, options.sem, options.scope);
  if (options.count != 1) attrs.push_back({"count", options.count});
  at.emit(ir::Opcode::kMbarrierArrive, {at.use(barrier.handle())}, {}, std::move(attrs));
}

void arrive_and_expect_tx(const Barrier& barrier, const ScalarArg& bytes, const ExpectOptions& options,
                          SourceLocation where) {
  const Instruction at("mbarrier::arrive_and_expect_tx", where);
  ir::Value* count = lang::materialize(at, bytes, uint32);
  std::vector<ir::Attr> attrs = ordering(at, Sem::kRelease, options.sem, options.scope);
  if (options.each_thread) attrs.push_back({"each_thread", true});
  at.emit(ir::Opcode::kMbarrierArriveExpectTx, {at.use(barrier.handle()), count}, {}, std::move(attrs));
}

void expect_tx(const Barrier& barrier, const ScalarArg& bytes, SourceLocation where) {
  const Instruction at("mbarrier::expect_tx", where);
  ir::Value* count = lang::materialize(at, bytes, uint32);
  at.emit(ir::Opcode::kMbarrierExpectTx, {at.use(barrier.handle()), count});
}

void wait(const Barrier& barrier, const ScalarArg& phase, const Options& options, SourceLocation where) {
  const Instruction at("mbarrier::wait", where);
  if (auto n = lang::number(phase); n && *n != 0 && *n != 1)
    at.fail(fmt::format("phase {}; a parity is 0 or 1", *n));
  ir::Value* parity = lang::materialize(at, phase, uint32);
  at.emit(ir::Opcode::kMbarrierWait, {at.use(barrier.handle()), parity}, {},
          ordering(at, Sem::kAcquire, options.sem, options.scope));
}

}  // namespace mbarrier

void fence::proxy_async(Space space, SourceLocation where) {
  static constexpr const char* kSpace[] = {"shared", "global", "all"};
  Instruction("fence::proxy_async", where)
      .emit(ir::Opcode::kFenceProxyAsync, {}, {}, {{"space", std::string(kSpace[static_cast<int>(space)])}});
}

}  // namespace imbrex
