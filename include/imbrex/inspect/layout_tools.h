// SPDX-License-Identifier: Apache-2.0
// Layouts for people: who holds element (i, j), and whether a matrix descriptor reads what TMA wrote.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "imbrex/core/dtype.h"
#include "imbrex/core/parse_error.h"
#include "imbrex/core/source_location.h"

namespace imbrex {

namespace ir {
struct Function;
}

/// A layout as a table. Registers: thread and register; shared memory: byte address and bank; tensor memory:
/// lane and column.
struct LayoutTable {
  std::string layout;  ///< its text form
  int64_t rows = 0, columns = 0;
  enum class Kind : uint8_t { kRegisters, kShared, kTensorMemory } kind = Kind::kRegisters;
  struct Cell {
    int64_t a = 0;  ///< thread, byte address or lane
    int64_t b = 0;  ///< register, bank or column
  };
  std::vector<Cell> cells;  ///< row-major
  const Cell& cell(int64_t row, int64_t column) const {
    return cells[static_cast<size_t>(row * columns + column)];
  }
};

/// Names of the instruction fragments that layout_table() knows: "mma.m16n8k16.a", "wgmma.n256.d", ...
std::vector<std::string> fragment_names();
/// The table of a fragment by name, or of a layout by an expression (imbrex/lang/layout.h): "spatial(8, 4) * local(2, 2)",
/// "[8: 8t4, 8: 4t1 2r1]". Tensors of more
/// than two dimensions show their last two, at index 0 of the others. LaunchError for an unknown name,
/// ParseError for bad text.
LayoutTable layout_table(std::string_view fragment_or_text);

/// A tensor of a kernel and where its elements live, after layout inference.
struct TensorLayout {
  std::string name;
  std::string type;    ///< "shared<float16, [2, 128, 64]>"
  std::string layout;  ///< text form
  SourceLocation where;
};
/// Every register, shared and tensor-memory tensor of a kernel. Runs the passes; throws CompileError.
std::vector<TensorLayout> tensor_layouts(ir::Function& function);

/// A tile that TMA writes into shared memory, and the descriptor that wgmma or tcgen05 reads it by.
struct DescriptorQuestion {
  DataType dtype = float16;
  int64_t rows = 64, columns = 64;  ///< of the tile in global memory; columns are contiguous there
  std::string tma_swizzle =
      "128B";  ///< the box is as wide as this swizzle allows; wider tiles take several boxes
  std::string swizzle = "128B";  ///< of the descriptor
  bool is_mn_major = false;      ///< columns are m (or n) and rows k, instead of rows m (or n) and columns k
  int64_t leading_bytes = 16;    ///< LBO
  int64_t stride_bytes = 1024;   ///< SBO
  int64_t instruction_mn = 64;   ///< rows of m (or n) that an instruction reads
  int64_t base = 0;              ///< byte address of the tile
  /// Bytes added to the descriptor's start for every further k step; negative: what the tile itself suggests.
  int64_t k_advance = -1;
};
struct DescriptorAnswer {
  bool agrees = false;
  std::string explanation;  ///< the first element that differs, or what was compared
  // Where they differ:
  int64_t mn = -1, k = -1;
  int64_t written = -1, read = -1;  ///< byte addresses
};
/// Proves, element by element over the whole operand, that the descriptor reads what TMA wrote, or names the
/// first byte that differs. LaunchError when the question itself makes no sense.
DescriptorAnswer check_descriptor(const DescriptorQuestion& question);
/// The same question with the descriptor fields that do agree, when there are any; else the reason.
std::string suggest_descriptor(const DescriptorQuestion& question);

}  // namespace imbrex
