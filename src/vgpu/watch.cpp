// SPDX-License-Identifier: Apache-2.0
#include "imbrex/vgpu/watch.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "core/text.h"

namespace imbrex::vgpu {

namespace {

constexpr size_t kColumns = 118;  // of a terminal's line, if it does not say

std::string line_of(const Progress& p) {
  std::string line = fmt::format("{}: {:.0f} s, {} of {} CTAs, {:.3g} million warp instructions", p.kernel,
                                 p.seconds, p.ctas_done, p.ctas, static_cast<double>(p.instructions) / 1e6);
  if (!p.places.empty()) line += "; " + p.places.front();
  if (line.size() > kColumns) line = line.substr(0, kColumns - 3) + "...";
  return line;
}

std::shared_ptr<Watch>& watch_to_stop() {
  static std::shared_ptr<Watch> watch;
  return watch;
}
std::atomic<bool>* stop_flag = nullptr;

void on_interrupt(int) {
  // SA_RESETHAND: the next one ends the process.
  if (stop_flag != nullptr) stop_flag->store(true, std::memory_order_relaxed);
}

}  // namespace

std::shared_ptr<Watch> watch_on_stderr() {
  auto watch = std::make_shared<Watch>();
  const bool is_terminal = isatty(STDERR_FILENO) != 0;
  watch->tell = [is_terminal](const Progress& progress) {
    if (is_terminal)
      say("\r\033[K{}\r", line_of(progress));
    else
      say("{}\n", line_of(progress));
    std::fflush(stderr);
  };
  return watch;
}

std::shared_ptr<Watch> watch_for_commands() {
  const char* asked = std::getenv("IMBREX_PROGRESS");
  const bool tells = asked != nullptr ? std::strcmp(asked, "0") != 0 : isatty(STDERR_FILENO) != 0;
  watch_to_stop() = tells ? watch_on_stderr() : std::make_shared<Watch>();
  stop_flag = &watch_to_stop()->stop;
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  return watch_to_stop();
}

}  // namespace imbrex::vgpu
