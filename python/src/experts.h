// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "imbrex/parallel.h"

namespace imbrex::python {

/// imbrex.parallel.ExpertExchange stands on what this makes. `target`: of the ranks' virtual GPUs.
nanobind::object make_exchange(const parallel::Communicator& ranks, const std::string& target,
                               const parallel::ExpertSizes& sizes, SourceLocation where);
void bind_experts(nanobind::module_& m);

}  // namespace imbrex::python
