// SPDX-License-Identifier: Apache-2.0
// Layouts of products that single threads compute.
#include <fmt/format.h>

#include "imbrex/core/error.h"
#include "layout/registers.h"

namespace imbrex::layout {

ThreadProduct thread_product(const Layout& c, int64_t k) {
  if (c.rank() != 2)
    throw CompileError(Diagnostic{{}, fmt::format("a product is a matrix, not {}", c.to_string()), {}, ""});
  return {concat(c.reduce(1), local({k})), concat(local({k}), c.reduce(0))};
}

Layout thread_product_result(int64_t m, int64_t n, int64_t threads) {
  int64_t best_m = 1, best_n = 1;
  for (int64_t tm = 1; tm <= m && tm <= threads; ++tm)
    for (int64_t tn = 1; m % tm == 0 && tn <= n && tm * tn <= threads; ++tn) {
      if (n % tn != 0 || threads % (tm * tn) != 0 || tm * tn < best_m * best_n) continue;
      // As many threads: the box that needs fewer rows and columns.
      if (tm * tn == best_m * best_n && m / tm + n / tn >= m / best_m + n / best_n) continue;
      best_m = tm;
      best_n = tn;
    }
  int64_t vector = 1;
  while (vector < 4 && n / best_n % (2 * vector) == 0) vector *= 2;
  const Layout box =
      local({m / best_m, n / best_n / vector}) * spatial({best_m, best_n}) * local({1, vector});
  return box.replicate_to(threads);
}

}  // namespace imbrex::layout
