// SPDX-License-Identifier: Apache-2.0
// What several ranks launch together, by name, for `imbrex predict NAME --ranks N`.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "imbrex/parallel/communicator.h"
#include "imbrex/runtime/device.h"
#include "imbrex/runtime/registry.h"

namespace imbrex::parallel {

/// One call that all ranks make.
struct RegisteredRanks {
  KernelDescription description;
  /// Called by every rank: makes tensors of these sizes, of undefined contents, and launches once.
  std::function<LaunchReport(Communicator&, const std::map<std::string, int64_t>& sizes)> launch;
};

/// Every one, in order of name.
const std::map<std::string, RegisteredRanks>& registered_ranks();
/// The one of that name; LaunchError with those that there are.
const RegisteredRanks& registered_ranks(const std::string& name);

/// A static object that registers one at program start. InternalError for a name that is taken.
struct RanksRegistration {
  explicit RanksRegistration(RegisteredRanks ranks);
};

}  // namespace imbrex::parallel
