// SPDX-License-Identifier: Apache-2.0
// The numbers of device attributes, which both interfaces share.
#pragma once

namespace imbrex::cuda {

enum DeviceAttribute : int {
#define ATTRIBUTE(number, name, value) kDevice##name = number,
#include "cuda_host/abi/device_attributes.def"
#undef ATTRIBUTE
};

}  // namespace imbrex::cuda
