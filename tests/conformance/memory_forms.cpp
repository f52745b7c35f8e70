// SPDX-License-Identifier: Apache-2.0
// ld and st: types, vectors, spaces, orders, cache hints; prefetches, address spaces and policies.
#include <fmt/format.h>

#include "families.h"

namespace imbrex::conformance {
namespace {

constexpr const char* kFamily = "memory";
constexpr int kSlot = 32;  // bytes a thread

struct Type {
  const char* name;
  int bytes;
  const char* prefix;  // a register that holds it
  int register_bits;
};
const Type kTypes[] = {{"b8", 1, "%h", 16},   {"u8", 1, "%r", 32},   {"s8", 1, "%r", 32},
                       {"b16", 2, "%h", 16},  {"u16", 2, "%r", 32},  {"s16", 2, "%r", 32},
                       {"b32", 4, "%r", 32},  {"u32", 4, "%r", 32},  {"s32", 4, "%rd", 64},
                       {"f32", 4, "%r", 32},  {"b64", 8, "%rd", 64}, {"u64", 8, "%rd", 64},
                       {"s64", 8, "%rd", 64}, {"f64", 8, "%rd", 64}};

Frame frame_of() {
  return {.threads = 64, .ctas = 1, .tile_bytes = 64 * kSlot, .in_stride = kSlot, .out_stride = 64};
}

// %rd60 (or %r300 for shared memory): this thread's slot of a filled place of the space.
std::string place(const std::string& space, Frame& frame) {
  if (space.find("shared") != std::string::npos)
    return fill_tile(frame, 64 * kSlot) +
           "  bar.sync 0;\n  mad.lo.u32 %r300, %thread, 32, %tile;\n  cvt.u64.u32 %rd60, %r300;\n";
  if (space == ".local")
    return "  .local .align 16 .b8 frame[48];\n  mov.u64 %rd60, frame;\n  ld.global.v4.b32 "
           "{%r310,%r311,%r312,%r313}, [%in];\n  st.local.v4.b32 [%rd60], {%r310,%r311,%r312,%r313};\n"
           "  ld.global.v4.b32 {%r310,%r311,%r312,%r313}, [%in+16];\n  st.local.v4.b32 [%rd60+16], "
           "{%r310,%r311,%r312,%r313};\n";
  return "  mov.u64 %rd60, %in;\n";
}

void add_load(Kernels& out, const std::string& insn, const std::string& space, const Type& type, int vector,
              const std::string& hint = "") {
  if (type.bytes * vector > 16) return;
  Frame frame = frame_of();
  const std::string name = insn + (hint.empty() ? "" : " hinted") + (space.empty() ? " generic" : "");
  frame.body = place(space, frame) + "  createpolicy.fractional.L2::evict_last.b64 %rd61, 1.0;\n";
  const std::string operand =
      vector == 1 ? fmt::format("{}10", type.prefix) : registers(10, vector, type.prefix);
  const std::string address = space.find("shared") != std::string::npos ? "%r300" : "%rd60";
  frame.body +=
      fmt::format("  {} {}, [{}+{}]{};\n", insn, operand, address, 16, hint.empty() ? "" : ", %rd61");
  for (int i = 0; i < vector; ++i)
    frame.body +=
        fmt::format("  st.global.b{} [%out+{}], {}{};\n", type.register_bits, 8 * i, type.prefix, 10 + i);
  Random random(name);
  out.push_back(make_kernel(kFamily, name, frame, random_bytes(64 * kSlot, random)));
}

void add_store(Kernels& out, const std::string& insn, const std::string& space, const Type& type, int vector,
               const std::string& hint = "") {
  if (type.bytes * vector > 16) return;
  Frame frame = frame_of();
  const std::string name = insn + (hint.empty() ? "" : " hinted") + (space.empty() ? " generic" : "");
  const bool is_shared = space.find("shared") != std::string::npos, is_local = space == ".local";
  frame.body = place(space, frame) + "  createpolicy.fractional.L2::evict_first.b64 %rd61, 0.25;\n";
  for (int i = 0; i < vector; ++i)
    frame.body += fmt::format("  ld.global.b{} {}{}, [%in+{}];\n", type.register_bits, type.prefix, 10 + i,
                              type.register_bits / 8 * i);
  const std::string operand =
      vector == 1 ? fmt::format("{}10", type.prefix) : registers(10, vector, type.prefix);
  const std::string address = is_shared ? "%r300" : is_local ? "%rd60" : "%out";
  frame.body += fmt::format("  {} [{}+16], {}{};\n", insn, address, operand, hint.empty() ? "" : ", %rd61");
  if (is_shared || is_local)
    frame.body += fmt::format(
        "  ld.{0}.v4.b32 {{%r320,%r321,%r322,%r323}}, [{1}];\n  st.global.v4.b32 [%out], "
        "{{%r320,%r321,%r322,%r323}};\n  ld.{0}.v4.b32 {{%r320,%r321,%r322,%r323}}, [{1}+16];\n  "
        "st.global.v4.b32 [%out+16], {{%r320,%r321,%r322,%r323}};\n",
        is_shared ? "shared" : "local", address);
  Random random(name);
  out.push_back(make_kernel(kFamily, name, frame, random_bytes(64 * kSlot, random)));
}

/// Every priority in L1 with and without a policy of L2, by every width that tiles move in.
void add_cached(Kernels& out) {
  const Type b8 = kTypes[0], b16 = kTypes[3], b32 = kTypes[6], b64 = kTypes[10];
  struct Width {
    const Type& type;
    int vector;
  };
  const Width widths[] = {{b8, 1}, {b16, 1}, {b16, 4}, {b32, 1}, {b32, 2}, {b32, 4}, {b64, 1}, {b64, 2}};
  for (const char* priority : {"", ".L1::evict_first", ".L1::evict_last", ".L1::evict_normal",
                               ".L1::evict_unchanged", ".L1::no_allocate"})
    for (const char* hint : {"", ".L2::cache_hint"})
      for (const Width& w : widths) {
        const std::string tail = w.vector == 1 ? "" : fmt::format(".v{}", w.vector);
        const std::string words = fmt::format(".global{}{}{}.{}", priority, hint, tail, w.type.name);
        add_load(out, "ld" + words, ".global", w.type, w.vector, hint);
        add_store(out, "st" + words, ".global", w.type, w.vector, hint);
      }
}

// `body` leaves %r10 (and %rd10 where it says so) to be compared.
void add_script(Kernels& out, const std::string& name, const std::string& body,
                const std::string& outside = "") {
  Frame frame = frame_of();
  frame.body = fill_tile(frame, 64 * kSlot) +
               "  bar.sync 0;\n  mov.u32 %r10, 0;\n  ld.global.b32 %r11, [%in];\n" + body +
               "  st.global.b32 [%out], %r10;\n";
  Random random(name);
  MicroKernel kernel = make_kernel(kFamily, name, frame, random_bytes(64 * kSlot, random));
  if (!outside.empty()) kernel.ptx.insert(kernel.ptx.find(".visible .entry"), outside);
  out.push_back(std::move(kernel));
}

}  // namespace

void add_memory(Kernels& out) {
  const Type b32 = kTypes[6], b64 = kTypes[10];
  for (const char* space : {".global", ".shared", ".shared::cta", ".local", ""})
    for (const Type& type : kTypes)
      for (int vector : {1, 2, 4}) {
        const std::string tail = vector == 1 ? "" : fmt::format(".v{}", vector);
        add_load(out, fmt::format("ld{}{}.{}", space, tail, type.name), space, type, vector);
        add_store(out, fmt::format("st{}{}.{}", space, tail, type.name), space, type, vector);
      }
  for (const char* space : {".global", ".shared", ""}) {
    for (const char* order : {".weak", ".volatile"}) {
      add_load(out, fmt::format("ld{}{}.b32", order, space), space, b32, 1);
      add_store(out, fmt::format("st{}{}.b32", order, space), space, b32, 1);
    }
    for (const char* scope : {"cta", "cluster", "gpu", "sys"}) {
      for (const char* order : {"relaxed", "acquire"})
        add_load(out, fmt::format("ld.{}.{}{}.b64", order, scope, space), space, b64, 1);
      for (const char* order : {"relaxed", "release"})
        add_store(out, fmt::format("st.{}.{}{}.b64", order, scope, space), space, b64, 1);
      // What semaphores read and write, and words that carry their own signal.
      for (const char* order : {"relaxed", "acquire"})
        add_load(out, fmt::format("ld.{}.{}{}.b32", order, scope, space), space, b32, 1);
      for (const char* order : {"relaxed", "release"})
        add_store(out, fmt::format("st.{}.{}{}.b32", order, scope, space), space, b32, 1);
    }
  }
  add_load(out, "ld.mmio.relaxed.sys.global.b32", ".global", b32, 1);
  add_store(out, "st.mmio.relaxed.sys.global.b32", ".global", b32, 1);
  for (const char* cache : {"ca", "cg", "cs", "lu", "cv"})
    add_load(out, fmt::format("ld.global.{}.v2.b32", cache), ".global", b32, 2);
  for (const char* cache : {"wb", "cg", "cs", "wt"})
    add_store(out, fmt::format("st.global.{}.v2.b32", cache), ".global", b32, 2);
  for (const char* tail :
       {"nc", "nc.L1::no_allocate", "nc.L1::evict_last", "L1::evict_normal", "L1::evict_unchanged",
        "L1::evict_first", "L1::evict_last", "L1::no_allocate", "L2::64B", "L2::128B", "L2::256B",
        "L1::evict_first.L2::256B", "ca.nc", "cg.nc", "nc.L2::128B"}) {
    std::string t = tail;
    add_load(out, fmt::format("ld.global.{}.v4.b32", t), ".global", b32, 4);
  }
  for (const char* tail :
       {"L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last", "L1::no_allocate"})
    add_store(out, fmt::format("st.global.{}.v4.b32", tail), ".global", b32, 4);
  add_load(out, "ld.global.L2::cache_hint.v2.b64", ".global", b64, 2, "hint");
  add_load(out, "ld.global.nc.L1::evict_first.L2::cache_hint.L2::128B.b32", ".global", b32, 1, "hint");
  add_store(out, "st.global.L2::cache_hint.v2.b64", ".global", b64, 2, "hint");
  for (int vector : {1, 2, 4})
    add_load(out, fmt::format("ldu.global{}.b32", vector == 1 ? "" : fmt::format(".v{}", vector)), ".global",
             b32, vector);
  for (const Type& type : kTypes) add_load(out, fmt::format("ldu.global.{}", type.name), ".global", type, 1);
  add_cached(out);
  const std::string wide = "  .reg .b128 %q<2>;\n";
  add_script(out, "ld.global.b128, st.global.b128",
             wide + "  ld.global.b128 %q0, [%in+16];\n  st.global.b128 [%out+16], %q0;\n");
  add_script(out, "ldu.global.b128",
             wide + "  ldu.global.b128 %q0, [%in+16];\n  st.global.b128 [%out+16], %q0;\n");
  add_script(
      out, "ld.relaxed.gpu.global.b128, st.relaxed.gpu.global.b128",
      wide + "  ld.relaxed.gpu.global.b128 %q0, [%in+16];\n  st.relaxed.gpu.global.b128 [%out+16], %q0;\n");
  // What was there is lost; what is written afterwards counts.
  for (const char* insn : {"discard.global.L2 [%goutput], 128", "discard.L2 [%goutput], 128"})
    add_script(
        out, insn,
        fmt::format("  setp.ne.u32 %p1, %thread, 0;\n  @!%p1 {};\n  bar.sync 0;\n  mov.u32 %r10, %r11;\n  "
                    "st.global.v4.b32 [%out+16], {{0,0,0,0}};\n  st.global.v4.b32 [%out+32], {{0,0,0,0}};\n  "
                    "st.global.v4.b32 [%out+48], {{0,0,0,0}};\n  st.global.v4.b32 [%out], {{0,0,0,0}};\n",
                    insn));
  add_script(out, "ld.param",
             "  ld.param.u64 %rd10, [in];\n  sub.u64 %rd10, %rd10, %ginput;\n  cvt.u32.u64 %r10, %rd10;\n  "
             "add.u32 %r10, %r10, 5;\n");
  add_script(out, "ld.param::entry",
             "  ld.param::entry.u64 %rd10, [in];\n  sub.u64 %rd10, %rd10, %ginput;\n  cvt.u32.u64 %r10, "
             "%rd10;\n  add.u32 %r10, %r10, 5;\n");
  add_script(out, "ld.param.v2",
             "  ld.param.v2.b32 {%r20,%r21}, [in];\n  mov.b64 %rd10, {%r20,%r21};\n  sub.u64 %rd10, %rd10, "
             "%ginput;\n  cvt.u32.u64 %r10, %rd10;\n  add.u32 %r10, %r10, 7;\n");
  // A parameter's low bits by every type: 7 where they are those of the address that it holds.
  for (const Type& type : kTypes) {
    const bool is_wide = type.register_bits == 64;
    const std::string shift = type.bytes == 8 ? "0" : fmt::format("{}", 64 - 8 * type.bytes);
    std::string body = fmt::format("  ld.param.{} {}10, [in];\n", type.name, type.prefix);
    const bool is_signed = type.name[0] == 's';
    const int bits = type.register_bits;
    if (bits == 16) body += "  cvt.u32.u16 %r10, %h10;\n";
    const std::string got = bits == 64 ? "%rd10" : "%rd12";
    if (!is_wide) body += fmt::format("  cvt.{0}64.{0}32 %rd12, %r10;\n", is_signed ? "s" : "u");
    body += fmt::format(
        "  shl.b64 %rd13, %ginput, {0};\n  shr.{1}64 %rd13, %rd13, {0};\n  setp.eq.b64 %p1, {2}, %rd13;\n  "
        "selp.b32 %r10, 7, 8, %p1;\n",
        shift, is_signed ? "s" : "u", got);
    add_script(out, fmt::format("ld.param.{}", type.name), body);
  }
  const std::string constants =
      ".const .align 16 .b32 table[8] = {1, 0x80000000, 3, 0xffffffff, 5, 6, 7, 8};\n.global .align 16 .b8 "
      "words[16] = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16};\n";
  add_script(out, "ld.const",
             "  and.b32 %r20, %thread, 7;\n  mul.wide.u32 %rd10, %r20, 4;\n  mov.u64 %rd11, table;\n  "
             "add.u64 %rd10, %rd10, %rd11;\n  ld.const.b32 %r10, [%rd10];\n",
             constants);
  add_script(out, "ld.const.v4",
             "  ld.const.v4.b32 {%r20,%r21,%r22,%r23}, [table+16];\n  add.u32 %r10, %r20, %r23;\n  "
             "ld.const.s8 %r21, [table+12];\n  add.u32 %r10, %r10, %r21;\n",
             constants);
  add_script(out, "cvta.const",
             "  cvta.const.u64 %rd10, table;\n  ld.b32 %r10, [%rd10+8];\n  isspacep.const %p1, %rd10;\n  "
             "@%p1 add.u32 %r10, %r10, 1000;\n",
             constants);
  add_script(out, "a global variable",
             "  ld.global.b64 %rd10, [words+8];\n  cvta.global.u64 %rd11, words;\n  ld.u16 %r10, "
             "[%rd11+2];\n  cvt.u32.u64 %r20, %rd10;\n  add.u32 %r10, %r10, %r20;\n",
             constants);
  // Address spaces.
  const std::string every_space =
      "  .local .align 8 .b8 stack[16];\n  cvta.local.u64 %rd20, stack;\n  cvt.u64.u32 %rd21, %tile;\n  "
      "cvta.shared.u64 %rd21, %rd21;\n  mov.u64 %rd22, %in;\n"
      "  mov.u64 %rd23, 0;\n";
  for (const char* space :
       {"global", "shared", "shared::cta", "shared::cluster", "local", "const", "param"}) {
    std::string body = every_space;
    for (int i = 0; i < 4; ++i)
      body += fmt::format(
          "  isspacep.{} %p1, %rd{};\n  selp.b32 %r20, {}, 0, %p1;\n  add.u32 %r10, %r10, %r20;\n", space,
          20 + i, 1 << i);
    add_script(out, fmt::format("isspacep.{}", space), body);
  }
  add_script(
      out, "isspacep.param::entry",
      "  mov.b64 %rd20, in;\n  cvta.param::entry.u64 %rd20, %rd20;\n  isspacep.param::entry %p1, %rd20;\n  "
      "selp.b32 %r10, 1, 0, %p1;\n");
  for (const char* space : {"global", "shared", "shared::cta", "local"}) {
    std::string body = every_space;
    const int reg = space[0] == 'g' ? 22 : space[0] == 's' ? 21 : 20;
    body += fmt::format(
        "  cvta.to.{0}.u64 %rd30, %rd{1};\n  cvta.{0}.u64 %rd31, %rd30;\n  sub.u64 %rd31, %rd31, %rd{1};\n  "
        "cvt.u32.u64 %r10, %rd31;\n  add.u32 %r10, %r10, 9;\n",
        space, reg);
    add_script(out, fmt::format("cvta.to.{}", space), body);
  }
  // These change nothing that can be seen.
  for (const char* insn :
       {"prefetch.global.L1 [%in]", "prefetch.global.L2 [%in]", "prefetch.L1 [%in]", "prefetch.L2 [%in]",
        "prefetch.global.L2::evict_last [%in]", "prefetch.global.L2::evict_normal [%in]",
        "prefetchu.L1 [%in]", "applypriority.global.L2::evict_normal [%ginput], 128",
        "applypriority.L2::evict_normal [%ginput], 128"})
    add_script(out, insn, fmt::format("  {};\n  mov.u32 %r10, %r11;\n", insn));
  add_script(out, "prefetch.local",
             "  .local .align 8 .b8 stack[16];\n  mov.u64 %rd20, stack;\n  st.local.b32 [%rd20], %r11;\n  "
             "prefetch.local.L1 [%rd20];\n  prefetch.local.L2 [%rd20];\n  ld.local.b32 %r10, [%rd20];\n");
  for (const char* policy :
       {"createpolicy.fractional.L2::evict_last.b64 %rd20, 0.5",
        "createpolicy.fractional.L2::evict_first.L2::evict_unchanged.b64 %rd20, 1.0",
        "createpolicy.fractional.L2::evict_normal.b64 %rd20, 1.0",
        "createpolicy.fractional.L2::evict_unchanged.b64 %rd20, 1.0",
        "createpolicy.fractional.L2::evict_last.b64 %rd20",
        "createpolicy.range.global.L2::evict_last.L2::evict_first.b64 %rd20, [%ginput], 1024, 2048",
        "createpolicy.range.L2::evict_first.b64 %rd20, [%ginput], 1024, 1024",
        "createpolicy.cvt.L2.b64 %rd20, 0x14F0000000000000"})
    add_script(out, policy,
               fmt::format("  {};\n  ld.global.L2::cache_hint.b32 %r10, [%in], %rd20;\n", policy));
}

}  // namespace imbrex::conformance
