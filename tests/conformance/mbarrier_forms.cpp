// SPDX-License-Identifier: Apache-2.0
// mbarrier: one thread goes through a script of operations; after each, the phase is asked for in every way.
#include <fmt/format.h>

#include "families.h"

namespace imbrex::conformance {
namespace {

constexpr const char* kFamily = "mbarrier";
// A step: the kept state is about to be too old to be asked for.
const std::string forget = "forget";

// After each step: parity 0 and 1 by test_wait, and by state where a step kept one in %rd10.
void add(Kernels& out, const std::string& name, const std::vector<std::string>& steps) {
  Frame frame{.tile_bytes = 64, .out_stride = 1024};
  frame.body = "  setp.ne.u32 %p0, %thread, 0;\n  @%p0 bra done;\n";
  int at = 0, test = 0;
  bool has_state = false;
  const auto keep = [&](const std::string& predicate) {
    frame.body += fmt::format("  selp.b32 %r1, 1, 0, {};\n  st.global.b32 [%out+{}], %r1;\n", predicate, at);
    at += 4;
  };
  std::string script;
  for (const std::string& step : steps) {
    if (step == forget) {
      has_state = false;
      continue;
    }
    script += (script.empty() ? "" : "; ") + step;
    std::string text = step;
    for (size_t p = 0; (p = text.find("[b]", p)) != std::string::npos;) text.replace(p, 3, "[%bar]");
    frame.body += "  " + text + ";\n";
    if (step.find("%rd10,") != std::string::npos) has_state = true;
    if (step.find("%p5") != std::string::npos) keep("%p5");
    if (step.find("%r5") != std::string::npos)
      frame.body += fmt::format("  st.global.b32 [%out+{}], %r5;\n", at), at += 4;
    if (step.find("inval") != std::string::npos) continue;
    for (int parity : {0, 1}) {
      frame.body += fmt::format("  mbarrier.test_wait.parity{}.shared::cta.b64 %p1, [%bar], {};\n",
                                test++ % 3 == 0 ? ".acquire.cta" : "", parity);
      keep("%p1");
    }
    if (has_state) {
      frame.body += "  mbarrier.test_wait.shared::cta.b64 %p1, [%bar], %rd10;\n";
      keep("%p1");
    }
  }
  frame.body += "done:\n";
  out.push_back(make_kernel(kFamily, name.empty() ? script : name + ": " + script, frame, {}, 1024));
}

}  // namespace

void add_mbarrier(Kernels& out) {
  const auto init = [](int n) { return fmt::format("mbarrier.init.shared::cta.b64 [b], {}", n); };
  const auto arrive = [](const std::string& more) { return "mbarrier.arrive" + more; };
  const std::string one = "mbarrier.arrive.shared::cta.b64 _, [b]";
  const std::string kept = "mbarrier.arrive.shared::cta.b64 %rd10, [b]";
  add(out, "phases", {init(1), one, one, one, one, one});
  add(out, "phases by state", {init(1), kept, kept, kept, forget, one, kept});
  add(out, "count", {init(5), kept, "mbarrier.arrive.shared::cta.b64 _, [b], 2", one, one, kept});
  add(out, "largest count", {init(1048575), one, "mbarrier.arrive.shared::cta.b64 _, [b], 1048574", one});
  add(out, "spaces",
      {"mbarrier.init.shared.b64 [b], 4", "mbarrier.expect_tx.relaxed.cta.shared.b64 [b], 16",
       "mbarrier.complete_tx.relaxed.cta.shared.b64 [b], 16", "mbarrier.arrive_drop.shared.b64 _, [b]",
       "mbarrier.arrive.shared.b64 _, [b]", "mbarrier.arrive.shared.b64 _, [b]",
       "mbarrier.arrive.shared.b64 %rd10, [b]", "mbarrier.test_wait.shared.b64 %p5, [b], %rd10",
       "mbarrier.test_wait.parity.shared.b64 %p5, [b], 0", "mbarrier.try_wait.shared.b64 %p5, [b], %rd10",
       "mbarrier.inval.shared.b64 [b]"});
  add(out, "orders",
      {init(4), "mbarrier.arrive.release.cta.shared::cta.b64 _, [b]",
       "mbarrier.arrive.release.cluster.shared::cta.b64 _, [b]",
       "mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [b]",
       "mbarrier.arrive.relaxed.cluster.shared::cta.b64 %rd10, [b]",
       "mbarrier.test_wait.acquire.cta.shared::cta.b64 %p5, [b], %rd10",
       "mbarrier.test_wait.relaxed.cluster.shared::cta.b64 %p5, [b], %rd10",
       "mbarrier.try_wait.acquire.cluster.shared::cta.b64 %p5, [b], %rd10",
       "mbarrier.test_wait.parity.acquire.cluster.shared::cta.b64 %p5, [b], 0",
       "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p5, [b], 0",
       "mbarrier.try_wait.parity.relaxed.cta.shared::cta.b64 %p5, [b], 0"});
  add(out, "waits of a cluster's scope",
      {init(1), one, "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p5, [b], 0",
       "mbarrier.test_wait.parity.relaxed.cta.shared::cta.b64 %p5, [b], 0",
       "mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 %p5, [b], 1"});
  add(out, "try_wait",
      {init(1), "mbarrier.try_wait.parity.shared::cta.b64 %p5, [b], 1",
       "mbarrier.try_wait.parity.shared::cta.b64 %p5, [b], 0, 20", kept,
       "mbarrier.try_wait.parity.shared::cta.b64 %p5, [b], 0",
       "mbarrier.try_wait.shared::cta.b64 %p5, [b], %rd10",
       "mbarrier.try_wait.shared::cta.b64 %p5, [b], %rd10, 1000000",
       "mbarrier.try_wait.parity.shared::cta.b64 %p5, [b], 0, 1000"});
  add(out, "bytes",
      {init(1), "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [b], 48", kept,
       "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [b], 16",
       "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [b], 32",
       "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [b], 8",
       "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [b], 8", forget, one});
  add(out, "bytes before they are announced",
      {init(2), one, "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [b], 64",
       "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [b], 64", kept});
  add(out, "arrive.expect_tx",
      {init(2), "mbarrier.arrive.expect_tx.shared::cta.b64 _, [b], 32",
       "mbarrier.arrive.expect_tx.shared::cta.b64 %rd10, [b], 16",
       "mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [b], 40",
       "mbarrier.complete_tx.shared::cta.relaxed.cta.b64 [b], 8",
       "mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [b], 0", forget,
       "mbarrier.arrive.expect_tx.relaxed.cta.shared::cta.b64 _, [b], 0"});
  add(out, "most bytes",
      {init(1), "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [b], 1048575", one,
       "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [b], 1048575"});
  add(out, "zero bytes",
      {init(1), "mbarrier.expect_tx.relaxed.cluster.shared::cluster.b64 [b], 0",
       "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [b], 0", one});
  const std::string drop = "mbarrier.arrive_drop.shared::cta.b64 _, [b]";
  add(out, "drop",
      {init(3), drop, "mbarrier.arrive.shared::cta.b64 _, [b], 2", one, one,
       "mbarrier.arrive_drop.shared::cta.b64 %rd10, [b]", one, forget, one, one});
  add(out, "drop with bytes",
      {init(3), "mbarrier.arrive_drop.expect_tx.shared::cta.b64 _, [b], 16", one, kept,
       "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [b], 16", one, forget, one});
  add(out, "drop by count", {init(4), "mbarrier.arrive_drop.shared::cta.b64 _, [b], 2", one, one, one, one});
  add(out, "drop orders",
      {init(5), "mbarrier.arrive_drop.release.cta.shared::cta.b64 _, [b]",
       "mbarrier.arrive_drop.relaxed.cta.shared::cta.b64 _, [b]",
       "mbarrier.arrive_drop.release.cluster.shared::cta.b64 _, [b]",
       "mbarrier.arrive_drop.expect_tx.release.cta.shared::cta.b64 _, [b], 0", one, one});
  add(out, "noComplete",
      {init(6), "mbarrier.arrive.noComplete.shared::cta.b64 %rd10, [b], 2",
       "mbarrier.pending_count.b64 %r5, %rd10", "mbarrier.arrive.noComplete.shared::cta.b64 %rd10, [b], 1",
       "mbarrier.pending_count.b64 %r5, %rd10",
       "mbarrier.arrive_drop.noComplete.shared::cta.b64 %rd10, [b], 1",
       "mbarrier.pending_count.b64 %r5, %rd10", one, one, one, one});
  add(out, "release.cta noComplete",
      {init(3), "mbarrier.arrive.noComplete.release.cta.shared::cta.b64 %rd10, [b], 1",
       "mbarrier.pending_count.b64 %r5, %rd10", one, one});
  add(out, "anew", {init(1), one, "mbarrier.inval.shared::cta.b64 [b]", init(2), one, one});
  const std::vector<std::string> generic{
      "cvt.u64.u32 %rd20, %bar; cvta.shared.u64 %rd20, %rd20; mbarrier.init.b64 [%rd20], 2",
      "mbarrier.arrive.b64 %rd10, [%rd20]",
      "mbarrier.arrive.expect_tx.b64 _, [%rd20], 16",
      "mbarrier.complete_tx.relaxed.cta.b64 [%rd20], 16",
      "mbarrier.test_wait.b64 %p5, [%rd20], %rd10",
      "mbarrier.try_wait.parity.b64 %p5, [%rd20], 0",
      "mbarrier.inval.b64 [%rd20]"};
  add(out, "generic", generic);
  add(out, "shared::cluster of its own",
      {init(3), arrive(".release.cluster.shared::cluster.b64 _, [b]"),
       arrive(".relaxed.cluster.shared::cluster.b64 _, [b]"),
       arrive(".expect_tx.release.cluster.shared::cluster.b64 _, [b], 24"),
       "mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [b], 24",
       arrive(".release.cluster.shared::cluster.b64 _, [b], 2"),
       "mbarrier.arrive_drop.release.cluster.shared::cluster.b64 _, [b]"});
}

}  // namespace imbrex::conformance
