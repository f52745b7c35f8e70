// SPDX-License-Identifier: Apache-2.0
// Several GPUs: ranks, symmetric tensors, and collectives made of kernels. docs/parallel.md is the guide.
#pragma once

#include "imbrex/parallel/all_gather.h"
#include "imbrex/parallel/all_reduce.h"
#include "imbrex/parallel/communicator.h"
#include "imbrex/parallel/experts.h"
#include "imbrex/parallel/fused_matmul.h"
#include "imbrex/parallel/signal.h"
#include "imbrex/parallel/symmetric_tensor.h"
