#include "engine/transformer/ndsl_mapping.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <set>

#include <fmt/core.h>

#include <harmonics/element_type.hpp>
#include <harmonics/ops.hpp>
#include <harmonics/quantity.hpp>

#include "engine/base/spelling.hpp"
#include "engine/tensor/value.hpp"
#include "engine/transformer/resolved_spec.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine {

namespace {

using ndsl::Source;

constexpr size_t kMostNamed = 12;  // in a message

// An entry of hf_mapping for one alias of the model.
struct Mapped {
  const NdslAlias* alias;
  Source source;
};

std::string with_layer(std::string text, int64_t layer) {
  for (size_t at = 0; (at = text.find("{i}", at)) != std::string::npos;) text.replace(at, 3, std::to_string(layer));
  return text;
}

Source with_layer(Source source, int64_t layer) {
  source.name = with_layer(source.name, layer);
  for (Source& part : source.parts) part = with_layer(part, layer);
  return source;
}

std::string of_expert(std::string text, int64_t expert) {
  for (size_t at = 0; (at = text.find("{e}", at)) != std::string::npos;) text.replace(at, 3, std::to_string(expert));
  return text;
}

// Returns the shape of all tensors of an alias, concatenated along rows.
Shape shape_of_alias(const CompiledNdsl& model, const NdslAlias& alias) {
  std::vector<int64_t> dims = model.find(alias.tensors.front())->shape.vector();
  for (size_t i = 1; i < alias.tensors.size(); ++i) dims[0] += model.find(alias.tensors[i])->shape[0];
  return Shape(dims);
}

std::vector<int64_t> rows_of_alias(const CompiledNdsl& model, const NdslAlias& alias) {
  std::vector<int64_t> rows;
  for (const std::string& name : alias.tensors) rows.push_back(model.find(name)->shape[0]);
  return rows;
}

// Returns the numbers of rows of the parts of a concatenation with `rows` rows, or nothing if it cannot be divided.
std::vector<int64_t> rows_of_parts(const CompiledNdsl& model, const NdslAlias& alias, const Source& source,
                                   int64_t rows) {
  std::vector<int64_t> own = rows_of_alias(model, alias);
  int64_t sum = 0;
  for (const int64_t one : own) sum += one;
  if (own.size() == source.parts.size() && sum == rows) return own;
  const auto count = static_cast<int64_t>(source.parts.size());
  if (count == 0 || rows % count != 0) return {};
  return std::vector<int64_t>(source.parts.size(), rows / count);
}

[[noreturn]] void refuse_source(const ndsl::Place& place, const std::string& what) {
  throw SourceErrors(*place.source, {Error(ErrorKind::Weights, what, place.span)});
}

Shape with_rows(const Shape& shape, int64_t rows) {
  std::vector<int64_t> dims = shape.vector();
  dims[0] = rows;
  return Shape(dims);
}

// Returns the number of heads that the rows of an alias belong to; 0: none, or different numbers.
int64_t heads_of_alias(const CompiledNdsl& model, const NdslAlias& alias) {
  int64_t heads = 0;
  for (const std::string& name : alias.tensors) {
    const NdslTensor& tensor = *model.find(name);
    if (heads != 0 && tensor.heads != heads) return 0;
    heads = tensor.heads;
  }
  return heads;
}

void expect_heads(const CompiledNdsl& model, const NdslAlias& alias, const Source& source) {
  if (heads_of_alias(model, alias) == 0)
    refuse_source(source.place,
                  fmt::format("the parts of '{}' have no equal numbers of heads to split by", alias.name));
}

// Calls `take` with name and shape of each tensor of the folder from which a source of this shape is read.
void visit_shapes(const CompiledNdsl& model, const Mapped& mapped, const Source& source, const Shape& shape,
                  const std::function<void(const std::string&, const Shape&)>& take) {
  switch (source.verb) {
    case Source::Verb::direct:
      return take(source.name, shape);
    case Source::Verb::tie:
      return;
    case Source::Verb::concat: {
      const std::vector<int64_t> rows = rows_of_parts(model, *mapped.alias, source, shape[0]);
      if (rows.empty())
        refuse_source(source.place,
                      fmt::format("{} cannot make up the {} of '{}'", quantity(source.parts.size(), "tensor"),
                                  quantity(shape[0], "row"), mapped.alias->name));
      for (size_t i = 0; i < rows.size(); ++i)
        visit_shapes(model, mapped, source.parts[i], with_rows(shape, rows[i]), take);
      return;
    }
    case Source::Verb::transpose: {
      if (shape.rank() != 2) {  // for example the bias of a transposed matrix
        refuse_source(source.place,
                      fmt::format("'{}' is {}, but only a matrix can be transposed", mapped.alias->name, shape.str()));
      }
      return visit_shapes(model, mapped, source.parts.front(), Shape{shape[1], shape[0]}, take);
    }
    case Source::Verb::split:
      if (source.by_head) expect_heads(model, *mapped.alias, source);
      return visit_shapes(model, mapped, source.parts.front(), with_rows(shape, shape[0] * source.of), take);
    case Source::Verb::stack_experts: {
      const int64_t experts = model.find(mapped.alias->tensors.front())->experts;
      if (experts == 0 || mapped.alias->tensors.size() != 1)
        refuse_source(source.place, fmt::format("'{}' holds no experts", mapped.alias->name));
      for (int64_t e = 0; e < experts; ++e) take(of_expert(source.name, e), shape.from(1));
      return;
    }
  }
}

std::string named_all(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size() && i < kMostNamed; ++i) text += (i ? ", " : "") + printable(names[i], 120);
  if (names.size() > kMostNamed) text += fmt::format(" and {} more", names.size() - kMostNamed);
  return text;
}

// Returns whether models of this kind may lack the tensor, because it depends on a setting or on the use of experts.
bool may_be_absent(const CompiledNdsl& model, std::string_view pattern) {
  constexpr std::string_view kOfSettings[] = {"q_norm.weight", "k_norm.weight", "qkv_bias", "out_bias", "sinks"},
                             kOfFeedForward[] = {"up_weight", "gate_proj_weight", "up_proj_weight", "down_weight"},
                             kOfExperts[] = {"router_weight",    "router_bias",        "gate_weight",
                                             "up_weight",        "down_weight",        "shared_gate_weight",
                                             "shared_up_weight", "shared_down_weight", "shared_router_weight"};
  constexpr std::string_view kLayer = "blocks[{i}].";
  if (pattern == "pooler.weight" || pattern == "pooler.bias") return true;
  if (!pattern.starts_with(kLayer)) return false;
  pattern.remove_prefix(kLayer.size());
  const size_t dot = pattern.find('.');
  if (dot == std::string_view::npos) return false;
  const std::string_view group = pattern.substr(0, dot), name = pattern.substr(dot + 1);
  const auto has = [&](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  if (group == "attention") return has(kOfSettings);
  if (group == "mlp" && (name == "up_bias" || name == "down_bias")) return true;
  if (model.file.variant.text != "moe") return false;
  return (group == "mlp" && has(kOfFeedForward)) || (group == "moe" && has(kOfExperts));
}

// Returns the mapping for each layer. Without hf_mapping, each tensor is mapped to its own name.
std::vector<Mapped> mapped_of(const CompiledNdsl& model, NdslFaults& faults) {
  std::vector<Mapped> all;
  std::map<std::string, const NdslAlias*> aliases;
  for (const NdslAlias& alias : model.aliases) aliases.emplace(alias.name, &alias);
  if (model.file.hf_mapping.empty()) {
    std::set<std::string> done;
    for (const NdslAlias& alias : model.aliases) {
      if (alias.tensors.size() != 1 || !done.insert(alias.tensors.front()).second) continue;
      Source source;
      source.name = alias.tensors.front();
      all.push_back({&alias, source});
    }
    return all;
  }
  std::map<std::string, ndsl::Place> taken;
  const int64_t layers = model.sizes.at("num_layers");
  for (const ndsl::Mapping& mapping : model.file.hf_mapping) {
    const std::string& pattern = mapping.tensor.text;
    const bool each = pattern.find("{i}") != std::string::npos;
    if (!each && model.tied && pattern == "lm_head.weight") continue;
    if (mapping.source.verb == Source::Verb::tie) {
      if (!model.tied && !faults.doubts({"tie_word_embeddings", "head"}))
        faults.add(mapping.source.place,
                   fmt::format("'{}' is tied, but the configuration says that it is not", pattern));
      continue;
    }
    bool found = false;
    for (int64_t i = 0; i < (each ? layers : 1); ++i) {
      const auto at = aliases.find(with_layer(pattern, i));
      if (at == aliases.end()) continue;
      found = true;
      for (const std::string& tensor : at->second->tensors)
        if (!taken.emplace(tensor, mapping.tensor.place).second)
          faults.add(mapping.tensor.place, fmt::format("the tensor '{}' of '{}' is mapped twice", tensor, pattern),
                     fmt::format("note: it is mapped at {} too", taken.at(tensor).text()));
      all.push_back({at->second, with_layer(mapping.source, i)});
    }
    if (found || may_be_absent(model, pattern)) continue;
    if (pattern.starts_with("blocks[") && faults.doubts({"operations", "num_layers"})) continue;
    std::vector<std::string> known;
    for (const auto& [name, alias] : aliases) {
      const size_t open = name.find("[0]");
      known.push_back(open == std::string::npos ? name : name.substr(0, open) + "[{i}]" + name.substr(open + 3));
    }
    const std::string meant = did_you_mean(pattern, known);
    faults.add(mapping.tensor.place, fmt::format("the model has no tensor {}", shown_name(pattern)), meant);
  }
  if (faults.any()) return all;
  std::vector<std::string> left;
  for (const NdslTensor& tensor : model.tensors)
    if (!taken.count(tensor.name)) left.push_back(tensor.name);
  if (left.empty()) return all;
  for (std::string& name : left)
    for (const NdslAlias& alias : model.aliases)
      if (alias.tensors.size() == 1 && alias.tensors.front() == name) {
        name = alias.name;
        break;
      }
  throw Error(ErrorKind::Weights, fmt::format("'{}': hf_mapping leaves out {}", model.file.path, named_all(left)));
}

std::vector<Mapped> mapped_of(const CompiledNdsl& model) {
  NdslFaults faults;
  std::vector<Mapped> all = mapped_of(model, faults);
  faults.throw_any();
  return all;
}

HTensor new_tensor(DType dtype, const Shape& shape) {
  const TensorType type{dtype, shape};
  return make_value(type, std::make_shared<Storage>(type.bytes()));
}

std::byte* bytes_of(const HTensor& tensor) { return static_cast<std::byte*>(tensor.raw()->storage->data()); }

// Returns a view of the rows [from, from + count).
HTensor rows_of(const HTensor& tensor, int64_t from, int64_t count) {
  if (from == 0 && count == tensor.shape()[0]) return tensor;
  const TensorType type{tensor.dtype(), with_rows(tensor.shape(), count)};
  const TensorType before{tensor.dtype(), with_rows(tensor.shape(), from)};
  const size_t offset = from == 0 ? 0 : before.bytes();
  return make_value(type,
                    std::make_shared<Storage>(bytes_of(tensor) + offset, type.bytes(), tensor.raw()->storage, false));
}

HTensor below(const std::vector<HTensor>& parts) {
  if (parts.size() == 1) return parts.front();
  int64_t rows = 0;
  bool alike = true;
  for (const HTensor& part : parts) {
    rows += part.shape()[0];
    alike = alike && part.dtype() == parts.front().dtype();
  }
  const DType dtype = alike ? parts.front().dtype() : DType::F32;
  const HTensor all = new_tensor(dtype, with_rows(parts.front().shape(), rows));
  std::byte* to = bytes_of(all);
  for (const HTensor& part : parts) {
    const HTensor same = part.dtype() == dtype ? part : cast(part, dtype);
    const size_t bytes = type_of(same).bytes();
    std::memcpy(to, same.bytes(), bytes);
    to += bytes;
  }
  return all;
}

HTensor turned_over(const HTensor& matrix) {
  const int64_t rows = matrix.shape()[0], columns = matrix.shape()[1];
  const HTensor result = new_tensor(matrix.dtype(), Shape{columns, rows});
  const size_t size = element_type(matrix.dtype()).block_bytes;
  const auto* from = static_cast<const std::byte*>(static_cast<const void*>(matrix.bytes()));
  std::byte* to = bytes_of(result);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      std::memcpy(to + static_cast<size_t>(c * rows + r) * size, from + static_cast<size_t>(r * columns + c) * size,
                  size);
  return result;
}

// Reorders rows from [head][part][row] to [part][head][row], or back.
HTensor parts_first(const HTensor& tensor, int64_t heads, int64_t parts, bool back) {
  const HTensor result = new_tensor(tensor.dtype(), tensor.shape());
  const size_t block = type_of(tensor).bytes() / static_cast<size_t>(heads * parts);
  const auto* from = static_cast<const std::byte*>(static_cast<const void*>(tensor.bytes()));
  std::byte* to = bytes_of(result);
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t p = 0; p < parts; ++p) {
      const auto by_head = static_cast<size_t>(h * parts + p) * block,
                 by_part = static_cast<size_t>(p * heads + h) * block;
      std::memcpy(to + (back ? by_head : by_part), from + (back ? by_part : by_head), block);
    }
  return result;
}

// Converts block types to f32, because their elements cannot be moved individually.
HTensor plain(const HTensor& tensor) {
  return element_type(tensor.dtype()).block == 1 ? tensor : cast(tensor, DType::F32);
}

class Gather {
 public:
  Gather(const CompiledNdsl& model, const std::map<std::string, HTensor>& tensors) : model_(model), tensors_(tensors) {}

  HTensor value(const Mapped& mapped, const Source& source) const {
    switch (source.verb) {
      case Source::Verb::direct:
        return named(source.name);
      case Source::Verb::concat: {
        std::vector<HTensor> parts;
        for (const Source& part : source.parts) parts.push_back(value(mapped, part));
        return below(parts);
      }
      case Source::Verb::transpose:
        return turned_over(plain(value(mapped, source.parts.front())));
      case Source::Verb::split: {
        HTensor all = value(mapped, source.parts.front());
        if (source.by_head)
          return parts_first(plain(all), heads_of_alias(model_, *mapped.alias),
                             static_cast<int64_t>(mapped.alias->tensors.size()), false);
        const int64_t rows = all.shape()[0] / source.of;
        return rows_of(all, source.part * rows, rows);
      }
      case Source::Verb::tie:
      case Source::Verb::stack_experts:
        break;
    }
    throw Error(ErrorKind::Internal, "this verb has no value");
  }
  HTensor named(const std::string& name) const {
    if (const auto at = tensors_.find(name); at != tensors_.end()) return at->second;
    const std::string& prefix = model_.file.hf_prefix;
    if (!prefix.empty() && name.starts_with(prefix))
      if (const auto at = tensors_.find(name.substr(prefix.size())); at != tensors_.end()) return at->second;
    throw Error(ErrorKind::Weights, fmt::format("there is no tensor '{}'", name));
  }

 private:
  const CompiledNdsl& model_;
  const std::map<std::string, HTensor>& tensors_;
};

class Scatter {
 public:
  Scatter(const CompiledNdsl& model, std::map<std::string, HTensor>& to) : model_(model), to_(to) {}

  void put(const Mapped& mapped, const Source& source, const HTensor& value) {
    switch (source.verb) {
      case Source::Verb::direct:
        to_[source.name] = value;
        return;
      case Source::Verb::concat: {
        const std::vector<int64_t> rows = rows_of_parts(model_, *mapped.alias, source, value.shape()[0]);
        int64_t from = 0;
        for (size_t i = 0; i < rows.size(); ++i) {
          put(mapped, source.parts[i], rows_of(value, from, rows[i]));
          from += rows[i];
        }
        return;
      }
      case Source::Verb::transpose:
        return put(mapped, source.parts.front(), turned_over(plain(value)));
      case Source::Verb::split: {
        if (source.by_head)
          return put(mapped, source.parts.front(),
                     parts_first(plain(value), heads_of_alias(model_, *mapped.alias),
                                 static_cast<int64_t>(mapped.alias->tensors.size()), true));
        std::vector<HTensor>& pieces = pieces_[source.parts.front().name];
        pieces.resize(static_cast<size_t>(source.of));
        pieces[static_cast<size_t>(source.part)] = value;
        if (std::all_of(pieces.begin(), pieces.end(), [](const HTensor& piece) { return static_cast<bool>(piece); }))
          put(mapped, source.parts.front(), below(pieces));
        return;
      }
      case Source::Verb::tie:
      case Source::Verb::stack_experts:
        return;
    }
  }

 private:
  const CompiledNdsl& model_;
  std::map<std::string, HTensor>& to_;
  std::map<std::string, std::vector<HTensor>> pieces_;
};

// Returns whether the name matches a pattern, in which {i} and {e} stand for numbers.
bool matches(std::string_view pattern, std::string_view name) {
  while (!pattern.empty()) {
    if (pattern.starts_with("{i}") || pattern.starts_with("{e}")) {
      size_t digits = 0;
      while (digits < name.size() && name[digits] >= '0' && name[digits] <= '9') ++digits;
      if (digits == 0) return false;
      name.remove_prefix(digits);
      pattern.remove_prefix(3);
      continue;
    }
    if (name.empty() || name[0] != pattern[0]) return false;
    pattern.remove_prefix(1);
    name.remove_prefix(1);
  }
  return name.empty();
}

}  // namespace

namespace {

std::map<std::string, Shape> folder_tensors_and_faults(const CompiledNdsl& model, NdslFaults& faults) {
  std::map<std::string, Shape> all;
  for (const Mapped& mapped : mapped_of(model, faults)) {
    try {
      visit_shapes(model, mapped, mapped.source, shape_of_alias(model, *mapped.alias),
                   [&](const std::string& name, const Shape& shape) { all.emplace(name, shape); });
    } catch (const SourceErrors& e) {
      faults.add(mapped.source.place.source, e.errors().front());
    }
  }
  return all;
}

}  // namespace

std::map<std::string, Shape> folder_tensors(const CompiledNdsl& model) {
  NdslFaults faults;
  std::map<std::string, Shape> all = folder_tensors_and_faults(model, faults);
  faults.throw_any();
  return all;
}

void check_mapping(const CompiledNdsl& model, NdslFaults& faults) {
  if (!model.file.hf_mapping.empty()) (void)folder_tensors_and_faults(model, faults);
}

namespace {

// Returns the module whose "weight" this source is, possibly transposed, or "".
std::string module_of_source(const Source& source) {
  constexpr std::string_view kWeight = ".weight";
  const bool inner = source.verb == Source::Verb::transpose;
  const Source& named = inner ? source.parts.front() : source;
  const bool is_name = named.verb == Source::Verb::direct || named.verb == Source::Verb::stack_experts;
  if (!is_name || !named.name.ends_with(kWeight)) return "";
  return named.name.substr(0, named.name.size() - kWeight.size());
}

}  // namespace

std::map<std::string, WeightModule> modules_of(const CompiledNdsl& model) {
  std::map<std::string, WeightModule> all;
  const auto add = [&](const std::string& tensor, WeightModule module) {
    const NdslTensor& own = *model.find(tensor);
    if (!module.name.empty() && own.shape.rank() == (own.experts ? 3U : 2U)) all.emplace(tensor, std::move(module));
  };
  if (model.file.hf_mapping.empty()) return all;
  for (const Mapped& mapped : mapped_of(model)) {
    const NdslAlias& alias = *mapped.alias;
    const Source& source = mapped.source;
    const std::vector<int64_t> rows = rows_of_alias(model, alias);
    if (source.verb == Source::Verb::concat && source.parts.size() == rows.size()) {
      for (size_t i = 0; i < rows.size(); ++i) add(alias.tensors[i], {module_of_source(source.parts[i]), 0, rows[i]});
      continue;
    }
    if (source.verb == Source::Verb::stack_experts) {
      add(alias.tensors.front(), {module_of_source(source), 0, model.find(alias.tensors.front())->shape[1]});
      continue;
    }
    const bool part = source.verb == Source::Verb::split;
    int64_t sum = 0;
    for (const int64_t one : rows) sum += one;
    // With by_head, the parts of each head are the tensors of the alias.
    const bool by_head = part && source.by_head;
    int64_t from = part && !by_head ? source.part * sum : 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      add(alias.tensors[i], {module_of_source(part ? source.parts.front() : source), from,
                             part && !by_head ? sum * source.of : sum, by_head ? heads_of_alias(model, alias) : 0});
      from += rows[i];
    }
  }
  return all;
}

NdslMisfits misfits_of(const CompiledNdsl& model, const std::map<std::string, Shape>& have, bool known_shapes) {
  NdslMisfits misfits;
  const std::string& prefix = model.file.hf_prefix;
  std::set<std::string> used;
  for (const auto& [name, shape] : folder_tensors(model)) {
    auto at = have.find(name);
    if (at == have.end() && !prefix.empty() && name.starts_with(prefix)) at = have.find(name.substr(prefix.size()));
    if (at == have.end()) {
      misfits.missing.push_back(name);
      continue;
    }
    used.insert(at->first);
    if (known_shapes && at->second != shape)
      misfits.misshapen.push_back(fmt::format("{} is {} and must be {}", name, at->second.str(), shape.str()));
  }
  std::vector<std::string> ignored = model.file.hf_ignored;
  if (model.tied)
    for (const ndsl::Mapping& mapping : model.file.hf_mapping)
      if (mapping.tensor.text == "lm_head.weight")
        ignored.push_back(mapping.source.verb == Source::Verb::direct ? mapping.source.name : "lm_head.weight");
  for (const auto& entry : have) {
    const std::string& name = entry.first;  // not a structured binding: clang 14 cannot capture those
    const bool known = std::any_of(ignored.begin(), ignored.end(), [&](const std::string& pattern) {
      return matches(pattern, name) ||
             (!prefix.empty() && pattern.starts_with(prefix) && matches(pattern.substr(prefix.size()), name));
    });
    if (!used.count(name) && !known) misfits.surplus.push_back(name);
  }
  return misfits;
}

std::map<std::string, HTensor> import_mapped(const CompiledNdsl& model, const std::map<std::string, HTensor>& tensors,
                                             const std::string& folder) {
  std::map<std::string, Shape> have;
  for (const auto& [name, tensor] : tensors) have.emplace(name, tensor.shape());
  const NdslMisfits misfits = misfits_of(model, have);
  if (misfits.any()) {
    Error error(ErrorKind::Weights, fmt::format("the weights in '{}' are not those of '{}'", folder, model.file.path));
    if (!misfits.missing.empty()) error.note("note: missing: " + named_all(misfits.missing));
    if (!misfits.misshapen.empty()) error.note("note: of another shape: " + named_all(misfits.misshapen));
    if (!misfits.surplus.empty())
      error.note("note: not used: " + named_all(misfits.surplus) +
                 "; list tensors that change no result under hf_ignored");
    throw error;
  }
  std::map<std::string, HTensor> result;
  const Gather gather(model, tensors);
  for (const Mapped& mapped : mapped_of(model)) {
    const NdslAlias& alias = *mapped.alias;
    const Source& source = mapped.source;
    const int64_t experts = model.find(alias.tensors.front())->experts;
    if (source.verb == Source::Verb::stack_experts) {
      for (int64_t e = 0; e < experts; ++e)
        result[expert_name(alias.tensors.front(), e)] = gather.named(of_expert(source.name, e));
      continue;
    }
    if (source.verb == Source::Verb::concat && source.parts.size() == alias.tensors.size()) {
      for (size_t i = 0; i < source.parts.size(); ++i) result[alias.tensors[i]] = gather.value(mapped, source.parts[i]);
      continue;
    }
    const HTensor all = gather.value(mapped, source);
    if (experts > 0) {
      for (int64_t e = 0; e < experts; ++e) {
        const HTensor row = rows_of(all, e, 1);
        result[expert_name(alias.tensors.front(), e)] =
            make_value({row.dtype(), all.shape().from(1)}, row.raw()->storage);
      }
      continue;
    }
    int64_t from = 0;
    for (const std::string& name : alias.tensors) {
      const int64_t rows = model.find(name)->shape[0];
      result[name] = rows_of(all, from, rows);
      from += rows;
    }
  }
  return result;
}

std::map<std::string, HTensor> export_mapped(const CompiledNdsl& model, const std::map<std::string, HTensor>& tensors) {
  std::map<std::string, HTensor> result;
  Scatter scatter(model, result);
  for (const Mapped& mapped : mapped_of(model)) {
    const NdslAlias& alias = *mapped.alias;
    const NdslTensor& first = *model.find(alias.tensors.front());
    std::vector<HTensor> parts;
    if (first.experts > 0) {
      for (int64_t e = 0; e < first.experts; ++e) {
        const HTensor& one = tensors.at(expert_name(first.name, e));
        if (mapped.source.verb == Source::Verb::stack_experts) {
          result[of_expert(mapped.source.name, e)] = one;
          continue;
        }
        std::vector<int64_t> dims = one.shape().vector();
        dims.insert(dims.begin(), 1);
        parts.push_back(make_value({one.dtype(), Shape(dims)}, one.raw()->storage));
      }
      if (parts.empty()) continue;
    } else {
      for (const std::string& name : alias.tensors) parts.push_back(tensors.at(name));
    }
    scatter.put(mapped, mapped.source, below(parts));
  }
  return result;
}

}  // namespace harmonics::engine
