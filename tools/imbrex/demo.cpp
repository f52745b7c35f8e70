// SPDX-License-Identifier: Apache-2.0
// `imbrex demo`: on a CUDA GPU its ladder of matrix products at full size; without one everything on the virtual
// GPU.
#include <fmt/format.h>

#include <chrono>

#include "demo_view.h"
#include "imbrex/core/error.h"

namespace imbrex::command {
namespace {

struct Options {
  std::string device = "auto";
  int64_t extent = 4096;
  bool json = false;
};

int demo(const Options& options, bool on_cuda) {
  using Clock = std::chrono::steady_clock;
  const Palette palette = Palette::of_stdout();
  const Clock::time_point start = Clock::now();
  nlohmann::ordered_json json;
  nlohmann::ordered_json* const into = options.json ? &json : nullptr;
  const bool all_good =
      on_cuda ? demo_on_cuda(options.extent, palette, into) : demo_on_virtual_gpu(palette, into);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  if (options.json) {
    json["verified"] = all_good;
    json["seconds"] = seconds;
    fmt::print("{}\n", json.dump(2));
  } else {
    fmt::print("\n{}{:.0f} s on this machine{}{}\n", palette.dim, seconds,
               on_cuda ? "; all ladders, checked and with predicted times: imbrex demo --device virtual" : "",
               palette.off);
  }
  return all_good ? 0 : 1;
}

}  // namespace

void add_demo(Subcommand& app, Action& chosen) {
  auto options = std::make_shared<Options>();
  Subcommand* command = app.add_subcommand(
      "demo",
      "Show what the kernels do: on a CUDA GPU its ladder at full size, without one all on the virtual GPU");
  command->add_option("--device", options->device, "auto: a CUDA GPU if there is one, else the virtual GPU")
      ->one_of({"auto", "virtual", "cuda"})
      ->capture_default_str();
  command->add_option("--size", options->extent, "m, n and k of the matrix products on a CUDA GPU")
      ->between(256, 32768)
      ->capture_default_str();
  command->add_flag("--json", options->json, "print JSON");
  command->callback([&chosen, command, options] {
    chosen = [command, options] {
      std::string why_not;
      const bool has_cuda = options->device != "virtual" && Device::has_cuda(&why_not);
      if (options->device == "cuda" && !has_cuda)
        throw DeviceError(Diagnostic{{}, why_not, {}, "use the virtual GPU: --device virtual"});
      if (!has_cuda) refuse_given(*command, {"--size"}, "is of a CUDA GPU");
      if (options->device == "auto" && !has_cuda && !options->json) fmt::print("No CUDA GPU: {}\n", why_not);
      return demo(*options, has_cuda);
    };
  });
}

}  // namespace imbrex::command
