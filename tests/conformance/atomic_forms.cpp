// SPDX-License-Identifier: Apache-2.0
// atom and red: every operation and type, in global and shared memory, scopes and orders, vectors, and
// several threads on one place.
#include <fmt/format.h>

#include "families.h"

namespace imbrex::conformance {
namespace {

constexpr const char* kFamily = "atomics";
constexpr int kThreads = 64, kCtas = kProfiles;

struct Atomic {
  std::string op, type;
  std::string words = {};  // between `atom` and the operation: semantics, scope
  std::string space = ".global";
  bool returns = true;
  int vector = 1;
  std::string hint = {};
  bool has_nans = false;
};

int bits_of(const std::string& type) {
  if (type.ends_with("128")) return 128;
  if (type.ends_with("64")) return 64;
  return type == "f16" || type == "bf16" || type == "b16" ? 16 : 32;
}
std::string element_of(const std::string& type) {
  if (type == "f16" || type == "f16x2") return "f16";
  if (type == "bf16" || type == "bf16x2") return "bf16";
  if (type == "f32" || type == "f64") return type;
  return bits_of(type) >= 64 ? "b64" : "b32";
}
int64_t elements(const std::string& type) {
  return type.ends_with("x2") ? 2 : type == "b128" ? 2 : type == "b16" ? 1 : 1;
}

// Every thread owns `size` bytes: old value, operand b, operand c; it works on a copy of the first, in the
// output or in shared memory. What it returns and what it leaves are compared.
void add(Kernels& out, const Atomic& f) {
  const int bits = bits_of(f.type), bytes = bits / 8 * f.vector, slot = std::max(bytes, 4);
  const bool is_shared = f.space.find("shared") != std::string::npos;
  std::string insn = fmt::format("{}{}{}.{}", f.returns ? "atom" : "red", f.words, f.space, f.op);
  if ((f.op == "add" || f.vector > 1) && (element_of(f.type) == "f16" || element_of(f.type) == "bf16"))
    insn += ".noftz";
  if (!f.hint.empty()) insn += ".L2::cache_hint";
  if (f.vector > 1) insn += fmt::format(".v{}", f.vector);
  insn += "." + f.type;
  const std::string name = insn + (f.hint.empty() ? "" : " hinted") + (f.space.empty() ? " generic" : "") +
                           (f.has_nans ? " of NaNs" : "");
  Frame frame{.threads = kThreads,
              .ctas = kCtas,
              .tile_bytes = is_shared ? kThreads * 16 : 0,
              .in_stride = 3 * 16,
              .out_stride = 32};
  const std::string prefix = bits == 16 ? "%h" : bits == 32 ? "%r" : "%rd";
  const int first = 10;
  const auto load = [&](int reg, int at) {
    for (int i = 0; i < f.vector; ++i)
      frame.body +=
          bits == 128
              ? fmt::format(
                    "  ld.global.v2.b64 {{%rd40,%rd41}}, [%in+{}];\n  mov.b128 %q{}, {{%rd40,%rd41}};\n", at,
                    reg)
              : fmt::format("  ld.global.b{} {}{}, [%in+{}];\n", bits, prefix, reg + i, at + i * bits / 8);
  };
  if (bits == 128) frame.body += "  .reg .b128 %q<32>;\n";
  load(first, 16);
  if (f.op == "cas") load(20, 32);
  // The old value goes to its place.
  frame.body += "  ld.global.v4.b32 {%r100,%r101,%r102,%r103}, [%in];\n";
  std::string address = "%out";
  if (is_shared) {
    frame.body +=
        "  mad.lo.u32 %r104, %thread, 16, %tile;\n  st.shared.v4.b32 [%r104], {%r100,%r101,%r102,%r103};\n";
    address = "%r104";
  } else {
    frame.body += "  st.global.v4.b32 [%out], {%r100,%r101,%r102,%r103};\n";
  }
  if (!f.hint.empty()) frame.body += "  createpolicy.fractional.L2::evict_last.b64 %rd50, 1.0;\n";
  const std::string q = bits == 128 ? "%q" : prefix;
  const auto value = [&](int reg) {
    return f.vector > 1 ? registers(reg, f.vector, prefix) : fmt::format("{}{}", q, reg);
  };
  std::string operands = (f.returns ? value(1) + ", " : "") + "[" + address + "], " + value(first);
  if (f.op == "cas") operands += ", " + value(20);
  if (!f.hint.empty()) operands += ", %rd50";
  frame.body += fmt::format("  {} {};\n", insn, operands);
  if (is_shared)
    frame.body +=
        "  ld.shared.v4.b32 {%r100,%r101,%r102,%r103}, [%r104];\n  st.global.v4.b32 [%out], "
        "{%r100,%r101,%r102,%r103};\n";
  if (f.returns) {
    for (int i = 0; i < f.vector; ++i)
      frame.body +=
          bits == 128
              ? "  mov.b128 {%rd40,%rd41}, %q1;\n  st.global.v2.b64 [%out+16], {%rd40,%rd41};\n"
              : fmt::format("  st.global.b{} [%out+{}], {}{};\n", bits, 16 + i * bits / 8, prefix, 1 + i);
  }
  Random random(name);
  std::vector<uint8_t> input;
  const std::string element = element_of(f.type);
  for (int cta = 0; cta < kCtas; ++cta)
    for (int thread = 0; thread < kThreads; ++thread) {
      const auto profile = f.has_nans ? Profile::kNans : static_cast<Profile>((cta + thread) % kProfiles);
      std::vector<uint8_t> parts[3];
      for (auto& part : parts) {
        append_values(part, element, profile, slot * 8 / bits * elements(f.type) + 8, random);
        part.resize(16);
      }
      // Half of the comparisons succeed.
      if (f.op == "cas" && thread % 2 == 0) parts[1] = parts[0];
      for (const auto& part : parts) input.insert(input.end(), part.begin(), part.end());
    }
  out.push_back(make_kernel(kFamily, name, frame, std::move(input)));
}

// All threads add to a few places; the sums do not depend on their order.
void add_contended(Kernels& out, const std::string& insn, const std::string& type, bool is_shared) {
  Frame frame{.threads = 128, .ctas = 3, .tile_bytes = is_shared ? 64 : 0, .in_stride = 8};
  const int bytes = type.ends_with("64") ? 8 : 4;
  const std::string name = insn + " contended";
  const std::string prefix = bytes == 8 ? "%rd" : "%r";
  frame.body = fmt::format(
      "  ld.global.b{} {}10, [%in];\n  and.b32 %r0, %thread, 3;\n  setp.ge.u32 %p0, %thread, 4;\n", 8 * bytes,
      prefix);
  if (is_shared) {
    frame.body +=
        fmt::format("  mad.lo.u32 %r1, %r0, {0}, %tile;\n  @!%p0 st.shared.b{1} [%r1], 0;\n  bar.sync 0;\n",
                    bytes, 8 * bytes);
    frame.body += fmt::format("  {} [%r1], {}10;\n  bar.sync 0;\n", insn, prefix);
    frame.body += fmt::format(
        "  ld.shared.b{1} {2}11, [%r1];\n  mad.lo.u32 %r2, %cta, 4, %r0;\n  mad.wide.u32 %rd20, %r2, {0}, "
        "%goutput;\n  @!%p0 st.global.b{1} [%rd20], {2}11;\n",
        bytes, 8 * bytes, prefix);
  } else {
    frame.body +=
        fmt::format("  mad.wide.u32 %rd20, %r0, {}, %goutput;\n  {} [%rd20], {}10;\n", bytes, insn, prefix);
  }
  Random random(name);
  out.push_back(make_kernel(kFamily, name, frame, random_bytes(3 * 128 * 8, random), 3 * 4 * bytes));
}

struct Row {
  std::string op;
  std::vector<const char*> types;
};
const Row kRows[] = {{"and", {"b32", "b64"}},
                     {"or", {"b32", "b64"}},
                     {"xor", {"b32", "b64"}},
                     {"add", {"u32", "s32", "u64", "f32", "f64", "f16", "f16x2", "bf16", "bf16x2"}},
                     {"inc", {"u32"}},
                     {"dec", {"u32"}},
                     {"min", {"u32", "s32", "u64", "s64"}},
                     {"max", {"u32", "s32", "u64", "s64"}},
                     {"exch", {"b32", "b64", "b128"}},
                     {"cas", {"b16", "b32", "b64", "b128"}}};

bool always_returns(const std::string& op) { return op == "exch" || op == "cas"; }

// What kernels order by: every operation and type by each order, and every order and scope of what locks and
// semaphores are made of. One thread alone on its place must not see a difference.
void add_ordered(Kernels& out) {
  for (const Row& row : kRows)
    for (const char* type : row.types)
      for (const char* space : {".global", ".shared"}) {
        for (const char* words :
             {".relaxed.gpu", ".release.cta", ".release.gpu", ".acquire.cluster", ".acq_rel.sys"})
          add(out, {row.op, type, words, space});
        if (always_returns(row.op)) continue;
        for (const char* words : {".relaxed.gpu", ".release.cta", ".release.gpu"})
          add(out, {row.op, type, words, space, false});
      }
  for (const char* scope : {".cta", ".cluster", ".gpu", ".sys"})
    for (const char* order : {".relaxed", ".acquire", ".release", ".acq_rel"})
      for (const char* op : {"cas", "exch"}) add(out, {op, "b32", std::string(order) + scope});
  for (const char* words : {".release.gpu", ".acq_rel.sys"})
    for (const char* type : {"f16x2", "bf16x2"})
      for (int vector : {2, 4}) add(out, {"add", type, words, ".global", true, vector});
  for (const char* words : {".release.gpu", ".acq_rel.sys"})
    for (int vector : {2, 4}) add(out, {"add", "f32", words, ".global", true, vector});
  for (const char* type : {"f16x2", "bf16x2", "f32"})
    for (int vector : {2, 4}) add(out, {"add", type, ".release.gpu", ".global", false, vector});
}

}  // namespace

void add_atomics(Kernels& out) {
  for (const Row& row : kRows)
    for (const char* type : row.types)
      for (const char* space : {".global", ".shared", ".shared::cta", ""})
        for (bool returns : {true, false}) {
          if (!returns && always_returns(row.op)) continue;
          add(out, {row.op, type, "", space, returns});
        }
  for (const char* scope : {".cta", ".cluster", ".gpu", ".sys"}) {
    for (const char* order : {".relaxed", ".acquire", ".release", ".acq_rel"}) {
      add(out, {"add", "u32", std::string(order) + scope});
      add(out, {"cas", "b64", std::string(order) + scope, ".shared"});
    }
    for (const char* order : {".relaxed", ".release"})
      add(out, {"add", "f32", std::string(order) + scope, ".global", false});
  }
  for (bool returns : {true, false}) {
    for (const char* type : {"f16", "bf16"})
      for (int vector : {2, 4, 8})
        for (const char* op : {"add", "min", "max"}) add(out, {op, type, "", ".global", returns, vector});
    for (const char* type : {"f16x2", "bf16x2"})
      for (int vector : {2, 4})
        for (const char* op : {"add", "min", "max"}) add(out, {op, type, "", ".global", returns, vector});
    for (int vector : {2, 4}) add(out, {"add", "f32", "", ".global", returns, vector});
    add(out, {"add", "u64", "", ".global", returns, 1, "hint"});
  }
  for (const char* type : {"f32", "f64", "f16x2", "bf16x2"})
    for (const char* space : {".global", ".shared", ""})
      for (bool returns : {true, false}) {
        Atomic nans{"add", type, "", space, returns};
        nans.has_nans = true;
        add(out, nans);
      }
  for (const char* space : {"global", "shared"}) {
    const bool is_shared = space[0] == 's';
    for (const char* tail : {"add.u32", "add.u64", "min.s32", "max.u64", "xor.b32", "and.b64", "or.b32"})
      add_contended(out, fmt::format("red.{}.{}", space, tail), tail, is_shared);
  }
  add_ordered(out);
}

}  // namespace imbrex::conformance
