// SPDX-License-Identifier: Apache-2.0
// Products whose k is divided among CTAs that need not run at once: each leaves its sums in memory, and a kernel of its own
// adds them up (SumOfKParts), always in the same order.
#pragma once

#include "imbrex/kernels/parts/batch.h"
#include "imbrex/kernels/parts/steps/output_tile.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

/// The number of parts, as a step of the kernel that multiplies: it changes no element, and the result is float32
/// [parts, m, n], of a batch [matrices * parts, m, n]. All parts
/// have equally many blocks of k, but for the last ones, which may have fewer or none.
struct PartsOfK {
  using Parameters = ParameterList<Int32>;
  Int32 parts;

  DataType output_type(DataType) const { return float32; }
  RegisterValue operator()(const RegisterBase& x, const OutputTile&) const {
    return RegisterValue(x.handle());
  }
};

/// Where the sums go: [parts, m, n], or [matrices * parts, m, n].
inline GlobalTensor parts_view(const PtrArg& pointer, const Batch* batch, const PartsOfK& parts,
                               const ScalarArg& m, const ScalarArg& n) {
  return global_view(pointer, float32,
                     {batch ? ScalarArg(batch->matrices * parts.parts) : ScalarArg(parts.parts), m, n});
}

/// Which part a tile is of, and which of its tiles it is.
struct TileOfPart {
  ScalarArg part, tile;
};
/// Tiles are numbered part by part, of `tiles` each. Without parts there is one.
inline TileOfPart tile_of_part(const PartsOfK* parts, const ScalarArg& tile, const ScalarArg& tiles) {
  if (parts == nullptr) return {0, tile};
  const auto [part, rest] = fast_divmod(tile, tiles);
  return {part, rest};
}

}  // namespace imbrex::kernels
