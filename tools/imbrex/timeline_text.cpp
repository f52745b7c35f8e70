// SPDX-License-Identifier: Apache-2.0
#include "timeline_text.h"

#include <fmt/format.h>

namespace imbrex::command {

std::string percent(double share) {
  return share >= 0.0995 ? fmt::format("{:.0f} %", share * 100) : fmt::format("{:.1f} %", share * 100);
}

std::string duration(double microseconds) {
  if (microseconds >= 1e3) return fmt::format("{:.2f} ms", microseconds / 1e3);
  return fmt::format("{:.{}f} µs", microseconds, microseconds < 100 ? 2 : 1);
}

static std::string megabytes(int64_t bytes) {
  return fmt::format("{:.4g} MB", static_cast<double>(bytes) / 1e6);
}

std::string prediction_text(const vgpu::Timeline& t) {
  if (!t.complete) return "  predicted nothing: the simulation of its time got stuck\n";
  std::string text =
      fmt::format("  predicted {} on {} ({} cycles at {:.2f} GHz, {} of {} SMs at work)\n",
                  duration(t.microseconds()), t.chip, t.cycles, t.clock_ghz, t.active_sms, t.sms);
  text += fmt::format("  busy      tensor core {}, TMA {}, L2 {}, memory {}, issue slots {}; warps wait {}\n",
                      percent(t.use.tensor_core), percent(t.use.tma), percent(t.use.l2), percent(t.use.hbm),
                      percent(t.use.issue), percent(t.use.waiting));
  if (t.overlap >= 0)
    text += fmt::format("  overlap   {} of the loads or the tensor core's work, whichever is shorter\n",
                        percent(t.overlap));
  if (t.rank >= 0)
    text += fmt::format("  links     out {} ({}), in {} ({})\n", percent(t.use.links_out),
                        megabytes(t.link_bytes_out), percent(t.use.links_in), megabytes(t.link_bytes_in));
  return text;
}

}  // namespace imbrex::command
