// SPDX-License-Identifier: Apache-2.0
// Instruction::small by name: what the decoders of arithmetic tell their bodies.
#pragma once

#include <cstdint>

namespace imbrex::vgpu {

/// Of integer arithmetic; each is 0 or 1.
struct IntegerSmall {
  enum Index : int { kSignedA, kSignedB, kHigh, kSetsCarry };
};

/// Of f32 and f64. kRounding holds an arith::Rounding, the others are 0 or 1; min and max have kNan in place of
/// kSat.
struct FloatSmall {
  enum Index : int { kRounding, kFtz, kSat, kXorsign, kNan = kSat };
};

/// Of f16 and bf16. kModifiers holds the bits below; the other two are for results in f32.
struct HalfSmall {
  enum Index : int { kModifiers, kRounding, kSat };
};
enum HalfModifier : uint8_t {
  kHalfFtz = 1,
  kHalfSat = 2,
  kHalfRelu = 4,
  kHalfNan = 8,
  kHalfXorsign = 16,
  kHalfOob = 32,
};

/// Of bit manipulation. kOption: .shiftamt of bfind, .wrap of szext and bmsk, the mode of prmt, the bits of a
/// result of cvt.pack.
struct BitsSmall {
  enum Index : int { kOption, kIsSigned };
};

/// Of lop3 with a predicate.
struct Lop3Small {
  enum Index : int { kTable, kIsAnd, kInvertPredicate };
};

/// Of the comparison of packed halves, and of testp.
struct CompareSmall {
  enum Index : int { kTest, kComparison, kFtz };
};

}  // namespace imbrex::vgpu
