// SPDX-License-Identifier: Apache-2.0
// Everything a kernel is written with.
//
// A kernel is a struct whose operator() is traced once: its statements become the program of every thread,
// with their C++ lines. What can be checked while tracing (types, shapes, ranges, the target) is checked
// there: a function that is misused throws CompileError, which names the line of the call, what was asked and
// what is allowed. Which threads execute a statement, and whether the target has the instruction, the
// compiler checks when tracing is done, with the same error. Each function says what it asks for:
//
//   shapes              in elements, row-major; offsets in elements from the tensor's beginning
//   thread group        "whole warps", "one warp", "a warp group" (128 threads, from a multiple of 128), "one
//                       thread", or any; the functions of control.h open groups
//   sm_90, sm_100a      the first target that has it; without one, all targets (sm_80 and later)
//   [PTX: ...]          its instructions, or the section of the PTX manual
#pragma once

#include "imbrex/core/dtype.h"
#include "imbrex/core/error.h"
#include "imbrex/lang/atomic.h"
#include "imbrex/lang/clc.h"
#include "imbrex/lang/cluster.h"
#include "imbrex/lang/control.h"
#include "imbrex/lang/debug.h"
#include "imbrex/lang/fence.h"
#include "imbrex/lang/kernel_parameters.h"
#include "imbrex/lang/launch.h"
#include "imbrex/lang/layout.h"
#include "imbrex/lang/math.h"
#include "imbrex/lang/mbarrier.h"
#include "imbrex/lang/memory.h"
#include "imbrex/lang/memory_order.h"
#include "imbrex/lang/mistakes.h"
#include "imbrex/lang/mma.h"
#include "imbrex/lang/pointer.h"
#include "imbrex/lang/random.h"
#include "imbrex/lang/scalar.h"
#include "imbrex/lang/scan.h"
#include "imbrex/lang/tcgen05.h"
#include "imbrex/lang/tensor.h"
#include "imbrex/lang/tma.h"
#include "imbrex/lang/tuning_space.h"
#include "imbrex/lang/view.h"
#include "imbrex/lang/wgmma.h"
