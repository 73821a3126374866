// Measures the memory of text generation: opens a model with random weights from a mapped file and continues a prompt,
// then three more in sessions of their own.
//   text_memory SHAPE MIX VOCABULARY LAYERS FOLDER
// Fails if the process grows by more than the file, the cache and 64 MB, or by more than the caches and 16 MB for the
// other sessions.
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>

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

using namespace harmonics::engine;

// Continues a prompt; `first` makes prompts differ.
void continue_text(Session& session, int32_t first) {
  std::vector<int32_t> prompt(130);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = (static_cast<int32_t>(i * 37 % 250) + first) % 250;
  session.append(prompt);
  for (int32_t token = 0; token < 100; ++token) session.append({&token, 1});
}

double bytes_over_limits(const std::string& path) {
  const double before = peak_resident(), file = static_cast<double>(std::filesystem::file_size(path));
  const ImportedModel imported = import_model(path, Registry::global());
  const Model model = model_of(imported, {});
  const auto executor = make_team_executor(2);
  Decoder decoder(model, *executor);
  Session session(decoder, 256, true);
  continue_text(session, 0);
  const double gained = peak_resident() - before, cache = static_cast<double>(session.cache_bytes());
  fmt::print("gained {:.1f} MB: file {:.1f}, cache {:.1f}, {:.1f} more\n", gained / 1e6, file / 1e6, cache / 1e6,
             (gained - file - cache) / 1e6);
  const double one = peak_resident();
  std::vector<std::unique_ptr<Session>> others;
  double caches = 0;
  for (int32_t i = 1; i <= 3; ++i) {
    others.push_back(std::make_unique<Session>(decoder, 256, true));
    continue_text(*others.back(), i);
    caches += static_cast<double>(others.back()->cache_bytes());
  }
  const double more = peak_resident() - one;
  fmt::print("three more sessions {:.1f} MB: caches {:.1f}, {:.1f} more\n", more / 1e6, caches / 1e6,
             (more - caches) / 1e6);
  return std::max(gained - file - cache - 64e6, more - caches - 16e6);
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
    const double over = bytes_over_limits(path);
    std::filesystem::remove(path);
    if (over <= 0) return 0;
    std::fprintf(stderr, "text_memory: that is more than allowed\n");
  } catch (const harmonics::Error& e) {
    fmt::print(stderr, "error: {}\n", e.what());
  }
  return 1;
}
