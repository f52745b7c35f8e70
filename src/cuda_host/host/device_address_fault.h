// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace imbrex::cuda {

/// From now on a SIGSEGV at an address of device memory says so before the program ends as it would have: host code
/// that follows a pointer of cudaMalloc is a frequent first mistake.
void explain_device_address_faults();

}  // namespace imbrex::cuda
