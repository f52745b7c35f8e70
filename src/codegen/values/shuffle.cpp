// SPDX-License-Identifier: Apache-2.0
#include "codegen/values/shuffle.h"

namespace imbrex::codegen {

int64_t members_of(const Group& group) {
  if (group.threads >= 32) return -1;
  return static_cast<int32_t>(((1u << group.threads) - 1) << (group.begin % 32));
}

Operand shuffle(Generator& g, Mod mode, ScalarType reg, const Operand& value, const Operand& lane,
                int64_t clamp, int64_t members) {
  Emitter& e = g.e();
  const auto word = [&](ScalarType type, const Operand& of) {
    return e.make(type, Op::shfl_sync, {mode, ScalarType::b32}, {of, lane, clamp, members});
  };
  const Operand in = e.to_register(reg, value);
  if (reg == ScalarType::pred) {
    const Reg bit = e.make(ScalarType::b32, Op::selp, {ScalarType::b32}, {1, 0, in});
    return e.make(ScalarType::pred, Op::setp, {Mod::ne, ScalarType::u32}, {word(ScalarType::b32, bit), 0});
  }
  if (reg == ScalarType::b16) {
    const Reg wide = e.make(ScalarType::b32, Op::cvt, {ScalarType::u32, ScalarType::u16}, {in});
    return e.make(ScalarType::b16, Op::cvt, {ScalarType::u16, ScalarType::u32},
                  {word(ScalarType::b32, wide)});
  }
  if (reg != ScalarType::b64 && reg != ScalarType::f64) return word(reg, in);
  const Reg low = e.reg(ScalarType::b32), high = e.reg(ScalarType::b32);
  e.emit(Op::mov, {ScalarType::b64}, {e.builder().vec({low, high}), in});
  const Operand other_low = word(ScalarType::b32, low), other_high = word(ScalarType::b32, high);
  const Reg other = e.reg(reg);
  e.emit(Op::mov, {ScalarType::b64}, {other, e.builder().vec({other_low, other_high})});
  return other;
}

}  // namespace imbrex::codegen
