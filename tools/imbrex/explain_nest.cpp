// SPDX-License-Identifier: Apache-2.0
// The page's nest of tiles: what the problem is cut into, memory by memory, down to the instruction.
#include <algorithm>

#include "explain_page.h"
#include "svg.h"
#include "timeline_view.h"

namespace imbrex::command {

void ExplanationPage::open_nest(const char* tint, const std::string& title, const std::string& memory) {
  html_.add("<div class=\"nest {}\"><header><b>{}</b><span>{}</span></header>\n", tint, title, memory);
}

void ExplanationPage::item(const std::string& name, const std::string& what) {
  html_.add("<li><code>{}</code><span class=\"soft\">{}</span></li>\n", svg_escaped(name), what);
}

void ExplanationPage::tensors_in(const char* memory, const char* of_whom) {
  html_.add("<ul>\n");
  for (const KernelTensor& tensor : e_.traffic.tensors)
    if (tensor.memory == memory)
      item((tensor.name.empty() ? "" : tensor.name + " ") + tensor.type,
           fmt::format("{}{} &middot; {}", bytes_text(static_cast<double>(tensor.bytes)), of_whom,
                       place(tensor.where.file, tensor.where.line)));
  html_.add("</ul>\n");
}

void ExplanationPage::grid() {
  const std::vector<int64_t>& grid = e_.traffic.grid;
  const int64_t ctas = grid[0] * grid[1] * grid[2], cluster = e_.resources.cta.cluster_ctas;
  html_.add("<ul><li>{} × {} × {} = {} CTA{}{}</li>", grid[0], grid[1], grid[2], with_thousands(ctas),
            ctas == 1 ? "" : "s", cluster > 1 ? fmt::format(", in clusters of {}", cluster) : "");
  const int64_t resident = e_.occupancy.ctas_per_sm * e_.gpu.sms;
  if (resident > 0)
    html_.add("<li class=\"soft\">{} fit on the {} SMs of {} at once: {:.3g} waves</li>",
              with_thousands(resident), e_.gpu.sms, svg_escaped(e_.gpu.title),
              static_cast<double>(ctas) / static_cast<double>(resident));
  html_.add("</ul>\n");
}

void ExplanationPage::warps() {
  html_.add("<ul>\n");
  for (const ThreadGroup& group : e_.groups) {
    const int64_t first = group.first_thread / 32, last = (group.first_thread + group.threads - 1) / 32;
    const std::string who = group.threads < 32 ? fmt::format("{} thread of warp {}", group.threads, first)
                            : first == last    ? fmt::format("warp {}", first)
                                               : fmt::format("warps {}–{}", first, last);
    const std::string name = declared_variable(group.where.file, static_cast<int>(group.where.line));
    item(name.empty() ? who : name, fmt::format("{}{}", name.empty() ? "" : who + " &middot; ",
                                                place(group.where.file, group.where.line)));
  }
  html_.add("</ul>\n");
}

namespace {

/// Instructions that move or multiply tiles, and how often each stands in the PTX.
std::vector<std::pair<std::string, int>> tile_instructions(const std::vector<CodeLine>& ptx) {
  static constexpr const char* kPrefixes[] = {
      "mma.",     "wgmma.mma", "tcgen05.mma", "tcgen05.ld", "tcgen05.st", "tcgen05.cp", "ldmatrix",
      "stmatrix", "cp.async",  "ld.global",   "st.global",  "ld.shared",  "st.shared",  "cp.reduce"};
  static constexpr const char* kBookkeeping[] = {"commit", "wait", "mbarrier.arrive"};
  std::vector<std::pair<std::string, int>> found;
  for (const CodeLine& line : ptx) {
    size_t at = line.text.find_first_not_of(" \t");
    if (at == std::string::npos) continue;
    if (line.text[at] == '@') at = line.text.find(' ', at) + 1;
    const std::string name = line.text.substr(at, line.text.find_first_of(" ;", at) - at);
    const auto begins = [&](const char* prefix) { return name.starts_with(prefix); };
    const auto contains = [&](const char* word) { return name.find(word) != std::string::npos; };
    if (std::none_of(std::begin(kPrefixes), std::end(kPrefixes), begins)) continue;
    if (std::any_of(std::begin(kBookkeeping), std::end(kBookkeeping), contains)) continue;
    const auto known =
        std::find_if(found.begin(), found.end(), [&](const auto& f) { return f.first == name; });
    if (known == found.end())
      found.emplace_back(name, 1);
    else
      ++known->second;
  }
  return found;
}

/// "tcgen05.mma 128x256x16", ...: the tensor core's work as the timeline names it.
std::vector<std::string> products(const vgpu::Timeline& timeline) {
  std::vector<std::string> texts;
  for (const vgpu::TimelineLane& lane : timeline.lanes)
    for (const vgpu::TimelineSpan& span : lane.spans) {
      if (span.kind != vgpu::SpanKind::kMatrix || span.text < 0) continue;
      std::string text = timeline.texts[static_cast<size_t>(span.text)];
      text = text.substr(0, text.find(" into"));
      if (std::find(texts.begin(), texts.end(), text) == texts.end()) texts.push_back(text);
    }
  return texts;
}

}  // namespace

void ExplanationPage::instructions() {
  html_.add("<ul>\n");
  for (const std::string& product : products(*e_.run.report.timeline)) item(product, "one product");
  for (const auto& [name, count] : tile_instructions(e_.code.ptx))
    item(name, fmt::format("× {} in the PTX", count));
  html_.add("</ul>\n");
}

void ExplanationPage::nest() {
  open("nest", "Tiles in tiles",
       "From the whole problem to one instruction. Each box holds what the next one cuts into pieces, in the "
       "memory where those pieces live.");
  const CtaResources& cta = e_.resources.cta;
  open_nest("hbm", "Problem", fmt::format("HBM, {}B/s", scaled(e_.gpu.hbm_bytes_per_second)));
  tensors_in("global memory", "");
  open_nest("l2", "Grid", fmt::format("L2, {:.0f} MB", static_cast<double>(e_.gpu.l2_bytes) / 1e6));
  grid();
  int open_boxes = 5;
  if (cta.shared_bytes > 0 || cta.tensor_memory_columns == 0) {
    open_nest("shared", "CTA",
              cta.shared_bytes == 0
                  ? "no shared memory"
                  : fmt::format("shared memory, {} of {}", bytes_text(static_cast<double>(cta.shared_bytes)),
                                bytes_text(static_cast<double>(e_.occupancy.uses[2].per_cta))));
    tensors_in("shared memory", "");
  } else {
    --open_boxes;
  }
  if (cta.tensor_memory_columns > 0) {
    open_nest("tmem", "Sums of the CTA",
              fmt::format("tensor memory, {} of {} columns", cta.tensor_memory_columns,
                          e_.occupancy.uses[3].per_cta));
    tensors_in("tensor memory", "");
    ++open_boxes;
  }
  open_nest("registers", fmt::format("{} threads", cta.threads),
            fmt::format("registers, about {} per thread", cta.registers_per_thread));
  warps();
  tensors_in("registers", " per thread");
  open_nest(
      "core", "Instructions",
      e_.traffic.counts.tensor_flops > 0
          ? fmt::format("tensor cores, {}op/s of {}", scaled(e_.roofline.peak), e_.traffic.operands.name())
          : "CUDA cores");
  instructions();
  for (; open_boxes > 0; --open_boxes) html_.add("</div>\n");
  close();
}

}  // namespace imbrex::command
