// SPDX-License-Identifier: Apache-2.0
// What the PTX tests share.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace imbrex::ptx {

/// A module with one kernel `k` of this body, and a few registers: p, q (pred), h0..9, r0..9, w0..9, f0..9,
/// d0..9.
inline std::string kernel(const std::string& body, const std::string& target = "sm_90a") {
  return ".version 9.0\n.target " + target +
         "\n.address_size 64\n.visible .entry k(.param .u64 a, .param .align 64 .b8 map[128])\n{\n"
         ".reg .pred p, q;\n.reg .b16 h<10>;\n.reg .b32 r<10>;\n.reg .b64 w<10>;\n.reg .f32 f<10>;\n.reg "
         ".f64 d<10>;\n" +
         body + "\n}\n";
}
/// The line of kernel()'s text on which the body begins.
inline constexpr unsigned kBodyLine = 12;

inline std::string file_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The .ptx files of tests/ptx/data, sorted.
inline std::vector<std::filesystem::path> data_files() {
  std::vector<std::filesystem::path> out;
  for (const auto& entry : std::filesystem::directory_iterator(IMBREX_SOURCE_DIR "/tests/ptx/data"))
    if (entry.path().extension() == ".ptx") out.push_back(entry.path());
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace imbrex::ptx
