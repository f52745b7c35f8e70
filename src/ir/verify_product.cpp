// SPDX-License-Identifier: Apache-2.0
// Shapes of matrix products, for the verifiers of all of them.
#include <fmt/format.h>

#include "ir/findings.h"

namespace imbrex::ir {

bool verify_product(const Op& op, std::string_view sum, Findings& out, int64_t times_n) {
  const Type &a = op.operands[0]->type, &b = op.operands[1]->type, &c = op.operands[2]->type;
  const auto refuse = [&](const std::string& fact, const std::string& help = "") {
    out.add(op, fact, help);
    return false;
  };
  if (a.rank() != 2 || b.rank() != 2 || c.rank() != 2)
    return refuse(fmt::format("works on matrices, not on {}, {} and {}", shape_text(a.shape),
                              shape_text(b.shape), shape_text(c.shape)));
  const int64_t m = a.shape[0], k = a.shape[1], n = b.shape[1] * times_n;
  if (b.shape[0] != k)
    return refuse(fmt::format("inner sizes differ, a has k = {} and b has k = {}", k, b.shape[0]),
                  b.shape[1] == k ? "transpose b: it is [k, n]" : "");
  if (c.shape[0] != m || c.shape[1] != n)
    return refuse(fmt::format("{} is {}, a x b gives {}", sum, shape_text(c.shape), shape_text({m, n})));
  return true;
}

}  // namespace imbrex::ir
