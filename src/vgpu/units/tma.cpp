// SPDX-License-Identifier: Apache-2.0
#include "vgpu/units/tma.h"

#include <fmt/format.h>

#include "vgpu/memory/raced_bytes.h"

namespace imbrex::vgpu {

using ptx::Mod;

TensorOperand tensor_operand(Decoder& decoder, const ptx::Operand& operand) {
  const std::span<const ptx::Operand> parts = decoder.elements(operand);
  TensorOperand out;
  out.map = decoder.address_in(parts[0], Space::kGeneric);
  for (const ptx::Operand& coordinate : decoder.elements(parts[1]))
    out.coordinates.push_back(decoder.source(coordinate, ptx::ScalarType::s32));
  return out;
}

void take_offsets(Decoder& decoder, size_t index, TensorOperand& out) {
  const auto expected = static_cast<size_t>(rank_of(decoder) - 2);
  if (index >= decoder.operand_count() || decoder.operand(index).kind != ptx::OperandKind::vector)
    decoder.refuse(fmt::format(".im2col takes {} offsets in braces", expected));
  for (const ptx::Operand& offset : decoder.elements(decoder.operand(index)))
    out.offsets.push_back(decoder.source(offset, ptx::ScalarType::u16));
  if (out.offsets.size() != expected)
    decoder.refuse(
        fmt::format("{} im2col offsets are given, this rank takes {}", out.offsets.size(), expected));
}

int rank_of(const Decoder& decoder) {
  constexpr Mod kRanks[] = {Mod::_1d, Mod::_2d, Mod::_3d, Mod::_4d, Mod::_5d};
  for (int i = 0; i < 5; ++i)
    if (decoder.has(kRanks[i])) return i + 1;
  return 0;
}

TileMode tile_mode_of(const Decoder& decoder) {
  for (Mod mod : {Mod::im2col_w, Mod::im2col_w_128})
    if (decoder.has(mod)) decoder.refuse("im2col::w and im2col::w::128 are not modelled; im2col is");
  if (decoder.has(Mod::im2col) || decoder.has(Mod::im2col_no_offs)) {
    if (rank_of(decoder) < 3) decoder.refuse("the im2col modes take 3 to 5 dimensions");
    return TileMode::kIm2col;
  }
  return decoder.has(Mod::tile_gather4) || decoder.has(Mod::tile_scatter4) ? TileMode::kFourRows
                                                                           : TileMode::kTile;
}

bool read_box(Cluster& cluster, const Who& who, Warp& warp, const TensorOperand& operand, int rank,
              TileMode mode, int lane, TensorBox& box) {
  const uint64_t address = warp.address(operand.map, lane);
  Place place;
  if (!locate(cluster, who, Space::kGeneric, address, kTensorMapBytes, 64, AccessKind::kRead, place))
    return false;
  TensorMap map;
  read_bytes(map.words.data(), place.host, kTensorMapBytes);
  DecodedTensorMap decoded = decode(map);
  box.map = decoded.fields;
  box.mode = mode;
  std::string problem = decoded.problem;
  if (problem.empty() && box.map.rank != rank)
    problem =
        fmt::format("the instruction is {}-dimensional, the tensor map {}-dimensional", rank, box.map.rank);
  if (problem.empty() && mode == TileMode::kFourRows && box.map.box[1] != 1)
    problem =
        fmt::format("gather4 and scatter4 take a box of one row, the tensor map has {}", box.map.box[1]);
  if (problem.empty() && box.map.is_im2col != (mode == TileMode::kIm2col))
    problem = fmt::format("the instruction is of the {} modes, the tensor map of the {} modes",
                          box.map.is_im2col ? "tile" : "im2col", box.map.is_im2col ? "im2col" : "tile");
  const bool is_atom_mode = facts(box.map.swizzle).atom > 16;
  if (problem.empty() && is_atom_mode && cluster.launch().target.sm < 100)
    problem = fmt::format("swizzle {} needs sm_100", facts(box.map.swizzle).name);
  if (!problem.empty()) {
    cluster.report_fatal(FindingKind::kIllegalInstruction, who, address, "tensor copy: " + problem);
    return false;
  }
  for (size_t d = 0; d < operand.coordinates.size() && d < box.coordinates.size(); ++d)
    box.coordinates[d] = static_cast<int32_t>(warp.reg<uint32_t>(operand.coordinates[d])[lane]);
  for (size_t d = 0; d < operand.offsets.size(); ++d) {
    box.offsets[d] = warp.reg<uint32_t>(operand.offsets[d])[lane] & 0xFFFF;
    const auto end = static_cast<uint32_t>(2 * im2col_limit(rank));
    if (box.offsets[d] < end) continue;
    cluster.report_fatal(FindingKind::kIllegalInstruction, who, address,
                         fmt::format("tensor copy: im2col offset {} of dimension {} must lie in 0 ... {}",
                                     box.offsets[d], d + 1, end - 1));
    return false;
  }
  for (size_t d = 1; mode == TileMode::kIm2col && d < static_cast<size_t>(rank - 1); ++d) {
    if (box.coordinates[d] >= box.map.first_pixel(d) && box.coordinates[d] <= box.map.last_pixel(d)) continue;
    cluster.report_fatal(
        FindingKind::kIllegalInstruction, who, address,
        fmt::format("tensor copy: coordinate {} of dimension {} is outside the pixel box, which goes "
                    "from {} to {}",
                    box.coordinates[d], d, box.map.first_pixel(d), box.map.last_pixel(d)),
        "the hardware ends the kernel with an illegal instruction");
    return false;
  }
  // The innermost coordinate counts in 16-byte units, wherever the box lies.
  const int64_t eighths = facts(box.map.type).eighths_in_global;
  if (int64_t{box.coordinates[0]} * eighths % 128 != 0) {
    cluster.report_fatal(
        FindingKind::kIllegalInstruction, who, address,
        fmt::format("tensor copy: coordinate {} of dimension 0 is {} bytes from the start, which is not a "
                    "multiple of 16",
                    box.coordinates[0], int64_t{box.coordinates[0]} * eighths / 8),
        "the hardware ends the kernel with an illegal instruction");
    return false;
  }
  return true;
}

void touch_row(Cluster& cluster, const Who& who, Cta& cta, const TensorMapFields& map, uint32_t shared,
               AccessKind kind) {
  const uint32_t bytes = map.row_bytes(), span = facts(map.swizzle).span;
  // A swizzle permutes inside its span, so full rows stay in place.
  if (span == 0 || bytes == span) {
    touch(cluster, who, shared_place(cta, shared), bytes, kind);
    return;
  }
  for (uint32_t at = 0; at < bytes; at += 16)
    touch(cluster, who, shared_place(cta, swizzle_address(map.swizzle, shared + at) & ~15u), 16, kind);
}

}  // namespace imbrex::vgpu
