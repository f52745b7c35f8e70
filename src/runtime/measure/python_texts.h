// SPDX-License-Identifier: Apache-2.0
// Python programs of this folder, built in (CMakeLists.txt).
#pragma once

#include <string_view>

namespace imbrex::runtime::python {

extern const std::string_view torch_attention_py;

}  // namespace imbrex::runtime::python
