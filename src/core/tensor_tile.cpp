// SPDX-License-Identifier: Apache-2.0
// Whole matrices of the tensor core's sum, exact to the definition in tensor_dot.cpp. Operands are taken
// apart once; then every row of every block is one call of the vector code in tensor_row.cpp. What that
// leaves out (infinities, NaN, subnormal results) goes through the definition.
#include <algorithm>
#include <array>
#include <tuple>
#include <vector>

#include "core/tensor_operand.h"
#include "core/tensor_row.h"

namespace imbrex::arith {

namespace {

/// Splits kRowFraction between the operands: both significands get at least the ten fraction bits of the
/// widest.
constexpr int kOperandFraction[2] = {15, 10};

using Integers = std::vector<int32_t>;

uint32_t pattern_at(const FloatFormat& format, const void* data, int64_t index) {
  if (format.bits <= 8) return static_cast<const uint8_t*>(data)[index];
  if (format.bits == 16) return static_cast<const uint16_t*>(data)[index];
  return static_cast<const uint32_t*>(data)[index];
}

/// unpack() for many patterns at once, without branches. Significands get `fraction` fraction bits; `special`
/// is set to 1 for what is not finite (and whose number means nothing then).
void take_apart(const FloatFormat& format, const uint32_t* patterns, int64_t count, int fraction, bool negate,
                int32_t* significand, int32_t* exponent, int32_t* special) {
  const int value_bits = format.exponent_bits + format.mantissa_bits;
  const uint32_t value_mask = (1u << value_bits) - 1, mantissa_mask = (1u << format.mantissa_bits) - 1;
  const auto first_special = static_cast<uint32_t>(format.max_finite() >> format.unused_low_bits) + 1;
  const uint32_t negation = negate ? 1 : 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = patterns[i] >> format.unused_low_bits;
    const uint32_t magnitude = bits & value_mask, biased = magnitude >> format.mantissa_bits;
    const uint32_t leading = biased != 0 ? 1u << format.mantissa_bits : 0;
    const auto value = static_cast<int32_t>((magnitude & mantissa_mask) | leading)
                       << (fraction - format.mantissa_bits);
    const uint32_t negative = (bits >> value_bits & 1) ^ negation;
    significand[i] = negative != 0 ? -value : value;
    const auto from_one = static_cast<int32_t>(biased != 0 ? biased : 1);
    exponent[i] = magnitude != 0 ? from_one - format.bias : kZeroExponent;
    special[i] = magnitude >= first_special ? 1 : 0;
  }
}

/// One side's operands, in the order of the blocks.
struct Side {
  FloatFormat format;
  const void* data;
  int64_t count;  ///< rows of a, or columns
  bool negate;
  Integers significand, exponent;     ///< [count][k]
  std::vector<uint8_t> special;       ///< [count][blocks]: something in this block is not finite
  std::vector<TensorOperand> scales;  ///< [count][k / scale_block]
};

/// Buffers, kept from one product to the next of the same host thread.
struct Workspace {
  Side a, b;
  std::vector<uint32_t> patterns, bits, results;
  Integers special, lane_significand, lane_exponent, scale_exponent, c_significand, c_exponent, c_special;
  std::vector<double> sums;
};
Workspace& workspace() {
  static thread_local Workspace buffers;
  return buffers;
}

class Product {
 public:
  Product(const TensorArith& arith, MatrixShape shape, const TensorModifiers& modifiers, const void* a,
          const void* b)
      : arith_(arith),
        shape_(shape),
        modifiers_(modifiers),
        length_(block_length(arith, shape.k)),
        blocks_(shape.k / length_),
        w_(workspace()) {
    load(w_.a, arith.a_format, a, modifiers.a_scales, shape.m, modifiers.negate_a, kOperandFraction[0]);
    load(w_.b, arith.b_format, b, modifiers.b_scales, shape.n, modifiers.negate_b, kOperandFraction[1]);
    // The sum is symmetric in a and b: vectors run along whichever side fills them better.
    const bool along_b = shape.m * padded(shape.n) <= shape.n * padded(shape.m);
    rows_ = along_b ? &w_.a : &w_.b;
    lanes_ = along_b ? &w_.b : &w_.a;
    row_step_ = along_b ? shape.n : 1;
    lane_step_ = along_b ? 1 : shape.n;
    width_ = padded(lanes_->count);
  }

  void run(const void* c, void* d) {
    if (!arith_.groups_of_16) lay_out_lanes();
    w_.bits.assign(static_cast<size_t>(width_), 0);
    for (int64_t row = 0; row < rows_->count; ++row) {
      for (int64_t lane = 0; lane < lanes_->count; ++lane)
        w_.bits[static_cast<size_t>(lane)] = arith_.split_pairs ? 0 : element(c, row, lane);
      for (int64_t block = 0; block < blocks_; ++block) {
        // Only the instruction's own input is scaled, not the sums that pass from block to block.
        const int scale_input_d = block == 0 ? modifiers_.scale_input_d : 0;
        if (arith_.groups_of_16)
          accumulate_groups(row, block, scale_input_d);
        else
          accumulate_products(row, block, scale_input_d);
      }
      for (int64_t lane = 0; lane < lanes_->count; ++lane) {
        uint32_t bits = w_.bits[static_cast<size_t>(lane)];
        if (arith_.split_pairs) bits = add_result(arith_, bits, element(c, row, lane));
        if (arith_.result_bytes() == 2)
          static_cast<uint16_t*>(d)[index(row, lane)] = static_cast<uint16_t>(bits);
        else
          static_cast<uint32_t*>(d)[index(row, lane)] = bits;
      }
    }
  }

 private:
  static int64_t padded(int64_t count) { return (count + kRowLanes - 1) / kRowLanes * kRowLanes; }
  int64_t index(int64_t row, int64_t lane) const { return row * row_step_ + lane * lane_step_; }
  uint32_t element(const void* c, int64_t row, int64_t lane) const {
    if (c == nullptr) return 0;
    if (arith_.result_bytes() == 2) return static_cast<const uint16_t*>(c)[index(row, lane)];
    return static_cast<const uint32_t*>(c)[index(row, lane)];
  }

  void load(Side& side, const FloatFormat& format, const void* data, const uint8_t* scales, int64_t count,
            bool negate, int fraction) {
    side.format = format;
    side.data = data;
    side.count = count;
    side.negate = negate;
    const int64_t k = shape_.k, size = count * k;
    w_.patterns.resize(static_cast<size_t>(size));
    w_.special.resize(static_cast<size_t>(size));
    side.significand.resize(static_cast<size_t>(size));
    side.exponent.resize(static_cast<size_t>(size));
    if (arith_.split_pairs) {
      for (int64_t i = 0; i < count; ++i)
        for (int64_t position = 0; position < k; ++position)
          w_.patterns[static_cast<size_t>(i * k + position)] =
              pattern_at(format, data, i * k + product_index(arith_, k, position));
    } else {
      for (int64_t i = 0; i < size; ++i) w_.patterns[static_cast<size_t>(i)] = pattern_at(format, data, i);
    }
    if (arith_.groups_of_16)
      to_fixed_point(side);
    else
      take_apart(format, w_.patterns.data(), size, fraction, negate, side.significand.data(),
                 side.exponent.data(), w_.special.data());
    if (arith_.split_pairs)
      for (size_t i = 0; i < static_cast<size_t>(size); ++i)
        normalise(side.significand[i], side.exponent[i], fraction);
    side.special.assign(static_cast<size_t>(count * blocks_), 0);
    for (int64_t block = 0; block < count * blocks_; ++block)
      for (int i = 0; i < length_; ++i)
        side.special[static_cast<size_t>(block)] |=
            static_cast<uint8_t>(w_.special[static_cast<size_t>(block * length_ + i)]);
    load_scales(side, scales);
  }

  /// For groups: small integers in place of significands. Their formats have nothing special.
  void to_fixed_point(Side& side) {
    std::array<int32_t, 256> table{};
    for (uint32_t bits = 0; bits < 1u << side.format.bits; ++bits) {
      const int32_t value = fixed_point(side.format, unpack(side.format, bits));
      table[bits] = side.negate ? -value : value;
    }
    for (size_t i = 0; i < side.significand.size(); ++i) side.significand[i] = table[w_.patterns[i] & 0xFF];
    std::fill(w_.special.begin(), w_.special.end(), 0);
  }

  void load_scales(Side& side, const uint8_t* scales) {
    side.scales.clear();
    if (arith_.scale_block == 0) return;
    const int64_t per_row = scales_per_row();
    for (int64_t i = 0; i < side.count * per_row; ++i) {
      side.scales.push_back(unpack(arith_.scale_format, scales[i]));
      if (side.scales.back().kind == OperandKind::kNan)
        side.special[static_cast<size_t>(i / per_row * blocks_ +
                                         i % per_row * arith_.scale_block / length_)] = 1;
    }
  }
  int64_t scales_per_row() const { return arith_.scale_block != 0 ? shape_.k / arith_.scale_block : 0; }
  const TensorOperand& scale(const Side& side, int64_t i, int64_t position) const {
    return side.scales[static_cast<size_t>(i * scales_per_row() + position / arith_.scale_block)];
  }

  /// The lane side with k outermost; lanes beyond its count are zeros.
  void lay_out_lanes() {
    const auto size = static_cast<size_t>(shape_.k * width_);
    w_.lane_significand.assign(size, 0);
    w_.lane_exponent.assign(size, kZeroExponent);
    for (int64_t lane = 0; lane < lanes_->count; ++lane)
      for (int64_t k = 0; k < shape_.k; ++k) {
        const auto from = static_cast<size_t>(lane * shape_.k + k),
                   to = static_cast<size_t>(k * width_ + lane);
        w_.lane_significand[to] = lanes_->significand[from];
        w_.lane_exponent[to] = lanes_->exponent[from];
      }
    for (Integers* values : {&w_.scale_exponent, &w_.c_significand, &w_.c_exponent, &w_.c_special})
      values->assign(static_cast<size_t>(width_), 0);
    w_.sums.resize(static_cast<size_t>(width_));
    w_.results.resize(static_cast<size_t>(width_));
  }

  bool is_special(int64_t row, int64_t lane, int64_t block) const {
    return (rows_->special[static_cast<size_t>(row * blocks_ + block)] |
            lanes_->special[static_cast<size_t>(lane * blocks_ + block)]) != 0;
  }

  void accumulate_products(int64_t row, int64_t block, int scale_input_d) {
    const int64_t first = block * length_;
    take_apart(result_format(arith_), w_.bits.data(), width_, kRowFraction, false, w_.c_significand.data(),
               w_.c_exponent.data(), w_.c_special.data());
    if (scale_input_d != 0)
      for (int32_t& exponent : w_.c_exponent) exponent -= scale_input_d;
    if (arith_.scale_block != 0)
      for (int64_t lane = 0; lane < lanes_->count; ++lane)
        w_.scale_exponent[static_cast<size_t>(lane)] =
            scale(*rows_, row, first).exponent + scale(*lanes_, lane, first).exponent;

    RowTask task;
    task.length = length_;
    task.columns = width_;
    task.a_significand = rows_->significand.data() + row * shape_.k + first;
    task.a_exponent = rows_->exponent.data() + row * shape_.k + first;
    task.b_significand = w_.lane_significand.data() + first * width_;
    task.b_exponent = w_.lane_exponent.data() + first * width_;
    task.scale_exponent = arith_.scale_block != 0 ? w_.scale_exponent.data() : nullptr;
    task.c_significand = w_.c_significand.data();
    task.c_exponent = w_.c_exponent.data();
    task.kept_bits = arith_.kept_bits;
    task.exponent_floor = arith_.exponent_floor;
    task.result_fraction = arith_.output == TensorOutput::kF32CutTo13 ? 13 : 23;
    task.sums = w_.sums.data();
    task.results = w_.results.data();
    const bool subnormal = accumulate_row(task);

    const bool from_sums = subnormal || arith_.output == TensorOutput::kF16Nearest;
    for (int64_t lane = 0; lane < lanes_->count; ++lane) {
      const auto at = static_cast<size_t>(lane);
      if (w_.c_special[at] != 0 || is_special(row, lane, block))
        w_.bits[at] = output_by_definition(row, lane, block, scale_input_d);
      else
        w_.bits[at] = from_sums ? round_sum(arith_.output, w_.sums[at]) : w_.results[at];
    }
  }

  /// mxf4: few terms, each of 16 exact products of small integers.
  void accumulate_groups(int64_t row, int64_t block, int scale_input_d) {
    constexpr int kGroup = 16, kMostGroups = 16;
    const int groups = length_ / kGroup;
    const int64_t first = block * length_;
    const int32_t* of_row = rows_->significand.data() + row * shape_.k + first;
    for (int64_t lane = 0; lane < lanes_->count; ++lane) {
      uint32_t& bits = w_.bits[static_cast<size_t>(lane)];
      const TensorOperand c = unpack_addend(arith_, bits, scale_input_d);
      if (c.kind != OperandKind::kFinite || is_special(row, lane, block)) {
        bits = output_by_definition(row, lane, block, scale_input_d);
        continue;
      }
      const int32_t* of_lane = lanes_->significand.data() + lane * shape_.k + first;
      std::array<TensorTerm, kMostGroups + 1> terms;
      terms[0] = {c.significand, c.exponent, result_format(arith_).mantissa_bits};
      for (int group = 0; group < groups; ++group) {
        int32_t sum = 0;
        const int64_t position = first + group * kGroup;
        for (int i = group * kGroup; i < (group + 1) * kGroup; ++i) sum += of_row[i] * of_lane[i];
        terms[static_cast<size_t>(group) + 1] =
            group_term(arith_, sum, scale(*rows_, row, position), scale(*lanes_, lane, position));
      }
      bits = sum_terms(arith_, terms.data(), groups + 1);
    }
  }

  uint32_t output_by_definition(int64_t row, int64_t lane, int64_t block, int scale_input_d) const {
    std::vector<TensorOperand> x, y;
    for (int64_t position = block * length_; position < (block + 1) * length_; ++position) {
      const int64_t k = product_index(arith_, shape_.k, position);
      for (const auto& [side, i, operands] : {std::tuple(rows_, row, &x), std::tuple(lanes_, lane, &y)}) {
        TensorOperand operand =
            unpack_operand(arith_, side->format, pattern_at(side->format, side->data, i * shape_.k + k));
        if (side->negate) operand.significand = -operand.significand;
        operands->push_back(operand);
      }
    }
    const int64_t scale_index = arith_.scale_block != 0 ? block * length_ / arith_.scale_block : 0;
    const TensorBlock task{length_, x.data(), y.data(),
                           rows_->scales.data() + row * scales_per_row() + scale_index,
                           lanes_->scales.data() + lane * scales_per_row() + scale_index};
    return accumulate_block(arith_, task,
                            unpack_addend(arith_, w_.bits[static_cast<size_t>(lane)], scale_input_d));
  }

  const TensorArith& arith_;
  MatrixShape shape_;
  const TensorModifiers& modifiers_;
  int length_;
  int64_t blocks_;
  Workspace& w_;
  const Side* rows_;
  const Side* lanes_;
  int64_t row_step_, lane_step_, width_;
};

}  // namespace

void multiply_accumulate(const TensorArith& arith, MatrixShape shape, const void* a, const void* b,
                         const void* c, void* d, const TensorModifiers& modifiers) {
  Product(arith, shape, modifiers, a, b).run(c, d);
}

}  // namespace imbrex::arith
