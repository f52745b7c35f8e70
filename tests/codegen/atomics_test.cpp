// SPDX-License-Identifier: Apache-2.0
// Atomics, semaphores, gathers and scalars in memory: the words of their PTX, and that ptxas takes every form on every
// target.
#include <gmock/gmock.h>

#include <fmt/format.h>

#include "kit.h"

namespace imbrex::codegen::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kTypes[] = {"int32",   "uint32",  "int64",   "uint64",
                                  "float32", "float64", "float16", "bfloat16"};
constexpr const char* kTargets[] = {"sm_80", "sm_90a", "sm_100a"};

bool updates(std::string_view kind, std::string_view type, std::string_view target) {
  const bool is_float = type.find("float") != type.npos;
  const bool is_half = type.find("16") != type.npos;
  if (kind == "add") return type != "bfloat16" || target != "sm_80";
  if (kind == "exch" || kind == "cas") return !is_half;
  return !is_float;
}

/// A kernel whose body is `body`, with one global and one shared tensor of 1024 elements of each type (%g_int32,
/// %s_int32), one element of each (%g1_int32, %s1_int32), tiles %t_int32 and %i of [1024] and scalars %c_int32.
std::string kernel(const std::string& target, const std::string& body) {
  std::string text = "kernel k(";
  for (const char* type : kTypes) text += fmt::format("%p_{0}: ptr<{0}>, ", type);
  text += fmt::format("%n: int32) target {} warps 4 from \"k.cpp\":1 {{\n", target);
  text +=
      "%zero: int32 = const {int = 0}\n%one: int32 = const {int = 1}\n%size: int32 = const {int = 1024}\n";
  text += "launch_grid %one\n";
  text += "%gi: global<int32, [1024]> = global_view %p_int32, %size, %one {rank = 1}\n";
  text += "%i: register<int32, [1024]> = load_global %gi, %zero {shape = [1024], dims = [0]}\n";
  for (const char* type : kTypes) {
    const bool is_float = std::string_view(type).find("float") != std::string_view::npos;
    text += fmt::format(
        "%g_{0}: global<{0}, [1024]> = global_view %p_{0}, %size, %one {{rank = 1}}\n"
        "%s_{0}: shared<{0}, [1024]> = shared_alloc {{dtype = {0}, shape = [1024]}}\n"
        "%g1_{0}: global<{0}, []> = index %g_{0}, %n\n%s1_{0}: shared<{0}, []> = index %s_{0}, %n\n"
        "%t_{0}: register<{0}, [1024]> = load_global %g_{0}, %zero {{shape = [1024], dims = [0]}}\n"
        "%c_{0}: {0} = const {{{1} = 1}}\n",
        type, is_float ? "float" : "int");
  }
  return text + body + "}\n";
}

TEST(AtomicForms, AreTakenByPtxasOnEveryTarget) {
  for (const char* target : kTargets) {
    std::string body;
    int next = 0;
    const auto use = [&](const std::string& type) {
      body += fmt::format("store_global %g_{0}, %o{1}, %zero {{dims = [0]}}\n", type, next);
    };
    for (const char* type : kTypes)
      for (const char* kind : {"add", "min", "max", "and", "or", "xor", "exch", "cas"}) {
        if (!updates(kind, type, target)) continue;
        const bool compares = std::string_view(kind) == "cas";
        for (const char* space : {"g", "s"})
          for (const char* more : {"", ", sem = \"release\"", ", sem = \"acq_rel\", scope = \"sys\""}) {
            body += fmt::format(
                "%o{0}: register<{1}, [1024]> = atomic %{2}_{1}, %t_{1}, {3}%zero {{kind = \"{4}\", dims = "
                "[0]{5}}}\n",
                ++next, type, space, compares ? fmt::format("%t_{}, ", type) : "", kind, more);
            if (next % 2) use(type);
            body +=
                fmt::format("%o{0}: {1} = atomic_item %{2}1_{1}, %c_{1}{3} {{kind = \"{4}\"{5}}}\n", ++next,
                            type, space, compares ? fmt::format(", %c_{}", type) : "", kind, more);
            if (next % 4 == 0)
              body +=
                  fmt::format("%k{0}: bool = ne %o{0}, %c_{1}\ncheck %k{0} {{message = \"\"}}\n", next, type);
          }
        body += fmt::format(
            "%o{0}: register<{1}, [1024]> = atomic %g_{1}, %t_{1}, {2}%i {{kind = \"{3}\", dims = [-1]}}\n",
            ++next, type, compares ? fmt::format("%t_{}, ", type) : "", kind);
      }
    expect_assembles(compile(kernel(target, body)));
  }
}

TEST(SemaphoreForms, AreTakenByPtxasOnEveryTarget) {
  for (const char* target : kTargets) {
    std::string body;
    for (const char* type : {"int32", "uint32"})
      for (const char* scope : {"", "cta", "gpu", "sys", "cluster"}) {
        if (std::string_view(scope) == "cluster" && std::string_view(target) == "sm_80") continue;
        const std::string said = *scope ? fmt::format("scope = \"{}\"", scope) : "";
        for (const char* mode : {"equal", "at_least", "lock"})
          body += fmt::format("semaphore_wait %g1_{0}, %c_{0} {{mode = \"{1}\"{2}{3}}}\n", type, mode,
                              said.empty() ? "" : ", ", said);
        body += fmt::format("semaphore_release %g1_{0}, %c_{0}{1}\n", type,
                            said.empty() ? "" : " {" + said + "}");
      }
    const CompiledKernel k = compile(kernel(target, body));
    EXPECT_THAT(k.ptx, HasSubstr("ld.acquire.gpu.global.b32"));
    EXPECT_THAT(k.ptx, HasSubstr("st.release.gpu.global.b32"));
    EXPECT_THAT(k.ptx, HasSubstr("atom.acquire.sys.global.cas.b32"));
    expect_assembles(k);
  }
}

TEST(GatherForms, AreTakenByPtxasOnEveryTarget) {
  for (const char* target : kTargets) {
    std::string body;
    int next = 0;
    for (const char* type : kTypes)
      for (const char* space : {"g", "s"}) {
        body += fmt::format(
            "%r{0}: register<{1}, [1024]> = gather %{2}_{1}, %i {{shape = [1024], dims = [-1]}}\n"
            "scatter %{2}_{1}, %r{0}, %i {{dims = [-1]}}\n"
            "%e{0}: {1} = load_item %{2}_{1}, %n\n%f{0}: {1} = item %r{0}, %n\n"
            "%k{0}: bool = ne %e{0}, %f{0}\ncheck %k{0} {{message = \"\"}}\n",
            ++next, type, space);
      }
    expect_assembles(compile(kernel(target, body)));
    expect_assembles(compile(kernel(target, body), {.check_assumptions = true}));
  }
}

/// What nobody uses is not asked for, and neighbouring elements go together. An exchange for nothing is a store, an update
/// that changes nothing a load.
TEST(AtomicForms, AreTheCheapestThatDo) {
  const auto ptx = [](const char* target, const std::string& type, const char* kind, bool used,
                      const std::string& more = "", const std::string& value = "%t_{}") {
    std::string body = fmt::format(
        "%nothing: register<{0}, [1024]> = broadcast %no_{0} {{shape = [1024]}}\n"
        "%o: register<{0}, [1024]> = atomic %g_{0}, {2}, %zero {{kind = \"{1}\", dims = [0]{3}}}\n",
        type, kind, fmt::format(fmt::runtime(value), type), more);
    body = fmt::format("%no_{0}: {0} = const {{{1} = 0}}\n", type,
                       type.find("float") == type.npos ? "int" : "float") +
           body;
    if (used) body += fmt::format("store_global %g_{}, %o, %zero {{dims = [0]}}\n", type);
    return compile(kernel(target, body)).ptx;
  };
  EXPECT_THAT(ptx("sm_80", "float32", "add", false), HasSubstr("red.global.add.f32"));
  EXPECT_THAT(ptx("sm_80", "float32", "add", true), HasSubstr("atom.global.add.f32"));
  EXPECT_THAT(ptx("sm_90a", "float32", "add", false), HasSubstr("red.global.add.v4.f32"));
  EXPECT_THAT(ptx("sm_80", "float16", "add", false), HasSubstr("red.global.add.noftz.f16x2"));
  EXPECT_THAT(ptx("sm_90a", "float16", "add", false), HasSubstr("red.global.add.noftz.v4.f16x2"));
  EXPECT_THAT(ptx("sm_90a", "bfloat16", "add", true), HasSubstr("atom.global.add.noftz.v4.bf16x2"));
  EXPECT_THAT(ptx("sm_90a", "int32", "max", false), HasSubstr("red.global.max.s32"));
  EXPECT_THAT(ptx("sm_90a", "uint64", "exch", true), HasSubstr("atom.global.exch.b64"));
  EXPECT_THAT(ptx("sm_90a", "uint64", "exch", false), HasSubstr("st.relaxed.gpu.global.v2.b64"));
  EXPECT_THAT(ptx("sm_90a", "int32", "exch", false, ", scope = \"sys\""),
              HasSubstr("st.relaxed.sys.global.v4.b32"));
  EXPECT_THAT(ptx("sm_90a", "int32", "exch", false, ", sem = \"release\""),
              HasSubstr("st.release.gpu.global.v4.b32"));
  EXPECT_THAT(ptx("sm_90a", "int32", "exch", false, ", sem = \"acq_rel\""), HasSubstr("atom.acq_rel"));
  EXPECT_THAT(ptx("sm_90a", "uint64", "or", true, ", scope = \"sys\"", "%nothing"),
              HasSubstr("ld.relaxed.sys.global.v2.b64"));
  EXPECT_THAT(ptx("sm_90a", "uint64", "or", true), HasSubstr("atom.global.or.b64"));
  EXPECT_THAT(ptx("sm_90a", "uint64", "or", true, ", sem = \"release\"", "%nothing"),
              HasSubstr("atom.release"));
}

}  // namespace
}  // namespace imbrex::codegen::testing
