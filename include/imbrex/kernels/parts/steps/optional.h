// SPDX-License-Identifier: Apache-2.0
// Steps that a library uses or leaves out at run time.
#pragma once

#include "imbrex/kernels/parts/steps/output_tile.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

/// A step, or nothing where `used` is false: for libraries that choose at run time, each choice a compiled
/// kernel.
template <class Step>
struct Optional {
  using Parameters = ParameterList<bool, Step>;
  bool used;
  Step step;

  DataType output_type(DataType dtype) const requires requires { step.output_type(dtype); }
  { return used ? step.output_type(dtype) : dtype; }
  RegisterValue operator()(const RegisterBase& x, const OutputTile& at) const {
    return used ? step(x, at) : RegisterValue(x.handle());
  }
};

}  // namespace imbrex::kernels
