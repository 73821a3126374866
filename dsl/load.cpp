#include "dsl/load.hpp"

#include <cstring>
#include <filesystem>
#include <utility>

#include "dsl/hmx/parser.hpp"
#include "engine/base/read_file.hpp"

namespace harmonics::engine {

namespace {

constexpr size_t kLargestFile = size_t{16} << 20;

}  // namespace

Flow parse_flow(std::shared_ptr<const SourceText> source) {
  if (source->text().size() > kLargestFile) {
    throw Error(ErrorKind::Syntax, "'" + source->name() + "' holds " + std::to_string(source->text().size()) +
                                       " bytes; a flow has at most " + std::to_string(kLargestFile));
  }
  return hmx::parse(std::move(source));
}

namespace {

struct Ending {
  const char *ending, *what, *remedy;
};

// Recognizes other file types by their extension; null: unknown.
const Ending* ending_of(const std::string& path) {
  constexpr const char* kModel =
      "a flow takes it as model(\"FILE\"); harmonics generate, chat and serve take it as it is";
  constexpr const char* kText = "a flow is a text file such as samples/mnist.hmx; docs/hmx.md describes its language";
  static constexpr Ending kEndings[] = {
      {".ndsl", "a transformer in YAML", kModel},
      {".json", "JSON", kText},
      {".yaml", "YAML", "harmonics train takes configurations in YAML; flows are text files such as samples/mnist.hmx"},
      {".yml", "YAML", "harmonics train takes configurations in YAML; flows are text files such as samples/mnist.hmx"},
      {".gguf", "a model in GGUF", kModel},
      {".onnx", "an ONNX model", kText},
      {".safetensors", "weights", "give weights with --weights, together with their flow"},
      {".pt", "weights of PyTorch", kText},
      {".pth", "weights of PyTorch", kText},
      {".h5", "weights of Keras", kText},
      {".keras", "a Keras model", kText},
  };
  for (const Ending& e : kEndings)
    if (path.size() > std::strlen(e.ending) && path.ends_with(e.ending)) return &e;
  return nullptr;
}

}  // namespace

Flow parse_flow_file(const std::string& path) {
  try {
    return parse_flow(std::make_shared<const SourceText>(path, read_file(path, kLargestFile)));
  } catch (const Error& e) {
    const Ending* known = ending_of(path);
    if (!known || e.kind() == ErrorKind::NoInput) throw;
    std::error_code failed;
    if (std::filesystem::is_empty(path, failed)) throw Error(ErrorKind::Syntax, "'" + path + "' is empty");
    throw Error(ErrorKind::Syntax, "'" + path + "' is " + known->what + " by its name, not a flow", {},
                {known->remedy});
  }
}

}  // namespace harmonics::engine
