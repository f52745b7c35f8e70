// SPDX-License-Identifier: Apache-2.0
// What loads and stores of tensors share: the operand [map, {coordinates}], reading the map, a box's rows.
#pragma once

#include <vector>

#include "vgpu/machine/access.h"
#include "vgpu/memory/tensor_box.h"
#include "vgpu/program/decode.h"

namespace imbrex::vgpu {

inline constexpr const char* kTmaUnit = "TMA";

struct TensorOperand {
  AddressSource map;  // generic
  std::vector<Slot> coordinates;
  std::vector<Slot> offsets;  // of im2col loads
};
TensorOperand tensor_operand(Decoder& decoder, const ptx::Operand& operand);
/// The {offsets} of an im2col load or prefetch, operand `index`; as many as the rank has dimensions between the
/// channels and the images.
void take_offsets(Decoder& decoder, size_t index, TensorOperand& out);

/// Rank that .1d to .5d says.
int rank_of(const Decoder& decoder);

/// Refuses the im2col modes of sm_100 that go along W only.
TileMode tile_mode_of(const Decoder& decoder);

/// Reads map and coordinates of a lane. False after a finding: no map there, wrong rank, rules of
/// coordinates.
bool read_box(Cluster& cluster, const Who& who, Warp& warp, const TensorOperand& operand, int rank,
              TileMode mode, int lane, TensorBox& box);

/// Tells the checkers about one row of a box in shared memory.
void touch_row(Cluster& cluster, const Who& who, Cta& cta, const TensorMapFields& map, uint32_t shared,
               AccessKind kind);

}  // namespace imbrex::vgpu
