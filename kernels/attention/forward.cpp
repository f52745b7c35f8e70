// SPDX-License-Identifier: Apache-2.0
#include "imbrex/kernels/attention/forward.h"

#include <algorithm>

#include "attention/forward_case.h"
#include "attention/kv_arguments.h"

namespace imbrex::kernels {
namespace {

using Forward = WithScoreOptions<ForwardAttention>;

const KernelRegistration<Forward> registration{
    {"attention",
     "softmax(Q K^T / sqrt(d)) V, with masks and score modifications: the scores stay on the chip",
     with_steps({{"heads", 4, "heads of Q, of all batches"},
                 {"q", 300, "rows of Q per head"},
                 {"kv", 300, "rows of K and V per head"},
                 {"d", 128, "columns: the head's size, a multiple of 16, at most 256"},
                 {"group", 1, "heads of Q that share one of K and V"},
                 {"causal", 0, "1: row i sees the columns up to i + kv - q"},
                 {"bf16", 0, "1: bfloat16, 0: float16"},
                 {"dv", 0, "columns of V and O; 0: as d"}})},
    [](Case& c, Kernel<Forward>& kernel) {
      const ForwardProblem p(c, ForwardProblem::Has::kAll);
      const HeadArguments qs(p.q), ks(p.k), vs(p.v), os(p.o);
      const bool wants_log_sum = true;
      c.launch(kernel, 1, p.heads, p.rows, p.columns, p.d, p.d_v, p.group, p.scale, p.dtype, p.dtype, qs, ks,
               vs, os, wants_log_sum, p.log_sum, p.steps.causal,
               std::max<int64_t>(1, (int64_t{24} << 20) / (p.columns * (p.d + p.d_v) * 2) * p.group),
               PackedArguments({}, {}, p.q.address()), Float8Arguments(p.heads, {}, {}, {}, p.q.address()),
               p.steps);
      expect_forward(c, p, wants_log_sum);
    }};

}  // namespace
}  // namespace imbrex::kernels
