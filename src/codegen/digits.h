// SPDX-License-Identifier: Apache-2.0
// Layouts taken apart into digits of the thread and register number.
//
// A register layout says where element i lives; code generation needs the reverse, which element a thread
// holds in a register, in a form that splits into a part of the thread (run-time arithmetic, done once) and a
// part of the register (constants). Mixed-radix layouts have exactly that form: every digit of the thread or
// register number adds `digit * weight` to one dimension's index.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "layout/layout.h"

namespace imbrex::codegen {

/// digit = coordinate / divisor % modulus (no % when modulus is 0), and index[dim] += digit * weight.
struct Digit {
  layout::Axis axis;  // kThread or kRegister
  int dim;            // -1: a copy, the digit moves nothing
  int64_t extent;     // digits from here to modulus - 1 belong to coordinates that hold nothing
  int64_t divisor;
  int64_t modulus;
  int64_t weight;

  int64_t of(int64_t coordinate) const {
    const int64_t q = coordinate / divisor;
    return modulus ? q % modulus : q;
  }
};

/// A register layout in digits.
struct IndexDigits {
  std::vector<Digit> threads;
  std::vector<Digit> registers;
  layout::Shape shape;
  int64_t thread_extent = 1;  // one more than the last thread that holds something

  /// The part of the index that comes from register `reg`; nothing when the register holds nothing.
  std::optional<layout::Index> register_index(int64_t reg) const;
  /// The largest index a thread can add in a dimension.
  int64_t thread_reach(int dim) const;
};
/// Nothing when strides on an axis do not nest (no instruction-friendly layout is like that).
std::optional<IndexDigits> index_digits(const layout::Layout& registers);

/// Where a digit moves in memory: `digit * stride` along `axis` (elements before swizzling), for a digit that
/// may be a part of the layout's own.
struct MemoryTerm {
  Digit digit;
  layout::Axis axis;
  int64_t stride;
};
/// The address of element (thread, register) as a sum over digits; nothing when the digits of the register
/// layout and the modes of memory cut a dimension at places that do not nest.
std::optional<std::vector<MemoryTerm>> memory_terms(const IndexDigits& digits, const layout::Layout& memory);

}  // namespace imbrex::codegen
