// SPDX-License-Identifier: Apache-2.0
// Which family recognises which instruction. What is not listed is not modelled, and refused when a module is
// loaded.
#include "vgpu/program/decode.h"

namespace imbrex::vgpu {

std::initializer_list<DecodeFunction> families_of(ptx::Op op) {
  using ptx::Op;
  // One static list per group of instructions: an initializer_list does not own its elements.
  static constexpr std::initializer_list<DecodeFunction> kArithmetic = {decode_integer, decode_floating_point,
                                                                        decode_half};
  static constexpr std::initializer_list<DecodeFunction> kInteger = {decode_integer};
  static constexpr std::initializer_list<DecodeFunction> kFloatingPoint = {decode_floating_point,
                                                                           decode_half};
  static constexpr std::initializer_list<DecodeFunction> kLogicShift = {decode_logic_shift};
  static constexpr std::initializer_list<DecodeFunction> kCompareSelect = {decode_compare_select};
  static constexpr std::initializer_list<DecodeFunction> kBits = {decode_bits};
  static constexpr std::initializer_list<DecodeFunction> kConvert = {decode_convert};
  static constexpr std::initializer_list<DecodeFunction> kAtomics = {decode_atomics};
  static constexpr std::initializer_list<DecodeFunction> kCollectives = {decode_warp_collectives};
  static constexpr std::initializer_list<DecodeFunction> kBarriers = {decode_barriers};
  static constexpr std::initializer_list<DecodeFunction> kFences = {decode_fences};
  static constexpr std::initializer_list<DecodeFunction> kMisc = {decode_misc};
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
    case Op::popc:
    case Op::clz:
    case Op::bfind:
    case Op::fns:
    case Op::brev:
    case Op::bfe:
    case Op::bfi:
    case Op::szext:
    case Op::bmsk:
    case Op::prmt:
    case Op::cvt_pack:
      return kBits;
    case Op::cvt:
      return kConvert;
    case Op::atom:
    case Op::red:
      return kAtomics;
    case Op::shfl_sync:
    case Op::vote_sync:
    case Op::match_any_sync:
    case Op::match_all_sync:
    case Op::redux_sync:
    case Op::elect_sync:
    case Op::activemask:
    case Op::bar_warp_sync:
      return kCollectives;
    case Op::bar_sync:
    case Op::bar_arrive:
    case Op::bar_red:
    case Op::barrier_sync:
    case Op::barrier_arrive:
    case Op::barrier_red:
      return kBarriers;
    case Op::membar:
    case Op::membar_proxy:
    case Op::fence:
    case Op::fence_mbarrier_init:
    case Op::fence_proxy:
      return kFences;
    case Op::nanosleep:
    case Op::pmevent:
    case Op::discard:
      return kMisc;
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
