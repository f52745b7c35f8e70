// SPDX-License-Identifier: Apache-2.0
// Whole matrices of the tensor core's sum, exact to the definition in tensor_dot.cpp. Operands are taken
// apart once; then every row is one call of the vector code in tensor_float_row.cpp. What that leaves out (extreme
// exponents, f16 results) is one call per block of that in tensor_row.cpp, and what this leaves out (infinities, NaN,
// subnormal results) goes through the definition.
#include <algorithm>
#include <array>
#include <cstring>
#include <tuple>
#include <vector>

#include "core/tensor_operand.h"
#include "core/tensor_row.h"

namespace imbrex::arith {

namespace {

/// Splits kRowFraction between the operands: both significands get at least the ten fraction bits of the
/// widest.
constexpr int kOperandFraction[2] = {15, 10};
constexpr size_t kMostGroups = 16;   // in a block
constexpr size_t kMostTaken = 1024;  // bytes of patterns that are compared with the next ones

using Integers = std::vector<int32_t>;

uint32_t pattern_at(const FloatFormat& format, const void* data, int64_t index) {
  if (format.bits <= 8) return static_cast<const uint8_t*>(data)[index];
  if (format.bits == 16) return static_cast<const uint16_t*>(data)[index];
  return static_cast<const uint32_t*>(data)[index];
}

/// `count` patterns, each in 32 bits.
void widen(const FloatFormat& format, const void* data, int64_t count, uint32_t* patterns) {
  const auto copy = [&]<class T>(const T* from) { std::copy(from, from + count, patterns); };
  if (format.bits <= 8)
    copy(static_cast<const uint8_t*>(data));
  else if (format.bits == 16)
    copy(static_cast<const uint16_t*>(data));
  else
    copy(static_cast<const uint32_t*>(data));
}

/// One side's operands, in the order of the blocks.
struct Side {
  FloatFormat format;
  const void* data;
  const uint8_t* scale_patterns;
  int64_t count;  ///< rows of a, or columns
  bool negate;
  int fraction;  ///< bits, of significands
  /// [count][k]; of the side along which vectors run [k][width], those beyond its count being zeros.
  Integers significand, exponent;
  std::vector<float> values;            ///< the same for tensor_float_row.cpp
  std::vector<int16_t> float_exponent;  ///< likewise
  /// The patterns of which those are, where they are few: a fragment of mma.sync meets many others.
  struct Taken {
    std::vector<uint8_t> patterns;
    FloatFormat format;
    int64_t count = 0, width = 0;
    bool negate = false;
  };
  Taken taken;
  bool has_special = false;           ///< something is not finite
  std::vector<uint8_t> special;       ///< [count][blocks]: something in this block is; where has_special
  std::vector<TensorOperand> scales;  ///< [count][k / scale_block]
};

/// Buffers, kept from one product to the next of the same host thread.
struct Workspace {
  Side a, b;
  std::vector<uint32_t> patterns, turned, bits, results, turned_addends, turned_results;
  Integers special, row_scale, lane_scale, lane_scale_significand, scale_exponent, c_significand, c_exponent,
      c_special, group_sums;
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
    // The sum is symmetric in a and b: vectors run along whichever side fills them better.
    const bool along_b = shape.m * padded(shape.n) <= shape.n * padded(shape.m);
    rows_ = along_b ? &w_.a : &w_.b;
    lanes_ = along_b ? &w_.b : &w_.a;
    const int64_t pitch = modifiers.pitch != 0 ? modifiers.pitch : shape.n;
    row_step_ = along_b ? pitch : 1;
    lane_step_ = along_b ? 1 : pitch;
    width_ = padded(along_b ? shape.n : shape.m);
    describe(w_.a, arith.a_format, a, modifiers.a_scales, shape.m, modifiers.negate_a, kOperandFraction[0]);
    describe(w_.b, arith.b_format, b, modifiers.b_scales, shape.n, modifiers.negate_b, kOperandFraction[1]);
    w_.results.resize(static_cast<size_t>(width_));
    in_floats_ = load_floats();
    if (!in_floats_) load_integers();
  }

  void run(const void* c, void* d) {
    if (in_floats_ && run_turned(c, d)) return;
    for (int64_t row = 0; row < rows_->count; ++row) {
      if (in_floats_ && sum_in_floats(row, addends(c, row), w_.results.data())) {
        store(d, row, w_.results);
        continue;
      }
      load_addends(arith_.split_pairs ? nullptr : c, row);
      if (!in_integers_) load_integers();
      for (int64_t block = 0; block < blocks_; ++block) {
        // Only the instruction's own input is scaled, not the sums that pass from block to block.
        const int scale_input_d = block == 0 ? modifiers_.scale_input_d : 0;
        if (arith_.groups_of_16)
          accumulate_groups(row, block, scale_input_d);
        else
          accumulate_products(row, block, scale_input_d);
      }
      if (arith_.split_pairs)
        for (int64_t lane = 0; lane < lanes_->count; ++lane) {
          uint32_t& bits = w_.bits[static_cast<size_t>(lane)];
          bits = add_result(arith_, bits, element(c, row, lane));
        }
      store(d, row, w_.bits);
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

  /// Calls body(results) with c or d as what they are.
  template <class Body>
  void with_results(void* data, Body&& body) const {
    if (arith_.result_bytes() == 2)
      body(static_cast<uint16_t*>(data));
    else
      body(static_cast<uint32_t*>(data));
  }

  /// A row of c, read from there where it lies as it is needed.
  const uint32_t* addends(const void* c, int64_t row) {
    if (c != nullptr && lane_step_ == 1 && lanes_->count == width_)
      return static_cast<const uint32_t*>(c) + row * row_step_;
    load_addends(c, row);
    return w_.bits.data();
  }
  void load_addends(const void* c, int64_t row) {
    w_.bits.assign(static_cast<size_t>(width_), 0);
    if (c == nullptr) return;
    with_results(const_cast<void*>(c), [&](auto* results) {
      for (int64_t lane = 0; lane < lanes_->count; ++lane)
        w_.bits[static_cast<size_t>(lane)] = results[index(row, lane)];
    });
  }
  void store(void* d, int64_t row, const std::vector<uint32_t>& bits) const {
    if (lane_step_ == 1 && arith_.result_bytes() == 4) {
      std::copy_n(bits.data(), lanes_->count, static_cast<uint32_t*>(d) + row * row_step_);
      return;
    }
    with_results(d, [&]<class T>(T* results) {
      for (int64_t lane = 0; lane < lanes_->count; ++lane)
        results[index(row, lane)] = static_cast<T>(bits[static_cast<size_t>(lane)]);
    });
  }

  static void describe(Side& side, const FloatFormat& format, const void* data, const uint8_t* scales,
                       int64_t count, bool negate, int fraction) {
    side.format = format;
    side.data = data;
    side.scale_patterns = scales;
    side.count = count;
    side.negate = negate;
    side.fraction = fraction;
    side.has_special = false;
  }

  /// The side's patterns in the order of the blocks, those of the lane side turned.
  const std::vector<uint32_t>& widen_side(const Side& side) {
    const int64_t k = shape_.k;
    w_.patterns.resize(static_cast<size_t>(side.count * k));
    if (arith_.split_pairs) {
      for (int64_t i = 0; i < side.count; ++i)
        for (int64_t position = 0; position < k; ++position)
          w_.patterns[static_cast<size_t>(i * k + position)] =
              pattern_at(side.format, side.data, i * k + product_index(arith_, k, position));
    } else {
      widen(side.format, side.data, side.count * k, w_.patterns.data());
    }
    if (&side != lanes_) return w_.patterns;
    turn(side.count);
    return w_.turned;
  }

  int64_t pattern_count(const Side& side) const { return side.count * shape_.k; }
  static size_t pattern_bytes(const FloatFormat& format) {
    return format.bits <= 8 ? 1 : format.bits == 16 ? 2 : 4;
  }
  /// Of the lane side, how many columns its patterns have been turned to.
  int64_t width_of(const Side& side) const { return &side == lanes_ ? width_ : 0; }
  bool is_taken(const Side& side) const {
    const Side::Taken& taken = side.taken;
    const size_t bytes = static_cast<size_t>(pattern_count(side)) * pattern_bytes(side.format);
    return taken.patterns.size() == bytes && taken.count == side.count && taken.width == width_of(side) &&
           taken.negate == side.negate && taken.format == side.format &&
           std::memcmp(taken.patterns.data(), side.data, bytes) == 0;
  }
  /// Fills values and float_exponent. False where a number is not finite or too extreme.
  bool take_side(Side& side) {
    side.taken.patterns.clear();
    const std::vector<uint32_t>& patterns = widen_side(side);
    side.values.resize(patterns.size());
    side.float_exponent.resize(patterns.size());
    if (!take_apart_floats(side.format, patterns.data(), static_cast<int64_t>(patterns.size()), side.negate,
                           side.values.data(), side.float_exponent.data()))
      return false;
    const size_t bytes = static_cast<size_t>(pattern_count(side)) * pattern_bytes(side.format);
    if (bytes > kMostTaken) return true;
    const auto* const data = static_cast<const uint8_t*>(side.data);
    side.taken.patterns.assign(data, data + bytes);
    side.taken.format = side.format;
    side.taken.count = side.count;
    side.taken.width = width_of(side);
    side.taken.negate = side.negate;
    return true;
  }

  /// False where the rows cannot be summed in single precision.
  bool load_floats() {
    if (arith_.output == TensorOutput::kF16Nearest || arith_.groups_of_16 || arith_.split_pairs ||
        modifiers_.scale_input_d != 0)
      return false;
    for (Side* side : {&w_.a, &w_.b}) {
      if (!is_taken(*side) && !take_side(*side)) return false;
      load_scales(*side);
    }
    load_lane_scales();
    return !w_.a.has_special && !w_.b.has_special;
  }

  /// Where vectors run along the columns of dense results (mma.sync), these are turned in one go. False where something has
  /// to be done in integers; nothing has been stored then.
  bool run_turned(const void* c, void* d) {
    if (lane_step_ != rows_->count || lanes_->count != width_) return false;
    const auto size = static_cast<size_t>(rows_->count * width_);
    w_.turned_addends.resize(size);
    w_.turned_results.resize(size);
    if (c == nullptr)
      std::fill(w_.turned_addends.begin(), w_.turned_addends.end(), 0);
    else
      transpose(static_cast<const uint32_t*>(c), width_, rows_->count, w_.turned_addends.data(), width_);
    for (int64_t row = 0; row < rows_->count; ++row)
      if (!sum_in_floats(row, w_.turned_addends.data() + row * width_,
                         w_.turned_results.data() + row * width_))
        return false;
    transpose(w_.turned_results.data(), rows_->count, width_, static_cast<uint32_t*>(d), rows_->count);
    return true;
  }

  /// Sums `c` and the products of a row. False where that has to be done in integers.
  bool sum_in_floats(int64_t row, const uint32_t* c, uint32_t* results) {
    const bool is_scaled = arith_.scale_block != 0;
    if (is_scaled) {
      w_.row_scale.resize(static_cast<size_t>(blocks_));
      for (int64_t block = 0; block < blocks_; ++block)
        w_.row_scale[static_cast<size_t>(block)] = scale(*rows_, row, block * length_).exponent;
    }
    return accumulate_float_row({.blocks = blocks_,
                                 .length = length_,
                                 .columns = width_,
                                 .a = rows_->values.data() + row * shape_.k,
                                 .a_exponent = rows_->float_exponent.data() + row * shape_.k,
                                 .b = lanes_->values.data(),
                                 .b_exponent = lanes_->float_exponent.data(),
                                 .a_scale = is_scaled ? w_.row_scale.data() : nullptr,
                                 .b_scale = is_scaled ? w_.lane_scale.data() : nullptr,
                                 .kept_bits = arith_.kept_bits,
                                 .exponent_floor = arith_.exponent_floor,
                                 .result_fraction = result_fraction(),
                                 .c = c,
                                 .results = results});
  }
  int result_fraction() const { return arith_.output == TensorOutput::kF32CutTo13 ? 13 : 23; }

  void load_integers() {
    in_integers_ = true;
    load(w_.a);
    load(w_.b);
    load_lane_scales();
    for (Integers* values : {&w_.scale_exponent, &w_.c_significand, &w_.c_exponent, &w_.c_special})
      values->assign(static_cast<size_t>(width_), 0);
    w_.sums.resize(static_cast<size_t>(width_));
  }

  void load(Side& side) {
    const std::vector<uint32_t>& patterns = widen_side(side);
    const size_t size = patterns.size();
    w_.special.resize(size);
    side.significand.resize(size);
    side.exponent.resize(size);
    if (arith_.groups_of_16) {
      to_fixed_point(side, patterns);
      side.has_special = false;
    } else {
      side.has_special =
          take_apart(side.format, patterns.data(), static_cast<int64_t>(size), side.fraction, side.negate,
                     side.significand.data(), side.exponent.data(), w_.special.data());
    }
    if (arith_.split_pairs)
      for (size_t i = 0; i < size; ++i) normalise(side.significand[i], side.exponent[i], side.fraction);
    if (side.has_special) note_special_blocks(side, &side == lanes_);
    load_scales(side);
  }

  /// Patterns of the lane side with k outermost.
  void turn(int64_t count) {
    w_.turned.resize(static_cast<size_t>(shape_.k * width_));
    if (count < width_) std::fill(w_.turned.begin(), w_.turned.end(), 0);
    transpose(w_.patterns.data(), count, shape_.k, w_.turned.data(), width_);
  }

  void note_special_blocks(Side& side, bool along_lanes) {
    side.special.assign(static_cast<size_t>(side.count * blocks_), 0);
    for (int64_t i = 0; i < side.count; ++i)
      for (int64_t k = 0; k < shape_.k; ++k)
        side.special[static_cast<size_t>(i * blocks_ + k / length_)] |= static_cast<uint8_t>(
            w_.special[static_cast<size_t>(along_lanes ? k * width_ + i : i * shape_.k + k)]);
  }

  /// For groups: small integers in place of significands. Their formats have nothing special.
  void to_fixed_point(Side& side, const std::vector<uint32_t>& patterns) {
    std::array<int32_t, 256> table{};
    for (uint32_t bits = 0; bits < 1u << side.format.bits; ++bits) {
      const int32_t value = fixed_point(side.format, unpack(side.format, bits));
      table[bits] = side.negate ? -value : value;
    }
    for (size_t i = 0; i < patterns.size(); ++i) side.significand[i] = table[patterns[i] & 0xFF];
  }

  void load_scales(Side& side) {
    side.scales.clear();
    if (arith_.scale_block == 0) return;
    const int64_t per_row = scales_per_row();
    for (int64_t i = 0; i < side.count * per_row; ++i) {
      side.scales.push_back(unpack(arith_.scale_format, side.scale_patterns[i]));
      if (side.scales.back().kind != OperandKind::kNan) continue;
      if (!side.has_special) side.special.assign(static_cast<size_t>(side.count * blocks_), 0);
      side.has_special = true;
      side.special[static_cast<size_t>(i / per_row * blocks_ + i % per_row * arith_.scale_block / length_)] =
          1;
    }
  }
  /// The lane side's factors, those of a block (or of a group) side by side.
  void load_lane_scales() {
    if (arith_.scale_block == 0) return;
    const int64_t length = arith_.groups_of_16 ? kGroupLength : length_, steps = shape_.k / length;
    w_.lane_scale.assign(static_cast<size_t>(steps * width_), 0);
    w_.lane_scale_significand.assign(static_cast<size_t>(steps * width_), 0);
    for (int64_t lane = 0; lane < lanes_->count; ++lane)
      for (int64_t step = 0; step < steps; ++step) {
        const TensorOperand& factor = scale(*lanes_, lane, step * length);
        w_.lane_scale[static_cast<size_t>(step * width_ + lane)] = factor.exponent;
        w_.lane_scale_significand[static_cast<size_t>(step * width_ + lane)] = factor.significand;
      }
  }
  int64_t scales_per_row() const { return arith_.scale_block != 0 ? shape_.k / arith_.scale_block : 0; }
  const TensorOperand& scale(const Side& side, int64_t i, int64_t position) const {
    return side.scales[static_cast<size_t>(i * scales_per_row() + position / arith_.scale_block)];
  }

  bool is_special(int64_t row, int64_t lane, int64_t block) const {
    const auto in = [&](const Side& side, int64_t i) {
      return side.has_special && side.special[static_cast<size_t>(i * blocks_ + block)] != 0;
    };
    return in(*rows_, row) || in(*lanes_, lane);
  }

  void take_apart_addends(int scale_input_d) {
    c_has_special_ = take_apart(result_format(arith_), w_.bits.data(), width_, kRowFraction, false,
                                w_.c_significand.data(), w_.c_exponent.data(), w_.c_special.data());
    if (scale_input_d != 0)
      for (int32_t& exponent : w_.c_exponent) exponent -= scale_input_d;
  }

  void accumulate_products(int64_t row, int64_t block, int scale_input_d) {
    const int64_t first = block * length_;
    take_apart_addends(scale_input_d);
    if (arith_.scale_block != 0) {
      const int32_t of_row = scale(*rows_, row, first).exponent;
      for (int64_t lane = 0; lane < width_; ++lane)
        w_.scale_exponent[static_cast<size_t>(lane)] =
            of_row + w_.lane_scale[static_cast<size_t>(block * width_ + lane)];
    }

    RowTask task;
    task.length = length_;
    task.columns = width_;
    task.a_significand = rows_->significand.data() + row * shape_.k + first;
    task.a_exponent = rows_->exponent.data() + row * shape_.k + first;
    task.b_significand = lanes_->significand.data() + first * width_;
    task.b_exponent = lanes_->exponent.data() + first * width_;
    task.scale_exponent = arith_.scale_block != 0 ? w_.scale_exponent.data() : nullptr;
    task.c_significand = w_.c_significand.data();
    task.c_exponent = w_.c_exponent.data();
    task.kept_bits = arith_.kept_bits;
    task.exponent_floor = arith_.exponent_floor;
    task.result_fraction = result_fraction();
    task.sums = w_.sums.data();
    task.results = w_.results.data();
    const bool subnormal = accumulate_row(task);

    finish(row, block, scale_input_d, subnormal);
  }

  /// What the vectors have made of a row becomes its results so far.
  void finish(int64_t row, int64_t block, int scale_input_d, bool has_subnormal) {
    const bool from_sums = has_subnormal || arith_.output == TensorOutput::kF16Nearest;
    if (!from_sums && !c_has_special_ && !rows_->has_special && !lanes_->has_special) {
      w_.bits.swap(w_.results);
      return;
    }
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
    const int groups = length_ / kGroupLength;
    const int64_t first = block * length_;
    take_apart_addends(scale_input_d);
    w_.group_sums.resize(static_cast<size_t>(groups * width_));
    sum_groups(groups, width_, rows_->significand.data() + row * shape_.k + first,
               lanes_->significand.data() + first * width_, w_.group_sums.data());
    std::array<int32_t, kMostGroups> row_scale, row_scale_exponent;
    for (int group = 0; group < groups; ++group) {
      const TensorOperand& factor = scale(*rows_, row, first + group * kGroupLength);
      row_scale[static_cast<size_t>(group)] = factor.significand;
      row_scale_exponent[static_cast<size_t>(group)] = factor.exponent;
    }
    const TensorTerm one = group_term(arith_, 1, TensorOperand{1, 0}, TensorOperand{1, 0});
    const int64_t lane_scales = block * groups * width_;
    finish(row, block, scale_input_d,
           accumulate_group_row({.groups = groups,
                                 .columns = width_,
                                 .group_sums = w_.group_sums.data(),
                                 .unit_exponent = one.exponent,
                                 .fraction_bits = one.fraction_bits,
                                 .a_scale = row_scale.data(),
                                 .a_scale_exponent = row_scale_exponent.data(),
                                 .b_scale = w_.lane_scale_significand.data() + lane_scales,
                                 .b_scale_exponent = w_.lane_scale.data() + lane_scales,
                                 .c_significand = w_.c_significand.data(),
                                 .c_exponent = w_.c_exponent.data(),
                                 .kept_bits = arith_.kept_bits,
                                 .exponent_floor = arith_.exponent_floor,
                                 .sums = w_.sums.data(),
                                 .results = w_.results.data()}));
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
  bool in_floats_ = false, in_integers_ = false;  // how operands have been taken apart
  bool c_has_special_ = false;                    // some addend of the row is not finite
};

}  // namespace

void multiply_accumulate(const TensorArith& arith, MatrixShape shape, const void* a, const void* b,
                         const void* c, void* d, const TensorModifiers& modifiers) {
  Product(arith, shape, modifiers, a, b).run(c, d);
}

}  // namespace imbrex::arith
