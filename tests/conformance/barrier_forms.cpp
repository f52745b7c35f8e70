// SPDX-License-Identifier: Apache-2.0
// Barriers of a CTA, fences, register budgets, grid dependencies, and what only has to run.
#include <fmt/format.h>

#include "families.h"

namespace imbrex::conformance {
namespace {

constexpr const char* kFamily = "barriers and fences";
constexpr int kThreads = 128;

// Before `insn` each thread writes its word of the tile; after it, it reads the word of another warp.
void add(Kernels& out, const std::string& insn, const std::string& after = "",
         const std::string& directives = "") {
  Frame frame{.threads = kThreads,
              .ctas = 2,
              .tile_bytes = 512,
              .in_stride = 4,
              .out_stride = 16,
              .directives = directives};
  frame.body =
      "  ld.global.b32 %r4, [%in];\n  and.b32 %r5, %r4, 1;\n  setp.ne.u32 %p1, %r5, 0;\n  mad.lo.u32 %r6, "
      "%thread, 4, %tile;\n"
      "  st.shared.b32 [%r6], %r4;\n  mov.u32 %r20, 0;\n  setp.ne.u32 %p2, %r20, 0;\n  mov.u32 %r21, 128;\n  "
      "mov.u32 %r22, 1;\n  " +
      insn + ";\n  xor.b32 %r7, %thread, 96;\n  mad.lo.u32 %r7, %r7, 4, %tile;\n" + after +
      "  ld.shared.b32 %r8, [%r7];\n  st.global.b32 [%out], %r8;\n  st.global.b32 [%out+4], %r20;\n"
      "  selp.b32 %r9, 1, 0, %p2;\n  st.global.b32 [%out+8], %r9;\n";
  Random random(insn);
  // The second CTA's predicates are all true.
  std::vector<uint8_t> input = random_bytes(int64_t{2} * kThreads * 4, random);
  for (size_t i = kThreads * 4; i < input.size(); i += 4) input[i] |= 1;
  out.push_back(make_kernel(kFamily, insn, frame, std::move(input)));
}

}  // namespace

void add_barriers_and_fences(Kernels& out) {
  for (const char* word : {"bar", "bar.cta", "barrier", "barrier.cta"}) {
    const bool is_old = std::string(word).starts_with("bar") && !std::string(word).starts_with("barrier");
    for (const char* aligned : {"", ".aligned"}) {
      if (is_old && aligned[0] != 0) continue;
      add(out, fmt::format("{}.sync{} 0", word, aligned));
      add(out, fmt::format("{}.sync{} 15", word, aligned));
      add(out, fmt::format("{}.sync{} 3, 128", word, aligned));
      add(out, fmt::format("{}.sync{} %r22, %r21", word, aligned));
      for (const char* op : {"popc.u32 %r20", "and.pred %p2", "or.pred %p2"})
        for (const char* predicate : {"%p1", "!%p1"}) {
          add(out, fmt::format("{}.red.{}, 5, {}", word, op, predicate));
          add(out, fmt::format("{}.red.{}, 5, 128, {}", word, op, predicate));
          if (aligned[0] != 0) {
            std::string with = op;
            with.insert(with.find('.'), aligned);
            add(out, fmt::format("{}.red.{}, 5, 128, {}", word, with, predicate));
          }
        }
      // Warps 0 and 1 arrive, 2 and 3 wait, and the other way round.
      add(out, fmt::format("setp.lt.u32 %p3, %thread, 64; @%p3 {0}.arrive{1} 1, 128; @!%p3 {0}.sync{1} 1, "
                           "128; @!%p3 {0}.arrive{1} 2, 128; @%p3 {0}.sync{1} 2, 128",
                           word, aligned));
      // Two pairs of warps that do not wait for each other.
      add(out,
          fmt::format(
              "setp.lt.u32 %p3, %thread, 64; @%p3 {0}.sync{1} 1, 64; @!%p3 {0}.sync{1} 2, 64; {0}.sync{1} 0",
              word, aligned));
    }
  }
  const std::string sync = "  bar.sync 0;\n";
  for (const char* scope : {"cta", "cluster", "gpu", "sys"})
    for (const char* kind : {"sc", "acq_rel", "acquire", "release"})
      add(out, fmt::format("fence.{}.{}", kind, scope), sync);
  for (const char* scope : {"cta", "cluster", "gpu", "sys"}) add(out, fmt::format("fence.{}", scope), sync);
  for (const char* level : {"cta", "gl", "sys"}) add(out, fmt::format("membar.{}", level), sync);
  for (const char* fence :
       {"fence.acquire.sync_restrict::shared::cluster.cluster",
        "fence.release.sync_restrict::shared::cta.cluster", "fence.mbarrier_init.release.cluster",
        "fence.proxy.alias", "fence.proxy.async", "fence.proxy.async.global", "fence.proxy.async.shared::cta",
        "fence.proxy.async.shared::cluster",
        "fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster",
        "fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster", "membar.proxy.alias",
        "nanosleep.u32 100", "nanosleep.u32 %r22", "pmevent 1", "pmevent.mask 3", "griddepcontrol.wait",
        "griddepcontrol.launch_dependents"})
    add(out, fence, sync);
  for (const char* scope : {"cta", "cluster", "gpu", "sys"})
    add(out, fmt::format("fence.proxy.tensormap::generic.release.{}", scope), sync);
  const std::string bound = ".maxnreg 128\n";
  for (int n : {24, 40, 128}) add(out, fmt::format("setmaxnreg.dec.sync.aligned.u32 {}", n), sync, bound);
  add(out, "setmaxnreg.dec.sync.aligned.u32 64; setmaxnreg.inc.sync.aligned.u32 120", sync, bound);
  add(out, "setmaxnreg.inc.sync.aligned.u32 128", sync, bound);
}

}  // namespace imbrex::conformance
