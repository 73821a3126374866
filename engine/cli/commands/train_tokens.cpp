#include "engine/cli/commands/train_tokens.hpp"

#include <filesystem>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "engine/base/file.hpp"
#include "engine/base/read_file.hpp"
#include "engine/cli/commands/command.hpp"
#include "engine/cli/run/train_flow.hpp"
#include "engine/corpus/corpus_tokenizer.hpp"
#include "engine/model/imported.hpp"
#include "engine/transformer/added_tokens.hpp"

namespace harmonics::engine::cli {

namespace {

namespace fs = std::filesystem;

constexpr size_t kLargestTokenizerText = size_t{256} << 20;

}  // namespace

TokensAdded::TokensAdded(const TrainSettings& settings, bool keeps, bool quiet) : settings_(settings) {
  if (settings_.special_tokens.empty()) return;
  if (!keeps) temporary_.emplace();
  folder_ = keeps ? settings_.output : temporary_->path();
  if (keeps) create_output_folder(folder_);
  if (settings_.model.empty())
    add_to_tokenizer();
  else
    add_to_model(quiet);
}

void TokensAdded::add_to_model(bool quiet) {
  const std::string base = folder_ + "/base/";
  std::error_code failed;
  if (!settings_.resume || !fs::exists(base + kFolderFile, failed)) {
    Options copy;
    copy.verb = "export";
    copy.files = {settings_.model, base};
    if (settings_.corpus.tokenizer != settings_.model) copy.tokenizer = settings_.corpus.tokenizer;
    copy.added_tokens = settings_.special_tokens;
    copy.quiet = quiet;
    export_command(copy);
  }
  settings_.model = settings_.corpus.tokenizer = base;
}

void TokensAdded::add_to_tokenizer() {
  const std::string& given = settings_.corpus.tokenizer;
  std::error_code failed;
  std::string text;
  if (given == "characters")
    throw Error(ErrorKind::Usage, "'special_tokens' are added to a tokenizer that is there, and not to 'characters'")
        .note("name a tokenizer.json, or write tokenizer: bytes");
  if (given == "bytes")
    text = bytes_tokenizer_json();
  else
    text = read_file(fs::is_directory(given, failed) ? given + "/tokenizer.json" : given, kLargestTokenizerText);
  AddedTokens tokens = added_tokens_of(settings_.special_tokens);
  boost::json::object roles;
  for (const auto& [role, token] : tokens.roles) {
    tokens.texts.push_back(token);
    roles[role] = token;
  }
  settings_.corpus.tokenizer = folder_ + "/tokenizer.json";
  write_file_atomically(settings_.corpus.tokenizer, with_added_tokens(text, tokens.texts, given));
  if (!roles.empty()) write_file_atomically(folder_ + "/tokenizer_config.json", boost::json::serialize(roles) + "\n");
}

}  // namespace harmonics::engine::cli
