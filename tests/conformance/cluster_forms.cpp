// SPDX-License-Identifier: Apache-2.0
// Clusters: who is who, addresses of each other's shared memory, access to it, asynchronous stores and
// reductions, remote barriers.
#include <fmt/format.h>

#include "families.h"

namespace imbrex::conformance {
namespace {

constexpr const char* kFamily = "clusters";
constexpr int kTile = 1024;

constexpr const char* kClusterSync =
    "  barrier.cluster.arrive.release.aligned;\n  barrier.cluster.wait.acquire.aligned;\n";

/// %r2 is the rank of the next CTA, %r4 the address of its tile and %r5 of its barrier (initialised with
/// `count`); %r1 is this CTA's rank. The tiles are filled.
std::string prologue(const Frame& frame, int count = 1) {
  return fill_tile(frame, kTile) + fmt::format(R"(  setp.ne.u32 %p0, %thread, 0;
  @!%p0 mbarrier.init.shared::cta.b64 [%bar], {};
  @!%p0 fence.mbarrier_init.release.cluster;
  fence.proxy.async;
  bar.sync 0;
{}  mov.u32 %r1, %cluster_ctarank;
  add.u32 %r2, %r1, 1;
  mov.u32 %r3, %cluster_nctarank;
  rem.u32 %r2, %r2, %r3;
  mapa.shared::cluster.u32 %r4, %tile, %r2;
  mapa.shared::cluster.u32 %r5, %bar, %r2;
)",
                                               count, kClusterSync);
}

void add(Kernels& out, const std::string& name, int cluster, int ctas, int threads, const std::string& body,
         int count = 1) {
  Frame frame{.threads = threads, .ctas = ctas, .cluster = cluster, .tile_bytes = kTile, .out_stride = 64};
  frame.body = prologue(frame, count) + body + kClusterSync +
               dump_tile(frame, kTile, frame.thread_count() * frame.out_stride);
  Random random(name);
  out.push_back(make_kernel(kFamily, name, frame, random_bytes(int64_t{kTile} * ctas, random),
                            frame.thread_count() * frame.out_stride + int64_t{kTile} * ctas));
}

void add_names(Kernels& out) {
  for (int cluster : {1, 2, 4, 8, 16})
    for (const char* name : {"clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid"}) {
      std::string body;
      int at = 0;
      for (const char* axis : {"x", "y", "z"}) {
        body += fmt::format("  mov.u32 %r10, %{}.{};\n  st.global.b32 [%out+{}], %r10;\n", name, axis, at);
        at += 4;
      }
      body +=
          "  mov.u32 %r10, %cluster_ctarank;\n  st.global.b32 [%out+12], %r10;\n  mov.u32 %r10, "
          "%cluster_nctarank;\n  st.global.b32 [%out+16], %r10;\n";
      if (cluster > 1)
        body +=
            "  mov.pred %p9, %is_explicit_cluster;\n  selp.b32 %r10, 1, 0, %p9;\n  st.global.b32 [%out+20], "
            "%r10;\n";
      add(out, fmt::format("%{} in clusters of {}", name, cluster), cluster, cluster * 2, 32, body);
    }
}

void add_addresses(Kernels& out) {
  // Differences and ranks only: where shared memory begins is the machine's affair.
  add(out, "mapa and getctarank", 4, 8, 32, R"(  rem.u32 %r10, %lane, %r3;
  mapa.shared::cluster.u32 %r11, %tile, %r10;
  getctarank.shared::cluster.u32 %r12, %r11;
  st.global.b32 [%out], %r12;
  getctarank.shared::cluster.u32 %r12, %tile;
  st.global.b32 [%out+4], %r12;
  mapa.shared::cluster.u32 %r12, %r11, %r1;
  sub.u32 %r12, %r12, %tile;
  st.global.b32 [%out+8], %r12;
  cvt.u64.u32 %rd10, %tile;
  cvta.shared.u64 %rd10, %rd10;
  mapa.u64 %rd11, %rd10, %r10;
  getctarank.u64 %r12, %rd11;
  st.global.b32 [%out+12], %r12;
  mapa.shared::cluster.u64 %rd12, %rd10, %r10;
  getctarank.shared::cluster.u64 %r12, %rd12;
  st.global.b32 [%out+16], %r12;
  isspacep.shared::cluster %p9, %rd11;
  selp.b32 %r12, 1, 0, %p9;
  st.global.b32 [%out+20], %r12;
  isspacep.shared::cta %p9, %rd11;
  selp.b32 %r12, 1, 0, %p9;
  st.global.b32 [%out+24], %r12;
  ld.b32 %r12, [%rd11+8];
  st.global.b32 [%out+28], %r12;
  cvta.to.shared::cluster.u64 %rd12, %rd11;
  cvt.u32.u64 %r12, %rd12;
  ld.shared::cluster.b32 %r12, [%r12+12];
  st.global.b32 [%out+32], %r12;
)");
}

void add_accesses(Kernels& out) {
  for (const char* type : {"b8", "u8", "s8", "b16", "u16", "s16", "b32", "b64", "f32", "f64"}) {
    const std::string t = type;
    const int bytes = t.ends_with("64") ? 8 : t.ends_with("32") ? 4 : t.ends_with("16") ? 2 : 1;
    const std::string prefix = bytes == 8 ? "%rd" : bytes == 4 ? "%r" : "%h";
    add(out, fmt::format("ld.shared::cluster.{}", t), 4, 4, 32,
        fmt::format("  mad.lo.u32 %r10, %lane, {0}, %r4;\n  ld.shared::cluster.{1} {2}20, [%r10+{0}];\n  "
                    "st.global.b{3} [%out], {2}20;\n",
                    bytes, t, prefix, std::max(8 * bytes, 16)));
    if (t[0] == 's' && bytes < 4) continue;
    add(out, fmt::format("st.shared::cluster.{}", t), 4, 4, 32,
        fmt::format("  mad.lo.u32 %r10, %lane, {0}, %r4;\n  mul.lo.u32 %r11, %lane, 0x01234567;\n  "
                    "cvt.u16.u32 %h20, %r11;\n  mov.b32 %r20, %r11;\n  cvt.u64.u32 %rd20, %r11;\n  "
                    "mul.lo.u64 %rd20, %rd20, 0x1000193;\n  st.shared::cluster.{1} [%r10+{0}], {2}20;\n",
                    bytes, t, prefix));
  }
  for (int v : {2, 4})
    for (int bits : {32, 64}) {
      if (v * bits > 128) continue;
      const std::string prefix = bits == 64 ? "%rd" : "%r";
      add(out, fmt::format("ld.shared::cluster.v{}.b{}", v, bits), 2, 4, 32,
          fmt::format("  mad.lo.u32 %r10, %lane, 16, %r4;\n  ld.shared::cluster.v{0}.b{1} {2}, [%r10];\n  "
                      "st.global.v{0}.b{1} [%out], {2};\n",
                      v, bits, registers(20, v, prefix)));
      add(out, fmt::format("st.shared::cluster.v{}.b{}", v, bits), 2, 4, 32,
          fmt::format("  mad.lo.u32 %r10, %lane, 16, %r4;\n  mad.lo.u32 %r11, %lane, 16, %tile;\n  "
                      "ld.shared.v{0}.b{1} {2}, [%r11+512];\n  st.shared::cluster.v{0}.b{1} [%r10], {2};\n",
                      v, bits, registers(20, v, prefix)));
    }
  for (const char* tail : {"add.u32", "min.s32", "max.u32", "inc.u32", "dec.u32", "and.b32", "or.b32",
                           "xor.b32", "exch.b32", "cas.b32", "add.u64", "add.f32", "cas.b64", "exch.b64"}) {
    const std::string t = tail;
    const bool wide = t.ends_with("64");
    const std::string r = wide ? "%rd" : "%r";
    const std::string value = fmt::format(
        "  mul.lo.u32 %r20, %lane, 0x9E3779B9;\n  cvt.u64.u32 %rd20, %r20;\n  mov.u32 %r21, 77;\n  mov.u64 "
        "%rd21, 78;\n");
    const std::string operands =
        t.starts_with("cas") ? fmt::format("{0}20, {0}21", r) : fmt::format("{}20", r);
    add(out, fmt::format("atom.shared::cluster.{}", t), 4, 4, 32,
        value + fmt::format("  mad.lo.u32 %r10, %lane, 8, %r4;\n  atom.relaxed.cluster.shared::cluster.{} "
                            "{}22, [%r10], {};\n  st.global.b{} [%out], {}22;\n",
                            t, r, operands, wide ? 64 : 32, r));
    if (t.starts_with("cas") || t.starts_with("exch")) continue;
    add(out, fmt::format("red.shared::cluster.{}", t), 4, 4, 32,
        value +
            fmt::format(
                "  mad.lo.u32 %r10, %lane, 8, %r4;\n  red.release.cluster.shared::cluster.{} [%r10], {};\n",
                t, operands));
  }
}

// Each lane of each CTA sends to the next CTA, whose barrier waits for all bytes.
void add_asynchronous(Kernels& out) {
  const auto send = [&](const std::string& insn, int bytes, const std::string& value) {
    const std::string body = fmt::format(R"(  @%p0 bra announced;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], {0};
announced:
  mad.lo.u32 %r10, %lane, {1}, %r4;
  mul.lo.u32 %r20, %lane, 0x9E3779B9;
  add.u32 %r21, %r20, %r1;
  xor.b32 %r22, %r21, 0x5A5A5A5A;
  add.u32 %r23, %r22, 12345;
  mov.b64 %rd20, {{%r20,%r21}};
  mov.b64 %rd21, {{%r22,%r23}};
  {2} [%r10], {3}, [%r5];
)",
                                         32 * bytes, bytes, insn, value) +
                             wait_parity("%bar", 0, "wait");
    add(out, insn, 4, 8, 32, body);
  };
  for (const char* type : {"b32", "u32", "s32", "f32"}) {
    send(fmt::format("st.async.shared::cluster.mbarrier::complete_tx::bytes.{}", type), 4, "%r20");
    send(fmt::format("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.{}", type), 8,
         "{%r20,%r21}");
    send(fmt::format("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.{}", type), 16,
         "{%r20,%r21,%r22,%r23}");
  }
  for (const char* type : {"b64", "u64", "s64", "f64"}) {
    send(fmt::format("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.{}", type), 8, "%rd20");
    send(fmt::format("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.{}", type), 16,
         "{%rd20,%rd21}");
  }
  const std::string red = "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.";
  for (const char* tail : {"inc.u32", "dec.u32", "min.u32", "min.s32", "max.u32", "max.s32", "add.u32",
                           "add.s32", "and.b32", "or.b32", "xor.b32"})
    send(red + tail, 4, "%r20");
  send(red + "add.u64", 8, "%rd20");
}

void add_barriers(Kernels& out) {
  // Every thread adds its count to the next CTA's barrier; the phase completes when all of a CTA have.
  const auto arrive = [&](const std::string& insn, int count, const std::string& before = "") {
    std::string text = insn;
    text.replace(text.find("[b]"), 3, "[%r5]");
    const std::string wait = wait_parity("%bar", 0, "wait");
    add(out, "remote " + insn, 4, 8, 32,
        before + "  " + text + ";\n" + wait +
            "  mbarrier.test_wait.parity.acquire.cluster.shared::cta.b64 %p9, [%bar], 1;\n  selp.b32 %r10, "
            "1, 0, %p9;\n  st.global.b32 [%out], %r10;\n",
        count);
  };
  for (const char* order : {".release.cluster", ".relaxed.cluster"}) {
    arrive(fmt::format("mbarrier.arrive{}.shared::cluster.b64 _, [b]", order), 32);
    arrive(fmt::format("mbarrier.arrive{}.shared::cluster.b64 _, [b], 3", order), 96);
    arrive(fmt::format("mbarrier.arrive_drop{}.shared::cluster.b64 _, [b]", order), 33,
           "  @!%p0 mbarrier.arrive.shared::cta.b64 _, [%bar];\n");
    arrive(fmt::format("mbarrier.arrive.expect_tx{}.shared::cluster.b64 _, [b], 16", order), 32,
           "  mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%r5], 16;\n");
    arrive(fmt::format("mbarrier.arrive_drop.expect_tx{}.shared::cluster.b64 _, [b], 16", order), 33,
           "  @!%p0 mbarrier.arrive.shared::cta.b64 _, [%bar];\n  "
           "mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%r5], 16;\n");
  }
  const std::string expect = "mbarrier.expect_tx.relaxed.cluster.shared::cluster.b64 ";
  add(out, "remote " + expect + "[b], 16", 4, 8, 32,
      "  @!%p0 " + expect +
          "[%r5], 16;\n  @!%p0 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r5];\n"
          "  @!%p0 mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%r5], 16;\n" +
          wait_parity("%bar", 0, "wait"));
  for (const char* a : {"barrier.cluster.arrive", "barrier.cluster.arrive.release",
                        "barrier.cluster.arrive.aligned", "barrier.cluster.arrive.release.aligned"})
    for (const char* w : {"barrier.cluster.wait", "barrier.cluster.wait.acquire",
                          "barrier.cluster.wait.aligned", "barrier.cluster.wait.acquire.aligned"})
      add(out, fmt::format("{}; {}", a, w), 2, 4, 64,
          fmt::format("  mad.lo.u32 %r10, %thread, 4, %r4;\n  st.shared::cluster.b32 [%r10], %thread;\n  "
                      "{};\n  {};\n  mad.lo.u32 %r10, %thread, 4, %tile;\n  ld.shared.b32 %r11, [%r10];\n  "
                      "st.global.b32 [%out], %r11;\n",
                      a, w));
  for (const char* a : {"barrier.cluster.arrive.relaxed", "barrier.cluster.arrive.relaxed.aligned"})
    add(out, fmt::format("fence; {}", a), 2, 4, 64,
        fmt::format("  mad.lo.u32 %r10, %thread, 4, %r4;\n  st.shared::cluster.b32 [%r10], %thread;\n  "
                    "fence.acq_rel.cluster;\n  {};\n  barrier.cluster.wait.acquire;\n  mad.lo.u32 %r10, "
                    "%thread, 4, %tile;\n  ld.shared.b32 %r11, [%r10];\n  st.global.b32 [%out], %r11;\n",
                    a));
}

}  // namespace

void add_clusters(Kernels& out) {
  add_names(out);
  add_addresses(out);
  add_accesses(out);
  add_asynchronous(out);
  add_barriers(out);
}

}  // namespace imbrex::conformance
