// SPDX-License-Identifier: Apache-2.0
#include "vgpu/checks/staged_tile.h"

#include <fmt/format.h>

#include <optional>

namespace imbrex::vgpu {

namespace {

constexpr uint32_t kChunk = ChunkOrigins::kChunkBytes;

/// The tile as one swizzle has it.
struct Tile {
  const ChunkOrigins& origins;
  const Program& program;
  std::vector<uint32_t> rows;  // addresses before the swizzle
  uint32_t chunks;

  ChunkOrigins::Staged at(Swizzle swizzle, size_t row, uint32_t chunk) const {
    return origins.staged_at(swizzle_address(swizzle, rows[row] + chunk * kChunk));
  }
  LoadedColumns columns(const ChunkOrigins::Staged& staged) const {
    return program.info[staged.store].stages;
  }
};

struct Piece {
  size_t row;
  uint32_t chunk;
};

/// The first piece that has other columns than the one above it in the first row, or another thread than the
/// first of its row.
std::optional<Piece> first_mismatch(const Tile& tile, Swizzle swizzle) {
  for (size_t row = 0; row < tile.rows.size(); ++row)
    for (uint32_t chunk = 0; chunk < tile.chunks; ++chunk) {
      const ChunkOrigins::Staged now = tile.at(swizzle, row, chunk);
      if (now.thread != tile.at(swizzle, row, 0).thread ||
          tile.columns(now) != tile.columns(tile.at(swizzle, 0, chunk)))
        return Piece{row, chunk};
    }
  return std::nullopt;
}

}  // namespace

void check_staged_tile(const TileContext& tiles, const Who& who, const TensorBox& box, uint32_t from) {
  const TensorMapFields& map = box.map;
  const ChunkOrigins& origins = tiles.origins;
  if (!origins.has_staged() || map.row_bytes() % kChunk != 0 || swizzle_piece(map.swizzle) != kChunk) return;
  Tile tile{origins, tiles.program, {}, map.row_bytes() / kChunk};
  bool is_staged = true;
  box.for_each_row(from, [&](const BoxRow& row) {
    tile.rows.push_back(row.shared);
    for (uint32_t chunk = 0; chunk < tile.chunks; ++chunk)
      is_staged = is_staged && tile.at(map.swizzle, tile.rows.size() - 1, chunk).is_known;
  });
  if (!is_staged) return;
  const std::optional<Piece> mismatch = first_mismatch(tile, map.swizzle);
  if (!mismatch) return;
  for (const Swizzle other : {Swizzle::kNone, Swizzle::k32B, Swizzle::k64B, Swizzle::k128B}) {
    if (first_mismatch(tile, other)) continue;
    const ChunkOrigins::Staged staged = tile.at(map.swizzle, mismatch->row, mismatch->chunk);
    const Who writer{&tiles.cta, static_cast<int>(staged.thread / kWarpSize),
                     static_cast<int>(staged.thread % kWarpSize), &tiles.program.code[staged.store], ""};
    Finding* finding = tiles.log.open(FindingKind::kOperandLayout, who, from, &writer);
    if (finding == nullptr) return;
    finding->message = fmt::format(
        "stores a box whose swizzle is {} from shared {:#x}, where threads have written it with that of {}: "
        "row {}, bytes {} to {} are not of the same columns of tensor memory as those of row 0",
        facts(map.swizzle).name, from, facts(other).name, mismatch->row, mismatch->chunk * kChunk,
        mismatch->chunk * kChunk + kChunk - 1);
    finding->hint = "make the tensor map's swizzle the one with which the threads write the tile";
    return;
  }
}

}  // namespace imbrex::vgpu
