// SPDX-License-Identifier: Apache-2.0
// Everything a kernel is written with.
#pragma once

#include "imbrex/clc.h"
#include "imbrex/cluster.h"
#include "imbrex/control.h"
#include "imbrex/debug.h"
#include "imbrex/dtype.h"
#include "imbrex/error.h"
#include "imbrex/fence.h"
#include "imbrex/kernel.h"
#include "imbrex/launch.h"
#include "imbrex/mbarrier.h"
#include "imbrex/memory.h"
#include "imbrex/mma.h"
#include "imbrex/pointer.h"
#include "imbrex/scalar.h"
#include "imbrex/tcgen05.h"
#include "imbrex/tensor.h"
#include "imbrex/tma.h"
#include "imbrex/tuning.h"
#include "imbrex/wgmma.h"
