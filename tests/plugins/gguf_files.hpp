// Writes GGUF files of vocabularies for tests.
#pragma once

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <boost/json.hpp>

#include "engine/language/tokenizer.hpp"
#include "formats/gguf.hpp"
#include "tests/journeys/shell.hpp"

namespace harmonics::engine {

// Returns a file of the data folder's gguf/; "" if it is missing.
inline std::string data_file(const std::string& name) {
  const std::string data = journeys::data_folder();
  return data.empty() || !std::filesystem::exists(data + "/gguf/" + name) ? "" : data + "/gguf/" + name;
}

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream all;
  all << in.rdbuf();
  return all.str();
}

inline std::vector<std::string> parts_of(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  size_t at = 0;
  for (size_t next = 0; (next = text.find(separator, at)) != std::string::npos; at = next + separator.size())
    parts.push_back(text.substr(at, next - at));
  parts.push_back(text.substr(at));
  return parts;
}

// Returns a file with a vocabulary only.
inline std::string vocabulary_file(const std::string& model, const std::vector<std::string>& tokens,
                                   const std::vector<int32_t>& kinds, const std::vector<float>& scores,
                                   const std::vector<std::string>& merges = {}, const std::string& pre = "") {
  GgufWriter writer;
  writer.set_text("tokenizer.ggml.model", model);
  if (!pre.empty()) writer.set_text("tokenizer.ggml.pre", pre);
  writer.set("tokenizer.ggml.tokens", tokens);
  if (!kinds.empty()) writer.set("tokenizer.ggml.token_type", kinds);
  if (!scores.empty()) writer.set("tokenizer.ggml.scores", scores);
  if (!merges.empty()) writer.set("tokenizer.ggml.merges", merges);
  return writer.header();
}

inline std::shared_ptr<const Tokenizer> tokenizer_of(const std::string& bytes) {
  return Tokenizer::read(bytes, "tok.gguf", Registry::global());
}

// Returns the vocabulary of a folder with vocab.json and merges.txt.
inline std::string byte_pair_file(const std::string& folder, const std::string& words) {
  const boost::json::value vocabulary = boost::json::parse(read_file(folder + "/vocab.json"));
  std::vector<std::string> tokens(vocabulary.as_object().size());
  for (const auto& [text, id] : vocabulary.as_object()) tokens.at(static_cast<size_t>(id.as_int64())) = text;
  std::vector<std::string> merges;
  for (const std::string& line : parts_of(read_file(folder + "/merges.txt"), "\n"))
    if (!line.empty() && line.rfind("#version", 0) != 0) merges.push_back(line);
  return vocabulary_file("gpt2", tokens, {}, {}, merges, words);
}

}  // namespace harmonics::engine
