// SPDX-License-Identifier: Apache-2.0
#include "cuda_host/host/run_log.h"

#include <cxxabi.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/text.h"
#include "imbrex/core/error.h"
#include "imbrex/vgpu/timeline.h"

namespace imbrex::cuda {

std::string demangled(const std::string& name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  std::string result = status == 0 && text != nullptr ? text : name;
  std::free(text);
  return result;
}

namespace {

/// The text with the names of C++ functions as their authors wrote them.
std::string with_names_demangled(std::string text) {
  for (size_t at = text.find("_Z"); at != std::string::npos; at = text.find("_Z", at)) {
    size_t end = at;
    while (end < text.size() &&
           (std::isalnum(static_cast<unsigned char>(text[end])) != 0 || text[end] == '_' || text[end] == '$'))
      ++end;
    const std::string name = demangled(text.substr(at, end - at));
    text.replace(at, end - at, name);
    at += std::max<size_t>(name.size(), 2);
  }
  return text;
}

}  // namespace

std::vector<Suppression> read_suppressions(const std::string& file) {
  std::ifstream in(file);
  if (!in) throw LaunchError({{}, fmt::format("the suppression file '{}' cannot be read", file), {}, ""});
  std::vector<Suppression> suppressions;
  std::string text;
  for (int line = 1; std::getline(in, text); ++line) {
    text = text.substr(0, text.find('#'));
    std::istringstream words(text);
    Suppression one{"", "*", "*"};
    std::string more;
    if (!(words >> one.kind)) continue;
    words >> one.kernel >> one.place;
    if (words >> more)
      throw LaunchError({{},
                         fmt::format("{}:{}: '{}' is a fourth word", file, line, more),
                         {},
                         "a suppression is KIND [KERNEL [FILE:LINE]], each with * and ?"});
    suppressions.push_back(one);
  }
  return suppressions;
}

RunLog::RunLog(const Settings& settings) : stop_at_first_(settings.stop_at_first), notes_(settings.notes) {
  if (!settings.suppressions.empty()) suppressions_ = read_suppressions(settings.suppressions);
  if (!settings.run_folder.empty()) file_ = fmt::format("{}/process-{}.jsonl", settings.run_folder, getpid());
}

bool RunLog::is_suppressed(const std::string& kernel, const vgpu::Finding& finding) const {
  const vgpu::CodePlace& place = finding.place;
  const std::string file = place.file.substr(place.file.rfind('/') + 1);
  for (const Suppression& one : suppressions_)
    if (matches(one.kind, vgpu::name(finding.kind)) &&
        (matches(one.kernel, kernel) || matches(one.kernel, demangled(kernel))) &&
        (matches(one.place, fmt::format("{}:{}", file, place.line)) ||
         matches(one.place, fmt::format("{}:{}", place.file, place.line))))
      return true;
  return false;
}

void RunLog::write(const std::string& line) {
  // Opened anew each time: the process may fork, and each child has a file of its own by the time it writes.
  if (FILE* out = std::fopen(file_.c_str(), "a"); out != nullptr) {
    fmt::print(out, "{}\n", line);
    std::fclose(out);
  }
}

void RunLog::add(const std::string& kernel, const vgpu::Finding& found) {
  vgpu::Finding finding = found;
  finding.message = with_names_demangled(finding.message);
  for (std::string& fact : finding.facts) fact = with_names_demangled(fact);
  if (is_suppressed(kernel, finding)) {
    suppressed_ += finding.count;
    return;
  }
  const vgpu::CodePlace &place = finding.place, &other = finding.other_place;
  const std::string key = fmt::format("{} {} {}:{} {} {}:{} {}", vgpu::name(finding.kind), kernel, place.file,
                                      place.line, place.ptx_line, other.file, other.line, other.ptx_line);
  Entry& entry = entries_[key];
  entry.count += finding.count;
  if (entry.count > finding.count) return;  // told before
  entry.number = before_ + static_cast<int64_t>(entries_.size());
  if (finding.severity == vgpu::Severity::kNote) ++noted_;
  if (file_.empty()) {
    say("imbrex: in {}:\n{}\n", demangled(kernel), finding.format());
  } else {
    const nlohmann::ordered_json json = {{"type", "finding"},
                                         {"number", entry.number},
                                         {"kind", vgpu::name(finding.kind)},
                                         {"severity", vgpu::name(finding.severity)},
                                         {"kernel", demangled(kernel)},
                                         {"message", finding.message},
                                         {"file", place.file},
                                         {"line", place.line},
                                         {"ptx_line", place.ptx_line},
                                         {"ptx", place.ptx},
                                         {"other_file", other.file},
                                         {"other_line", other.line},
                                         {"cta", finding.actor.cta},
                                         {"warp", finding.actor.warp},
                                         {"lane", finding.actor.lane},
                                         {"hint", finding.hint},
                                         {"count", finding.count},
                                         {"launch", launches_},
                                         {"text", finding.format()}};
    write(json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
  if (stop_at_first_ && finding.severity == vgpu::Severity::kFinding) {
    finish();
    say("imbrex: stopped at the first finding\n");
    _exit(1);
  }
}

void RunLog::launched(const std::string& kernel, uint64_t stream, bool was_checked,
                      const vgpu::Report& report) {
  ++launches_;
  if (was_checked) ++checked_;
  if (report.ctas_left_out > 0) ++sampled_;
  ctas_left_out_ += report.ctas_left_out;
  kernels_.insert(kernel);
  for (const vgpu::Finding& finding : report.findings) add(kernel, finding);
  if (notes_)
    for (const vgpu::Finding& note : report.notes) add(kernel, note);
  if (report.timeline != nullptr && !file_.empty())
    write(nlohmann::ordered_json({{"type", "launch"},
                                  {"kernel", demangled(kernel)},
                                  {"stream", stream},
                                  {"ctas", report.timeline->ctas},
                                  {"complete", report.timeline->complete},
                                  {"microseconds", report.timeline->microseconds()}})
              .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

void RunLog::write_counts() {
  for (const auto& [key, entry] : entries_)
    write(
        nlohmann::ordered_json({{"type", "count"}, {"number", entry.number}, {"count", entry.count}}).dump());
}

void RunLog::begin_part() {
  if (file_.empty()) return;
  write_counts();
  before_ += static_cast<int64_t>(entries_.size());
  entries_.clear();
}

void RunLog::write_state() {
  if (file_.empty()) return;
  write_counts();
  write(nlohmann::ordered_json({{"type", "end"},
                                {"launches", launches_},
                                {"checked", checked_},
                                {"kernels", kernels_.size()},
                                {"suppressed", suppressed_},
                                {"sampled", sampled_},
                                {"ctas_left_out", ctas_left_out_},
                                {"failed_calls", failed_},
                                {"stand_ins", stand_ins_}})
            .dump());
}

void RunLog::failed(const std::string& call) {
  ++failed_[call];
  if (!stop_at_first_) return;
  finish();
  fmt::print(stderr, "imbrex: stopped at the first call that failed\n");
  _exit(1);
}

void RunLog::finish() {
  if (is_finished_ || (launches_ == 0 && stand_ins_.empty() && failed_.empty() && entries_.empty())) return;
  is_finished_ = true;
  if (!file_.empty()) {
    write_state();
    return;
  }
  const char* quiet = std::getenv("IMBREX_QUIET");
  if (quiet != nullptr && std::string_view(quiet) == "1") return;
  fmt::print(
      stderr, "imbrex: {} in {} launches of {} kernels, {} of them checked{}\n",
      entries_.size() == noted_ ? "nothing found" : fmt::format("{} findings", entries_.size() - noted_),
      launches_, kernels_.size(), checked_,
      suppressed_ == 0 ? "" : fmt::format("; {} findings suppressed", suppressed_));
  if (sampled_ > 0)
    say("imbrex: {} launches left out {} CTAs: what those compute is missing in the results\n", sampled_,
        ctas_left_out_);
  for (const auto& [call, times] : failed_)
    fmt::print(stderr, "imbrex: {} calls of {} failed\n", times, call);
  for (const auto& [function, calls] : stand_ins_)
    say("imbrex: {} calls of {} were answered by the host: no kernel of theirs ran\n", calls, function);
}

}  // namespace imbrex::cuda
