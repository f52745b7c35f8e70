// SPDX-License-Identifier: Apache-2.0
// The rules that chips and libraries bend: one row each.
#include <array>

#include "imbrex/vgpu/bent_rule.h"
#include "imbrex/vgpu/report.h"

namespace imbrex::vgpu {

namespace {

struct Row {
  std::string_view name, explanation;
};
constexpr std::array<Row, static_cast<size_t>(BentRule::kCount)> kRows{{
    {"", ""},
    {"equal-values",
     "in PTX unordered stores race whatever they store; on the chips the value is there, whoever came last"},
    {"repeated-init",
     "in PTX mbarrier.init of a live object is undefined; done by the lanes of one instruction with one "
     "count, "
     "it has the effect of one"},
    {"read-before-cas",
     "in PTX a plain read races with an atomic; on the chips it is one access of its size, and a stale value "
     "only makes the compare-and-swap try again"},
    {"arrival-scope",
     "in PTX an arrival or a wait without .cluster orders the own CTA alone; libraries signal across "
     "clusters "
     "so that copies and products are done; what threads have stored may be stale on the chip"},
    {"relaxed-wait",
     "in PTX a .relaxed wait orders nothing that follows; on the chips asynchronous work is issued after the "
     "wait has returned, and sees what the phase has completed; what threads write behind a relaxed flag, or "
     "read past the L1 cache, comes after it; what a thread has loaded and used before it sets a relaxed "
     "flag has come by then"},
    {"tensor-fence",
     "PTX asks for tcgen05.fence::before_thread_sync and after_thread_sync beside a synchronisation; Triton "
     "leaves all of them out, and no chip is known to need them"},
    {"register-wait",
     "PTX asks for the wait before the registers are used; the assembler joins copies that compilers make of "
     "them, and waits itself for what is computed with them (remarks C7514 and C7517)"},
    {"exit-before-read",
     "PTX asks for cp.async.bulk.wait_group.read before the CTA's shared memory goes; libraries exit without "
     "it, "
     "and no store is known to have been lost"},
    {"arrival-ahead",
     "PTX wants a wait to have seen the end of every phase before anybody arrives for the next one; an "
     "arrival from "
     "another CTA that leaves the next phase open waits there for the CTA that is behind"},
    {"atomic-past-end",
     "the access reaches over the end of the allocation; allocators give memory in blocks of 256 bytes or "
     "more, and a compare-and-swap puts back what it found there"},
    {"warp-collective",
     "in PTX vote, shfl, match and redux order no memory, which takes bar.warp.sync; on the chips a warp "
     "accesses shared memory in the order in which it issues the accesses, and all lanes have issued, or "
     "waited for, what stands before such an instruction"},
    {"unwritten-padding",
     "what was never written has no value; libraries load and copy whole tiles and vectors, the padding of "
     "an "
     "allocation with them, and throw away what they compute from it"},
}};

}  // namespace

std::string_view name(Severity severity) { return severity == Severity::kNote ? "note" : "finding"; }
std::string_view name(BentRule rule) { return kRows[static_cast<size_t>(rule)].name; }
std::string_view explain(BentRule rule) { return kRows[static_cast<size_t>(rule)].explanation; }

}  // namespace imbrex::vgpu
