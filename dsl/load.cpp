#include "dsl/load.hpp"

#include <cstring>
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

// Recognises foreign model files by their ending; null: unknown.
const char* what_it_is(const std::string& path) {
  constexpr std::pair<const char*, const char*> kEndings[] = {{".ndsl", "a model in ndsl"},
                                                              {".json", "JSON"},
                                                              {".yaml", "YAML"},
                                                              {".yml", "YAML"},
                                                              {".gguf", "weights in GGUF"},
                                                              {".onnx", "an ONNX model"},
                                                              {".safetensors", "weights"},
                                                              {".pt", "weights of PyTorch"},
                                                              {".pth", "weights of PyTorch"},
                                                              {".h5", "weights of Keras"},
                                                              {".keras", "a Keras model"}};
  for (const auto& [ending, what] : kEndings)
    if (path.size() > std::strlen(ending) &&
        path.compare(path.size() - std::strlen(ending), std::string::npos, ending) == 0)
      return what;
  return nullptr;
}

}  // namespace

Flow parse_flow_file(const std::string& path) {
  try {
    return parse_flow(std::make_shared<const SourceText>(path, read_file(path, kLargestFile)));
  } catch (const Error& e) {
    const char* what = what_it_is(path);
    if (!what || e.kind() == ErrorKind::NoInput) throw;
    throw Error(ErrorKind::Syntax, "'" + path + "' is " + what + " by its name, but this version reads flows only", {},
                {"a flow is a text such as samples/mnist.hmx; docs/hmx.md describes its language"});
  }
}

}  // namespace harmonics::engine
