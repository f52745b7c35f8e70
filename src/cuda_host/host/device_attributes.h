// SPDX-License-Identifier: Apache-2.0
// What devices answer of themselves: abi/device_attributes.def, evaluated for the chosen GPU.
#pragma once

#include <optional>
#include <string>

#include "cuda_host/abi/device_numbers.h"
#include "cuda_host/abi/driver_types.h"
#include "cuda_host/host/settings.h"

namespace imbrex::cuda {

/// The value of an attribute; 0 for numbers of the driver's that a virtual GPU has no more to say of; nothing for
/// numbers that are none.
std::optional<int> device_attribute(const Settings& settings, int attribute, int device);

/// "0000:01:00.0": each device is on a bus of its own.
std::string pci_bus_id(int device);
CUuuid device_uuid(int device);

}  // namespace imbrex::cuda
