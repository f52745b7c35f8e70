// SPDX-License-Identifier: Apache-2.0
// The C that packages are made of stands in templates/, and is built in (CMakeLists.txt). @WORDS@ in it are
// placeholders.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace imbrex::runtime {

namespace templates {
extern const std::string_view kernel_h, kernel_c;            // NAME.h and NAME.c
extern const std::string_view plan_c;                        // of NAME.c: what there is for each target
extern const std::string_view tensor_map_c;                  // of a plan: one tensor map
extern const std::string_view divmod_magic_c, encode_map_c;  // functions that only some kernels need
}  // namespace templates

/// `text` with each @WORD@ replaced by the value of WORD. A placeholder alone in its line stands for whole
/// lines: its value ends with a newline or is empty, and the line's own newline goes. InternalError for a
/// placeholder without a value.
std::string filled(std::string_view text, const std::map<std::string_view, std::string>& values);

}  // namespace imbrex::runtime
