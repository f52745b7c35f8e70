// SPDX-License-Identifier: Apache-2.0
#include "attention/forward_case.h"
#include "imbrex/kernels/attention/blackwell_forward.h"

namespace imbrex::kernels {

static const KernelRegistration<BlackwellAttention> registration{
    {"blackwell_attention",
     "attention on Blackwell: two tiles of Q, weights in the place of scores, warps that correct sums",
     {{"heads", 2, "heads of Q, of all batches"},
      {"q", 300, "rows of Q per head"},
      {"kv", 300, "rows of K and V per head"},
      {"d", 128, "columns: the head's size, a multiple of 32, at most 128"},
      {"group", 1, "heads of Q that share one of K and V"},
      {"causal", 0, "1: row i sees the columns up to i + kv - q"},
      {"bf16", 0, "1: bfloat16, 0: float16"}}},
    [](Case& c, Kernel<BlackwellAttention>& kernel) {
      const ForwardProblem p(c, false);
      c.launch(kernel, p.heads, p.rows, p.columns, p.d, p.group, p.steps.causal, p.scale, p.dtype, p.q, p.k,
               p.v, p.o);
      expect_forward(c, p, false);
    }};

}  // namespace imbrex::kernels
