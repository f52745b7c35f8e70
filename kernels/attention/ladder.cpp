// SPDX-License-Identifier: Apache-2.0
// The steps towards the library's attention (docs/attention-ladder.md), registered.
#include "attention/forward_case.h"
#include "imbrex/kernels/attention/ladder/attention_a0.h"
#include "imbrex/kernels/attention/ladder/attention_a1.h"
#include "imbrex/kernels/attention/ladder/attention_a2.h"
#include "imbrex/kernels/attention/ladder/attention_a3.h"
#include "imbrex/kernels/attention/ladder/attention_a4.h"

namespace imbrex::kernels {
namespace {

const std::vector<SizeOption> kSizes{{"heads", 2, "heads of Q, K and V, of all batches"},
                                     {"q", 200, "rows of Q per head"},
                                     {"kv", 300, "rows of K and V per head"},
                                     {"d", 128, "columns: the head's size, a multiple of 16, at most 128"},
                                     {"group", 1, "1"},
                                     {"causal", 0, "0"},
                                     {"bf16", 0, "1: bfloat16, 0: float16"}};

template <class K>
void run(Case& c, Kernel<K>& kernel) {
  const ForwardProblem p(c, ForwardProblem::Has::kNothing);
  if (p.group != 1 || p.steps.causal)
    throw LaunchError(
        Diagnostic{{}, "attention: a step of the ladder with a group or a mask", {}, "leave them out"});
  c.launch(kernel, p.heads, p.rows, p.columns, p.d, p.scale, p.dtype, p.q, p.k, p.v, p.o);
  expect_forward(c, p, false);
}

const KernelRegistration<AttentionA0> a0{
    {"attention_a0", "attention, step 0: two passes over K, nothing overlaps", kSizes}, run<AttentionA0>};
const KernelRegistration<AttentionA1> a1{
    {"attention_a1", "attention, step 1: one pass by an online softmax, loads ahead", kSizes},
    run<AttentionA1>};
const KernelRegistration<AttentionA2> a2{
    {"attention_a2", "attention, step 2: a warp that loads, two warp groups that compute", kSizes},
    run<AttentionA2>};
const KernelRegistration<AttentionA3> a3{
    {"attention_a3", "attention, step 3: products of the next block under the exponentials of this one",
     kSizes},
    run<AttentionA3>};
const KernelRegistration<AttentionA4> a4{
    {"attention_a4", "attention, step 4: the warp groups take turns at the tensor cores", kSizes},
    run<AttentionA4>};

}  // namespace
}  // namespace imbrex::kernels
