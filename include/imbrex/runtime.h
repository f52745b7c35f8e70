// SPDX-License-Identifier: Apache-2.0
// Compiling, launching, tuning, verifying and packaging kernels.
#pragma once

#include "imbrex/runtime/autotune.h"
#include "imbrex/runtime/bench.h"
#include "imbrex/runtime/cache.h"
#include "imbrex/runtime/caller_line.h"
#include "imbrex/runtime/compare.h"
#include "imbrex/runtime/compile.h"
#include "imbrex/runtime/device.h"
#include "imbrex/runtime/device_tensor.h"
#include "imbrex/runtime/graph.h"
#include "imbrex/runtime/host_tensor.h"
#include "imbrex/runtime/kernel.h"
#include "imbrex/runtime/package.h"
#include "imbrex/runtime/ptx_module.h"
#include "imbrex/runtime/registry.h"
#include "imbrex/runtime/scale_factors.h"
#include "imbrex/runtime/stream.h"
#include "imbrex/runtime/tuner.h"
#include "imbrex/runtime/workspace.h"
