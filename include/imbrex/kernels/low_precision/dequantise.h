// SPDX-License-Identifier: Apache-2.0
// From packed words to the A operand of the tensor cores, in the registers of a warp group.
//
// A code in the mantissa of a float whose exponent makes the mantissa's bit `at` worth 1 is 2^e + code: a mask and an
// exponent, one lop3 for two weights. Subtracting 2^e + zero point leaves the weight, exactly. Where a plane's codes do
// not all lie within a mantissa, the plane is shifted for those beyond.
#pragma once

#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "imbrex/kernels/low_precision/packed_weights.h"
#include "imbrex/lang.h"
#include "imbrex/lang/view.h"

namespace imbrex::kernels {

/// The planes of some tiles of the same k, one above the other, in the registers of some warps, which divide the rows.
class PackedTile {
 public:
  /// Loads the planes, [tiles, 2 * bits, 256] words, of weights of `type` that become `dtype`. A group of so many warps
  /// executes it, of which each has a multiple of 16 rows.
  PackedTile(const SharedTensor& words, int warps, DataType type, DataType dtype)
      : bits_(type.bits()),
        rows_(static_cast<int>(words.shape(0)) * kWeightTileN),
        type_(type),
        dtype_(dtype) {
    const int64_t tiles = words.shape(0), sixteens = 4 * tiles / warps;
    require(sixteens > 0 && 4 % sixteens == 0, "{} warps cannot share {} rows", warps, rows_);
    // Of each plane: [tile, warp of the tile, sixteen rows of the warp, lane, word].
    auto planes = words.reshape({tiles, bits_, 4 / sixteens, sixteens, 32, 4}).permute({1, 0, 2, 3, 4, 5});
    for (int i = 0; i < bits_; ++i)
      planes_.push_back(load_shared(planes[i].permute({0, 1, 3, 2, 4}).reshape({32 * warps, 4 * sixteens})));
  }
  /// The same of planes in registers, each with a row for every thread: the words of its rows of W, sixteen by sixteen.
  PackedTile(std::vector<RegisterValue> planes, int rows, DataType type, DataType dtype)
      : bits_(type.bits()), rows_(rows), type_(type), dtype_(dtype), planes_(std::move(planes)) {}

  /// The weights of one step of k as [64 * tiles, 16]. `zero_points`, [64 * tiles, 1] of the type that weights
  /// become, are subtracted: integers of the weights' range, so that nothing is rounded.
  RegisterValue weights(int step, const std::optional<RegisterValue>& zero_points = {}) const {
    const std::vector<CodePart> parts = code_parts(bits_, step);
    if (type_.is_float()) {
      require(!zero_points, "weights of {} have no zero points", type_);
      return floats(parts);
    }
    // Codes of signed weights are 2^(bits - 1) more than these.
    const double zero = type_.is_signed() ? static_cast<double>(1 << (bits_ - 1)) : 0;
    if (dtype_ == bfloat16 && bits_ == 8) {
      auto wide = wide_bfloat16(parts[0], zero);
      return zero_points ? RegisterValue(wide - *zero_points) : wide;
    }
    const int at = parts.size() == 1 ? parts[0].from - shift_of(parts[0].from) : 0;
    const int exponent = mantissa() - at;
    RegisterTensor words = code_words(parts, at);
    words |= both(static_cast<uint32_t>(exponent + bias()) << mantissa());
    const double excess = static_cast<double>(1 << exponent) + zero;
    auto lifted = view(words, dtype_, {rows_, 16});
    return zero_points ? RegisterValue(lifted - (*zero_points + excess)) : RegisterValue(lifted - excess);
  }

 private:
  int mantissa() const { return facts_of(dtype_).mantissa_bits; }
  int bias() const { return facts_of(dtype_).bias; }
  static int64_t both(uint32_t lane) { return static_cast<int64_t>(lane | lane << 16); }

  /// How far a plane is shifted for the code at bit `from`, so that codes share shifted planes.
  int shift_of(int from) const {
    int shift = 0;
    for (int at = 0; at <= from; at += bits_)
      if (at - shift + bits_ > mantissa()) shift = at;
    return shift;
  }

  /// The part's bits, at the place `at` of the code's lowest bit.
  RegisterValue bits_of(const CodePart& part, int at) const {
    const int shift = part.from - part.to - at;
    const auto& plane = planes_[static_cast<size_t>(part.plane)];
    const int64_t mask = both(((1u << part.width) - 1) << (part.to + at));
    if (shift == 0) return plane & mask;
    return shift > 0 ? (plane >> shift) & mask : (plane << -shift) & mask;
  }

  /// Whole codes, with their lowest bits at `at` of the lanes and zeros around them.
  RegisterTensor code_words(const std::vector<CodePart>& parts, int at) const {
    RegisterTensor words = bits_of(parts[0], at);
    for (size_t i = 1; i < parts.size(); ++i) words |= bits_of(parts[i], at);
    return words;
  }

  /// 8 bits, of which a bfloat16's mantissa holds 7: 128 + low bits, less 128 or 256 as the highest is set or not.
  RegisterValue wide_bfloat16(const CodePart& part, double zero) const {
    const auto& plane = planes_[static_cast<size_t>(part.plane)];
    RegisterTensor codes = plane;
    if (part.from > 0) codes = plane >> part.from;
    auto low = view((codes & both(0x7f)) | both(0x4300), dtype_, {rows_, 16});
    auto high = view((codes & both(0x80)) ^ both(0x4380), dtype_, {rows_, 16});
    auto weights = low - high;  // the code less 128
    return zero == 128 ? weights : weights + 128.0;
  }

  /// Exponent and fraction at the place of the wider float's: the weight but for a power of two, subnormals too.
  RegisterValue floats(const std::vector<CodePart>& parts) const {
    const DataTypeFacts& f = facts_of(type_);
    const int magnitude_bits = f.exponent_bits + f.mantissa_bits, to = mantissa() - f.mantissa_bits;
    RegisterTensor codes = parts.size() == 1 ? RegisterTensor(planes_[static_cast<size_t>(parts[0].plane)])
                                             : code_words(parts, 0);
    const int from = parts.size() == 1 ? parts[0].from : 0;
    const auto moved = [&](int bit, int place, uint32_t mask) {
      const int64_t kept = both(mask << place);
      if (bit == place) return codes & kept;
      return bit > place ? (codes >> (bit - place)) & kept : (codes << (place - bit)) & kept;
    };
    RegisterTensor words = moved(from, to, (1u << magnitude_bits) - 1);
    if (f.has_sign) words |= moved(from + magnitude_bits, 15, 1);
    return view(words, dtype_, {rows_, 16}) * std::ldexp(1.0, bias() - f.bias);
  }

  int bits_, rows_;
  DataType type_, dtype_;
  std::vector<RegisterValue> planes_;
};

}  // namespace imbrex::kernels
