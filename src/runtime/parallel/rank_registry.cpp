// SPDX-License-Identifier: Apache-2.0
#include "imbrex/parallel/rank_registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "imbrex/core/error.h"

namespace imbrex::parallel {

namespace {

std::map<std::string, RegisteredRanks>& mutable_ranks() {
  static std::map<std::string, RegisteredRanks> all;
  return all;
}

}  // namespace

const std::map<std::string, RegisteredRanks>& registered_ranks() { return mutable_ranks(); }

const RegisteredRanks& registered_ranks(const std::string& name) {
  const auto found = mutable_ranks().find(name);
  if (found != mutable_ranks().end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, ranks] : mutable_ranks()) names.push_back(known);
  throw LaunchError(Diagnostic{{},
                               fmt::format("nothing that several ranks launch is called '{}'", name),
                               {},
                               fmt::format("known: {}", fmt::join(names, ", "))});
}

RanksRegistration::RanksRegistration(RegisteredRanks ranks) {
  std::string name = ranks.description.name;
  if (!mutable_ranks().emplace(name, std::move(ranks)).second)
    throw InternalError("two calls of several ranks are registered as '" + name + "'");
}

}  // namespace imbrex::parallel
