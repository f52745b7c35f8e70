// SPDX-License-Identifier: Apache-2.0
// What most programs need: the language that kernels are written in, and the runtime that launches them. For
// less, include imbrex/lang.h or imbrex/runtime.h; for more, imbrex/inspect.h, imbrex/vgpu.h and the headers
// of imbrex/kernels/.
#pragma once

#include "imbrex/lang.h"
#include "imbrex/runtime.h"
