// SPDX-License-Identifier: Apache-2.0
// cvt: between all scalar types, and to and from packed pairs and quadruples of narrow floats.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "vgpu/insns/convert.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "core/scalar_cvt.h"
#include "vgpu/insns/lane_loops-inl.h"
#include "vgpu/program/decode_arith.h"

HWY_BEFORE_NAMESPACE();
namespace imbrex::vgpu::HWY_NAMESPACE {

using arith::Rounding;
using ptx::ScalarType;

/// Integer to integer without .sat: To's value in a register of type Reg.
template <class From>
ExecFunction from_integer(ScalarType to, bool wide) {
  switch (to) {
    case ScalarType::u8:
      return unary<uint32_t, From>([](From a) { return uint32_t{static_cast<uint8_t>(a)}; });
    case ScalarType::s8:
      return wide ? unary<int64_t, From>([](From a) { return int64_t{static_cast<int8_t>(a)}; })
                  : unary<int32_t, From>([](From a) { return int32_t{static_cast<int8_t>(a)}; });
    case ScalarType::u16:
      return unary<uint32_t, From>([](From a) { return uint32_t{static_cast<uint16_t>(a)}; });
    case ScalarType::s16:
      return wide ? unary<int64_t, From>([](From a) { return int64_t{static_cast<int16_t>(a)}; })
                  : unary<int32_t, From>([](From a) { return int32_t{static_cast<int16_t>(a)}; });
    case ScalarType::u32:
      return unary<uint32_t, From>([](From a) { return static_cast<uint32_t>(a); });
    case ScalarType::s32:
      return wide ? unary<int64_t, From>([](From a) { return int64_t{static_cast<int32_t>(a)}; })
                  : unary<int32_t, From>([](From a) { return static_cast<int32_t>(a); });
    case ScalarType::u64:
    case ScalarType::s64:
      return unary<int64_t, From>([](From a) { return static_cast<int64_t>(a); });
    case ScalarType::f32:
      return unary<float, From>([](From a) { return static_cast<float>(a); });
    case ScalarType::f64:
      return unary<double, From>([](From a) { return static_cast<double>(a); });
    default:
      return nullptr;
  }
}

/// Conversions without modifiers (but for .rn to a float, which is what the machine does): loops that
/// vectorise. `wide`: the destination has 64-bit lanes.
ExecFunction plain_conversion(ScalarType to, ScalarType from, bool wide) {
  switch (from) {
    case ScalarType::u8:
      return from_integer<uint8_t>(to, wide);
    case ScalarType::s8:
      return from_integer<int8_t>(to, wide);
    case ScalarType::u16:
      return from_integer<uint16_t>(to, wide);
    case ScalarType::s16:
      return from_integer<int16_t>(to, wide);
    case ScalarType::u32:
      return from_integer<uint32_t>(to, wide);
    case ScalarType::s32:
      return from_integer<int32_t>(to, wide);
    case ScalarType::u64:
      return from_integer<uint64_t>(to, wide);
    case ScalarType::s64:
      return from_integer<int64_t>(to, wide);
    case ScalarType::f16:
      if (to == ScalarType::f32)
        return unary<float, uint16_t>([](uint16_t a) { return arith::f16_to_f32(a); });
      return nullptr;
    case ScalarType::bf16:
      if (to == ScalarType::f32)
        return unary<float, uint16_t>([](uint16_t a) { return arith::bf16_to_f32(a); });
      return nullptr;
    case ScalarType::f32:
      if (to == ScalarType::f16) return unary<uint16_t, float>([](float a) { return arith::f32_to_f16(a); });
      if (to == ScalarType::bf16)
        return unary<uint16_t, float>([](float a) { return arith::f32_to_bf16(a); });
      return nullptr;
    default:
      return nullptr;
  }
}

/// f32 pairs to packed 16-bit floats, nearest even: the first operand goes to the upper half.
ExecFunction plain_pair_conversion(ScalarType to) {
  if (to == ScalarType::f16x2)
    return binary<uint32_t, float, float>([](float a, float b) {
      return uint32_t{arith::f32_to_f16(b)} | uint32_t{arith::f32_to_f16(a)} << 16;
    });
  if (to == ScalarType::bf16x2)
    return binary<uint32_t, float, float>([](float a, float b) {
      return uint32_t{arith::f32_to_bf16(b)} | uint32_t{arith::f32_to_bf16(a)} << 16;
    });
  return nullptr;
}

/// f32 to a signed or unsigned 32-bit integer, rounded toward zero.
ExecFunction truncation(ScalarType to) {
  if (to == ScalarType::s32)
    return unary<int32_t, float>(
        [](float a) { return arith::float_to_int<int32_t>(a, Rounding::kTowardZero); });
  if (to == ScalarType::u32)
    return unary<uint32_t, float>(
        [](float a) { return arith::float_to_int<uint32_t>(a, Rounding::kTowardZero); });
  return nullptr;
}

}  // namespace imbrex::vgpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace imbrex::vgpu {

HWY_EXPORT(plain_conversion);
HWY_EXPORT(plain_pair_conversion);
HWY_EXPORT(truncation);

namespace {

using arith::CvtOp;
using arith::Rounding;
using ptx::Mod;
using ptx::ScalarType;

/// A type of cvt: what one element is, how many there are, and how many bits one takes in the register.
struct Format {
  DataType element;
  int count = 1;
  int bits = 32;
};

std::optional<Format> format_of(ScalarType type) {
  switch (type) {
    case ScalarType::u8:
      return Format{uint8, 1, 8};
    case ScalarType::s8:
      return Format{int8, 1, 8};
    case ScalarType::u16:
      return Format{uint16, 1, 16};
    case ScalarType::s16:
      return Format{int16, 1, 16};
    case ScalarType::u32:
      return Format{uint32, 1, 32};
    case ScalarType::s32:
      return Format{int32, 1, 32};
    case ScalarType::u64:
      return Format{uint64, 1, 64};
    case ScalarType::s64:
      return Format{int64, 1, 64};
    case ScalarType::f16:
      return Format{float16, 1, 16};
    case ScalarType::bf16:
      return Format{bfloat16, 1, 16};
    case ScalarType::f32:
      return Format{float32, 1, 32};
    case ScalarType::f64:
      return Format{float64, 1, 64};
    case ScalarType::tf32:
      return Format{tfloat32, 1, 32};
    case ScalarType::f16x2:
      return Format{float16, 2, 16};
    case ScalarType::bf16x2:
      return Format{bfloat16, 2, 16};
    case ScalarType::e4m3x2:
      return Format{float8_e4m3, 2, 8};
    case ScalarType::e5m2x2:
      return Format{float8_e5m2, 2, 8};
    case ScalarType::e2m3x2:
      return Format{float6_e2m3, 2, 8};
    case ScalarType::e3m2x2:
      return Format{float6_e3m2, 2, 8};
    case ScalarType::e2m1x2:
      return Format{float4_e2m1, 2, 4};
    case ScalarType::ue8m0x2:
      return Format{float8_e8m0, 2, 8};
    case ScalarType::e4m3x4:
      return Format{float8_e4m3, 4, 8};
    case ScalarType::e5m2x4:
      return Format{float8_e5m2, 4, 8};
    case ScalarType::e2m3x4:
      return Format{float6_e2m3, 4, 8};
    case ScalarType::e3m2x4:
      return Format{float6_e3m2, 4, 8};
    case ScalarType::e2m1x4:
      return Format{float4_e2m1, 4, 4};
    default:
      return std::nullopt;
  }
}

/// `extra` of conversions that are not plain.
struct Conversion {
  CvtOp op;
  Format to, from;
  bool stochastic = false;
  int random_bits = 0;  // of the third operand used for each element
  int source_lane_bytes = 4, lane_bytes = 4;
  std::vector<Slot>
      sources;  // one packed (or scalar) register, or one f32 register per element, uppermost first
  Slot random = 0;
};

uint64_t convert_one(const Conversion& c, uint64_t bits, uint32_t random) {
  if (!c.stochastic) return arith::cvt(c.op, bits);
  return arith::encode_stochastic(arith::float_format(c.op.to),
                                  std::bit_cast<float>(static_cast<uint32_t>(bits)), random, c.random_bits,
                                  c.op.satfinite, c.op.relu);
}

uint64_t read_slot(Warp& w, Slot slot, int lane_bytes, int lane) {
  return lane_bytes == 8 ? w.reg<uint64_t>(slot)[lane] : w.reg<uint32_t>(slot)[lane];
}

Step exec_cvt(Warp& w, const Instruction& n, Mask active) {
  const Conversion& c = *static_cast<const Conversion*>(n.extra);
  for_each_lane(active, [&](int lane) {
    const uint32_t random = c.stochastic ? w.reg<uint32_t>(c.random)[lane] : 0;
    uint64_t result = 0;
    for (int e = 0; e < c.to.count; ++e) {
      uint64_t bits;
      if (c.sources.size() == 1)
        bits = read_slot(w, c.sources[0], c.source_lane_bytes, lane) >> (e * c.from.bits);
      else
        bits = w.reg<uint32_t>(c.sources[c.sources.size() - 1 - static_cast<size_t>(e)])[lane];
      // Elements of a pair take the low and the high random bits, those of a quadruple share them two by two.
      const uint32_t part = random >> (e % 2 * 16);
      const uint64_t one = convert_one(c, bits, part);
      result |= c.to.count == 1 ? one : (one & ((uint64_t{1} << c.to.bits) - 1)) << (e * c.to.bits);
    }
    if (c.to.count == 1 && c.to.element.is_integer() && c.to.element.is_signed() && c.to.bits < 64) {
      const int shift = 64 - c.to.bits;
      result = static_cast<uint64_t>(static_cast<int64_t>(result << shift) >> shift);
    }
    if (c.lane_bytes == 8)
      w.reg<uint64_t>(n.d)[lane] = result;
    else
      w.reg<uint32_t>(n.d)[lane] = static_cast<uint32_t>(result);
  });
  return Step::kNext;
}

CvtOp operation(const ptx::Instruction& insn, const Format& to, const Format& from) {
  CvtOp op{to.element, from.element};
  switch (insn.one_of({Mod::rn, Mod::rz, Mod::rm, Mod::rp, Mod::rna, Mod::rni, Mod::rzi, Mod::rmi, Mod::rpi},
                      Mod::rs)) {
    case Mod::rz:
      op.rounding = Rounding::kTowardZero;
      break;
    case Mod::rm:
      op.rounding = Rounding::kDown;
      break;
    case Mod::rp:
      op.rounding = Rounding::kUp;
      break;
    case Mod::rna:
      op.rounding = Rounding::kNearestAway;
      break;
    case Mod::rni:
      op.integral = true;
      break;
    case Mod::rzi:
      op.integral = true;
      op.rounding = Rounding::kTowardZero;
      break;
    case Mod::rmi:
      op.integral = true;
      op.rounding = Rounding::kDown;
      break;
    case Mod::rpi:
      op.integral = true;
      op.rounding = Rounding::kUp;
      break;
    default:
      break;
  }
  op.ftz = insn.has(Mod::ftz);
  op.sat = insn.has(Mod::sat);
  op.satfinite = insn.has(Mod::satfinite);
  op.relu = insn.has(Mod::relu);
  return op;
}

ExecFunction plain_body(const ptx::Instruction& insn, ScalarType to, ScalarType from, int lane_bytes,
                        size_t sources) {
  if (insn.has(Mod::ftz) || insn.has(Mod::sat) || insn.has(Mod::satfinite) || insn.has(Mod::relu))
    return nullptr;
  const Mod rounding = insn.one_of(
      {Mod::rn, Mod::rz, Mod::rm, Mod::rp, Mod::rna, Mod::rs, Mod::rni, Mod::rzi, Mod::rmi, Mod::rpi},
      Mod::approx);
  if (rounding == Mod::rzi && from == ScalarType::f32 && lane_bytes == 4)
    return HWY_DYNAMIC_DISPATCH(truncation)(to);
  if (rounding != Mod::rn && rounding != Mod::approx) return nullptr;
  if (sources == 2 && from == ScalarType::f32) return HWY_DYNAMIC_DISPATCH(plain_pair_conversion)(to);
  const bool wide = lane_bytes == 8;
  // A narrow unsigned or 16-bit float result in a wide register is left to the general body.
  const bool narrow = ptx::bits(to) < 64 && wide && !(ptx::is_signed(to) && !ptx::is_float(to));
  if (narrow) return nullptr;
  return HWY_DYNAMIC_DISPATCH(plain_conversion)(to, from, wide);
}

}  // namespace

bool decode_convert(Decoder& d, Instruction& out) {
  const ptx::Instruction& insn = d.insn();
  const ScalarType to = insn.type(0), from = insn.type(1);
  const std::optional<Format> to_format = format_of(to), from_format = format_of(from);
  if (!to_format.has_value() || !from_format.has_value()) return false;
  if (insn.has(Mod::scaled_n2_ue8m0)) d.refuse("scaled conversions are not modelled");
  Conversion c;
  c.to = *to_format;
  c.from = *from_format;
  c.op = operation(insn, c.to, c.from);
  c.stochastic = insn.has(Mod::rs);
  c.lane_bytes = d.lane_bytes(d.operand(0), to);
  out.d = d.destination(0, to);
  size_t next = 1;
  if (d.operand(1).kind == ptx::OperandKind::vector) {
    for (const ptx::Operand& o : d.elements(d.operand(next))) c.sources.push_back(d.source(o, from));
    ++next;
  } else {
    c.source_lane_bytes = d.lane_bytes(d.operand(1), from);
    const int wanted = c.from.count == c.to.count ? 1 : c.to.count;
    for (int i = 0; i < wanted; ++i) c.sources.push_back(d.source(next++, from));
  }
  if (c.stochastic) {
    c.random = d.source(next, ScalarType::b32);
    c.random_bits = c.to.element == float16 ? 13 : c.to.element == float4_e2m1 ? 8 : 16;
  }
  const size_t sources = c.sources.size();
  out.a = c.sources[0];
  out.b = sources > 1 ? c.sources[1] : out.a;
  // Sources in a register wider than their type are left to the general body, too.
  const bool same_width = c.source_lane_bytes == (ptx::bits(from) == 64 ? 8 : 4);
  const ExecFunction plain = same_width ? plain_body(insn, to, from, c.lane_bytes, sources) : nullptr;
  if (plain != nullptr) {
    set_body(out, plain);
    return true;
  }
  set_body(out, exec_cvt);
  out.extra = d.keep(std::move(c));
  return true;
}

}  // namespace imbrex::vgpu
#endif  // HWY_ONCE
