// SPDX-License-Identifier: Apache-2.0
#include "program_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "imbrex/core/error.h"
#include "imbrex/core/version.h"

namespace imbrex::command {
namespace {

using Json = nlohmann::ordered_json;

/// Findings of several runs and processes are the same where all but the numbers of the run are.
bool is_same(const Json& a, const Json& b) {
  constexpr const char* kKeys[] = {"kind", "kernel", "file", "line", "ptx_line", "other_file", "other_line"};
  return std::ranges::all_of(kKeys,
                             [&](const char* key) { return a.value(key, Json()) == b.value(key, Json()); });
}

void expect_written(const std::ofstream& out, const std::string& file) {
  if (!out) throw LaunchError({{}, fmt::format("'{}' cannot be written", file), {}, ""});
}

}  // namespace

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 32 && c != '\n' && c != '\t' ? ' ' : c;
    }
  return out;
}

std::string place_of(const Json& finding) {
  const std::string file = finding.value("file", "");
  return file.empty() ? fmt::format("PTX line {}", finding.value("ptx_line", 0))
                      : fmt::format("{}:{}", file, finding.value("line", 0));
}

void expect_report_format(const std::string& file) {
  if (!file.ends_with(".json") && !file.ends_with(".xml") && !file.ends_with(".sarif") &&
      !file.ends_with(".html"))
    throw LaunchError({{},
                       fmt::format("--report {}: the format is unknown", file),
                       {},
                       "end the name in .json, .junit.xml, .sarif or .html"});
}

void ProgramReport::read(const std::filesystem::path& folder, uint64_t seed, int exit_code) {
  ProgramRun run{seed, exit_code, false};
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    ++processes;
    std::ifstream in(entry.path());
    std::map<int64_t, std::pair<Json, int64_t>>
        by_number;              // counts come at the end of a process, if it has one
    Json end = Json::object();  // the last: a process that hung has written one before
    for (std::string line; std::getline(in, line);) {
      const Json json = Json::parse(line, nullptr, false);
      if (!json.is_object()) continue;  // cut off when the process was killed
      const std::string type = json.value("type", "");
      if (type == "finding") by_number[json.value("number", 0)] = {json, json.value("count", int64_t{1})};
      if (type == "launch" && runs.empty())
        predicted.push_back({json.value("kernel", ""), processes, json.value("stream", int64_t{0}),
                             json.value("ctas", int64_t{0}), json.value("microseconds", 0.0)});
      if (type == "count") by_number[json.value("number", 0)].second = json.value("count", int64_t{1});
      if (type == "end") end = json;
    }
    launches += end.value("launches", int64_t{0});
    checked += end.value("checked", int64_t{0});
    suppressed += end.value("suppressed", int64_t{0});
    sampled += end.value("sampled", int64_t{0});
    ctas_left_out += end.value("ctas_left_out", int64_t{0});
    for (const auto& [call, times] : end.value("failed_calls", std::map<std::string, int64_t>()))
      failed_calls[call] += times;
    for (const auto& [function, calls] : end.value("stand_ins", std::map<std::string, int64_t>()))
      stand_ins[function] += calls;
    for (const auto& [number, pair] : by_number) {
      const auto& found = pair;  // a name of its own: Clang 14 captures no structured binding
      if (!found.first.is_object()) continue;
      run.found = run.found || found.first.value("severity", "") != "note";
      auto known =
          std::ranges::find_if(findings, [&](const auto& one) { return is_same(one.json, found.first); });
      if (known == findings.end()) known = findings.insert(findings.end(), {found.first, 0, {}});
      known->count += found.second;
      if (known->seeds.empty() || known->seeds.back() != seed) known->seeds.push_back(seed);
    }
  }
  runs.push_back(run);
}

int64_t ProgramReport::found() const {
  return std::ranges::count_if(findings, [](const ProgramFinding& finding) { return !finding.is_note(); });
}

void ProgramReport::write_timeline(const std::string& file) const {
  Json events = Json::array();
  std::map<std::pair<int64_t, int64_t>, double> end;  // of a stream's last launch
  for (const PredictedLaunch& launch : predicted) {
    auto [at, is_new] = end.try_emplace({launch.process, launch.stream}, 0.0);
    if (is_new)
      events.push_back({{"ph", "M"},
                        {"name", "thread_name"},
                        {"pid", launch.process},
                        {"tid", launch.stream},
                        {"args", {{"name", fmt::format("stream {}", launch.stream)}}}});
    events.push_back({{"ph", "X"},
                      {"name", launch.kernel},
                      {"pid", launch.process},
                      {"tid", launch.stream},
                      {"ts", at->second},
                      {"dur", launch.microseconds},
                      {"args", {{"CTAs", launch.ctas}}}});
    at->second += launch.microseconds;
  }
  std::ofstream out(file);
  out << Json{{"displayTimeUnit", "ns"}, {"traceEvents", events}}.dump(-1, ' ', false,
                                                                       Json::error_handler_t::replace)
      << '\n';
  out.flush();
  expect_written(out, file);
}

void ProgramReport::print() const {
  const auto failed = std::ranges::count_if(runs, [](const ProgramRun& run) { return run.exit_code != 0; });
  std::string kernel;
  for (const ProgramFinding& finding : findings) {
    if (const std::string own = finding.json.value("kernel", ""); own != kernel) {
      kernel = own;
      fmt::print(stderr, "\nimbrex: in {}\n", kernel);
    }
    fmt::print(stderr, "{}\n", finding.json.value("text", ""));
    if (finding.count > finding.json.value("count", int64_t{1}))
      fmt::print(stderr, "  {} times in all\n", finding.count);
    if (runs.size() > 1)
      fmt::print(stderr, "  with {} of {} seeds; again with --seed {}\n", finding.seeds.size(), runs.size(),
                 finding.seeds.front());
  }
  fmt::print(stderr, "imbrex: {}; {} launches, {} of them checked{}{}\n",
             found() == 0   ? "nothing found"
             : found() == 1 ? "1 finding"
                            : fmt::format("{} findings", found()),
             launches, checked, suppressed > 0 ? fmt::format("; {} suppressed", suppressed) : "",
             failed > 0 && runs.size() > 1 ? fmt::format("; {} of {} runs failed", failed, runs.size()) : "");
  if (sampled > 0)
    fmt::print(stderr,
               "  {} launches left out {} CTAs (--ctas): what those compute is missing in the results, and "
               "what they "
               "do was not checked\n",
               sampled, ctas_left_out);
  for (const auto& [call, times] : failed_calls)
    fmt::print(stderr, "  {} call{} of {} failed\n", times, times == 1 ? "" : "s", call);
  if (launches == 0 && !failed_calls.empty())
    fmt::print(stderr, "  no kernel was launched, so that nothing was checked\n");
  for (const auto& [function, calls] : stand_ins)
    fmt::print(stderr, "  {} calls of {} were answered by the host (--with-blas): no kernel of theirs ran\n",
               calls, function);
  constexpr int kSignals = 128;
  if (std::ranges::any_of(runs, [](const ProgramRun& run) { return run.exit_code > kSignals; }))
    fmt::print(
        stderr,
        "  a process that a signal ends tells what was found until then, not how many launches there were\n");
  else if (processes == 0)
    fmt::print(
        stderr,
        "  no kernel was launched through libcuda.so.1: does the program use CUDA, and find it first?\n");
}

Json ProgramReport::as_json() const {
  Json out = {{"command", command},
              {"version", version()},
              {"launches", launches},
              {"checked", checked},
              {"suppressed", suppressed},
              {"sampled", sampled},
              {"ctas_left_out", ctas_left_out},
              {"failed_calls", failed_calls},
              {"stand_ins", stand_ins},
              {"runs", Json::array()},
              {"findings", Json::array()}};
  for (const ProgramRun& run : runs)
    out["runs"].push_back({{"seed", run.seed}, {"exit_code", run.exit_code}, {"found", run.found}});
  for (const ProgramFinding& finding : findings) {
    Json one = finding.json;
    for (const char* key : {"type", "number"}) one.erase(key);
    one["count"] = finding.count;
    one["seeds"] = finding.seeds;
    out["findings"].push_back(std::move(one));
  }
  return out;
}

/// SARIF 2.1.0, which code-review tools show at the lines of a change.
Json ProgramReport::as_sarif() const {
  Json results = Json::array();
  for (const ProgramFinding& finding : findings) {
    const Json& json = finding.json;
    Json result = {
        {"ruleId", json.value("kind", "")},
        {"level", finding.is_note() ? "note" : "error"},
        {"message",
         {{"text", fmt::format("{} (in {})", json.value("message", ""), json.value("kernel", ""))}}}};
    const auto location = [](const std::string& file, int line) {
      return Json{
          {"physicalLocation", {{"artifactLocation", {{"uri", file}}}, {"region", {{"startLine", line}}}}}};
    };
    if (!json.value("file", "").empty())
      result["locations"] = {location(json.value("file", ""), json.value("line", 1))};
    if (!json.value("other_file", "").empty())
      result["relatedLocations"] = {location(json.value("other_file", ""), json.value("other_line", 1))};
    results.push_back(std::move(result));
  }
  return {{"$schema", "https://json.schemastore.org/sarif-2.1.0.json"},
          {"version", "2.1.0"},
          {"runs",
           {{{"tool", {{"driver", {{"name", "imbrex"}, {"version", version()}}}}}, {"results", results}}}}};
}

/// A test case for each run, which fails by what was found.
std::string ProgramReport::as_junit() const {
  const auto failures =
      std::ranges::count_if(runs, [](const ProgramRun& run) { return run.found || run.exit_code != 0; });
  std::string out = fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"imbrex\" tests=\"{}\" "
      "failures=\"{}\">\n",
      runs.size(), failures);
  for (const ProgramRun& run : runs) {
    out +=
        fmt::format("  <testcase classname=\"{}\" name=\"seed {}\">\n", escaped(command.front()), run.seed);
    if (run.exit_code != 0) out += fmt::format("    <failure message=\"exit code {}\"/>\n", run.exit_code);
    for (const ProgramFinding& finding : findings)
      if (!finding.is_note() && std::ranges::find(finding.seeds, run.seed) != finding.seeds.end())
        out += fmt::format(
            "    <failure type=\"{}\" message=\"{}\">{}</failure>\n", escaped(finding.json.value("kind", "")),
            escaped(fmt::format("{}: {}", place_of(finding.json), finding.json.value("message", ""))),
            escaped(finding.json.value("text", "")));
    out += "  </testcase>\n";
  }
  return out + "</testsuite>\n";
}

void ProgramReport::write(const std::string& file) const {
  std::ofstream out(file);
  expect_written(out, file);
  constexpr auto kReplace = Json::error_handler_t::replace;
  if (file.ends_with(".json"))
    out << as_json().dump(2, ' ', false, kReplace) << '\n';
  else if (file.ends_with(".sarif"))
    out << as_sarif().dump(2, ' ', false, kReplace) << '\n';
  else if (file.ends_with(".html"))
    out << as_html();
  else
    out << as_junit();
  out.flush();
  expect_written(out, file);
}

}  // namespace imbrex::command
