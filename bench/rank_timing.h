// SPDX-License-Identifier: Apache-2.0
// Device time of calls that all ranks make together.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "imbrex/parallel.h"
#include "imbrex/runtime.h"

namespace imbrex::parallel {

/// What is timed: call number `i` of a graph, put on a stream.
using RankCalls = std::function<void(int i, const Stream& stream)>;

struct RankTiming {
  int calls;  ///< of a graph
  int turns;
  bool is_told = true;  ///< false: the calls are made as ever, and there is no time
};

/// Microseconds per call of each contender, in a captured graph, of the slowest rank; contenders in turns, medians of them. NaN
/// where no time is told. Each is called once before, outside of a graph: NCCL connects the ranks then.
inline std::vector<double> microseconds(Communicator& ranks, const RankTiming& timing,
                                        const std::vector<RankCalls>& contenders) {
  const auto [calls, turns, is_told] = timing;
  const Stream stream = Stream::create(ranks.device());
  std::vector<Graph> graphs;
  for (const RankCalls& contender : contenders) {
    ranks.barrier();
    contender(0, stream);
    ranks.synchronize(stream);
    ranks.barrier();
    graphs.push_back(Graph::capture(stream, [&] {
      for (int i = 0; i < timing.calls; ++i) contender(i, stream);
    }));
  }
  std::vector<std::vector<double>> times(contenders.size());
  for (int turn = 0; turn <= turns; ++turn)
    for (size_t i = 0; i < graphs.size(); ++i) {
      ranks.barrier();
      Event begin = Event::create(ranks.device()), end = Event::create(ranks.device());
      graphs[i].launch();  // the ranks begin together behind this one
      begin.record();
      graphs[i].launch();
      end.record();
      ranks.synchronize();
      if (turn > 0) times[i].push_back(1000 * end.milliseconds_since(begin) / calls);
    }
  if (!is_told) return std::vector<double>(contenders.size(), NAN);
  std::vector<double> slowest(contenders.size());
  for (size_t i = 0; i < times.size(); ++i) {
    std::sort(times[i].begin(), times[i].end());
    const double median = times[i][static_cast<size_t>(turns / 2)];
    for (const std::string& text : ranks.gather(fmt::format("{}", median)))
      slowest[i] = std::max(slowest[i], std::stod(text));
  }
  return slowest;
}

inline double microseconds(Communicator& ranks, const RankTiming& timing, const RankCalls& contender) {
  return microseconds(ranks, timing, std::vector<RankCalls>{contender})[0];
}

}  // namespace imbrex::parallel
