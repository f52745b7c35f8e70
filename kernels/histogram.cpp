// SPDX-License-Identifier: Apache-2.0
#include "imbrex/kernels/histogram.h"

#include <cmath>

#include "imbrex/runtime/registry.h"

namespace imbrex::kernels {

static const KernelRegistration<Histogram> registration{
    {"histogram",
     "how often each key occurs, in int32",
     {{"n", 100003, "keys"}, {"bins", 256, "keys that are counted"}}},
    [](Case& c, Kernel<Histogram>& kernel) {
      const int64_t n = c.size("n"), bins = c.size("bins");
      // Most keys are near the middle; some are outside.
      const HostTensor chance = c.random(float64, {n});
      HostTensor host(int32, {n});
      for (int64_t i = 0; i < n; ++i)
        host.set(i, std::floor((chance.get(i) / 6 + 0.5) * static_cast<double>(bins)));
      DeviceTensor keys = c.input(host), sums = c.input(HostTensor(int32, {bins})),
                   ticket = c.input(HostTensor(int32, {1})), counts = c.output(int32, {bins});
      c.launch(kernel, n, bins, keys, sums, ticket, counts);
      const auto expect_zeros = [](std::span<double> out) {
        for (double& x : out) x = 0;
      };
      c.expect(sums, expect_zeros);
      c.expect(ticket, expect_zeros);
      c.expect(counts, [&](std::span<double> out) {
        expect_zeros(out);
        for (double key : c.values(keys))
          if (key >= 0 && key < static_cast<double>(bins)) ++out[static_cast<size_t>(key)];
      });
    }};

}  // namespace imbrex::kernels
