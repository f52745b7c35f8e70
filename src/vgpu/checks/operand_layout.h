// SPDX-License-Identifier: Apache-2.0
// Does a matrix descriptor read the data as tensor copies (or cp.async) wrote it? Looked at where one of the
// two swizzles: along a line the chunks of a box follow each other, and from line to line its rows; lines of
// different boxes begin at the same place of the contiguous dimension.
#pragma once

#include "vgpu/checks/operand_boxes.h"
#include "vgpu/memory/matrix_descriptor.h"

namespace imbrex::vgpu {

class OperandLayout {
 public:
  /// The boxes it reads are added to `boxes` (may be null).
  OperandLayout(const TileContext& tiles, const Who& who, Swizzle swizzle, const char* what,
                OperandBoxes* boxes = nullptr);
  /// The next line: shared offsets of its chunks.
  void line(const uint32_t* chunks, uint32_t count);

 private:
  using Chunk = ChunkOrigins::Chunk;
  void check_neighbours(const Chunk& before, const Chunk& now, uint32_t chunk, uint32_t offset);
  void check_lines(const Chunk& before, const Chunk& now, uint32_t offset);
  void report(const Chunk& now, uint32_t chunk, uint32_t offset, const std::string& expected);

  TileContext tiles_;
  Who who_;
  Swizzle swizzle_;
  const char* what_;
  OperandBoxes* boxes_;
  uint32_t line_ = 0;
  Chunk first_;  // of the first line
  Chunk last_;   // the first chunk of the line before
  bool reported_ = false;
};

}  // namespace imbrex::vgpu
