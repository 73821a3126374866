#include "engine/transformer/added_tokens.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>

#include <boost/json.hpp>
#include <fmt/core.h>

#include <harmonics/ops.hpp>

#include "engine/base/file.hpp"
#include "engine/base/read_file.hpp"
#include "engine/base/spelling.hpp"
#include "engine/model/imported.hpp"
#include "engine/model/safetensors.hpp"
#include "engine/transformer/ndsl_model.hpp"
#include "formats/exact_json.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine {

namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr size_t kLargestTokenizer = size_t{256} << 20;
constexpr size_t kMostAdded = 65536;
constexpr int64_t kLargestId = (int64_t{1} << 31) - 2;
constexpr const char* kTokenizer = "tokenizer.json";

// Name endings of tables with a row per token, in folders of known models and of .ndsl models.
constexpr const char* kTables[] = {
    "embed_tokens.weight",   "wte.weight",        "embed_in.weight", "word_embeddings.weight",
    "tok_embeddings.weight", "token_embd.weight", "lm_head.weight",  "lm_head.bias",
    "embed_out.weight",      "output.weight",     "output.bias",     "predictions.bias",
    "decoder.weight",        "decoder.bias"};

json::value parsed(std::string_view text, const std::string& name) {
  json::error_code failed;
  json::value value = parse_json(text, failed);
  if (failed || !value.is_object())
    throw Error(ErrorKind::Weights, fmt::format("'{}' is not a JSON object: {}", name,
                                                failed ? failed.message() : std::string("another value")));
  return value;
}

json::value read_object(const fs::path& path) {
  return parsed(read_file(path.string(), kLargestTokenizer), path.string());
}

void write_object(const fs::path& path, const json::value& value) {
  write_file_atomically(path.string(), plain_numbers(json::serialize(value)) + "\n");
}

int64_t id_in(const json::value& value, const std::string& name) {
  if (!value.is_int64() || value.as_int64() < 0 || value.as_int64() > kLargestId)
    throw Error(ErrorKind::Weights, fmt::format("'{}' has a token with the id {}", name, json::serialize(value)));
  return value.as_int64();
}

// The tokens of a tokenizer.json, and the next unused id.
struct KnownTokens {
  std::map<std::string, int64_t> ids;
  int64_t next = 0;

  KnownTokens(const json::object& file, const std::string& name) {
    const json::value* model = file.if_contains("model");
    const json::value* vocab = model && model->is_object() ? model->as_object().if_contains("vocab") : nullptr;
    if (!vocab || !(vocab->is_object() || vocab->is_array()))
      throw Error(ErrorKind::Weights, fmt::format("'{}' has no vocabulary", name));
    if (vocab->is_object())
      for (const auto& entry : vocab->as_object()) take(std::string(entry.key()), id_in(entry.value(), name));
    else
      next = static_cast<int64_t>(vocab->as_array().size());  // unigram models: pairs of text and score
    const json::value* added = file.if_contains("added_tokens");
    if (!added) return;
    if (!added->is_array()) throw Error(ErrorKind::Weights, fmt::format("'{}' has no list as 'added_tokens'", name));
    for (const json::value& token : added->as_array()) {
      const json::object* one = token.if_object();
      const json::value *id = one ? one->if_contains("id") : nullptr,
                        *text = one ? one->if_contains("content") : nullptr;
      if (!id || !text || !text->is_string())
        throw Error(ErrorKind::Weights, fmt::format("'{}' has an added token without 'id' and 'content'", name));
      take(std::string(text->as_string()), id_in(*id, name));
    }
  }
  void take(std::string text, int64_t id) {
    next = std::max(next, id + 1);
    ids.emplace(std::move(text), id);
  }
};

struct ExtendedTokenizer {
  std::string text;                                    // the new tokenizer.json
  int64_t known = 0;                                   // first unused id before the extension
  std::vector<std::pair<std::string, int64_t>> added;  // new texts and their ids
  std::map<std::string, int64_t> ids;                  // all tokens, including new ones
  std::set<std::string> old;                           // requested texts that were tokens before
};

void expect_text(const std::string& token) {
  if (token.empty())
    throw Error(ErrorKind::Usage, "a special token that is added has no text", {}, {"give one, such as '<|im_end|>'"});
}

ExtendedTokenizer extended_tokenizer(std::string_view text, const std::vector<std::string>& texts,
                                     const std::string& name) {
  if (texts.size() > kMostAdded)
    throw Error(ErrorKind::Usage,
                fmt::format("{} special tokens are added; the maximum is {}", texts.size(), kMostAdded));
  json::value file = parsed(text, name);
  KnownTokens known(file.as_object(), name);
  ExtendedTokenizer result;
  result.known = known.next;
  json::value& list = file.as_object()["added_tokens"];
  if (!list.is_array()) list = json::array();
  for (const std::string& one : texts) {
    expect_text(one);
    if (const auto at = known.ids.find(one); at != known.ids.end()) {
      if (at->second < result.known) result.old.insert(one);
      continue;
    }
    if (known.next > kLargestId) throw Error(ErrorKind::Weights, fmt::format("'{}' has no room for a token", name));
    const int64_t id = known.next;
    known.take(one, id);
    result.added.emplace_back(one, id);
    list.as_array().push_back(json::object{{"id", id},
                                           {"content", one},
                                           {"single_word", false},
                                           {"lstrip", false},
                                           {"rstrip", false},
                                           {"normalized", false},
                                           {"special", true}});
  }
  result.text = plain_numbers(json::serialize(file)) + "\n";
  result.ids = std::move(known.ids);
  return result;
}

// Resizes a table to `rows` rows. Keeps rows before `first_new`; sets the others to the mean of the first `known` rows.
HTensor resized_table(const HTensor& table, int64_t known, int64_t first_new, int64_t rows) {
  const Shape shape = table.shape();
  const int64_t width = table.size() / std::max<int64_t>(shape[0], 1);
  const HTensor wide = cast(table, DType::F32);
  std::vector<double> sum(static_cast<size_t>(width), 0);
  const float* values = wide.data<float>();
  for (int64_t row = 0; row < known; ++row)
    for (int64_t i = 0; i < width; ++i) sum[static_cast<size_t>(i)] += values[row * width + i];
  HTensor mean(DType::F32, Shape{width});
  for (int64_t i = 0; i < width; ++i)
    mean.mutable_data<float>()[i] = static_cast<float>(sum[static_cast<size_t>(i)] / static_cast<double>(known));
  const HTensor as_stored = cast(mean, table.dtype());
  std::vector<int64_t> dims = shape.vector();
  dims[0] = rows;
  const size_t bytes = TensorType{table.dtype(), Shape{width}}.bytes();  // per row
  const int64_t kept = std::min(first_new, shape[0]);
  std::vector<std::byte> all(static_cast<size_t>(rows) * bytes);
  std::memcpy(all.data(), table.bytes(), static_cast<size_t>(kept) * bytes);
  for (int64_t row = kept; row < rows; ++row)
    std::memcpy(all.data() + static_cast<size_t>(row) * bytes, as_stored.bytes(), bytes);
  return {table.dtype(), Shape(dims), all.data()};
}

bool is_table(const std::string& name) {
  return std::any_of(std::begin(kTables), std::end(kTables), [&](const char* table) { return name.ends_with(table); });
}

// Resizes the tables in the files of a folder. `known`, `first_new`: see resized_table(). Adds their names to `rows`.
void resize_tables(const fs::path& folder, int64_t known, int64_t first_new, AddedRows& rows) {
  std::error_code failed;
  const fs::path index = folder / kFolderIndex;
  std::vector<std::string> files{kFolderWeights};
  if (fs::exists(index, failed)) files = shards_of_index(index.string());
  int64_t more = 0;  // bytes
  for (const std::string& name : files) {
    const std::string path = (folder / name).string();
    TensorFile file = read_safetensors(path);
    bool changed = false;
    for (auto& [tensor, value] : file.tensors) {
      if (!is_table(tensor) || value.rank() == 0 || value.rank() > 2 || value.shape()[0] != rows.before) continue;
      const auto before = static_cast<int64_t>(type_of(value).bytes());
      value = resized_table(value, known, first_new, rows.after);
      more += static_cast<int64_t>(type_of(value).bytes()) - before;
      rows.resized.push_back(tensor);
      changed = true;
    }
    if (changed) save_safetensors(file, path);
  }
  if (rows.resized.empty())
    throw Error(ErrorKind::Weights,
                fmt::format("'{}' has no table of {} rows, one for each token", folder.string(), rows.before))
        .note("vocab_size in config.json says how many rows it has");
  if (!fs::exists(index, failed) || more == 0) return;
  json::value whole = read_object(index);
  if (json::value* about = whole.as_object().if_contains("metadata"); about && about->is_object())
    if (json::value* total = about->as_object().if_contains("total_size"); total && total->is_int64())
      *total = total->as_int64() + more;
  write_object(index, whole);
}

// Returns the object that contains vocab_size: in models with images, a part of the configuration.
json::object& sized_part(json::object& config, const std::string& folder) {
  if (config.contains("vocab_size")) return config;
  for (const char* part : {"text_config", "llm_config"})
    if (json::value* inner = config.if_contains(part);
        inner && inner->is_object() && inner->as_object().contains("vocab_size"))
      return inner->as_object();
  throw Error(ErrorKind::Weights, fmt::format("config.json in '{}' has no vocab_size", folder));
}

// Updates the files that list special tokens by text.
void name_tokens(const fs::path& folder, const AddedTokens& tokens, const AddedRows& rows) {
  std::error_code failed;
  const fs::path config = folder / "tokenizer_config.json", map = folder / "special_tokens_map.json";
  json::value about = fs::exists(config, failed) ? read_object(config) : json::value(json::object());
  if (json::value* decoder = about.as_object().if_contains("added_tokens_decoder"); decoder && decoder->is_object())
    for (const auto& [text, id] : rows.tokens)
      decoder->as_object()[std::to_string(id)] =
          json::object{{"content", text}, {"lstrip", false},      {"normalized", false},
                       {"rstrip", false}, {"single_word", false}, {"special", true}};
  for (const auto& [role, text] : tokens.roles) about.as_object()[role] = text;
  if (!about.as_object().empty()) write_object(config, about);
  if (!fs::exists(map, failed)) return;
  json::value all = read_object(map);
  for (const auto& [role, text] : tokens.roles) all.as_object()[role] = text;
  write_object(map, all);
}

void put_roles(json::object& config, const AddedTokens& tokens, const std::map<std::string, int64_t>& ids) {
  for (const auto& [role, text] : tokens.roles) config[role + "_id"] = ids.at(text);
}

}  // namespace

const std::vector<std::string>& token_roles() {
  static const std::vector<std::string> roles{"bos_token", "eos_token", "pad_token", "unk_token"};
  return roles;
}

AddedTokens added_tokens_of(const std::vector<std::string>& given) {
  AddedTokens tokens;
  for (const std::string& text : given) {
    const size_t equals = text.find('=');
    const std::string role = text.substr(0, equals == std::string::npos ? 0 : equals);
    if (std::find(token_roles().begin(), token_roles().end(), role) != token_roles().end())
      tokens.roles[role] = text.substr(equals + 1);
    else if (const std::string meant = did_you_mean(role, token_roles()); !meant.empty())
      throw Error(ErrorKind::Usage, fmt::format("a token has no role {}", shown_name(role)), {}, {meant});
    else
      tokens.texts.push_back(text);
  }
  for (const std::string& text : tokens.texts) expect_text(text);
  for (const auto& [role, text] : tokens.roles) expect_text(text);
  return tokens;
}

std::string with_added_tokens(std::string_view text, const std::vector<std::string>& texts, const std::string& name,
                              std::vector<std::pair<std::string, int64_t>>* added) {
  ExtendedTokenizer tokenizer = extended_tokenizer(text, texts, name);
  if (added) added->insert(added->end(), tokenizer.added.begin(), tokenizer.added.end());
  return std::move(tokenizer.text);
}

AddedRows add_special_tokens(const std::string& folder, const AddedTokens& tokens) {
  const fs::path in = folder;
  std::error_code failed;
  const fs::path file = in / kTokenizer;
  if (!fs::is_regular_file(file, failed))
    throw Error(ErrorKind::Weights, fmt::format("'{}' has no tokenizer.json to add tokens to", folder))
        .note("--tokenizer FILE copies one");
  std::vector<std::string> texts = tokens.texts;
  for (const auto& [role, text] : tokens.roles) texts.push_back(text);
  const ExtendedTokenizer tokenizer =
      extended_tokenizer(read_file(file.string(), kLargestTokenizer), texts, file.string());
  const int64_t known = tokenizer.known;
  AddedRows rows;
  rows.tokens = tokenizer.added;
  for (const std::string& text : tokens.texts)
    if (tokenizer.old.count(text)) rows.known.push_back(text);
  json::value config = read_object(in / kFolderFile);
  json::object& sized = sized_part(config.as_object(), folder);
  rows.before = id_in(sized.at("vocab_size"), (in / kFolderFile).string());
  rows.after = std::max(rows.before, known + static_cast<int64_t>(rows.tokens.size()));
  if (known == 0 || rows.before == 0)
    throw Error(ErrorKind::Weights, fmt::format("'{}' has no tokens, and so no mean of their rows", folder));
  if (!rows.tokens.empty()) resize_tables(in, std::min(known, rows.before), known, rows);
  write_file_atomically(file.string(), tokenizer.text);
  name_tokens(in, tokens, rows);
  if (const fs::path generation = in / "generation_config.json";
      !tokens.roles.empty() && fs::exists(generation, failed)) {
    json::value about = read_object(generation);
    put_roles(about.as_object(), tokens, tokenizer.ids);
    write_object(generation, about);
  }
  sized["vocab_size"] = rows.after;
  put_roles(config.as_object(), tokens, tokenizer.ids);
  write_object(in / kFolderFile, config);
  return rows;
}

}  // namespace harmonics::engine
