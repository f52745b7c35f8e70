// SPDX-License-Identifier: Apache-2.0
// Device time of calls that all ranks make together.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "imbrex/parallel.h"
#include "imbrex/runtime.h"

namespace imbrex::parallel {

/// Microseconds per call of what `record(call, stream)` puts on a stream, in a captured graph of `calls`, of the slowest
/// rank; the median of `turns`.
template <class Record>
double microseconds(Communicator& ranks, int calls, int turns, Record&& record) {
  const Stream stream = Stream::create(ranks.device());
  ranks.barrier();
  const Graph graph = Graph::capture(stream, [&] {
    for (int i = 0; i < calls; ++i) record(i, stream);
  });
  std::vector<double> times;
  for (int turn = 0; turn <= turns; ++turn) {
    ranks.barrier();
    Event begin = Event::create(ranks.device()), end = Event::create(ranks.device());
    graph.launch();  // the ranks begin together behind this one
    begin.record();
    graph.launch();
    end.record();
    ranks.synchronize();
    if (turn > 0) times.push_back(1000 * end.milliseconds_since(begin) / calls);
  }
  std::sort(times.begin(), times.end());
  double slowest = 0;
  for (const std::string& text : ranks.gather(fmt::format("{}", times[static_cast<size_t>(turns / 2)])))
    slowest = std::max(slowest, std::stod(text));
  return slowest;
}

}  // namespace imbrex::parallel
