// SPDX-License-Identifier: Apache-2.0
// Faults in who does what, how often and with how many registers: thread groups, elections, trip counts.
#include "mutants/rules.h"

namespace imbrex::mutants {
namespace {

using ptx::Mod;
using ptx::Op;

/// `setp.eq %p, warp, k` whose predicate decides a branch around a role: a group of warps. The first warp's
/// part in allocating and initialising is none.
/// `waits`: only those that wait for an mbarrier, so that others notice when nobody does the work.
bool is_role(const Places& places, size_t i, bool waits = false) {
  const ptx::Instruction& test = places.f.body[i];
  if (test.op != Op::setp || i + 1 >= places.f.body.size() || !is_branch(places.f.body[i + 1])) return false;
  const ptx::Instruction& branch = places.f.body[i + 1];
  if (!branch.guard.is_valid() || target_of(places.f, branch) <= i) return false;
  const auto group = definition_before(places.f, i, places.operand(i, 1).reg());
  if (!group || places.f.body[*group].op != Op::shfl_sync) return false;
  for (size_t k = i; k < target_of(places.f, branch); ++k)
    if (is_wait(places.f, k) || (!waits && places.f.body[k].op == Op::cp_async_bulk_tensor)) return true;
  return false;
}
template <int kMore>
void other_warp(Places& places) {
  places.each(Op::setp, [&](size_t i) {
    if (is_role(places, i, kMore < 0) && places.operand(i, 2).value + kMore >= 0)
      places.add(i, [&](Edit& e) { e.operand(i, 2).value += kMore; });
  });
}
/// Two warps in place of one take the role.
void two_warps(Places& places) {
  places.each(Op::setp, [&](size_t i) {
    if (!is_role(places, i) || !places.f.body[i].has(Mod::eq)) return;
    places.add(i, [&](Edit& e) {
      // warp / 2 == role / 2
      const ptx::Reg half = e.fresh(ptx::ScalarType::b32);
      e.insert(i, Op::shr, {ptx::ScalarType::u32}, {half, e.operand(i, 1), 1});
      e.operand(i + 1, 1) = half;
      e.operand(i + 1, 2).value /= 2;
    });
  });
}

/// elect.sync chooses everybody.
void no_election(Places& places) {
  places.each(Op::elect_sync, [&](size_t i) {
    ptx::Reg chosen;
    for (const ptx::Operand& element : places.f.elements_of(places.operand(i, 0)))
      if (element.is_reg()) chosen = element.reg();
    places.add(i, [&](Edit& e) {
      e.insert(i + 1, Op::setp, {Mod::eq, ptx::ScalarType::u32}, {chosen, 0, 0});
    });
  });
}

/// Loops that wait for barriers: `setp.lt %p, index, end; @%p bra START`.
template <int kMore>
void trips(Places& places) {
  places.each(Op::setp, [&](size_t i) {
    if (i + 1 >= places.f.body.size() || !is_branch(places.f.body[i + 1]) || !places.f.body[i].has(Mod::lt) ||
        !places.operand(i, 2).is_immediate())
      return;
    const size_t begin = target_of(places.f, places.f.body[i + 1]);
    bool waits = false, copies = false, multiplies = false;
    for (size_t k = begin; k < i; ++k) {
      const Op op = places.f.body[k].op;
      waits |= is_wait(places.f, k);
      copies |= op == Op::cp_async_bulk_tensor || op == Op::cp_async;
      multiplies |= op == Op::tcgen05_mma || op == Op::wgmma_mma_async;
    }
    // A loop that both loads and multiplies is wrong in its numbers alone: no other role disagrees with it.
    if (!waits || (copies && multiplies)) return;
    const auto step = definition_before(places.f, i, places.operand(i, 1).reg());
    if (!step || !places.operand(*step, 2).is_immediate()) return;
    const int64_t by = places.operand(*step, 2).value;
    places.add(i, [&](Edit& e) { e.operand(i, 2).value += kMore * by; });
  });
}

/// Warps that need few registers keep theirs, and those that ask for more wait for them.
void keep_registers(Places& places) {
  places.each(Op::setmaxnreg, [&](size_t i) {
    if (places.f.body[i].has(Mod::dec)) places.add(i, [&](Edit& e) { e.erase(i); });
  });
}

constexpr Rule kRules[] = {
    {"next-warp", "a role is taken by the next warp", other_warp<1>},
    {"previous-warp", "a role is taken by the warp before", other_warp<-1>},
    {"two-warps", "a role of one warp is taken by two", two_warps},
    {"no-election", "elect.sync chooses every lane", no_election},
    {"one-trip-more", "a role's loop runs once too often", trips<1>},
    {"one-trip-less", "a role's loop runs once too rarely", trips<-1>},
    {"keep-registers", "a setmaxnreg.dec is left out", keep_registers},
};

}  // namespace

std::span<const Rule> role_rules() { return kRules; }

}  // namespace imbrex::mutants
