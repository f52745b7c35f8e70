// SPDX-License-Identifier: Apache-2.0
#include "runtime/assemble/kept_plan.h"

#include <array>
#include <concepts>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <tuple>
#include <type_traits>
#include <vector>

#include "core/sha256.h"
#include "runtime/assemble/shipped_code.h"
#include "runtime/cache/sources_digest.h"

namespace imbrex::runtime {
namespace {

template <class T, class S>
concept Is = std::same_as<std::remove_const_t<T>, S>;

// The members of each structure that are kept. Bindings, so that a new member that is forgotten here does not compile.
template <Is<codegen::HostStep> S>
auto members(S& step) {
  auto& [kind, op, dtype, a, b, c, constant, where] = step;
  return std::tie(kind, op, dtype, a, b, c, constant, where);
}
template <Is<codegen::TensorMapPlan> S>
auto members(S& map) {
  auto& [dtype, driver_type, is_padded, is_stored, rank, base_slot, dim_slots, stride_slots, box, swizzle,
         interleave, l2_promotion, oob_fill, where] = map;
  return std::tie(dtype, driver_type, is_padded, is_stored, rank, base_slot, dim_slots, stride_slots, box,
                  swizzle, interleave, l2_promotion, oob_fill, where);
}
template <Is<codegen::ParamPlan> S>
auto members(S& param) {
  auto& [kind, index, offset, bytes] = param;
  return std::tie(kind, index, offset, bytes);
}
template <Is<codegen::BufferNeed> S>
auto members(S& need) {
  auto& [argument, bytes_slot, extents, strides, where] = need;
  return std::tie(argument, bytes_slot, extents, strides, where);
}
template <Is<codegen::ArgumentInfo> S>
auto members(S& argument) {
  auto& [name, is_pointer, dtype, alignment] = argument;
  return std::tie(name, is_pointer, dtype, alignment);
}
template <Is<codegen::CompiledKernel> S>
auto members(S& kernel) {
  auto& [name, target, ptx, threads, cluster, shared_bytes, tensor_memory_columns, waits_for_grids, arguments,
         host, grid_slots, tensor_maps, buffers, params, param_bytes, where] = kernel;
  static_cast<void>(ptx);  // its machine code stands for it
  return std::tie(name, target, threads, cluster, shared_bytes, tensor_memory_columns, waits_for_grids,
                  arguments, host, grid_slots, tensor_maps, buffers, params, param_bytes, where);
}

template <class T>
concept Number = std::is_arithmetic_v<T> || std::is_enum_v<T>;

class Writer {
 public:
  template <Number T>
  void put(const T& value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void put(std::string_view text) {
    put(static_cast<uint32_t>(text.size()));
    bytes_ += text;
  }
  void put(DataType type) { put(type.code); }
  /// Many are of few files and functions: those are written once.
  void put(const SourceLocation& where) {
    put(number_of(where.file)), put(where.line), put(number_of(where.function));
  }
  template <class T, size_t N>
  void put(const std::array<T, N>& all) {
    for (const T& each : all) put(each);
  }
  template <class T>
  void put(const std::vector<T>& all) {
    put(static_cast<uint32_t>(all.size()));
    for (const T& each : all) put(each);
  }
  template <class T>
  void put(const T& structure) requires requires {
    members(structure);
  }
  {
    std::apply([this](const auto&... each) { (put(each), ...); }, members(structure));
  }
  std::string finish() const {
    Writer whole;
    whole.put(names_);
    return whole.bytes_ + bytes_;
  }

 private:
  uint32_t number_of(const char* name) {
    const auto [at, is_new] = numbers_.try_emplace(name, static_cast<uint32_t>(names_.size()));
    if (is_new) names_.emplace_back(name);
    return at->second;
  }
  void put(const std::string& text) { put(std::string_view(text)); }

  std::string bytes_;
  std::vector<std::string> names_;
  std::map<std::string_view, uint32_t> numbers_;
};

/// A string that lives as long as the program, as those of a SourceLocation do.
const char* lasting(std::string text) {
  static std::mutex turn;
  static auto& all = *new std::set<std::string>;
  const std::lock_guard lock(turn);
  return all.insert(std::move(text)).first->c_str();
}

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {
    std::vector<std::string> names;
    get(names);
    for (std::string& name : names) names_.push_back(lasting(std::move(name)));
  }
  /// Everything was there, and nothing else.
  bool is_good() const { return is_good_ && bytes_.empty(); }

  template <Number T>
  void get(T& value) {
    if (const std::string_view taken = take(sizeof value); !taken.empty())
      std::memcpy(&value, taken.data(), sizeof value);
  }
  void get(std::string& text) {
    uint32_t size = 0;
    get(size);
    text = take(size);
  }
  void get(DataType& type) { get(type.code); }
  void get(SourceLocation& where) {
    uint32_t file = 0, function = 0;
    get(file), get(where.line), get(function);
    is_good_ = is_good_ && file < names_.size() && function < names_.size();
    if (is_good_) where.file = names_[file], where.function = names_[function];
  }
  template <class T, size_t N>
  void get(std::array<T, N>& all) {
    for (T& each : all) get(each);
  }
  template <class T>
  void get(std::vector<T>& all) {
    uint32_t size = 0;
    get(size);
    is_good_ = is_good_ && size <= bytes_.size();  // each takes a byte or more
    all.resize(is_good_ ? size : 0);
    for (T& each : all) get(each);
  }
  template <class T>
  void get(T& structure) requires requires {
    members(structure);
  }
  {
    std::apply([this](auto&... each) { (get(each), ...); }, members(structure));
  }

 private:
  std::string_view take(size_t size) {
    is_good_ = is_good_ && size <= bytes_.size();
    if (!is_good_) return {};
    const std::string_view taken = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return taken;
  }

  std::string_view bytes_;
  bool is_good_ = true;
  std::vector<const char*> names_;
};

}  // namespace

std::string pack_plan(const codegen::CompiledKernel& kernel, std::string_view ptx_digest) {
  Writer writer;
  writer.put(ptx_digest);
  writer.put(kernel);
  return writer.finish();
}

std::optional<KeptPlan> unpack_plan(std::string_view payload) {
  KeptPlan plan;
  Reader reader(payload);
  reader.get(plan.ptx_digest);
  reader.get(plan.kernel);
  if (!reader.is_good()) return std::nullopt;
  return plan;
}

CacheKey plan_key(const std::string& identity, const std::string& target) {
  return {"plan",
          sha256(identity).substr(0, 2),
          {{"kernel", identity}, {"target", target}, {"sources", std::string(sources_digest)}}};
}

std::optional<KeptPlan> kept_plan(const std::string& identity, const std::string& target) {
  const CacheKey key = plan_key(identity, target);
  std::optional<std::string> payload = shipped_entry(key);
  if (!payload) payload = Cache::shared().load(key);
  return payload ? unpack_plan(*payload) : std::nullopt;
}

bool keep_plan(const codegen::CompiledKernel& kernel, const std::string& identity, const std::string& target,
               Cache& folder) {
  return folder.store(plan_key(identity, target), pack_plan(kernel, sha256(kernel.ptx)));
}

}  // namespace imbrex::runtime
