// SPDX-License-Identifier: Apache-2.0
#include "codegen/memory/cache_hints.h"

#include "codegen/generator.h"

namespace imbrex::codegen {
namespace {

struct Priority {
  std::string_view name;
  Mod l1, l2;
};
constexpr Priority kPriorities[] = {{"evict_first", Mod::L1_evict_first, Mod::L2_evict_first},
                                    {"evict_normal", Mod::L1_evict_normal, Mod::L2_evict_normal},
                                    {"evict_last", Mod::L1_evict_last, Mod::L2_evict_last},
                                    {"no_allocate", Mod::L1_no_allocate, Mod::L2_evict_normal}};

const Priority& priority_of(const std::string& name) {
  for (const Priority& p : kPriorities)
    if (p.name == name) return p;
  throw InternalError("codegen: no cache priority is called " + name);
}

}  // namespace

CacheHints cache_hints(Generator& g, const ir::Op& op) {
  CacheHints hints;
  if (op.attr("l1_priority")) hints.l1 = priority_of(op.string_attr("l1_priority")).l1;
  if (!op.attr("cache_policy")) return hints;
  const Mod priority = priority_of(op.string_attr("cache_policy")).l2;
  hints.policy = g.e().hoisted(g.ints().name(kCachePolicy, static_cast<int64_t>(priority)), 0, [&] {
    return Operand(
        g.e().make(ScalarType::b64, Op::createpolicy, {Mod::fractional, priority, ScalarType::b64}, {1.0f}));
  });
  return hints;
}

}  // namespace imbrex::codegen
