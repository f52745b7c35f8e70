// SPDX-License-Identifier: Apache-2.0
// From what a program hands over as a module (PTX text, a fat binary, a wrapper around one, machine code) to the PTX
// that the virtual GPU loads.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cuda_host/image/fat_binary.h"

namespace imbrex::cuda {

/// Text may be of several modules, one behind the other, which are linked.
/// The PTX in `image` that is best for a GPU of `target` ("sm_90a"): of its own variant, else the newest that it runs.
/// Throws ApiError: CUDA_ERROR_INVALID_IMAGE where it is corrupt or nothing known, CUDA_ERROR_NO_BINARY_FOR_GPU where it
/// has none for this GPU, or machine code only, with the way to add PTX.
std::string ptx_of_image(const void* image, std::string_view target);

/// The same of a file's bytes.
std::string ptx_of_bytes(std::string_view bytes, std::string_view target);

/// A module's PTX, and what messages call it.
struct NamedPtx {
  std::string name, text;
};
/// One text of several modules (ptx/link.h); a single one stays as it is. Throws ParseError and CompileError.
std::string link_ptx(std::vector<NamedPtx> modules);

/// The entry of PTX that a GPU of `target` should run, or null.
const FatEntry* best_ptx(const std::vector<FatEntry>& entries, std::string_view target);

}  // namespace imbrex::cuda
