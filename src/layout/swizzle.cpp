// SPDX-License-Identifier: Apache-2.0
#include "layout/swizzle.h"

namespace imbrex::layout {
namespace {

// address ^= (address >> shift) & mask, row by row of the table in the hardware documents. The masks of `to`
// and of the source bits never overlap, so each is an involution.
struct Facts {
  std::string_view name;
  int64_t to_mask;
  int shift;
  int64_t span, atom, period;
};
constexpr Facts kFacts[Swizzle::kCount] = {
    {"none", 0, 0, 16, int64_t{1} << 30, 16},  //
    {"32B", 0x10, 3, 32, 16, 256},             //
    {"64B", 0x30, 3, 64, 16, 512},             //
    {"128B", 0x70, 3, 128, 16, 1024},          //
    {"128B/32B", 0x60, 2, 128, 32, 512},       //
    {"128B/32B+8B", 0x60, 2, 128, 8, 512},     // and bit 3 ^= bit 7, below
    {"128B/64B", 0x40, 1, 128, 64, 256},       //
};

}  // namespace

int64_t Swizzle::apply(int64_t address) const {
  const Facts& facts = kFacts[mode];
  int64_t flipped = address ^ ((address >> facts.shift) & facts.to_mask);
  if (mode == k128BAtom32BFlip8B) flipped ^= (address >> 4) & 0x8;
  return flipped;
}

int64_t Swizzle::span_bytes() const { return kFacts[mode].span; }
int64_t Swizzle::atom_bytes() const { return kFacts[mode].atom; }
int64_t Swizzle::period_bytes() const { return kFacts[mode].period; }
std::string_view Swizzle::name() const { return kFacts[mode].name; }

std::optional<Swizzle> Swizzle::from_name(std::string_view name) {
  for (int i = 0; i < kCount; ++i)
    if (kFacts[i].name == name) return Swizzle{static_cast<Mode>(i)};
  return std::nullopt;
}

Swizzle Swizzle::widest_for(int64_t row_bytes) {
  for (Mode mode : {k128B, k64B, k32B})
    if (row_bytes % kFacts[mode].span == 0) return {mode};
  return {};
}

}  // namespace imbrex::layout
