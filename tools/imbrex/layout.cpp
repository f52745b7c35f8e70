// SPDX-License-Identifier: Apache-2.0
// `imbrex layout`: who holds element (i, j) of a fragment, a layout or a kernel's tensors; and whether a
// matrix descriptor reads what TMA wrote.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "gpu_choice.h"
#include "imbrex/core/error.h"
#include "imbrex/inspect/layout_tools.h"
#include "subcommands.h"
#include "svg.h"

namespace imbrex::command {
namespace {

using Json = nlohmann::ordered_json;

struct LayoutOptions {
  std::string what, svg;
  DescriptorQuestion question;
  std::string dtype = "float16", major = "k";
  bool list = false, descriptor = false, json = false;
};

constexpr int64_t kShownRows = 64, kShownColumns = 64;

const char* kind_name(LayoutTable::Kind kind) {
  switch (kind) {
    case LayoutTable::Kind::kRegisters:
      return "thread:register";
    case LayoutTable::Kind::kShared:
      return "byte address";
    default:
      return "lane:column";
  }
}

std::string cell_text(const LayoutTable& table, const LayoutTable::Cell& cell) {
  return table.kind == LayoutTable::Kind::kShared ? fmt::format("{}", cell.a)
                                                  : fmt::format("{}:{}", cell.a, cell.b);
}

void print_table(const LayoutTable& table) {
  const int64_t rows = std::min(table.rows, kShownRows), columns = std::min(table.columns, kShownColumns / 2);
  size_t width = 2;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) width = std::max(width, cell_text(table, table.cell(r, c)).size());
  fmt::print("{}\n{} x {}, each cell {}\n\n", table.layout, table.rows, table.columns, kind_name(table.kind));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) fmt::print("{:>{}} ", cell_text(table, table.cell(r, c)), width);
    fmt::print("\n");
  }
  if (rows < table.rows || columns < table.columns)
    fmt::print("... the first {} rows and {} columns; --svg or --json give more\n", rows, columns);
}

/// Colours that differ between neighbours: the warp lane, the bank or the lane of tensor memory as a hue.
std::string colour(const LayoutTable& table, const LayoutTable::Cell& cell) {
  const int64_t key = table.kind == LayoutTable::Kind::kShared ? cell.b / 4 * 4 : cell.a % 32;
  return fmt::format("fill:hsl({}, 65%, {}%); stroke:#fff", key * 360 / 32,
                     table.kind == LayoutTable::Kind::kShared ? 78 : 80);
}

std::string as_svg(const LayoutTable& table, const std::string& title) {
  const int64_t rows = std::min(table.rows, kShownRows), columns = std::min(table.columns, kShownColumns);
  const double cell_width = table.kind == LayoutTable::Kind::kShared ? 44 : 48, cell_height = 22, left = 50,
               top = 78;
  Svg svg(left + cell_width * static_cast<double>(columns) + 20,
          top + cell_height * static_cast<double>(rows) + 20);
  svg.text(left, 24, title, "start", "font-size:17px; font-weight:bold");
  svg.text(left, 44, fmt::format("{} x {}, each cell: {}", table.rows, table.columns, kind_name(table.kind)),
           "start", "fill:#555");
  for (int64_t c = 0; c < columns; ++c)
    svg.text(left + cell_width * (static_cast<double>(c) + 0.5), top - 8, std::to_string(c), "middle",
             "fill:#777; font-size:11px");
  for (int64_t r = 0; r < rows; ++r) {
    const double y = top + cell_height * static_cast<double>(r);
    svg.text(left - 8, y + 15, std::to_string(r), "end", "fill:#777; font-size:11px");
    for (int64_t c = 0; c < columns; ++c) {
      const LayoutTable::Cell& cell = table.cell(r, c);
      const double x = left + cell_width * static_cast<double>(c);
      const std::string hint = table.kind == LayoutTable::Kind::kShared
                                   ? fmt::format("byte {}, bank {}", cell.a, cell.b)
                                   : cell_text(table, cell);
      svg.rect(x, y, cell_width, cell_height, colour(table, cell), fmt::format("({}, {}): {}", r, c, hint));
      svg.text(x + cell_width / 2, y + 15, cell_text(table, cell), "middle", "font-size:11px");
    }
  }
  return svg.str();
}

int show_table(const LayoutOptions& o) {
  const LayoutTable table = layout_table(o.what);
  if (!o.svg.empty()) write_file(o.svg, as_svg(table, o.what));
  if (o.json) {
    Json cells = Json::array();
    for (const LayoutTable::Cell& cell : table.cells) cells.push_back({cell.a, cell.b});
    fmt::print("{}\n", Json{{"layout", table.layout},
                            {"rows", table.rows},
                            {"columns", table.columns},
                            {"cell", kind_name(table.kind)},
                            {"cells", cells}}
                           .dump());
  } else if (o.svg.empty()) {
    print_table(table);
  }
  return 0;
}

int show_kernel(const LayoutOptions& o) {
  if (!o.svg.empty())
    throw LaunchError(
        Diagnostic{{}, "--svg draws one layout, not a kernel's", {}, "give the text of one of them"});
  const RegisteredKernel& kernel = registered_kernel(o.what);
  std::map<std::string, int64_t> sizes;
  for (const SizeOption& size : kernel.description.sizes) sizes[size.name] = size.otherwise;
  Case traced(Case::Mode::kTrace, std::nullopt, sizes, 0);
  kernel.run(traced, std::nullopt, kernel.space.configuration(0));
  const std::vector<TensorLayout> tensors = tensor_layouts(*traced.function);
  if (o.json) {
    Json out = Json::array();
    for (const TensorLayout& t : tensors)
      out.push_back({{"tensor", t.name},
                     {"type", t.type},
                     {"layout", t.layout},
                     {"file", t.where.file},
                     {"line", t.where.line}});
    fmt::print("{}\n", out.dump(2));
    return 0;
  }
  size_t name_width = 0, type_width = 0;
  for (const TensorLayout& t : tensors)
    name_width = std::max(name_width, t.name.size()), type_width = std::max(type_width, t.type.size());
  const char* file = "";
  for (const TensorLayout& t : tensors) {
    if (std::string_view(t.where.file) != file) fmt::print("{}:\n", file = t.where.file);
    fmt::print("{:>5}  {:{}}  {:{}}  {}\n", t.where.line, t.name, name_width, t.type, type_width, t.layout);
  }
  fmt::print("\nDraw one with: imbrex layout \"[...]\" --svg layout.svg\n");
  return 0;
}

int check(LayoutOptions o) {
  DescriptorQuestion& q = o.question;
  q.dtype = dtype_named(o.dtype);
  q.is_mn_major = o.major == "mn";
  for (const auto& [name, value] : {std::pair{"--lbo", q.leading_bytes}, std::pair{"--sbo", q.stride_bytes}})
    if (value < 0 || value % 16 != 0 || value >= int64_t{1} << 18)
      throw LaunchError(Diagnostic{{},
                                   fmt::format("{} is {}, which no descriptor holds", name, value),
                                   {"a descriptor has 14 bits for an offset, in units of 16 bytes"},
                                   "give a multiple of 16 from 0 to 262128"});
  const DescriptorAnswer answer = check_descriptor(q);
  if (o.json) {
    Json out = {{"agrees", answer.agrees}, {"explanation", answer.explanation}};
    if (!answer.agrees)
      out.update({{"mn", answer.mn},
                  {"k", answer.k},
                  {"written", answer.written},
                  {"read", answer.read},
                  {"suggestion", suggest_descriptor(q)}});
    fmt::print("{}\n", out.dump(2));
  } else {
    fmt::print(
        "TMA writes {} x {} {} with swizzle {}; a {}-major descriptor with swizzle {}, leading {} and stride "
        "{} bytes reads "
        "{} x {} of it at a time\n\n{}: {}\n",
        q.rows, q.columns, q.dtype.name(), q.tma_swizzle, q.is_mn_major ? "mn" : "k", q.swizzle,
        q.leading_bytes, q.stride_bytes, q.instruction_mn, 256 / q.dtype.bits(),
        answer.agrees ? "proved" : "refuted", answer.explanation);
    if (!answer.agrees) fmt::print("what fits this tile: {}\n", suggest_descriptor(q));
  }
  return answer.agrees ? 0 : 1;
}

int layout(const LayoutOptions& o) {
  if (o.list) {
    for (const std::string& name : fragment_names()) fmt::print("{}\n", name);
    return 0;
  }
  if (o.descriptor) return check(o);
  if (o.what.empty())
    throw LaunchError(Diagnostic{{},
                                 "nothing to draw",
                                 {},
                                 "name a fragment (--list), a layout's text, a kernel, or ask --descriptor"});
  return registered_kernels().contains(o.what) ? show_kernel(o) : show_table(o);
}

}  // namespace

void add_layout(Subcommand& app, Action& chosen) {
  auto options = std::make_shared<LayoutOptions>();
  Subcommand* command =
      app.add_subcommand("layout", "Draw a layout, or prove that a matrix descriptor reads what TMA wrote");
  command->add_option("WHAT", options->what,
                      "a fragment (--list), a layout (\"spatial(8, 4) * local(2, 2)\", \"[8: 8t4, 8: 4t1 "
                      "2r1]\"), or a kernel");
  command->add_flag("--list", options->list, "name the fragments");
  command->add_option("--svg", options->svg, "draw into this file");
  command->add_flag("--json", options->json, "print JSON");
  command->add_flag("--descriptor", options->descriptor, "check a descriptor against a TMA tile:");
  DescriptorQuestion& q = options->question;
  auto add = [&](const char* name, auto& value, const char* help) {
    return command->add_option(name, value, help)->capture_default_str();
  };
  add("--dtype", options->dtype, "element type");
  add("--rows", q.rows, "rows of the tile TMA writes");
  add("--columns", q.columns, "its columns, contiguous in global memory");
  add("--tma-swizzle", q.tma_swizzle, "swizzle of the tensor map");
  add("--swizzle", q.swizzle, "swizzle of the descriptor");
  add("--major", options->major, "k: columns are k; mn: columns are m or n")->one_of({"k", "mn"});
  add("--lbo", q.leading_bytes, "leading byte offset");
  add("--sbo", q.stride_bytes, "stride byte offset");
  add("--instruction-mn", q.instruction_mn, "rows of m or n that an instruction reads");
  add("--base", q.base, "byte address of the tile");
  add("--k-advance", q.k_advance,
      "bytes added to the start for each k step; negative: where the tile has it");
  command->callback([&chosen, command, options] {
    chosen = [command, options] {
      if (options->list)
        refuse_given(*command, {"WHAT", "--svg", "--json", "--descriptor"}, "does not go with --list");
      if (options->descriptor)
        refuse_given(*command, {"WHAT", "--svg", "--list"}, "does not go with --descriptor");
      else
        refuse_given(*command,
                     {"--dtype", "--rows", "--columns", "--tma-swizzle", "--swizzle", "--major", "--lbo",
                      "--sbo", "--instruction-mn", "--base", "--k-advance"},
                     "goes with --descriptor");
      return layout(*options);
    };
  });
}

}  // namespace imbrex::command
