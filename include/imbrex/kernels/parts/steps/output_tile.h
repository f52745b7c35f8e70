// SPDX-License-Identifier: Apache-2.0
// Where a step works: the part of the matrix that it is given.
#pragma once

#include "imbrex/lang.h"

namespace imbrex::kernels {

/// A tile, or a part of one, of the matrix that a kernel computes.
struct OutputTile {
  ScalarArg rows, columns;  ///< of the whole matrix
  DataType dtype;           ///< of its elements
  ScalarArg row, column;    ///< of the tile's first element
  ScalarArg matrix = 0;     ///< which one of a batch
};

}  // namespace imbrex::kernels
