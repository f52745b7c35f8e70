// SPDX-License-Identifier: Apache-2.0
// Bit fiddling: popc, clz, bfind, fns, brev, bfe, bfi, szext, bmsk, prmt, cvt.pack.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "vgpu/insns/bits.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "core/scalar_cvt.h"
#include "core/scalar_int.h"
#include "vgpu/insns/lane_loops-inl.h"
#include "vgpu/insns/small_facts.h"
#include "vgpu/program/decode_arith.h"

HWY_BEFORE_NAMESPACE();
namespace imbrex::vgpu::HWY_NAMESPACE {

using arith::PermuteMode;
using ptx::Mod;
using ptx::Op;
using ptx::ScalarType;

template <class T>
ExecFunction count_body(Op op) {
  switch (op) {
    case Op::popc:
      return unary<uint32_t, T>([](T a) { return arith::popc(a); });
    case Op::clz:
      return unary<uint32_t, T>([](T a) { return arith::clz(a); });
    case Op::bfind:
      return unary<uint32_t, T>(
          [](const Instruction& n, T a) { return arith::bfind(a, n.small[BitsSmall::kOption] != 0); });
    case Op::brev:
      return unary<T>([](T a) { return arith::brev(a); });
    case Op::bfe:
      return ternary<T, T, uint32_t, uint32_t>(
          [](T a, uint32_t b, uint32_t c) { return arith::bfe(a, b, c); });
    case Op::bfi:
      return quaternary<T, T, T, uint32_t, uint32_t>(
          [](T a, T b, uint32_t c, uint32_t d) { return arith::bfi(a, b, c, d); });
    default:
      return nullptr;
  }
}

ExecFunction word_body(const ptx::Instruction& insn) {
  using T = uint32_t;
  switch (insn.op) {
    case Op::fns:
      return ternary<T, T, T, int32_t>(
          [](T mask, T base, int32_t offset) { return arith::fns(mask, base, offset); });
    case Op::szext:
      if (insn.type() == ScalarType::s32)
        return binary<int32_t, int32_t, T>([](const Instruction& n, int32_t a, T b) {
          return arith::szext(a, b, n.small[BitsSmall::kOption] != 0);
        });
      return binary<T>([](const Instruction& n, T a, T b) {
        return arith::szext(a, b, n.small[BitsSmall::kOption] != 0);
      });
    case Op::bmsk:
      return binary<T>(
          [](const Instruction& n, T a, T b) { return arith::bmsk(a, b, n.small[BitsSmall::kOption] != 0); });
    case Op::prmt:
      return ternary<T>([](const Instruction& n, T a, T b, T c) {
        return arith::prmt(a, b, c, static_cast<PermuteMode>(n.small[BitsSmall::kOption]));
      });
    case Op::cvt_pack:
      return ternary<T, int32_t, int32_t, T>([](const Instruction& n, int32_t a, int32_t b, T c) {
        return arith::cvt_pack(a, b, c, n.small[BitsSmall::kOption], n.small[BitsSmall::kIsSigned] != 0);
      });
    default:
      return nullptr;
  }
}

ExecFunction bits_body(const ptx::Instruction& insn) {
  if (ExecFunction body = word_body(insn)) return body;
  switch (insn.type()) {
    case ScalarType::b32:
    case ScalarType::u32:
      return count_body<uint32_t>(insn.op);
    case ScalarType::s32:
      return count_body<int32_t>(insn.op);
    case ScalarType::b64:
    case ScalarType::u64:
      return count_body<uint64_t>(insn.op);
    case ScalarType::s64:
      return count_body<int64_t>(insn.op);
    default:
      return nullptr;
  }
}

}  // namespace imbrex::vgpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace imbrex::vgpu {

HWY_EXPORT(bits_body);

bool decode_bits(Decoder& d, Instruction& out) {
  using arith::PermuteMode;
  using ptx::Mod;
  using ptx::Op;
  using ptx::ScalarType;
  const ptx::Instruction& insn = d.insn();
  const ExecFunction body = HWY_DYNAMIC_DISPATCH(bits_body)(insn);
  if (body == nullptr) return false;
  set_body(out, body);
  const ScalarType type = insn.type(), u32 = ScalarType::u32;
  switch (insn.op) {
    case Op::popc:
    case Op::clz:
    case Op::bfind:
      take_operands(d, out, u32, {type});
      out.small[BitsSmall::kOption] = insn.has(Mod::shiftamt) ? 1 : 0;
      break;
    case Op::brev:
      take_operands(d, out, type, {type});
      break;
    case Op::bfe:
      take_operands(d, out, type, {type, u32, u32});
      break;
    case Op::bfi:
      take_operands(d, out, type, {type, type, u32, u32});
      break;
    case Op::fns:
      take_operands(d, out, u32, {u32, u32, ScalarType::s32});
      break;
    case Op::szext:
    case Op::bmsk:
      take_operands(d, out, type, {type, u32});
      out.small[BitsSmall::kOption] = insn.has(Mod::wrap) ? 1 : 0;
      break;
    case Op::prmt: {
      static constexpr std::pair<Mod, PermuteMode> kModes[] = {
          {Mod::f4e, PermuteMode::kF4e}, {Mod::b4e, PermuteMode::kB4e}, {Mod::rc8, PermuteMode::kRc8},
          {Mod::ecl, PermuteMode::kEcl}, {Mod::ecr, PermuteMode::kEcr}, {Mod::rc16, PermuteMode::kRc16}};
      for (const auto& [mod, mode] : kModes)
        if (insn.has(mod)) out.small[BitsSmall::kOption] = static_cast<uint8_t>(mode);
      take_operands(d, out, type, {type, type, type});
      break;
    }
    default:  // cvt.pack
      out.small[BitsSmall::kOption] = static_cast<uint8_t>(ptx::bits(type));
      out.small[BitsSmall::kIsSigned] = ptx::is_signed(type) ? 1 : 0;
      out.d = d.destination(0, ScalarType::b32);
      out.a = d.source(1, ScalarType::s32);
      out.b = d.source(2, ScalarType::s32);
      out.c = d.operand_count() > 3 ? d.source(3, ScalarType::b32) : d.constant32(0);
      break;
  }
  return true;
}

}  // namespace imbrex::vgpu
#endif  // HWY_ONCE
