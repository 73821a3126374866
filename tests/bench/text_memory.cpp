// Measures the memory of text generation: opens a model with random weights from a mapped file and continues a prompt.
//   text_memory SHAPE MIX VOCABULARY LAYERS FOLDER
// Fails if the process grows by more than the file, the cache and 64 MB.
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include <fmt/core.h>

#include "engine/language/decoder.hpp"
#include "engine/model/imported.hpp"
#include "engine/plugin/registry.hpp"
#include "engine/transformer/architectures.hpp"
#include "tests/bench/random_model.hpp"

namespace {

double peak_resident() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

double bytes_over_limit(const std::string& path) {
  using namespace harmonics::engine;
  const double before = peak_resident(), file = static_cast<double>(std::filesystem::file_size(path));
  const ImportedModel imported = import_model(path, Registry::global());
  const Model model = model_of(imported, {});
  const auto executor = make_team_executor(2);
  Decoder decoder(model, *executor);
  Session session(decoder, 256, true);
  std::vector<int32_t> prompt(130);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>(i * 37 % 250);
  session.append(prompt);
  for (int32_t token = 0; token < 100; ++token) session.append({&token, 1});
  const double gained = peak_resident() - before, cache = static_cast<double>(session.cache_bytes());
  fmt::print("gained {:.1f} MB: file {:.1f}, cache {:.1f}, {:.1f} more\n", gained / 1e6, file / 1e6, cache / 1e6,
             (gained - file - cache) / 1e6);
  return gained - file - cache - 64e6;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace harmonics::engine::bench;
  if (argc != 6) {
    std::fprintf(stderr, "usage: text_memory SHAPE MIX VOCABULARY LAYERS FOLDER\n");
    return 2;
  }
  const std::string path = std::string(argv[5]) + "/text_memory.gguf";
  try {
    ModelShape shape = model_shape_named(argv[1]);
    shape.vocabulary = std::atoll(argv[3]);
    shape.layers = std::atoll(argv[4]);
    write_random_model(shape, argv[2], path);
    const double over = bytes_over_limit(path);
    std::filesystem::remove(path);
    if (over <= 0) return 0;
    std::fprintf(stderr, "text_memory: that is more than file, cache and 64 MB\n");
  } catch (const harmonics::Error& e) {
    fmt::print(stderr, "error: {}\n", e.what());
  }
  return 1;
}
