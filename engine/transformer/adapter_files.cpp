// Writes trained adapters: PEFT folders and GGUF files.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include <boost/json.hpp>
#include <fmt/core.h>

#include <harmonics/ops.hpp>

#include "engine/base/file_group.hpp"
#include "engine/model/exported.hpp"
#include "engine/model/safetensors.hpp"
#include "engine/transformer/architectures.hpp"
#include "engine/transformer/trained_adapter.hpp"

namespace harmonics::engine {

namespace json = boost::json;

namespace {

// All pairs of one weight or module combined into one, with matrices for all its rows.
struct WholePair {
  const TrainedPair* first;
  int64_t rank = 0;
  double factor = 1;
  HTensor a, b, magnitude;  // see TrainedPair
};

// The matrix that the rows of a pair belong to: the module in PEFT files, the weight in GGUF files.
struct RowPlace {
  bool by_module;
  const std::string& name(const TrainedPair& pair) const { return by_module ? pair.module.name : pair.key; }
  int64_t whole(const TrainedPair& pair) const { return by_module ? pair.module.rows : pair.whole; }
  int64_t of(const TrainedPair& pair, int64_t row) const {
    return by_module ? pair.module.place_of(pair.from + row, pair.whole) : pair.from + row;
  }
};

HTensor zero_rows(const Shape& shape) {
  HTensor all(DType::F32, shape);
  std::fill_n(all.mutable_data<float>(), all.size(), 0.0f);
  return all;
}

WholePair whole_pair(const std::vector<const TrainedPair*>& pairs, const ParameterValue& value, const RowPlace& place) {
  const TrainedPair& first = *pairs.front();
  WholePair all{&first, 0, first.factor, {}, {}, {}};
  const bool reorders = place.by_module && first.module.heads > 0;
  if (pairs.size() == 1 && (first.looked_up || (first.rows == place.whole(first) && !reorders))) {
    all.rank = first.rank;
    all.a = value(first.a), all.b = value(first.b);
    if (!first.magnitude.empty()) all.magnitude = value(first.magnitude);
    return all;
  }
  std::vector<HTensor> rows;
  int64_t covered = 0, column = 0;
  for (const TrainedPair* pair : pairs) {
    all.rank += pair->rank;
    covered += pair->rows;
    rows.push_back(value(pair->a));
  }
  const int64_t whole = place.whole(first);
  if (!first.magnitude.empty() && covered != whole)
    throw Error(ErrorKind::Usage,
                fmt::format("DoRA of some rows of '{}' cannot be written: PEFT has magnitudes for all rows",
                            place.name(first)));
  all.a = concat(rows, 0);
  // B is block-structured: each pair's rows are non-zero only in that pair's columns.
  all.b = zero_rows({whole, all.rank});
  if (!first.magnitude.empty()) all.magnitude = zero_rows({whole});
  auto* to = all.b.mutable_data<float>();
  for (const TrainedPair* pair : pairs) {
    const HTensor b = value(pair->b), lengths = all.magnitude ? value(pair->magnitude) : HTensor();
    for (int64_t r = 0; r < pair->rows; ++r) {
      const int64_t at = place.of(*pair, r);
      std::copy_n(b.data<float>() + r * pair->rank, pair->rank, to + at * all.rank + column);
      if (lengths) all.magnitude.mutable_data<float>()[at] = lengths.data<float>()[r];
    }
    column += pair->rank;
  }
  return all;
}

std::vector<WholePair> whole_pairs(const TrainedAdapter& adapter, const ParameterValue& value, const RowPlace& place) {
  std::vector<std::string> order;
  std::map<std::string, std::vector<const TrainedPair*>> by_name;
  for (const TrainedPair& pair : adapter.pairs) {
    if (!by_name.count(place.name(pair))) order.push_back(place.name(pair));
    by_name[place.name(pair)].push_back(&pair);
  }
  std::vector<WholePair> all;
  for (const std::string& name : order) {
    std::vector<const TrainedPair*>& pairs = by_name.at(name);
    std::sort(pairs.begin(), pairs.end(),
              [&](const auto* l, const auto* r) { return place.of(*l, 0) < place.of(*r, 0); });
    all.push_back(whole_pair(pairs, value, place));
  }
  return all;
}

// Reorders rows from adjacent rotary pairs to pairs (i, i + width/2) within each head.
HTensor halves(const HTensor& rows, int64_t width) {
  if (width == 0) return rows;
  const int64_t count = rows.shape()[0], each = rows.size() / count;
  HTensor all(DType::F32, rows.shape());
  const float* from = rows.data<float>();
  float* to = all.mutable_data<float>();
  for (int64_t r = 0; r < count; ++r) {
    const int64_t head = r / width, place = r % width;
    const int64_t target = head * width + (place % 2) * (width / 2) + place / 2;
    std::copy_n(from + r * each, each, to + target * each);
  }
  return all;
}

// Replaces "{e}" in a module's name by the expert's number.
std::string named_of_expert(std::string module, int64_t number) {
  const size_t at = module.find("{e}");
  return at == std::string::npos ? module : module.replace(at, 3, std::to_string(number));
}

// Returns the last part of a module's name, as PEFT writes it: "q_proj".
std::string ending_of(const std::string& module) {
  const std::string last = module.substr(module.rfind('.') + 1);
  // "gate" and "dense" are ambiguous.
  if (last != "gate" && last != "dense") return last;
  const size_t dot = module.rfind('.', module.size() - last.size() - 2);
  return dot == std::string::npos ? module : module.substr(dot + 1);
}

json::object config_of(const TrainedAdapter& adapter, const std::vector<WholePair>& pairs) {
  const LoraSettings& settings = adapter.settings;
  const auto alpha_of = [&](const WholePair& pair) {
    const auto rank = static_cast<double>(pair.rank);
    return pair.factor * (settings.rslora ? std::sqrt(rank) : rank);
  };
  const bool given = settings.from.empty() && pairs.front().rank == settings.rank;
  const int64_t rank = given ? settings.rank : pairs.front().rank;
  const double alpha = given ? settings.alpha : alpha_of(pairs.front());
  std::set<std::string> endings;
  json::object ranks, alphas;
  bool dora = false;
  for (const WholePair& pair : pairs) {
    endings.insert(ending_of(pair.first->module.name));
    for (int64_t e = 0; e < std::max<int64_t>(1, pair.first->experts); ++e) {
      const std::string module = named_of_expert(pair.first->module.name, e);
      if (pair.rank != rank) ranks[module] = pair.rank;
      if (std::abs(alpha_of(pair) - alpha) > 1e-9 * alpha) alphas[module] = alpha_of(pair);
    }
    dora |= bool(pair.magnitude);
  }
  json::array targets;
  for (const std::string& ending : endings) targets.emplace_back(ending);
  const bool whole = alpha == std::floor(alpha) && alpha < 1e9;
  return json::object{{"peft_type", "LORA"},
                      {"task_type", "CAUSAL_LM"},
                      {"base_model_name_or_path", adapter.base},
                      {"inference_mode", true},
                      {"r", rank},
                      {"lora_alpha", whole ? json::value(static_cast<int64_t>(alpha)) : json::value(alpha)},
                      {"lora_dropout", settings.dropout},
                      {"target_modules", std::move(targets)},
                      {"rank_pattern", std::move(ranks)},
                      {"alpha_pattern", std::move(alphas)},
                      {"use_rslora", settings.rslora},
                      {"use_dora", dora},
                      {"bias", "none"},
                      {"fan_in_fan_out", false},
                      {"init_lora_weights", true},
                      {"modules_to_save", nullptr}};
}

std::string lines_of(const json::object& fields) {
  std::string text = "{\n";
  size_t left = fields.size();
  for (const auto& [name, value] : fields)
    text += fmt::format("  {}: {}{}\n", json::serialize(json::value(name)), json::serialize(value), --left ? "," : "");
  return text + "}\n";
}

}  // namespace

void write_peft_adapter(const TrainedAdapter& adapter, const ParameterValue& value, const std::string& folder) {
  const std::vector<WholePair> pairs = whole_pairs(adapter, value, {true});
  if (const int failed = make_directories(folder))
    throw Error(ErrorKind::Output, fmt::format("'{}' cannot be made: {}", folder, std::strerror(failed)));
  TensorFile file;
  file.metadata["format"] = "pt";
  for (const WholePair& pair : pairs) {
    const std::string module = "base_model.model." + pair.first->module.name;
    const int64_t width = pair.first->paired_width;
    for (int64_t e = 0; e < pair.first->experts; ++e) {
      const std::string own = named_of_expert(module, e);
      file.tensors[own + ".lora_A.weight"] = expert_of(pair.a, e);
      file.tensors[own + ".lora_B.weight"] = expert_of(pair.b, e);
    }
    if (pair.first->experts) continue;
    if (pair.first->looked_up) {
      file.tensors[module + ".lora_embedding_A"] = transpose(pair.a, {1, 0});
      file.tensors[module + ".lora_embedding_B"] = pair.b;
      continue;
    }
    file.tensors[module + ".lora_A.weight"] = pair.a;
    file.tensors[module + ".lora_B.weight"] = halves(pair.b, width);
    if (pair.magnitude) file.tensors[module + ".lora_magnitude_vector"] = halves(pair.magnitude, width);
  }
  const std::string into = folder + (folder.ends_with('/') ? "" : "/");
  FileGroup group(into + "adapter_config.json");
  append_safetensors(file, group.add(into + "adapter_model.safetensors"));
  group.leading().append(lines_of(config_of(adapter, pairs)));
  group.finish();
}

void write_gguf_adapter(const TrainedAdapter& adapter, const ParameterValue& value, const std::string& path,
                        Registry& registry) {
  const std::vector<WholePair> pairs = whole_pairs(adapter, value, {false});
  std::map<std::string, HTensor> tensors;
  // GGUF has one alpha for all pairs. If the pairs' alphas differ, their factors are multiplied into B.
  const auto alpha_of = [](const WholePair& pair) { return pair.factor * static_cast<double>(pair.rank); };
  const double alpha = alpha_of(pairs.front());
  const bool equal = std::all_of(pairs.begin(), pairs.end(), [&](const WholePair& pair) {
    return std::abs(alpha_of(pair) - alpha) <= 1e-6 * alpha;
  });
  for (const WholePair& pair : pairs) {
    if (pair.magnitude)
      throw Error(ErrorKind::Usage, "GGUF does not support DoRA adapters", {},
                  {"write a PEFT folder, or merge the adapter: harmonics export MODEL OUTPUT --lora FOLDER"});
    tensors[pair.first->key + ".lora_a"] = pair.a;
    tensors[pair.first->key + ".lora_b"] = equal ? pair.b : pair.b * pair.factor;
  }
  AttributeMap metadata;
  metadata.set("general.type", std::string("adapter"))
      .set("general.architecture", adapter.architecture)
      .set("adapter.type", std::string("lora"))
      .set("adapter.lora.alpha", equal ? alpha : 0.0);
  export_model(tensors, metadata, path, registry, {"gguf", {}});
}

void write_adapter(const TrainedAdapter& adapter, const ParameterValue& value, const std::string& path,
                   Registry& registry) {
  if (path.ends_with(".gguf"))
    write_gguf_adapter(adapter, value, path, registry);
  else
    write_peft_adapter(adapter, value, path);
}

}  // namespace harmonics::engine
