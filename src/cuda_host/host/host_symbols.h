// SPDX-License-Identifier: Apache-2.0
// Names of the program's own functions: those that it does not export too, which the loader does not know.
#pragma once

#include <cstdint>
#include <string>

namespace imbrex::cuda {

/// "worker(int) (worker.cu:12)" where the file has line tables, else "worker(int) (./program+0x1234)", as addr2line wants it; without the
/// name where the file has no symbols.
std::string described_address(uint64_t address);

}  // namespace imbrex::cuda
