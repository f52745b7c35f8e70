// SPDX-License-Identifier: Apache-2.0
// Which family recognises which instruction. What is not listed is not modelled, and refused when a module is
// loaded.
#include "vgpu/decode.h"

namespace imbrex::vgpu {

std::initializer_list<DecodeFunction> families_of(ptx::Op op) {
  using ptx::Op;
  // One static list per group of instructions: an initializer_list does not own its elements.
  static constexpr std::initializer_list<DecodeFunction> kArithmetic = {decode_integer,
                                                                        decode_floating_point};
  static constexpr std::initializer_list<DecodeFunction> kInteger = {decode_integer};
  static constexpr std::initializer_list<DecodeFunction> kFloatingPoint = {decode_floating_point};
  static constexpr std::initializer_list<DecodeFunction> kLogicShift = {decode_logic_shift};
  static constexpr std::initializer_list<DecodeFunction> kCompareSelect = {decode_compare_select};
  static constexpr std::initializer_list<DecodeFunction> kMove = {decode_move};
  static constexpr std::initializer_list<DecodeFunction> kLoadStore = {decode_load_store};
  static constexpr std::initializer_list<DecodeFunction> kAddressing = {decode_addressing};
  static constexpr std::initializer_list<DecodeFunction> kControl = {decode_control};
  switch (op) {
    case Op::add:
    case Op::sub:
    case Op::mul:
    case Op::mad:
    case Op::div:
    case Op::abs:
    case Op::neg:
    case Op::min:
    case Op::max:
      return kArithmetic;
    case Op::mul24:
    case Op::mad24:
    case Op::sad:
    case Op::rem:
    case Op::dp4a:
    case Op::dp2a:
    case Op::addc:
    case Op::subc:
    case Op::madc:
      return kInteger;
    case Op::fma:
    case Op::rcp:
    case Op::sqrt:
    case Op::rsqrt:
    case Op::sin:
    case Op::cos:
    case Op::lg2:
    case Op::ex2:
    case Op::tanh:
    case Op::copysign:
      return kFloatingPoint;
    case Op::and_:
    case Op::or_:
    case Op::xor_:
    case Op::not_:
    case Op::cnot:
    case Op::lop3:
    case Op::shf:
    case Op::shl:
    case Op::shr:
      return kLogicShift;
    case Op::setp:
    case Op::set:
    case Op::selp:
    case Op::slct:
    case Op::testp:
      return kCompareSelect;
    case Op::mov:
      return kMove;
    case Op::ld:
    case Op::ldu:
    case Op::st:
      return kLoadStore;
    case Op::cvta:
    case Op::isspacep:
    case Op::mapa:
    case Op::getctarank:
    case Op::prefetch:
    case Op::prefetchu:
    case Op::applypriority:
    case Op::createpolicy:
      return kAddressing;
    case Op::bra:
    case Op::brx_idx:
    case Op::call:
    case Op::ret:
    case Op::exit:
    case Op::trap:
    case Op::brkpt:
      return kControl;
    default:
      return unit_families_of(op);
  }
}

}  // namespace imbrex::vgpu
