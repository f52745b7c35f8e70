// SPDX-License-Identifier: Apache-2.0
// `imbrex explain`: one page about a kernel with everything the other commands tell, from the grid to the
// instruction. Plain HTML that reads without scripts; a script marks what belongs to a line of the source.
#include <fmt/format.h>

#include "explain_page.h"
#include "gpu_choice.h"
#include "imbrex/core/error.h"
#include "pages.h"
#include "subcommands.h"
#include "svg.h"

namespace imbrex::command {

void add_explain(Subcommand& app, Action& chosen) {
  struct Options {
    KernelChoice choice;
    GpuChoice gpu;
    std::string output;
  };
  auto options = std::make_shared<Options>();
  Subcommand* command = app.add_subcommand(
      "explain", "Write a page about a kernel: tiles, traffic, roofline, occupancy, banks, timeline, code");
  options->choice.add_to(*command);
  options->gpu.add_to(*command);
  command->add_option("-o,--output", options->output, "the page (KERNEL.html)");
  command->callback([&chosen, options] {
    chosen = [options] {
      const KernelExplanation explanation = explain_kernel(options->choice, options->gpu);
      const std::string output =
          options->output.empty() ? options->choice.kernel().description.name + ".html" : options->output;
      write_file(output, explanation_page(explanation));
      fmt::print("wrote {}: open it in a browser\n", output);
      return explanation.run.verified ? 0 : 1;
    };
  });
}

}  // namespace imbrex::command
