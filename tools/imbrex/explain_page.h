// SPDX-License-Identifier: Apache-2.0
// What `imbrex explain` knows of a kernel, and its page, section by section.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "gpu_choice.h"
#include "html.h"
#include "imbrex/inspect/tiling.h"
#include "imbrex/runtime/compile.h"
#include "kernel_code.h"
#include "kernel_study.h"
#include "subcommands.h"
#include "tile_view.h"

namespace imbrex::command {

struct KernelExplanation {
  const RegisteredKernel* kernel = nullptr;
  std::string sizes, configuration;
  GpuModel gpu;
  StudyRun run;
  KernelTraffic traffic;
  KernelResources resources;
  Occupancy occupancy;
  Roofline roofline;
  std::vector<ThreadGroup> groups;
  std::vector<TileCandidate> space;  // every configuration; empty where there is one, or very many
  KernelCode code;
};

/// Traces, counts, compiles and runs. What those throw; a kernel whose run ends early gives a LaunchError
/// with the findings.
KernelExplanation explain_kernel(const KernelChoice& choice, const GpuChoice& gpu);

/// The page as HTML.
std::string explanation_page(const KernelExplanation& explanation);

class ExplanationPage {
 public:
  explicit ExplanationPage(const KernelExplanation& e) : e_(e) {}
  std::string body();

 private:
  void head();
  void traffic();
  void roof();
  void fit();
  void banks();
  void timeline();
  void open(const char* id, const char* title, const char* lead);
  void close() { html_.add("</section>\n"); }
  /// "matmul_v4.h:47", which chooses that line in the listings.
  std::string place(const std::string& file, int64_t line) const;

  // The tile nest.
  void nest();
  void open_nest(const char* tint, const std::string& title, const std::string& memory);
  void item(const std::string& name, const std::string& what);
  void tensors_in(const char* memory, const char* of_whom);
  void grid();
  void warps();
  void instructions();

  // Source, IR and PTX.
  void code();
  void listing(const char* id, const std::string& title, const std::vector<CodeLine>& lines, int first);
  /// Bytes and conflicts of the statements at each source line, by key.
  std::map<std::string, std::string> notes() const;

  const KernelExplanation& e_;
  Html html_;
};

/// "12.3 kB"; "1 234 567".
std::string bytes_text(double bytes);
std::string with_thousands(int64_t value);

}  // namespace imbrex::command
