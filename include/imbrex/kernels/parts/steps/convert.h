// SPDX-License-Identifier: Apache-2.0
// The type of the result.
#pragma once

#include "imbrex/kernels/parts/steps/output_tile.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

/// The result is of this type instead of the operands'.
struct Convert {
  using Parameters = ParameterList<DataType>;
  DataType dtype;

  DataType output_type(DataType) const { return dtype; }
  RegisterValue operator()(const RegisterBase& x, const OutputTile&) const {
    return RegisterValue(x.handle());
  }
};

}  // namespace imbrex::kernels
