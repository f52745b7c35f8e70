// SPDX-License-Identifier: Apache-2.0
#include "vgpu/checks/chunk_origins.h"

#include <cstddef>

namespace imbrex::vgpu {

namespace {

constexpr size_t kLine = 8;  // chunks of a swizzle's line
constexpr Swizzle kSwizzles[] = {Swizzle::kNone, Swizzle::k32B, Swizzle::k64B, Swizzle::k128B};

/// Rows that follow one another in both memories look like one long row. A swizzle's line ends after eight chunks: where
/// the next eight lie directly behind it they are as likely the next row, so that nothing is known of the rectangle.
bool may_be_several_rows(const std::vector<uint32_t>& chunks, size_t row_chunks) {
  if (row_chunks <= kLine) return false;
  return std::ranges::any_of(kSwizzles, [&](Swizzle swizzle) {
    return swizzle_address(swizzle, chunks[kLine] * ChunkOrigins::kChunkBytes) ==
           swizzle_address(swizzle, chunks[0] * ChunkOrigins::kChunkBytes) +
               kLine * ChunkOrigins::kChunkBytes;
  });
}

constexpr size_t kGroup = 8;  // rows of a matrix descriptor that lie directly one after the other

/// Is each group of eight rows there for itself? A row that is longer than a line goes on behind the whole group, never
/// between its rows: what looks so are short rows that take turns in global memory, as pages of one row can.
/// `at(row, column)`: where a chunk is before the swizzle; `next`: from a row to the next one.
template <class At>
bool are_groups_apart(const At& at, size_t rows, size_t row_chunks, int64_t next) {
  std::vector<int64_t> begins;
  for (size_t row = 0; row < rows; row += kGroup)
    for (size_t column = 0; column < row_chunks; ++column) begins.push_back(at(row, column));
  std::ranges::sort(begins);
  int64_t line = begins[0];
  for (const int64_t begin : begins) {
    if (begin - line < next) continue;
    // A part of a line may begin anywhere in it.
    if (begin - line <= static_cast<int64_t>(kGroup - 1) * next) return false;
    line = begin;
  }
  return true;
}

/// Do the chunks, row by row, lie as descriptors can describe: under one of the swizzles, rows one after the
/// other in groups of eight? Rows gathered in an order of their own do not.
bool is_laid_out(const std::vector<uint32_t>& chunks, size_t row_chunks) {
  const size_t rows = chunks.size() / row_chunks;
  for (const Swizzle swizzle : kSwizzles) {
    const auto at = [&](size_t row, size_t column) -> int64_t {
      return swizzle_address(swizzle, chunks[row * row_chunks + column] * ChunkOrigins::kChunkBytes);
    };
    const int64_t next = at(1, 0) - at(0, 0), group = rows > kGroup ? at(kGroup, 0) - at(0, 0) : 0;
    if (next <= 0 || group < 0) continue;
    bool fits = true;
    for (size_t row = 0; row < rows && fits; ++row) {
      const auto r = static_cast<int64_t>(row % kGroup), g = static_cast<int64_t>(row / kGroup);
      for (size_t column = 0; column < row_chunks && fits; ++column)
        fits = at(row, column) == at(0, column) + r * next + g * group;
    }
    if (fits && are_groups_apart(at, rows, row_chunks, next)) return true;
  }
  return false;
}

}  // namespace

ChunkOrigins::Kept* ChunkOrigins::find_unread(uint64_t barrier, int64_t phase, const Box& like) {
  for (Kept& kept : boxes_)
    if (kept.chunks > 0 && kept.read == 0 && kept.box.barrier == barrier && kept.box.phase == phase &&
        kept.box.tensor == like.tensor && kept.box.rows == like.rows &&
        kept.box.row_chunks == like.row_chunks)
      return &kept;
  return nullptr;
}

void ChunkOrigins::find_rectangle(uint64_t allocation, std::vector<uint32_t>& chunks) {
  // A swizzle moves chunks inside their line only, so that lines put in order mostly put all in order.
  const auto is_before = [&](uint32_t a, uint32_t b) { return copied_[a].from < copied_[b].from; };
  for (size_t first = 0, end = 0; first < chunks.size(); first = end) {
    while (end < chunks.size() && chunks[end] / kLine == chunks[first] / kLine) ++end;
    std::sort(chunks.begin() + static_cast<ptrdiff_t>(first), chunks.begin() + static_cast<ptrdiff_t>(end),
              is_before);
  }
  if (!std::ranges::is_sorted(chunks, is_before)) std::ranges::sort(chunks, is_before);
  const auto from = [&](size_t i) { return copied_[chunks[i]].from; };
  size_t row_chunks = 1;
  while (row_chunks < chunks.size() && from(row_chunks) == from(row_chunks - 1) + kChunkBytes) ++row_chunks;
  const size_t rows = chunks.size() / row_chunks;
  if (rows < 2 || rows * row_chunks != chunks.size()) return;
  const uint64_t pitch = from(row_chunks) - from(0);
  for (size_t i = 0; i < chunks.size(); ++i)
    if (from(i) != from(0) + i / row_chunks * pitch + i % row_chunks * kChunkBytes) return;

  if (may_be_several_rows(chunks, row_chunks) || !is_laid_out(chunks, row_chunks)) return;

  const Copied& first = copied_[chunks[0]];
  const uint32_t box = add_box({first.insn, first.warp, Swizzle::kNone, static_cast<uint32_t>(rows),
                                static_cast<uint32_t>(row_chunks), allocation,
                                static_cast<int64_t>((first.from - allocation) % pitch), true});
  for (uint32_t row = 0; row < rows; ++row)
    set_row(box, row, static_cast<uint32_t>(row_chunks),
            [&](uint32_t i) { return chunks[row * row_chunks + i] * kChunkBytes; });
}

}  // namespace imbrex::vgpu
