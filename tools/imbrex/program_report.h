// SPDX-License-Identifier: Apache-2.0
// What the processes of a CUDA program were found to do, over all its runs: as text, and as files for other tools.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace imbrex::command {

struct ProgramFinding {
  nlohmann::ordered_json json;  // as the host layer wrote it
  int64_t count = 0;
  std::vector<uint64_t> seeds;  // in whose runs it came
  bool is_note() const { return json.value("severity", "") == "note"; }
};

/// A launch whose time on the chip was predicted.
struct PredictedLaunch {
  std::string kernel;
  int64_t process = 0, stream = 0, ctas = 0;
  double microseconds = 0;
};

struct ProgramRun {
  uint64_t seed = 0;
  int exit_code = 0;
  bool found = false;
};

class ProgramReport {
 public:
  std::vector<std::string> command;
  std::vector<ProgramRun> runs;
  std::vector<ProgramFinding> findings;    // notes among them
  std::vector<PredictedLaunch> predicted;  // of the first run
  int64_t launches = 0, checked = 0, suppressed = 0, processes = 0;
  std::map<std::string, int64_t> failed_calls;  // with their code: "cuMemFree (CUDA_ERROR_INVALID_VALUE)"
  std::map<std::string, int64_t> stand_ins;  // calls that the host answered for closed libraries, by function
  int64_t sampled = 0, ctas_left_out = 0;    // launches of which a part of the CTAs ran

  /// Adds what the processes of one run left in `folder`.
  void read(const std::filesystem::path& folder, uint64_t seed, int exit_code);
  /// Findings and counts, on stderr: stdout is the program's.
  void print() const;
  /// Without the notes.
  int64_t found() const;
  /// The predicted launches for Perfetto (ui.perfetto.dev) and chrome://tracing: one lane a stream.
  void write_timeline(const std::string& file) const;
  /// In the format that the file's name asks for. LaunchError where it cannot be written.
  void write(const std::string& file) const;

 private:
  nlohmann::ordered_json as_json() const;
  nlohmann::ordered_json as_sarif() const;
  std::string as_junit() const;
  std::string as_html() const;  // program_report_html.cpp
};

/// The place in the source, else in the PTX, that a finding names.
std::string place_of(const nlohmann::ordered_json& finding);
/// For XML and HTML.
std::string escaped(const std::string& text);

/// LaunchError naming the formats unless the name ends in one of them.
void expect_report_format(const std::string& file);

}  // namespace imbrex::command
