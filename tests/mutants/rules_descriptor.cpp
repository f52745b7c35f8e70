// SPDX-License-Identifier: Apache-2.0
// Faults in descriptors: of tensors for TMA, of matrices in shared memory, of tensor-core instructions.
#include <algorithm>

#include "mutants/rules.h"

namespace imbrex::mutants {
namespace {

using ptx::Op;

/// A matmul's first two maps are those of its operands. A smaller box of its result changes only what is
/// stored, which the numbers alone can tell.
constexpr size_t kLoads = 2, kAll = ~size_t{0};

/// A mutant of each of the first `count` tensor maps of the launch plan, at the first copy of the kernel.
void each_map(Places& places, size_t count, const std::function<bool(codegen::TensorMapPlan&)>& change) {
  for (size_t m = 0; m < std::min(count, places.subject().kernel.tensor_maps.size()); ++m) {
    codegen::TensorMapPlan map = places.subject().kernel.tensor_maps[m];
    if (!change(map)) continue;
    size_t site = 0;
    while (site < places.f.body.size() && places.f.body[site].op != Op::cp_async_bulk_tensor) ++site;
    if (site < places.f.body.size()) places.add(site, [&](Edit& e) { e.kernel.tensor_maps[m] = map; });
  }
}

void map_swizzle(Places& places) {
  each_map(places, kAll, [](codegen::TensorMapPlan& map) {
    map.swizzle = map.swizzle == TensorMapSwizzle::kNone
                      ? TensorMapSwizzle::k32B
                      : static_cast<TensorMapSwizzle>(static_cast<int>(map.swizzle) - 1);
    return true;
  });
}
void map_box_rows(Places& places) {
  each_map(places, kLoads, [](codegen::TensorMapPlan& map) {
    if (map.box.size() < 2 || map.box[1] < 2) return false;
    map.box[1] /= 2;
    return true;
  });
}
void map_box_wide(Places& places) {
  each_map(places, kAll, [](codegen::TensorMapPlan& map) {
    if (map.box.size() < 2 || map.box[1] + 8 > 256) return false;
    map.box[1] += 8;
    return true;
  });
}
void map_box_columns(Places& places) {
  each_map(places, kLoads, [](codegen::TensorMapPlan& map) {
    if (map.box[0] < 16) return false;
    map.box[0] /= 2;
    return true;
  });
}

constexpr uint64_t kSwizzleBit = uint64_t{1} << 62, kVersion = uint64_t{1} << 46,
                   kStrideBit = uint64_t{1} << 36, kBaseOffset = uint64_t{1} << 49;

/// Products whose operand 1 (A) or 2 (B) is a descriptor; A may be in registers.
template <class Body>
void each_described(Places& places, Op op, int operand, Body&& body) {
  places.each(op, [&](size_t i) {
    if (places.operand(i, static_cast<size_t>(operand)).is_reg()) body(i);
  });
}

/// The constant part of a matrix descriptor: the immediate added to an address, version bit 46 set. wgmma's
/// have no version, there it is done where they are used.
template <uint64_t kFlip>
void matrix_bits(Places& places) {
  for (const int operand : {1, 2})
    if (kFlip != kVersion)
      each_described(places, Op::wgmma_mma_async, operand, [&](size_t i) {
        places.add(i, [&](Edit& e) {
          const ptx::Reg changed = e.fresh(ptx::ScalarType::b64);
          const auto k = static_cast<size_t>(operand);
          e.insert(i, Op::xor_, {ptx::ScalarType::b64},
                   {changed, e.operand(i, k), static_cast<int64_t>(kFlip)});
          e.operand(i + 1, k) = changed;
        });
      });
  places.each(Op::add, [&](size_t i) {
    if (!places.f.body[i].type_count() || ptx::bits(places.f.body[i].type()) != 64) return;
    const ptx::Operand& constant = places.operand(i, 2);
    if (!constant.is_immediate() || (static_cast<uint64_t>(constant.value) >> 46 & 1) == 0) return;
    places.add(i, [&](Edit& e) {
      e.operand(i, 2).value = static_cast<int64_t>(static_cast<uint64_t>(constant.value) ^ kFlip);
    });
  });
}

/// One operand's descriptor points further: to the next K step, or to the next lines. Not A's of wgmma, where
/// a consumer's is a part of a tile: the next lines are of the tile as well, and nothing but numbers is
/// wrong.
template <int kBytes, int kOperand>
void matrix_shift(Places& places) {
  for (const Op op : {Op::tcgen05_mma, Op::wgmma_mma_async}) {
    if (op == Op::wgmma_mma_async && kOperand == 1) continue;
    each_described(places, op, kOperand, [&](size_t i) {
      places.add(i, [&](Edit& e) {
        const ptx::Reg moved = e.fresh(ptx::ScalarType::b64);
        e.insert(i, Op::add, {ptx::ScalarType::s64}, {moved, e.operand(i, kOperand), kBytes / 16});
        e.operand(i + 1, kOperand) = moved;
      });
    });
  }
}

template <uint32_t kFlip>
void instruction_bits(Places& places) {
  places.each(Op::tcgen05_mma, [&](size_t i) {
    const auto definition = definition_before(places.f, i, places.operand(i, 3).reg());
    if (!definition || places.f.body[*definition].op != Op::mov) return;
    // All products of the loop share it: one mutant.
    for (size_t k = 0; k < i; ++k)
      if (places.f.body[k].op == Op::tcgen05_mma && places.operand(k, 3).reg() == places.operand(i, 3).reg())
        return;
    places.add(i, [&](Edit& e) {
      e.operand(*definition, 1).value =
          static_cast<int64_t>(static_cast<uint64_t>(e.operand(*definition, 1).value) ^ kFlip);
    });
  });
}
/// wgmma's last two immediates.
template <int kOperand>
void transposed(Places& places) {
  instruction_bits<kOperand == 1 ? 1u << 15 : 1u << 16>(places);
  each_described(places, Op::wgmma_mma_async, kOperand, [&](size_t i) {
    const size_t at = places.f.body[i].operand_count - 3 + kOperand;
    if (places.operand(i, at).is_immediate()) places.add(i, [&](Edit& e) { e.operand(i, at).value ^= 1; });
  });
}
constexpr uint32_t kType = 1u << 7, kOutput = 1u << 4, kHalfOfN32 = 6u << 17, kDoubleOfN32 = 12u << 17,
                   kDoubleM = 0x18u << 24;

constexpr Rule kRules[] = {
    {"map-swizzle", "a tensor map has another swizzle", map_swizzle},
    {"map-half-box", "a tensor map's box has half the rows", map_box_rows},
    {"map-tall-box", "a tensor map's box has 8 extra rows", map_box_wide},
    {"map-narrow-box", "a tensor map's box has half the columns", map_box_columns},
    {"matrix-swizzle", "a matrix descriptor has another swizzle", matrix_bits<kSwizzleBit>},
    {"matrix-stride", "a matrix descriptor has another stride", matrix_bits<kStrideBit>},
    {"matrix-version", "a matrix descriptor lacks its constant bit", matrix_bits<kVersion>},
    {"matrix-base-offset", "a matrix descriptor has a base offset", matrix_bits<kBaseOffset>},
    {"matrix-a-next-line", "the descriptor of A starts 128 bytes further", matrix_shift<128, 1>},
    {"matrix-a-next-stage", "the descriptor of A starts a stage further", matrix_shift<4096, 1>},
    {"matrix-b-next-line", "the descriptor of B starts 128 bytes further", matrix_shift<128, 2>},
    {"transpose-a", "the instruction (descriptor) has A transposed", transposed<1>},
    {"transpose-b", "the instruction (descriptor) has B transposed", transposed<2>},
    {"half-n", "the instruction descriptor has half the columns", instruction_bits<kHalfOfN32>},
    {"double-n", "the instruction descriptor has twice the columns", instruction_bits<kDoubleOfN32>},
    {"other-m", "the instruction descriptor has another number of rows", instruction_bits<kDoubleM>},
};

}  // namespace

std::span<const Rule> descriptor_rules() { return kRules; }

}  // namespace imbrex::mutants
