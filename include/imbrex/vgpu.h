// SPDX-License-Identifier: Apache-2.0
// The virtual GPU: hosting PTX of any compiler, its findings and timelines.
#pragma once

#include "imbrex/vgpu/bent_rule.h"
#include "imbrex/vgpu/options.h"
#include "imbrex/vgpu/power.h"
#include "imbrex/vgpu/report.h"
#include "imbrex/vgpu/stream_order.h"
#include "imbrex/vgpu/timeline.h"
#include "imbrex/vgpu/virtual_gpu.h"
#include "imbrex/vgpu/virtual_node.h"
#include "imbrex/vgpu/watch.h"
