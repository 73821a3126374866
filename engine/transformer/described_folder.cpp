// Writes described models as Hugging Face folders.
#include <algorithm>
#include <filesystem>
#include <functional>

#include <boost/json.hpp>
#include <fmt/core.h>

#include <harmonics/element_type.hpp>
#include <harmonics/ops.hpp>

#include "dsl/ndsl/print.hpp"
#include "engine/base/file_group.hpp"
#include "engine/base/read_file.hpp"
#include "engine/model/folder_weights.hpp"
#include "engine/model/safetensors.hpp"
#include "engine/transformer/described.hpp"
#include "engine/transformer/ndsl_mapping.hpp"
#include "engine/transformer/resolved_spec.hpp"
#include "formats/exact_json.hpp"
#include "formats/safetensors.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine {

namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr uint64_t kLargestTokenizerFile = uint64_t{256} << 20;
constexpr const char* kTokenizerFiles[] = {"tokenizer.json",
                                           "tokenizer_config.json",
                                           "special_tokens_map.json",
                                           "vocab.json",
                                           "merges.txt",
                                           "vocab.txt",
                                           "tokenizer.model",
                                           "added_tokens.json",
                                           "chat_template.jinja",
                                           "generation_config.json"};

uint64_t bytes_of(const HTensor& tensor) { return type_of(tensor).bytes(); }

HTensor as_written(const HTensor& tensor) { return is_stored(tensor.dtype()) ? cast(tensor, DType::F32) : tensor; }

// Returns every tensor of the model, with separate experts.
std::map<std::string, HTensor> single_tensors(const CompiledNdsl& compiled,
                                              const std::map<std::string, HTensor>& tensors) {
  std::map<std::string, HTensor> all;
  const auto found = [&](const std::string& name) -> const HTensor& {
    const auto at = tensors.find(name);
    if (at == tensors.end())
      throw Error(ErrorKind::Weights, fmt::format("'{}' lacks the tensor '{}'", compiled.file.path, name));
    return at->second;
  };
  for (const NdslTensor& tensor : compiled.tensors) {
    const bool stacked = tensor.experts > 0 && tensors.count(tensor.name);
    if (tensor.experts == 0) all[tensor.name] = as_written(found(tensor.name));
    for (int64_t e = 0; e < tensor.experts; ++e) {
      const std::string name = expert_name(tensor.name, e);
      if (!stacked) {
        all[name] = as_written(found(name));
        continue;
      }
      const HTensor& whole = found(tensor.name);
      const TensorType one{whole.dtype(), whole.shape().from(1)};
      auto* at = static_cast<std::byte*>(whole.raw()->storage->data()) + static_cast<size_t>(e) * one.bytes();
      all[name] = as_written(make_value(one, std::make_shared<Storage>(at, one.bytes(), whole.raw()->storage, false)));
    }
  }
  return all;
}

TensorFile file_of(std::map<std::string, HTensor> tensors) {
  TensorFile file;
  file.metadata["format"] = "pt";
  file.tensors = std::move(tensors);
  return file;
}

// Adds the weights as one file, or as several of at most `shard_bytes` with an index. Marks obsolete files of the
// folder for removal. Returns the number of bytes.
uint64_t add_weights(const std::map<std::string, HTensor>& tensors, const fs::path& folder, uint64_t shard_bytes,
                     FileGroup& group) {
  std::vector<std::pair<std::string, uint64_t>> all;
  uint64_t total = 0;
  for (const auto& [name, tensor] : tensors) {
    all.emplace_back(name, bytes_of(tensor));
    total += all.back().second;
  }
  json::object map;
  const std::vector<SafetensorsShard> shards = safetensors_shards(all, shard_bytes);
  std::vector<std::string> written;
  for (const SafetensorsShard& shard : shards) {
    std::map<std::string, HTensor> held;
    for (const std::string& name : shard.tensors) {
      map[name] = shard.file;
      held.emplace(name, tensors.at(name));
    }
    append_safetensors(file_of(std::move(held)), group.add((folder / shard.file).string()));
    written.push_back(shard.file);
  }
  if (shards.size() > 1) written.emplace_back(kFolderIndex);
  for (const std::string& former : former_weights(folder.string(), written)) group.remove(former);
  if (shards.size() == 1) return total;
  const json::object index{{"metadata", json::object{{"total_size", total}}}, {"weight_map", std::move(map)}};
  group.add((folder / kFolderIndex).string()).append(json::serialize(index) + "\n");
  return total;
}

std::string type_of_matrices(const std::map<std::string, HTensor>& tensors) {
  DType dtype = DType::F32;
  bool first = true;
  for (const auto& [name, tensor] : tensors) {
    if (tensor.rank() < 2) continue;
    if (!first && tensor.dtype() != dtype) return "float32";
    dtype = tensor.dtype(), first = false;
  }
  return dtype == DType::F16 ? "float16" : dtype == DType::BF16 ? "bfloat16" : "float32";
}

std::string configuration(const CompiledNdsl& compiled, const NdslFolder& to,
                          const std::map<std::string, HTensor>& tensors) {
  json::object config = parse_json(folder_configuration(compiled)).as_object();
  if (!config.contains("model_type")) config["model_type"] = kDescribedArchitecture;
  config["torch_dtype"] = type_of_matrices(tensors);
  config["model_dsl"] = kDescriptionFile;
  if (compiled.hf_config.kind != document::Kind::map) {
    config["pad_token_id"] = nullptr;  // otherwise the class's default ids would apply
    config["bos_token_id"] = to.begin ? json::value(*to.begin) : json::value(nullptr);
    config["eos_token_id"] = to.end ? json::value(*to.end) : json::value(nullptr);
  }
  return plain_numbers(json::serialize(config)) + "\n";
}

// Calls `take` with the destination path and the contents of each tokenizer file.
void visit_tokenizer_files(const std::string& tokenizer, const std::string& to,
                           const std::function<void(const std::string&, const std::string&)>& take) {
  std::error_code failed;
  if (tokenizer.empty()) return;
  const fs::path given = tokenizer;
  const bool folder = fs::is_directory(given, failed);
  if (!folder && given.filename() != kTokenizerFiles[0])  // under another name
    return take((fs::path(to) / kTokenizerFiles[0]).string(), read_file(tokenizer, kLargestTokenizerFile));
  const fs::path from = folder ? given : given.parent_path();
  if (fs::equivalent(from.empty() ? "." : from, to, failed)) return;
  for (const char* name : kTokenizerFiles)
    if (fs::is_regular_file(from / name, failed))
      take((fs::path(to) / name).string(), read_file((from / name).string(), kLargestTokenizerFile));
}

}  // namespace

void copy_tokenizer_files(const std::string& tokenizer, const std::string& to) {
  visit_tokenizer_files(tokenizer, to, [](const std::string& path, const std::string& bytes) {
    write_file_atomically(path, std::string_view(bytes));
  });
}

uint64_t write_ndsl_folder(const CompiledNdsl& compiled, const std::map<std::string, HTensor>& tensors,
                           const NdslFolder& to, const std::function<void()>& written) {
  const fs::path folder = to.path;
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed || !fs::is_directory(folder))
    throw Error(ErrorKind::Output, fmt::format("the folder '{}' cannot be made: {}", to.path, failed.message()), {},
                {"name another folder"});
  const auto mapped = export_mapped(compiled, single_tensors(compiled, tensors));
  FileGroup group((folder / kFolderFile).string());
  const uint64_t bytes = add_weights(mapped, folder, to.shard_bytes, group);
  visit_tokenizer_files(to.tokenizer, to.path,
                        [&](const std::string& path, const std::string& content) { group.add(path).append(content); });
  group.add((folder / kDescriptionFile).string()).append(ndsl::printed_model(whole_description(compiled)));
  group.leading().append(configuration(compiled, to, mapped));
  if (written) written();
  group.finish();
  return bytes;
}

}  // namespace harmonics::engine
