// SPDX-License-Identifier: Apache-2.0
// Looking into kernels without running them: tiles and occupancy, traffic, bank conflicts, layouts, GPU
// models.
#pragma once

#include "imbrex/inspect/banks.h"
#include "imbrex/inspect/gpu_model.h"
#include "imbrex/inspect/layout_tools.h"
#include "imbrex/inspect/occupancy.h"
#include "imbrex/inspect/sectors.h"
#include "imbrex/inspect/tiling.h"
#include "imbrex/inspect/traffic.h"
#include "imbrex/inspect/written_parameters.h"
