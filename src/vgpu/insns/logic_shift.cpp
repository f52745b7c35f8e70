// SPDX-License-Identifier: Apache-2.0
// Logic and shifts: and, or, xor, not, cnot (bits and predicates), lop3, shf, shl, shr.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "vgpu/insns/logic_shift.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "core/scalar_int.h"
#include "vgpu/insns/lane_loops-inl.h"
#include "vgpu/insns/small_facts.h"
#include "vgpu/program/decode_arith.h"

HWY_BEFORE_NAMESPACE();
namespace imbrex::vgpu::HWY_NAMESPACE {

using ptx::Mod;
using ptx::Op;
using ptx::ScalarType;

template <class T>
ExecFunction logic_body(Op op) {
  switch (op) {
    case Op::and_:
      return binary<T>([](T a, T b) { return static_cast<T>(a & b); });
    case Op::or_:
      return binary<T>([](T a, T b) { return static_cast<T>(a | b); });
    case Op::xor_:
      return binary<T>([](T a, T b) { return static_cast<T>(a ^ b); });
    case Op::not_:
      return unary<T>([](T a) { return static_cast<T>(~a); });
    case Op::cnot:
      return unary<T>([](T a) { return static_cast<T>(a == 0 ? 1 : 0); });
    case Op::shl:
      return binary<T, T, uint32_t>([](T a, uint32_t b) { return arith::shl(a, b); });
    case Op::shr:
      return binary<T, T, uint32_t>([](T a, uint32_t b) { return arith::shr(a, b); });
    default:
      return nullptr;
  }
}

ExecFunction funnel_body(bool left, bool clamp) {
  using T = uint32_t;
  if (left)
    return clamp ? ternary<T>([](T a, T b, T c) { return arith::shf_l_clamp(a, b, c); })
                 : ternary<T>([](T a, T b, T c) { return arith::shf_l_wrap(a, b, c); });
  return clamp ? ternary<T>([](T a, T b, T c) { return arith::shf_r_clamp(a, b, c); })
               : ternary<T>([](T a, T b, T c) { return arith::shf_r_wrap(a, b, c); });
}

ExecFunction logic_shift_body(const ptx::Instruction& insn) {
  if (insn.op == Op::shf) return funnel_body(insn.has(Mod::l), insn.has(Mod::clamp));
  if (insn.op == Op::lop3)
    return ternary<uint32_t>([](const Instruction& n, uint32_t a, uint32_t b, uint32_t c) {
      return arith::lop3(a, b, c, n.small[Lop3Small::kTable]);
    });
  switch (insn.type()) {
    case ScalarType::b16:
    case ScalarType::u16:
      return logic_body<uint16_t>(insn.op);
    case ScalarType::b32:
    case ScalarType::u32:
      return logic_body<uint32_t>(insn.op);
    case ScalarType::b64:
    case ScalarType::u64:
      return logic_body<uint64_t>(insn.op);
    case ScalarType::s16:
      return logic_body<int16_t>(insn.op);
    case ScalarType::s32:
      return logic_body<int32_t>(insn.op);
    case ScalarType::s64:
      return logic_body<int64_t>(insn.op);
    default:
      return nullptr;
  }
}

}  // namespace imbrex::vgpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace imbrex::vgpu {

HWY_EXPORT(logic_shift_body);

namespace {

using ptx::Mod;
using ptx::Op;
using ptx::ScalarType;

void write_predicate(Warp& w, Slot d, Mask active, Mask value) {
  Mask& out = w.predicate(d);
  out = (out & ~active) | (value & active);
}

template <class F>
Step exec_predicates(Warp& w, const Instruction& n, Mask active) {
  const Mask a = w.predicate(n.a) ^ (n.small[PredicateSmall::kInvertA] != 0 ? kAllLanes : 0);
  const Mask b = w.predicate(n.b) ^ (n.small[PredicateSmall::kInvertB] != 0 ? kAllLanes : 0);
  write_predicate(w, n.d, active, F{}(a, b));
  return Step::kNext;
}
template <class F>
ExecFunction predicates(F) {
  return &exec_predicates<F>;
}

ExecFunction predicate_body(Op op) {
  switch (op) {
    case Op::and_:
      return predicates([](Mask a, Mask b) { return a & b; });
    case Op::or_:
      return predicates([](Mask a, Mask b) { return a | b; });
    case Op::xor_:
      return predicates([](Mask a, Mask b) { return a ^ b; });
    case Op::not_:
      return predicates([](Mask a, Mask) { return ~a; });
    default:
      return nullptr;
  }
}

/// lop3.BoolOp: the value as lop3, and p = (value != 0) BoolOp q. list: p, q.
Step exec_lop3_predicate(Warp& w, const Instruction& n, Mask active) {
  Mask nonzero = 0;
  for_each_lane(active, [&](int i) {
    const uint32_t value = arith::lop3(w.reg<uint32_t>(n.a)[i], w.reg<uint32_t>(n.b)[i],
                                       w.reg<uint32_t>(n.c)[i], n.small[Lop3Small::kTable]);
    w.reg<uint32_t>(n.d)[i] = value;
    if (value != 0) nonzero |= lane_bit(i);
  });
  const Mask q = w.predicate(n.list[1]) ^ (n.small[Lop3Small::kInvertPredicate] != 0 ? kAllLanes : 0);
  write_predicate(w, n.list[0], active, n.small[Lop3Small::kIsAnd] != 0 ? nonzero & q : nonzero | q);
  return Step::kNext;
}

bool decode_predicates(Decoder& d, Instruction& out) {
  const ExecFunction body = predicate_body(d.op());
  if (body == nullptr) return false;
  set_body(out, body);
  out.d = d.predicate_destination(d.operand(0));
  const PredicateSource a = d.predicate(1);
  out.a = out.b = a.slot;
  out.small[PredicateSmall::kInvertA] = a.flip != 0 ? 1 : 0;
  if (d.operand_count() > 2) {
    const PredicateSource b = d.predicate(2);
    out.b = b.slot;
    out.small[PredicateSmall::kInvertB] = b.flip != 0 ? 1 : 0;
  }
  return true;
}

bool decode_lop3_predicate(Decoder& d, Instruction& out) {
  set_body(out, exec_lop3_predicate);
  const std::span<const ptx::Operand> results = d.elements(d.operand(0));
  out.d = d.destination(results[0], ScalarType::b32);
  const Slot p = d.predicate_destination(results[1]);
  out.a = d.source(1, ScalarType::b32);
  out.b = d.source(2, ScalarType::b32);
  out.c = d.source(3, ScalarType::b32);
  out.small[Lop3Small::kTable] = static_cast<uint8_t>(d.immediate(4, "the truth table"));
  const PredicateSource q = d.predicate(5);
  out.small[Lop3Small::kIsAnd] = d.has(Mod::and_) ? 1 : 0;
  out.small[Lop3Small::kInvertPredicate] = q.flip != 0 ? 1 : 0;
  out.list = d.keep_list({p, q.slot});
  return true;
}

}  // namespace

bool decode_logic_shift(Decoder& d, Instruction& out) {
  const ptx::Instruction& insn = d.insn();
  const ScalarType type = insn.type();
  if (type == ScalarType::pred) return decode_predicates(d, out);
  if (insn.op == Op::lop3 && d.operand(0).kind == ptx::OperandKind::pair)
    return decode_lop3_predicate(d, out);
  const ExecFunction body = HWY_DYNAMIC_DISPATCH(logic_shift_body)(insn);
  if (body == nullptr) return false;
  set_body(out, body);
  switch (insn.op) {
    case Op::lop3:
      take_operands(d, out, type, {type, type, type});
      out.small[Lop3Small::kTable] = static_cast<uint8_t>(d.immediate(4, "the truth table"));
      break;
    case Op::shf:
      take_operands(d, out, type, {type, type, ScalarType::u32});
      break;
    case Op::shl:
    case Op::shr:
      take_operands(d, out, type, {type, ScalarType::u32});
      break;
    case Op::not_:
    case Op::cnot:
      take_operands(d, out, type, {type});
      break;
    default:
      take_operands(d, out, type, {type, type});
      break;
  }
  return true;
}

}  // namespace imbrex::vgpu
#endif  // HWY_ONCE
