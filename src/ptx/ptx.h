// SPDX-License-Identifier: Apache-2.0
// The PTX tree: what the reader makes of PTX text, what code generation builds and the writer prints, and
// what the virtual GPU executes.
//
// A function's body is one flat array of instructions. Everything else that PTX writes between instructions
// (labels, .loc, .pragma, .branchtargets, comments) is kept beside it, as a position in that array, so that
// an instruction's index can serve as a program counter. Nested scopes are flattened: names a scope declares
// twice get a suffix. Operands live in one pool per function (`Function::operands`), which instructions and
// vector operands refer to by position and count.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace imbrex::ptx {

/// A type word: b32, u64, f16x2, e4m3, ...
enum class ScalarType : uint8_t {
#define PTX_TYPE(name, bits, class, target) name,
#include "ptx/types.def"
#undef PTX_TYPE
};

/// A modifier word other than a type or a matrix shape: rn, shared_cta, mbarrier_complete_tx_bytes, _32x32b,
/// ...
enum class Mod : uint16_t {
#define PTX_WORD(name, spelling, target) name,
#include "ptx/words.def"
#undef PTX_WORD
};

/// An instruction of the table insns.def: add, cp_async_bulk_tensor, tcgen05_mma, ...
enum class Op : uint16_t {
#define PTX_INSN(name, ...) name,
#define PTX_ALIAS(...)
#define PTX_NEEDS(...)
#include "ptx/insns.def"
#undef PTX_INSN
#undef PTX_ALIAS
#undef PTX_NEEDS
};

/// One component of a special register: tid_x, laneid, clock64, ...
enum class SpecialReg : uint8_t {
#define PTX_SPECIAL(name, spelling, type) name,
#include "ptx/special_registers.def"
#undef PTX_SPECIAL
};

std::string_view name(ScalarType type);
std::string_view name(Mod mod);
/// The mnemonic, dots included.
std::string_view name(Op op);
/// Without the leading '%'.
std::string_view name(SpecialReg special);

/// Size of one operand of this type in bits (packed types: of the pack).
int bits(ScalarType type);
/// Size in bytes, rounded up.
inline int bytes(ScalarType type) { return (bits(type) + 7) / 8; }
bool is_float(ScalarType type);
bool is_signed(ScalarType type);
bool is_unsigned(ScalarType type);
/// b1 ... b128: bits without an interpretation.
bool is_untyped(ScalarType type);
ScalarType type_of(SpecialReg special);

/// The shape word of a matrix instruction, m16n8k16.
struct Shape {
  int m = 0;
  int n = 0;
  int k = 0;
  friend bool operator==(const Shape&, const Shape&) = default;
};

/// One dotted word after the mnemonic: a modifier, a type or a matrix shape. Two bytes.
class Suffix {
 public:
  constexpr Suffix() = default;
  constexpr Suffix(Mod mod) : code_(static_cast<uint16_t>(mod)) {}  // NOLINT: implicit on purpose
  constexpr Suffix(ScalarType type) : code_(kType | static_cast<uint16_t>(type)) {}  // NOLINT
  /// m in {8, 16, 32, 64}; n a multiple of 8, 8...256; k a power of two, 4...1024 (anything else:
  /// InternalError).
  static Suffix shape(int m, int n, int k);

  constexpr bool is_mod() const { return code_ < kType; }
  constexpr bool is_type() const { return (code_ & (kType | kShape)) == kType; }
  constexpr bool is_shape() const { return (code_ & kShape) != 0; }
  constexpr Mod mod() const { return static_cast<Mod>(code_); }
  constexpr ScalarType type() const { return static_cast<ScalarType>(code_ & 0xff); }
  Shape shape() const;
  /// As written, without the dot.
  std::string spelling() const;

  friend constexpr bool operator==(Suffix, Suffix) = default;

 private:
  static constexpr uint16_t kType = 0x4000;
  static constexpr uint16_t kShape = 0x8000;
  uint16_t code_ = 0;
};

/// A register of a function: a dense index into Function::registers.
struct Reg {
  static constexpr uint32_t kNone = 0xffffffff;
  uint32_t id = kNone;
  constexpr bool is_valid() const { return id != kNone; }
  friend constexpr bool operator==(Reg, Reg) = default;
};

/// A label of a function: an index into Function::labels.
struct LabelId {
  uint32_t id = 0xffffffff;
  friend constexpr bool operator==(LabelId, LabelId) = default;
};

/// What a name refers to.
enum class Ref : uint8_t {
  none,
  reg,           ///< Function::registers
  global,        ///< Module::variables
  param,         ///< Function::params
  return_param,  ///< Function::return_params
  local,         ///< Function::variables
  function,      ///< Module::functions
  label,         ///< Function::labels
  target_list,   ///< Function::target_lists
  prototype,     ///< Function::prototypes
};

/// A name resolved: what kind of thing, and which one.
struct SymbolRef {
  Ref ref = Ref::none;
  uint32_t index = 0;
  friend bool operator==(SymbolRef, SymbolRef) = default;
};

enum class OperandKind : uint8_t {
  reg,        ///< id; `negated` for !p
  special,    ///< id is a SpecialReg
  immediate,  ///< value: 64 bits, signed unless is_unsigned
  f32,        ///< value: the bits of a 0f literal
  f64,        ///< value: the bits of a 0d or decimal literal
  symbol,     ///< ref and id name it, value is a byte offset: mov.u64 %rd1, table+16
  address,    ///< [base + value]; ref is none (absolute), reg, global, param, return_param or local
  vector,     ///< {a, b, _}: `count` elements from Function::operands[id]
  pair,       ///< d|p: two elements, as vector
  tensor,     ///< [map, {c0, c1}]: two elements, the map's address and the vector of coordinates
  tuple,      ///< (a, b) of a call: elements as vector, may be empty
  sink,       ///< _
};

/// One operand: 16 bytes, freely copied. Elements of vectors, pairs, tensors and tuples are in the function's
/// pool.
struct Operand {
  OperandKind kind = OperandKind::sink;
  Ref ref = Ref::none;
  bool negated = false;
  bool is_unsigned = false;  ///< the literal had a U suffix or does not fit 63 bits
  uint32_t id = 0;
  union {
    int64_t value = 0;
    uint32_t count;
  };

  constexpr Operand() = default;
  constexpr Operand(Reg reg) : kind(OperandKind::reg), ref(Ref::reg), id(reg.id) {}  // NOLINT: implicit
  constexpr Operand(LabelId label) : kind(OperandKind::symbol), ref(Ref::label), id(label.id) {}  // NOLINT
  constexpr Operand(SymbolRef symbol)
      : kind(OperandKind::symbol), ref(symbol.ref), id(symbol.index) {}  // NOLINT
  constexpr Operand(SpecialReg special)                                  // NOLINT
      : kind(OperandKind::special), id(static_cast<uint32_t>(special)) {}
  constexpr Operand(int immediate) : Operand(static_cast<int64_t>(immediate)) {}            // NOLINT
  constexpr Operand(int64_t immediate) : kind(OperandKind::immediate), value(immediate) {}  // NOLINT
  constexpr Operand(uint32_t immediate) : Operand(static_cast<int64_t>(immediate)) {}       // NOLINT
  constexpr Operand(uint64_t immediate)                                                     // NOLINT
      : kind(OperandKind::immediate),
        is_unsigned(immediate >> 63 != 0),
        value(static_cast<int64_t>(immediate)) {}
  Operand(float literal);   // NOLINT
  Operand(double literal);  // NOLINT

  bool is_reg() const { return kind == OperandKind::reg; }
  bool is_immediate() const {
    return kind == OperandKind::immediate || kind == OperandKind::f32 || kind == OperandKind::f64;
  }
  bool has_elements() const {
    return kind == OperandKind::vector || kind == OperandKind::pair || kind == OperandKind::tensor ||
           kind == OperandKind::tuple;
  }
  Reg reg() const { return Reg{id}; }
  SymbolRef symbol() const { return {ref, id}; }
};
static_assert(sizeof(Operand) == 16);

/// !p, for a predicate operand.
inline Operand operator!(Reg predicate) {
  Operand o = predicate;
  o.negated = true;
  return o;
}
/// [base], [base + offset]
Operand address(Reg base, int64_t offset = 0);
Operand address(SymbolRef base, int64_t offset = 0);
/// [offset], an absolute address.
Operand address(int64_t absolute);
/// _
inline Operand sink() { return Operand(); }

/// A place in PTX text; line 0: built, not read.
struct SourcePos {
  uint32_t line = 0;
  uint32_t column = 0;
};

/// One `.loc`: the source line of the instructions that follow it.
struct Loc {
  uint32_t file = 0;  ///< index as in File::index
  uint32_t line = 0;
  uint32_t column = 0;
  // Where the inlined function was called; 0 = not inlined. `function_name` is a label in .debug_str, with an
  // offset.
  std::string function_name;
  uint32_t function_name_offset = 0;
  uint32_t inlined_file = 0;
  uint32_t inlined_line = 0;
  uint32_t inlined_column = 0;
  friend bool operator==(const Loc&, const Loc&) = default;
};

/// One instruction. Plain data; operands are in the function's pool.
struct Instruction {
  static constexpr int kMaxSuffixes = 14;
  static constexpr uint32_t kNone = 0xffffffff;

  Op op = Op::trap;
  bool guard_negated = false;
  uint8_t suffix_count = 0;
  std::array<Suffix, kMaxSuffixes> suffix_array{};  ///< as written; use suffixes()
  Reg guard;                                        ///< @p or @!p, none when not valid
  uint32_t first_operand = 0;
  uint32_t operand_count = 0;
  uint32_t loc = kNone;      ///< index into Function::locs
  uint32_t comment = kNone;  ///< index into Function::comments: printed above
  SourcePos pos;             ///< in the text it was read from

  std::span<const Suffix> suffixes() const { return {suffix_array.data(), suffix_count}; }
  /// True when the word is written.
  bool has(Mod mod) const {
    for (Suffix s : suffixes())
      if (s == Suffix(mod)) return true;
    return false;
  }
  /// The first of `mods` that is written, or `otherwise`.
  Mod one_of(std::initializer_list<Mod> mods, Mod otherwise) const {
    for (Suffix s : suffixes())
      for (Mod m : mods)
        if (s == Suffix(m)) return m;
    return otherwise;
  }
  int type_count() const {
    int n = 0;
    for (Suffix s : suffixes()) n += s.is_type();
    return n;
  }
  /// The index-th type word; `otherwise` when fewer are written.
  ScalarType type(int index = 0, ScalarType otherwise = ScalarType::b32) const {
    for (Suffix s : suffixes())
      if (s.is_type() && index-- == 0) return s.type();
    return otherwise;
  }
  /// The matrix shape, zeros when none is written.
  Shape shape() const {
    for (Suffix s : suffixes())
      if (s.is_shape()) return s.shape();
    return {};
  }

  // Guards, for building: b.emit(...).when(p).
  Instruction& when(Reg predicate) {
    guard = predicate;
    guard_negated = false;
    return *this;
  }
  Instruction& unless(Reg predicate) {
    guard = predicate;
    guard_negated = true;
    return *this;
  }
};

enum class Space : uint8_t { reg, global, constant, shared, local, param };
enum class Linkage : uint8_t { internal, external, visible, weak, common };

/// One address stored in an initialiser.
struct Relocation {
  uint32_t offset = 0;  ///< byte in Variable::initialiser
  SymbolRef symbol;     ///< a global variable or a function
  int64_t addend = 0;
  bool generic = false;  ///< generic(symbol): a generic address
  uint8_t size = 8;      ///< bytes stored
  uint8_t shift = 0;     ///< the bits stored are those from here up: 0xff00(symbol) is shift 8, size 1
  friend bool operator==(const Relocation&, const Relocation&) = default;
};

/// A variable or parameter: .global, .const, .shared, .local, .param (or a .reg parameter of a device
/// function).
struct Variable {
  static constexpr int64_t kUnsized = -1;

  std::string name;
  Space space = Space::global;
  Linkage linkage = Linkage::internal;
  ScalarType type = ScalarType::b8;
  int vector = 1;                    ///< 2 or 4 for .v2, .v4
  int64_t align = 0;                 ///< as written, bytes; 0: natural
  std::vector<int64_t> dims;         ///< array dimensions; kUnsized for `[]`; empty: a scalar
  std::vector<uint8_t> initialiser;  ///< bytes, may be shorter than the variable (the rest is zero)
  std::vector<Relocation> relocations;
  std::vector<std::string> attributes;  ///< words in .attribute(...), e.g. "managed"
  // Kernel parameters: `.ptr .global .align 16`.
  bool is_pointer = false;
  std::string pointer_space;  ///< "global", "shared", ...; empty: generic
  int64_t pointer_align = 0;
  Reg reg;  ///< for Space::reg
  SourcePos pos;

  /// Alignment in bytes, the natural one where none is written.
  int64_t alignment() const { return align != 0 ? align : int64_t{vector} * bytes(type); }
  /// Elements (vectors counted by component); 0 when a dimension is unsized.
  int64_t element_count() const;
  /// Size in bytes; 0 when unsized.
  int64_t size() const { return element_count() * bytes(type); }
};

/// `.reg .b32 %r<100>;` or `.reg .pred done;`
struct RegisterDecl {
  std::string prefix;  ///< with its '%' if it has one; the whole name when not a range
  ScalarType type = ScalarType::b32;
  bool is_range = true;
  uint32_t count = 0;  ///< range: names prefix0 ... prefix(count-1)
};

/// One register: which declaration it comes from, and its number there.
struct Register {
  uint32_t decl = 0;
  uint32_t number = 0;
  ScalarType type = ScalarType::b32;
};

struct Label {
  static constexpr uint32_t kUnbound = 0xffffffff;
  std::string name;
  uint32_t position = kUnbound;  ///< index of the instruction it stands before (may be body.size())
};

/// `name: .branchtargets L1, L2;` or `name: .calltargets f, g;`
struct TargetList {
  std::string name;
  bool is_call = false;
  std::vector<uint32_t> targets;  ///< label or function indices
  uint32_t position = 0;
};

/// `name: .callprototype (ret) _ (params);`
struct Prototype {
  std::string name;
  std::vector<Variable> return_params;
  std::vector<Variable> params;
  bool noreturn = false;
  uint32_t position = 0;
};

/// A `.pragma` inside a body.
struct Pragma {
  std::string text;
  uint32_t position = 0;
};

/// A kernel (.entry) or device function (.func).
struct Function {
  std::string name;
  bool is_entry = false;
  bool has_body = false;        ///< false: a declaration only
  bool declared_early = false;  ///< a prototype stood before the definition
  Linkage linkage = Linkage::internal;
  std::vector<Variable> return_params;
  std::vector<Variable> params;

  // Performance directives; 0 = absent.
  std::array<int, 3> maxntid{};
  std::array<int, 3> reqntid{};
  std::array<int, 3> reqnctapercluster{};
  int minnctapersm = 0;
  int maxnctapersm = 0;
  int maxnreg = 0;
  int maxclusterrank = 0;
  bool explicitcluster = false;
  bool blocksareclusters = false;
  bool noreturn = false;
  std::vector<std::string> pragmas;     ///< before the body
  std::vector<std::string> attributes;  ///< words in .attribute(...)

  std::vector<RegisterDecl> register_decls;
  std::vector<Register> registers;  ///< those used; index = Reg::id
  std::vector<Variable> variables;  ///< .shared, .local, .const, .param declared in the body
  std::vector<Instruction> body;
  std::vector<Operand> operands;  ///< the pool
  std::vector<Label> labels;      ///< in no particular order
  std::vector<TargetList> target_lists;
  std::vector<Prototype> prototypes;
  std::vector<Pragma> body_pragmas;
  std::vector<Loc> locs;
  std::vector<std::string> comments;
  SourcePos pos;

  std::span<const Operand> operands_of(const Instruction& i) const {
    return {operands.data() + i.first_operand, i.operand_count};
  }
  /// The elements of a vector, pair, tensor or tuple operand.
  std::span<const Operand> elements_of(const Operand& o) const { return {operands.data() + o.id, o.count}; }
  ScalarType type_of(Reg reg) const { return registers[reg.id].type; }
  std::string register_name(Reg reg) const;
};

struct File {
  uint32_t index = 0;
  std::string path;
  // Optional in PTX, kept as written; -1 = absent.
  int64_t timestamp = -1;
  int64_t size = -1;
  friend bool operator==(const File&, const File&) = default;
};

/// `.alias name, aliasee;`
struct Alias {
  uint32_t function = 0;
  uint32_t aliasee = 0;
  friend bool operator==(const Alias&, const Alias&) = default;
};

/// `.section .debug_info { ... }`, its text kept as it is.
struct Section {
  std::string name;
  std::string text;
  friend bool operator==(const Section&, const Section&) = default;
};

struct Module {
  int version = 90;                         ///< ten times the PTX version: 9.0 is 90
  std::string target;                       ///< "sm_100a"
  std::vector<std::string> target_options;  ///< "debug", "texmode_unified", ...
  int address_size = 64;
  std::vector<File> files;
  std::vector<Variable> variables;
  std::vector<Function> functions;
  std::vector<Alias> aliases;
  std::vector<Section> sections;
  std::vector<std::string> pragmas;

  /// The function or variable of that name; null when there is none.
  const Function* find_function(std::string_view name) const;
  const Variable* find_variable(std::string_view name) const;
  /// The index of a source file, added when new.
  uint32_t file(std::string_view path);
  /// Adds a module-level variable, e.g. the dynamic shared memory `.extern .shared .align 1024 .b8 smem[]`.
  SymbolRef add(Variable variable);
};

/// Byte offset of each parameter of a kernel in its parameter buffer.
std::vector<int64_t> param_offsets(const Function& function);
/// Size of a kernel's parameter buffer.
int64_t param_bytes(const Function& function);

/// True when both say the same: names, types, instructions, operands, labels, .loc lines. Comments, positions
/// in the text and the numbering of registers do not count. `difference`, when given, receives a sentence
/// about the first difference.
bool equivalent(const Module& a, const Module& b, std::string* difference = nullptr);

}  // namespace imbrex::ptx
