// SPDX-License-Identifier: Apache-2.0
#include "attention/forward_case.h"
#include "attention/kv_arguments.h"
#include "imbrex/kernels/attention/blackwell_forward.h"

namespace imbrex::kernels {

using Forward = WithScoreOptions<BlackwellAttention>;

static const KernelRegistration<Forward> registration{
    {"blackwell_attention",
     "attention on Blackwell: two tiles of Q, weights in the place of scores, warps that correct sums",
     with_steps({{"heads", 2, "heads of Q, of all batches"},
                 {"q", 300, "rows of Q per head"},
                 {"kv", 300, "rows of K and V per head"},
                 {"d", 128, "columns: the head's size, a multiple of 32, at most 128"},
                 {"group", 1, "heads of Q that share one of K and V"},
                 {"causal", 0, "1: row i sees the columns up to i + kv - q"},
                 {"bf16", 0, "1: bfloat16, 0: float16"}})},
    [](Case& c, Kernel<Forward>& kernel) {
      const ForwardProblem p(c, ForwardProblem::Has::kSteps);
      c.launch(kernel, 1, p.heads, p.rows, p.columns, p.d, p.group, p.scale, p.dtype, HeadArguments(p.q),
               HeadArguments(p.k), HeadArguments(p.v), HeadArguments(p.o), true, p.log_sum, p.steps);
      expect_forward(c, p, true);
    }};

}  // namespace imbrex::kernels
