// SPDX-License-Identifier: Apache-2.0
// Source lines of the program's own code, by the line tables that compilers leave in a file where they are asked for (-g).
#pragma once

#include <cstdint>
#include <string>

namespace imbrex::cuda {

/// "train.cu:12", with the path that the compiler was given, of the instruction at an address as the file counts; "" where the file does
/// not say, or says it compressed or in a form later than DWARF 5.
std::string source_line(const std::string& file, uint64_t address);

}  // namespace imbrex::cuda
