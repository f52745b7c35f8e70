// SPDX-License-Identifier: Apache-2.0
// Everything a kernel is written with.
#pragma once

#include "imbrex/core/dtype.h"
#include "imbrex/core/error.h"
#include "imbrex/lang/clc.h"
#include "imbrex/lang/cluster.h"
#include "imbrex/lang/control.h"
#include "imbrex/lang/debug.h"
#include "imbrex/lang/fence.h"
#include "imbrex/lang/kernel_parameters.h"
#include "imbrex/lang/launch.h"
#include "imbrex/lang/mbarrier.h"
#include "imbrex/lang/memory.h"
#include "imbrex/lang/mma.h"
#include "imbrex/lang/pointer.h"
#include "imbrex/lang/scalar.h"
#include "imbrex/lang/tcgen05.h"
#include "imbrex/lang/tensor.h"
#include "imbrex/lang/tma.h"
#include "imbrex/lang/tuning_space.h"
#include "imbrex/lang/wgmma.h"
