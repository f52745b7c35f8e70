// SPDX-License-Identifier: Apache-2.0
// How messages of passes name ops and tensors.
#pragma once

#include <string>

#include "ir/ir.h"

namespace imbrex::passes {

/// "tcgen05_mma at gemm.cpp:42".
std::string op_text(const ir::Op& op);
/// "shared<float16, [128, 64]> s_a, made at gemm.cpp:31".
std::string tensor_text(const ir::Value& value);

}  // namespace imbrex::passes
