// harmonics embed: computes embeddings of texts.
#include <iostream>
#include <iterator>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "engine/base/file.hpp"
#include "engine/cli/commands/command.hpp"
#include "engine/cli/run/embedding_model.hpp"
#include "engine/cli/terminal/output.hpp"
#include "engine/cli/terminal/terminal.hpp"

namespace harmonics::engine::cli {

namespace {

// Returns the texts of the command line, or the lines of --file.
std::vector<std::string> texts_of(const Options& options) {
  std::vector<std::string> texts(options.files.begin() + 1, options.files.end());
  if (options.text_file.empty()) {
    if (texts.empty()) throw Error(ErrorKind::Usage, "no text is given", {}, {"give texts as words, or --file FILE"});
    return texts;
  }
  if (!texts.empty()) throw Error(ErrorKind::Usage, "the texts are given twice: as words and with --file");
  const bool is_standard = options.text_file == "-";
  const std::string all = is_standard
                              ? std::string(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>())
                              : read_plain_file(options.text_file);
  for (size_t at = 0; at < all.size();) {
    const size_t end = std::min(all.find('\n', at), all.size());
    size_t last = end;
    if (last > at && all[last - 1] == '\r') --last;
    texts.push_back(all.substr(at, last - at));
    at = end + 1;
  }
  if (texts.empty())
    throw Error(ErrorKind::Usage,
                is_standard ? "standard input is empty" : fmt::format("'{}' is empty", options.text_file), {},
                {"each line is a text"});
  return texts;
}

boost::json::array json_of_vector(const std::vector<float>& vector) {
  boost::json::array all;
  for (const float x : vector) all.push_back(static_cast<double>(x));
  return all;
}

const char* name_of_pooling(Pooling pooling) {
  return pooling == Pooling::mean ? "mean" : pooling == Pooling::first ? "first" : "last";
}

}  // namespace

int embed_command(const Options& options) {
  const std::vector<std::string> texts = texts_of(options);
  EmbeddingModel model(options);
  boost::json::array all;
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::vector<int32_t> ids = model.tokenizer->encode(texts[i], {.begin = false, .end = false, .whole = true});
    std::vector<float> vector;
    try {
      vector = model.embedder.embed(ids);
    } catch (const Error& e) {
      throw Error(e.kind(), fmt::format("text {}: {}", i + 1, e.what()), {}, e.notes());
    }
    boost::json::object one{{"text", texts[i]}, {"tokens", ids.size()}, {"vector", json_of_vector(vector)}};
    if (options.json)
      all.push_back(std::move(one));
    else
      print_json(one);
  }
  if (options.json)
    print_json(boost::json::object{{"version", 1},
                                   {"model", model.path},
                                   {"pooling", name_of_pooling(model.embedder.pooling())},
                                   {"embeddings", std::move(all)}});
  return kDone;
}

}  // namespace harmonics::engine::cli
