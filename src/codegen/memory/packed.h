// SPDX-License-Identifier: Apache-2.0
// Memory of elements of less than a byte as memory of bytes. What starts and ends inside a byte is refused: a store would
// have to keep the rest of the byte, which other threads may be writing.
#pragma once

#include "codegen/generator.h"

namespace imbrex::codegen {

/// A tile of a tensor in global memory, in bytes.
struct GlobalBytes {
  GlobalView view;
  std::vector<Integer> offsets;
  int tile_dim;  ///< the dimension of the tile along which elements became bytes
};
GlobalBytes global_bytes(Generator& g, const ir::Op& op, const GlobalView& view,
                         std::span<const int64_t> dims, std::span<const Integer> offsets);

/// A tensor in shared memory, in bytes.
struct SharedBytes {
  SharedView view;
  int dim;  ///< along which elements became bytes
};
SharedBytes shared_bytes(Generator& g, const ir::Op& op, const SharedView& view);

/// The layout of registers with elements along `dim` as bytes; fails where no thread holds whole ones.
layout::Layout register_bytes(Generator& g, const ir::Op& op, const layout::Layout& registers, DataType dtype,
                              int dim);

}  // namespace imbrex::codegen
