// SPDX-License-Identifier: Apache-2.0
// What a program was found to do as a page: no other file, nothing loaded from elsewhere.
#include <fmt/format.h>

#include <map>

#include "imbrex/core/version.h"
#include "program_report.h"

namespace imbrex::command {
namespace {

constexpr const char* kStyle = R"(
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #1c1c1c }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; margin-top: 2rem }
pre { background: #f5f5f2; padding: .8rem; overflow-x: auto; font-size: 13px }
table { border-collapse: collapse } td, th { padding: .2rem .8rem; text-align: right; border-bottom: 1px solid #ddd }
td:first-child, th:first-child { text-align: left }
.finding { border-left: 4px solid #b3261e; padding-left: 1rem; margin: 1.5rem 0 }
.note { border-left: 4px solid #8a8a80; padding-left: 1rem; margin: 1.5rem 0 }
@media (prefers-color-scheme: dark) {
  body { background: #1b1b1b; color: #e8e8e8 } pre { background: #282828 } td, th { border-color: #444 }
}
)";

std::string seeds_of(const ProgramFinding& finding) {
  std::string text;
  for (const uint64_t seed : finding.seeds) text += fmt::format("{}{}", text.empty() ? "" : ", ", seed);
  return text;
}

}  // namespace

std::string ProgramReport::as_html() const {
  std::string words;
  for (const std::string& word : command) words += (words.empty() ? "" : " ") + word;
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta "
      "charset=\"utf-8\"><title>{0}</title><style>{1}</style></head>"
      "<body>\n<h1><code>{0}</code></h1>\n<p>{2}; {3} launches, {4} of them checked; Imbrex {5}.</p>\n",
      escaped(words), kStyle,
      found() == 0   ? "Nothing found"
      : found() == 1 ? "1 finding"
                     : fmt::format("{} findings", found()),
      launches, checked, version());
  for (const auto& [call, times] : failed_calls)
    out += fmt::format("<p>{} calls of {} failed.</p>\n", times, escaped(call));
  for (const auto& [function, calls] : stand_ins)
    out += fmt::format(
        "<p>{} calls of {} were answered by the host (--with-blas): no kernel of theirs ran.</p>\n", calls,
        function);
  if (sampled > 0)
    out += fmt::format("<p>{} launches left out {} CTAs: what those compute is missing in the results.</p>\n",
                       sampled, ctas_left_out);
  out += "<table><tr><th>seed</th><th>exit code</th><th>found</th></tr>\n";
  for (const ProgramRun& run : runs)
    out += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td></tr>\n", run.seed, run.exit_code,
                       run.found ? "yes" : "nothing");
  out += "</table>\n";
  for (const ProgramFinding& finding : findings) {
    out += fmt::format("<div class=\"{}\">\n<h2>{}: {}</h2>\n<p>in <code>{}</code>, {}, {} times",
                       finding.is_note() ? "note" : "finding", escaped(finding.json.value("kind", "")),
                       escaped(finding.json.value("message", "")), escaped(finding.json.value("kernel", "")),
                       escaped(place_of(finding.json)), finding.count);
    if (runs.size() > 1) out += fmt::format(", with seed {}", seeds_of(finding));
    out += fmt::format("</p>\n<pre>{}</pre>\n</div>\n", escaped(finding.json.value("text", "")));
  }
  if (!predicted.empty()) {
    struct Sum {
      int64_t launches = 0;
      double microseconds = 0;
    };
    std::map<std::string, Sum> kernels;
    for (const PredictedLaunch& launch : predicted) {
      Sum& sum = kernels[launch.kernel];
      ++sum.launches;
      sum.microseconds += launch.microseconds;
    }
    out +=
        "<h2>Predicted times</h2>\n<table><tr><th>kernel</th><th>launches</th><th>microseconds</th></tr>\n";
    for (const auto& [kernel, sum] : kernels)
      out += fmt::format("<tr><td><code>{}</code></td><td>{}</td><td>{:.1f}</td></tr>\n", escaped(kernel),
                         sum.launches, sum.microseconds);
    out += "</table>\n";
  }
  return out + "</body></html>\n";
}

}  // namespace imbrex::command
