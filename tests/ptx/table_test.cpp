// SPDX-License-Identifier: Apache-2.0
// Walks the instruction table: every row is used in its shortest and its longest form, printed, read and
// checked.
#include <gtest/gtest.h>

#include "ptx/builder.h"
#include "ptx/check.h"
#include "ptx/insns.h"
#include "ptx/reader.h"
#include "ptx/writer.h"

namespace imbrex::ptx {
namespace {

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> out;
  for (size_t start = 0; start < text.size();) {
    size_t end = std::min(text.find(separator, start), text.size());
    if (end > start) out.emplace_back(text.substr(start, end - start));
    start = end + 1;
  }
  return out;
}

bool ends_with(const std::string& text, char c) { return !text.empty() && text.back() == c; }

std::string target_for(std::string_view requirement) {
  if (requirement == "90a") return "sm_90a";
  return "sm_100a";
}

// One use of a row: with or without what is optional, and with the `pick`-th of each set of alternatives.
class RowUse {
 public:
  RowUse(const InsnFacts& row, bool with_optional, size_t pick)
      : row_(row), optional_(with_optional), pick_(pick) {
    module_.target = target_for(row.target);
  }

  Module build() {
    Builder b(module_, "k");
    std::vector<Suffix> suffixes = modifiers();
    std::vector<ScalarType> types;
    for (std::string word : split(row_.types, ' ')) {
      bool may_be_absent = ends_with(word, '?');
      if (may_be_absent) word.pop_back();
      if (may_be_absent && !optional_) continue;
      std::vector<std::string> choices = split(word, '|');
      std::string choice = choices[pick_ % choices.size()];
      types.push_back(choice == "*" ? ScalarType::u32 : *find_type(choice));
    }
    for (ScalarType t : types) suffixes.push_back(t);
    std::vector<Operand> operands;
    if (row_.op == Op::call) {
      operands = {b.tuple({}), SymbolRef{Ref::function, 0}, b.tuple({})};
    } else {
      LabelId label{};
      bool labelled = row_.op == Op::bra || row_.op == Op::brx_idx;
      if (labelled) label = b.label("here");
      bool wide = std::find(suffixes.begin(), suffixes.end(), Suffix(Mod::wide)) != suffixes.end();
      for (std::string slot : split(row_.operands, ' ')) {
        if (ends_with(slot, '?')) {
          if (!optional_) continue;
          slot.pop_back();
        }
        operands.push_back(operand(b, split(slot, '|')[0], types, wide, label));
      }
      if (labelled) b.bind(label);
    }
    b.emit(row_.op, std::span<const Suffix>(suffixes), std::span<const Operand>(operands));
    b.emit(Op::ret, {}, std::initializer_list<Operand>{});
    b.finish();
    return std::move(module_);
  }

 private:
  std::vector<Suffix> modifiers() {
    std::vector<Suffix> out;
    for (std::string group : split(row_.modifiers, ' ')) {
      bool required = ends_with(group, '!');
      if (required) group.pop_back();
      if (!required && !optional_) continue;
      std::vector<std::string> words = split(group, '|');
      std::string word = words[pick_ % words.size()];
      if (word == "#mnk") {
        out.push_back(Suffix::shape(16, 8, 16));
        continue;
      }
      Suffix s = *find_suffix(word);
      bool possible = meets(*Target::parse(module_.target), target_of(s));
      bool repeated = std::find(out.begin(), out.end(), s) != out.end();
      if ((possible && !repeated && out.size() < 8) || required) out.push_back(s);
    }
    return out;
  }

  Operand operand(Builder& b, const std::string& slot, const std::vector<ScalarType>& types, bool wide,
                  LabelId label) {
    ScalarType type = ScalarType::b32;
    std::string rule = slot.substr(1);
    if (rule.substr(0, 1) == ":") {
      type = *find_type(rule.substr(1));
    } else if (rule == "x") {
      type = types[0];
      if (wide) type = bits(type) == 16 ? ScalarType::b32 : ScalarType::b64;
    } else if (!rule.empty() && !types.empty()) {
      size_t index = static_cast<size_t>(rule[0] - '0');
      type = types[index < types.size() ? index : 0];
    }
    switch (slot[0]) {
      case 'd':
      case 's':
      case 'D':
      case 'S':
        return b.reg(type);
      case 'Q':
        return b.reg(rule.empty() ? ScalarType::pred : type);
      case 'P':
        return b.pair(b.reg(type), b.reg(ScalarType::pred));
      case 'w':
      case 'v':
        return b.vec({b.reg(ScalarType::b32), b.reg(ScalarType::b32)});
      case 'q':
      case 'p':
        return b.reg(ScalarType::pred);
      case 'a':
        return address(b.reg(ScalarType::b64), 16);
      case 'm':
        return b.tensor(address(b.reg(ScalarType::b64)), {b.reg(ScalarType::b32), 0});
      case 'i':
        return 4;
      case 'l':
        return label;
      case 't':
        return b.targets("targets", {&label, 1});
      default:
        ADD_FAILURE() << row_.mnemonic << ": unknown slot " << slot;
        return 0;
    }
  }

  const InsnFacts& row_;
  bool optional_;
  size_t pick_;
  Module module_;
};

TEST(Table, EveryRowIsReadAndPrinted) {
  for (const InsnFacts& row : all_insns()) {
    bool some_form_is_right = false;
    std::string complaints;
    for (bool optional : {false, true}) {
      for (size_t pick = 0; pick < 8; ++pick) {
        Module m = RowUse(row, optional, pick).build();
        const Function& f = m.functions[0];
        std::string line = write(m, f, f.body[0]);
        SCOPED_TRACE(line);
        Module again = read(write(m));
        std::string difference;
        EXPECT_TRUE(equivalent(m, again, &difference)) << difference;
        EXPECT_EQ(again.functions[0].body[0].op, row.op);
        std::string complaint = check(again, again.functions[0], again.functions[0].body[0]);
        some_form_is_right |= complaint.empty();
        complaints += line + "  " + complaint + "\n";
      }
    }
    // Words picked blindly may exclude each other, but not in every form.
    EXPECT_TRUE(some_form_is_right) << complaints;
  }
}

TEST(Table, EveryRowNamesItsSection) {
  for (const InsnFacts& row : all_insns()) {
    EXPECT_EQ(row.section.substr(0, 3), "9.7") << row.mnemonic;
    EXPECT_GE(row.version, 10) << row.mnemonic;
    EXPECT_EQ(static_cast<size_t>(row.op), static_cast<size_t>(&row - all_insns().data())) << row.mnemonic;
  }
}

TEST(Table, EveryWordIsUsedByARow) {
  std::string all;
  for (const InsnFacts& row : all_insns()) all += ' ' + std::string(row.modifiers) + ' ';
  for (char& c : all)
    if (c == '|' || c == '!') c = ' ';
  for (std::string_view word : all_words())
    EXPECT_NE(all.find(' ' + std::string(word) + ' '), std::string::npos) << word << " is in words.def only";
}

TEST(Table, LaterFormsAreReadable) {
  for (const LaterForm& form : later_forms()) {
    for (const std::string& part : split(form.when, '+')) {
      if (part[0] == '#' || part[0] == '%') continue;
      EXPECT_TRUE(find_suffix(part[0] == '!' ? part.substr(1) : part).has_value())
          << name(form.op) << ": " << part;
    }
  }
}

TEST(Table, LongestMnemonicWins) {
  auto op = [](const char* text) { return find_mnemonic(text)->op; };
  EXPECT_EQ(op("cp.async.bulk.tensor.2d.shared::cluster.global"), Op::cp_async_bulk_tensor);
  EXPECT_EQ(op("cp.async.bulk.shared::cta.global"), Op::cp_async_bulk);
  EXPECT_EQ(op("cp.async.ca.shared.global"), Op::cp_async);
  EXPECT_EQ(op("cp.async.bulk.prefetch.tensor.2d"), Op::cp_async_bulk_prefetch_tensor);
  EXPECT_EQ(op("mma.sp.sync.aligned"), Op::mma_sp_sync);
  EXPECT_EQ(op("tcgen05.mma.ws.sp.cta_group::1"), Op::tcgen05_mma_ws_sp);
  EXPECT_EQ(op("barrier.cta.sync.aligned"), Op::barrier_sync);
  EXPECT_EQ(op("fence.proxy.async"), Op::fence_proxy);
  EXPECT_EQ(op("fence.acq_rel.gpu"), Op::fence);
  EXPECT_EQ(op("ld.global.f32"), Op::ld);
  EXPECT_FALSE(find_mnemonic("cp.bulk").has_value());
  EXPECT_FALSE(find_mnemonic("addd.s32").has_value());
}

TEST(Table, Shapes) {
  for (auto [m, n, k] : {std::array{64, 256, 16}, {64, 8, 256}, {16, 8, 4}, {8, 8, 4}, {16, 8, 512}}) {
    Suffix s = Suffix::shape(m, n, k);
    EXPECT_EQ(s.shape(), (Shape{m, n, k}));
    EXPECT_EQ(find_suffix(s.spelling()), s);
    EXPECT_FALSE(s.is_type() || s.is_mod());
  }
  for (const char* wrong : {"m64n257k16", "m64n7k16", "m5n8k8", "m16n8k3", "m16n8k16x", "n8k16"})
    EXPECT_FALSE(find_suffix(wrong).has_value()) << wrong;
}

TEST(Table, Targets) {
  auto sm = [](const char* name) { return *Target::parse(name); };
  EXPECT_TRUE(meets(sm("sm_90a"), "90"));
  EXPECT_TRUE(meets(sm("sm_100"), "90"));
  EXPECT_FALSE(meets(sm("sm_89"), "90"));
  EXPECT_TRUE(meets(sm("sm_90a"), "90a"));
  EXPECT_FALSE(meets(sm("sm_100a"), "90a"));
  EXPECT_TRUE(meets(sm("sm_120a"), "90a+"));
  EXPECT_FALSE(meets(sm("sm_90"), "90a+"));
  EXPECT_TRUE(meets(sm("sm_103f"), "100f"));
  EXPECT_FALSE(meets(sm("sm_120a"), "100f"));
  EXPECT_FALSE(meets(sm("sm_100"), "100f"));
  EXPECT_FALSE(Target::parse("sm_90b").has_value());
  EXPECT_FALSE(Target::parse("compute_90").has_value());
}

}  // namespace
}  // namespace imbrex::ptx
