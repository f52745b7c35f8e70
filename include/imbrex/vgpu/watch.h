// SPDX-License-Identifier: Apache-2.0
// Watching a launch that takes its time: how far it has come, where its warps are, and ending it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace imbrex::vgpu {

/// How far a launch has come.
struct Progress {
  std::string_view kernel;          // its name
  double seconds = 0;               // since it began
  int64_t instructions = 0;         // warp instructions executed, without those of the slice under way
  int64_t ctas = 0, ctas_done = 0;  // of the grid
  /// Where the warps of CTAs that are looked at are, one line each: "CTA (0, 0, 0) warps 0 to 3 at k.cu:12 ...".
  std::vector<std::string> places;
};

/// What Options::watch points to. The host threads of the launch ask it between slices of work, a second or less
/// apart.
struct Watch {
  double first_after = 2;  // seconds until `tell` is called first; a launch that ends before is not told of
  double every = 1;        // seconds between calls
  std::function<void(const Progress&)> tell = {};  // called by one host thread at a time; may be empty
  /// Set from anywhere, a signal handler included: launches end at once, with a finding `interrupted` that
  /// tells where every warp was.
  std::atomic<bool> stop{false};
};

/// A Watch that tells on stderr, in one line that is written over on a terminal.
std::shared_ptr<Watch> watch_on_stderr();
/// The same where stderr is a terminal or IMBREX_PROGRESS=1 is set, else one that only can be stopped; from now on
/// the first Ctrl-C (SIGINT) sets its `stop`, the second ends the process.
std::shared_ptr<Watch> watch_for_commands();

}  // namespace imbrex::vgpu
