// SPDX-License-Identifier: Apache-2.0
#include "imbrex/inspect/layout_tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

#include "core/text.h"
#include "imbrex/core/error.h"
#include "imbrex/inspect/banks.h"
#include "ir/ir.h"
#include "layout/registers.h"
#include "passes/pipeline.h"

namespace imbrex {
namespace {

using layout::Axis;
using layout::Layout;

const std::map<std::string, std::function<Layout()>, std::less<>>& fragments() {
  static const auto* table = [] {
    auto* f = new std::map<std::string, std::function<Layout()>, std::less<>>;
    struct Shape {
      const char* name;
      int m, n, k, bits;
    };
    for (const Shape& s : {Shape{"m16n8k16", 16, 8, 16, 16}, Shape{"m16n8k8.f16", 16, 8, 8, 16},
                           Shape{"m16n8k8.tf32", 16, 8, 8, 32}, Shape{"m16n8k32.s8", 16, 8, 32, 8}}) {
      (*f)[fmt::format("mma.{}.a", s.name)] = [s] { return layout::mma_fragments(s.m, s.n, s.k, s.bits).a; };
      (*f)[fmt::format("mma.{}.b", s.name)] = [s] { return layout::mma_fragments(s.m, s.n, s.k, s.bits).b; };
      (*f)[fmt::format("mma.{}.c", s.name)] = [s] { return layout::mma_fragments(s.m, s.n, s.k, s.bits).c; };
    }
    for (int n : {8, 16, 32, 64, 128, 192, 256})
      (*f)[fmt::format("wgmma.n{}.d", n)] = [n] { return layout::wgmma_accumulator(n); };
    for (int bits : {8, 16, 32})
      (*f)[fmt::format("wgmma.a.{}bit", bits)] = [bits] { return layout::wgmma_a(bits); };
    for (int x : {1, 2, 4}) {
      (*f)[fmt::format("ldmatrix.x{}", x)] = [x] { return layout::ldmatrix(x, false); };
      (*f)[fmt::format("ldmatrix.x{}.trans", x)] = [x] { return layout::ldmatrix(x, true); };
    }
    using Shape5 = layout::TensorMemoryShape;
    for (Shape5 shape : {Shape5::k32x32b, Shape5::k16x64b, Shape5::k16x128b, Shape5::k16x256b})
      (*f)[fmt::format("tcgen05.ld.{}", layout::tensor_memory_shape_name(shape))] = [shape] {
        return layout::tensor_memory_registers(shape, 4, 32);
      };
    return f;
  }();
  return *table;
}

}  // namespace

std::vector<std::string> fragment_names() {
  std::vector<std::string> names;
  for (const auto& [name, make] : fragments()) names.push_back(name);
  return names;
}

LayoutTable layout_table(std::string_view text) {
  const auto found = fragments().find(text);
  // An expression has a bracket; a fragment's name has none.
  const bool is_expression = text.find_first_of("[(") != std::string_view::npos;
  if (found == fragments().end() && !is_expression) {
    const std::string near = nearest_word(std::string(text), fragment_names());
    throw LaunchError(Diagnostic{{},
                                 fmt::format("no fragment is called '{}'", text),
                                 {},
                                 near.empty() ? "imbrex layout --list names them; a layout is written [8: "
                                                "8t4, 8: 4t1 2r1] or spatial(8, 4) * local(2, 2)"
                                              : fmt::format("did you mean '{}'?", near)});
  }
  const Layout layout = found != fragments().end() ? found->second() : layout::evaluate(text);
  const int rank = layout.rank();
  LayoutTable table{.layout = layout.to_string(), .cells = {}};
  table.rows = rank >= 2 ? layout.shape()[static_cast<size_t>(rank - 2)] : 1;
  table.columns = rank >= 1 ? layout.shape()[static_cast<size_t>(rank - 1)] : 1;
  table.kind = layout.uses(Axis::kAddress)                              ? LayoutTable::Kind::kShared
               : layout.uses(Axis::kLane) || layout.uses(Axis::kColumn) ? LayoutTable::Kind::kTensorMemory
                                                                        : LayoutTable::Kind::kRegisters;
  layout::Index index(static_cast<size_t>(rank), 0);
  for (int64_t row = 0; row < table.rows; ++row)
    for (int64_t column = 0; column < table.columns; ++column) {
      if (rank >= 2) index[static_cast<size_t>(rank - 2)] = row;
      if (rank >= 1) index[static_cast<size_t>(rank - 1)] = column;
      const layout::Coords place = layout.map(index);
      switch (table.kind) {
        case LayoutTable::Kind::kRegisters:
          table.cells.push_back({place[Axis::kThread], place[Axis::kRegister]});
          break;
        case LayoutTable::Kind::kShared: {
          const int64_t byte = place[Axis::kAddress] * std::max(1, layout.element_bits()) / 8;
          table.cells.push_back({byte, byte / kBankBytes % kBanks});
          break;
        }
        case LayoutTable::Kind::kTensorMemory:
          table.cells.push_back({place[Axis::kLane], place[Axis::kColumn]});
          break;
      }
    }
  return table;
}

std::vector<TensorLayout> tensor_layouts(ir::Function& function) {
  passes::run_pipeline(function, passes::PipelineOptions::from_environment());
  std::vector<TensorLayout> tensors;
  ir::walk(function.body, [&](ir::Op& op) {
    for (ir::Value* value : op.results) {
      if (!value->type.layout) continue;
      ir::Type bare = value->type;
      bare.layout.reset();
      tensors.push_back({ir::print(*value), bare.to_string(), value->type.layout->to_string(), op.where});
    }
  });
  return tensors;
}

}  // namespace imbrex
