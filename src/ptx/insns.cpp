// SPDX-License-Identifier: Apache-2.0
#include "ptx/insns.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/text.h"
#include "ptx/string_table.h"

namespace imbrex::ptx {
namespace {

constexpr InsnFacts kInsns[] = {
#define PTX_INSN(name, mnemonic, operands, modifiers, types, target, version, section, family, cost, traits) \
  {Op::name,                                                                                                 \
   mnemonic,                                                                                                 \
   operands,                                                                                                 \
   modifiers,                                                                                                \
   types,                                                                                                    \
   target,                                                                                                   \
   version,                                                                                                  \
   section,                                                                                                  \
   Family::family,                                                                                           \
   Cost::cost,                                                                                               \
   static_cast<uint8_t>(traits)},
#define PTX_ALIAS(...)
#define PTX_NEEDS(...)
#include "ptx/insns.def"
#undef PTX_INSN
#undef PTX_ALIAS
#undef PTX_NEEDS
};

struct Spelling {
  Op op;
  std::string_view mnemonic;
};

constexpr Spelling kSpellings[] = {
#define PTX_INSN(name, mnemonic, ...) {Op::name, mnemonic},
#define PTX_ALIAS(name, mnemonic) {Op::name, mnemonic},
#define PTX_NEEDS(...)
#include "ptx/insns.def"
#undef PTX_INSN
#undef PTX_ALIAS
#undef PTX_NEEDS
};

constexpr std::string_view kWords[] = {
#define PTX_WORD(name, spelling, target) spelling,
#include "ptx/words.def"
#undef PTX_WORD
};

constexpr std::string_view kWordTargets[] = {
#define PTX_WORD(name, spelling, target) target,
#include "ptx/words.def"
#undef PTX_WORD
};

constexpr std::string_view kTypeNames[] = {
#define PTX_TYPE(name, bits, class, target) #name,
#include "ptx/types.def"
#undef PTX_TYPE
};

constexpr std::string_view kTypeTargets[] = {
#define PTX_TYPE(name, bits, class, target) target,
#include "ptx/types.def"
#undef PTX_TYPE
};

constexpr LaterForm kLaterForms[] = {
#define PTX_INSN(...)
#define PTX_ALIAS(...)
#define PTX_NEEDS(name, when, target) {Op::name, when, target},
#include "ptx/insns.def"
#undef PTX_INSN
#undef PTX_ALIAS
#undef PTX_NEEDS
};

constexpr std::string_view kSpecialNames[] = {
#define PTX_SPECIAL(name, spelling, type) spelling,
#include "ptx/special_registers.def"
#undef PTX_SPECIAL
};

template <class T, size_t N>
StringTable<T> index_of(const std::string_view (&names)[N]) {
  StringTable<T> table;
  for (size_t i = 0; i < N; ++i) table[names[i]] = static_cast<T>(i);
  return table;
}

// What starts with a given first word: the instruction of exactly that name, and how many words the longest
// mnemonic has.
struct Root {
  int op = -1;
  int max_words = 0;
};

struct Mnemonics {
  StringTable<Root> roots;
  StringTable<Op> dotted;  // mnemonics of two words and more

  Mnemonics() {
    for (const Spelling& s : kSpellings) {
      Root& root = roots[s.mnemonic.substr(0, s.mnemonic.find('.'))];
      int words = 1 + static_cast<int>(std::count(s.mnemonic.begin(), s.mnemonic.end(), '.'));
      root.max_words = std::max(root.max_words, words);
      if (words == 1) {
        root.op = static_cast<int>(s.op);
      } else {
        dotted[s.mnemonic] = s.op;
      }
    }
  }
};

bool take_int(std::string_view& text, int& value) {
  size_t digits = 0;
  value = 0;
  for (; digits < text.size() && digits < 4 && text[digits] >= '0' && text[digits] <= '9'; ++digits)
    value = value * 10 + (text[digits] - '0');
  text.remove_prefix(digits);
  return digits > 0;
}

std::optional<Suffix> parse_shape(std::string_view text) {
  int size[3];
  for (int i = 0; i < 3; ++i) {
    if (text.empty() || text[0] != "mnk"[i]) return std::nullopt;
    text.remove_prefix(1);
    if (!take_int(text, size[i])) return std::nullopt;
  }
  auto [m, n, k] = size;
  bool known = (m == 8 || m == 16 || m == 32 || m == 64) && n >= 8 && n <= 256 && n % 8 == 0 && k >= 4 &&
               k <= 1024 && (k & (k - 1)) == 0;
  if (!text.empty() || !known) return std::nullopt;
  return Suffix::shape(m, n, k);
}

}  // namespace

std::string requirement_in_words(std::string_view requirement) {
  if (requirement.empty()) return "every target";
  std::string_view kind = requirement;
  int sm = 0;
  take_int(kind, sm);
  if (kind.empty()) return fmt::format("sm_{} or later", sm);
  if (kind == "a") return fmt::format("sm_{}a", sm);
  if (kind == "a+") return fmt::format("sm_{}a, or a later target with suffix 'a' or 'f'", sm);
  return fmt::format("an {} target with suffix 'a' or 'f'", sm < 120 ? "sm_10x or sm_11x" : "sm_12x");
}

bool computes(Family family) {
  static constexpr bool kComputes[] = {
#define PTX_FAMILY(name, computes, what) computes,
#include "ptx/families.def"
#undef PTX_FAMILY
  };
  return kComputes[static_cast<size_t>(family)];
}

const InsnFacts& insn_facts(Op op) { return kInsns[static_cast<size_t>(op)]; }
std::span<const InsnFacts> all_insns() { return kInsns; }

std::string_view target_of(Suffix suffix) {
  if (suffix.is_type()) return kTypeTargets[static_cast<size_t>(suffix.type())];
  return suffix.is_mod() ? kWordTargets[static_cast<size_t>(suffix.mod())] : std::string_view();
}

std::span<const LaterForm> later_forms() { return kLaterForms; }
std::span<const std::string_view> all_words() { return kWords; }

std::optional<MnemonicMatch> find_mnemonic(std::string_view text) {
  static const Mnemonics kTable;
  size_t first = std::min(text.find('.'), text.size());
  const Root* root = kTable.roots.find(text.substr(0, first));
  if (root == nullptr) return std::nullopt;
  // The ends of the first, second, ... word, as far as any mnemonic reaches; then the longest that is in the
  // table.
  size_t ends[8] = {first};
  int words = 1;
  while (words < root->max_words && ends[words - 1] < text.size()) {
    ends[words] = std::min(text.find('.', ends[words - 1] + 1), text.size());
    ++words;
  }
  for (; words > 1; --words)
    if (const Op* op = kTable.dotted.find(text.substr(0, ends[words - 1])))
      return MnemonicMatch{*op, ends[words - 1]};
  if (root->op < 0) return std::nullopt;
  return MnemonicMatch{static_cast<Op>(root->op), first};
}

std::optional<ScalarType> find_type(std::string_view word) {
  static const StringTable<ScalarType> kTable = index_of<ScalarType>(kTypeNames);
  const ScalarType* type = kTable.find(word);
  return type != nullptr ? std::optional(*type) : std::nullopt;
}

std::optional<Suffix> find_suffix(std::string_view word) {
  static const StringTable<Suffix> kTable = [] {
    StringTable<Suffix> table;
    for (size_t i = 0; i < std::size(kWords); ++i) table[kWords[i]] = static_cast<Mod>(i);
    for (size_t i = 0; i < std::size(kTypeNames); ++i) table[kTypeNames[i]] = static_cast<ScalarType>(i);
    return table;
  }();
  if (const Suffix* s = kTable.find(word)) return *s;
  return parse_shape(word);
}

std::optional<SpecialReg> find_special(std::string_view name) {
  static const StringTable<SpecialReg> kTable = index_of<SpecialReg>(kSpecialNames);
  const SpecialReg* special = kTable.find(name);
  return special != nullptr ? std::optional(*special) : std::nullopt;
}

std::string nearest_mnemonic(std::string_view text) {
  std::vector<std::string> candidates;
  for (const Spelling& s : kSpellings) candidates.emplace_back(s.mnemonic);
  // The words after the mnemonic are noise, and how many they are is unknown: try each prefix, the longest
  // first.
  for (std::string_view prefix = text;; prefix = prefix.substr(0, prefix.rfind('.'))) {
    std::string nearest = nearest_word(prefix, candidates);
    if (!nearest.empty() || prefix.find('.') == std::string_view::npos) return nearest;
  }
}

std::string nearest_suffix(std::string_view word) {
  std::vector<std::string> candidates(std::begin(kWords), std::end(kWords));
  candidates.insert(candidates.end(), std::begin(kTypeNames), std::end(kTypeNames));
  return nearest_word(word, candidates);
}

}  // namespace imbrex::ptx
