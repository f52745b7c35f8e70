// SPDX-License-Identifier: Apache-2.0
#include "vgpu/checks/operand_layout.h"

#include <fmt/format.h>

namespace imbrex::vgpu {

OperandLayout::OperandLayout(const TileContext& tiles, const Who& who, Swizzle swizzle, const char* what,
                             OperandBoxes* boxes)
    : tiles_(tiles), who_(who), swizzle_(swizzle), what_(what), boxes_(boxes) {
  tiles.origins.find_copied_boxes([&](uint64_t address) {
    const Allocation* allocation = tiles.global.find(address);
    return allocation == nullptr ? 0 : allocation->address;
  });
}

void OperandLayout::report(const Chunk& now, uint32_t chunk, uint32_t offset, const std::string& expected) {
  reported_ = true;
  const ChunkOrigins::Box& box = tiles_.origins.box(now);
  const Who loader = Who{&tiles_.cta, box.warp, -1, box.insn}.as_unit(box.is_copied ? "cp.async" : "TMA");
  Finding* finding = tiles_.log.open(FindingKind::kOperandLayout, who_, offset, &loader);
  if (finding == nullptr) return;
  finding->message =
      fmt::format("operand {}: line {}, bytes {} to {} (shared {:#x}) are row {}, bytes {} to {} of a {}; {}",
                  what_, line_, chunk * 16, chunk * 16 + 15, offset, now.row, now.column * 16,
                  now.column * 16 + 15, box.is_copied ? "tile that cp.async copied" : "loaded box", expected);
  const std::string map = box.is_copied ? "" : fmt::format(", the tensor map's {}", facts(box.swizzle).name);
  finding->facts.push_back(fmt::format("the descriptor's swizzle is {}{}; the {} has {} rows of {} bytes",
                                       facts(swizzle_).name, map, box.is_copied ? "tile" : "box", box.rows,
                                       box.row_chunks * 16));
  finding->hint = fmt::format("make the descriptor's swizzle, start, base offset and strides those {}",
                              box.is_copied ? "with which the threads copied" : "of the loaded box");
}

void OperandLayout::check_neighbours(const Chunk& before, const Chunk& now, uint32_t chunk, uint32_t offset) {
  if (before.box == 0 || before.box != now.box) return;
  const ChunkOrigins::Box& box = tiles_.origins.box(now);
  if (box.swizzle == Swizzle::kNone && swizzle_ == Swizzle::kNone) return;
  // A line goes on in another part of the box only where that lies whole repetitions of the swizzle further.
  const bool next_part =
      now.column == 0 && before.column + 1 == box.row_chunks && now.row > before.row &&
      (now.row - before.row) * box.row_chunks * ChunkOrigins::kChunkBytes % facts(box.swizzle).period == 0;
  if (next_part) return;
  report(now, chunk, offset,
         fmt::format("behind row {}, byte {} the same row's byte {} was expected", before.row,
                     before.column * 16, before.column * 16 + 16));
}

void OperandLayout::check_lines(const Chunk& before, const Chunk& now, uint32_t offset) {
  if (before.box == 0 || now.box == 0) return;
  const ChunkOrigins& origins = tiles_.origins;
  const ChunkOrigins::Box &box = origins.box(now), &last = origins.box(before);
  if ((box.swizzle == Swizzle::kNone || last.swizzle == Swizzle::kNone) && swizzle_ == Swizzle::kNone) return;
  if (now.box == before.box) {
    if (now.row == before.row + 1 && now.column == before.column) return;
    report(now, 0, offset,
           fmt::format("the line before begins with row {}, byte {}, so row {} was expected", before.row,
                       before.column * 16, before.row + 1));
    return;
  }
  if (before.row + 1 != last.rows || now.row != 0) {
    report(now, 0, offset,
           fmt::format("the line before begins with row {} of {} of another box", before.row, last.rows));
  } else if (box.inner + now.column * 16 != last.inner + before.column * 16) {
    report(now, 0, offset,
           fmt::format("it lies {} bytes along its tensor's rows, the line before, of another box, {} bytes",
                       box.inner + now.column * 16, last.inner + before.column * 16));
  } else if (box.tensor != last.tensor && first_.row != 0) {
    report(now, 0, offset,
           fmt::format("the lines before are of another tensor, the first of them row {}", first_.row));
  }
}

void OperandLayout::line(const uint32_t* chunks, uint32_t count) {
  const ChunkOrigins& origins = tiles_.origins;
  if (reported_ || origins.empty()) return;
  Chunk before = origins.at(chunks[0]);
  const bool goes_on =
      line_ != 0 && before.box == last_.box && before.row == last_.row + 1 && before.column == last_.column;
  if (!goes_on) {
    if (boxes_ != nullptr) boxes_->add(tiles_.origins, before.box);
    if (line_ == 0)
      first_ = before;
    else
      check_lines(last_, before, chunks[0]);
  }
  last_ = before;
  for (uint32_t c = 1; c < count && !reported_; ++c) {
    const Chunk now = origins.at(chunks[c]);
    const bool next_in_row =
        now.box == before.box && now.row == before.row && now.column == before.column + 1;
    if (!next_in_row) check_neighbours(before, now, c, chunks[c]);
    before = now;
  }
  ++line_;
}

}  // namespace imbrex::vgpu
