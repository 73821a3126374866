// Decodes tokens of a Llama with random weights. Prints the time per token as the sequence grows, and the fraction of
// the machine's read bandwidth at which weights are read.
//   decode [MEGABYTES] [TOKENS] [THREADS] [f32|f16|q8_0: the cache]
// Then prints the rates of 1 to 16 sequences in one step.
// Sequences are repeated, in turn with reads of as many bytes; the best time of each position and the best rate of the
// reads count. Memory: the growth of the process since before the model, besides weights and cache; more than weights +
// 1.5 caches + 16 MB is an error.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <unistd.h>

#include "engine/execution/machine.hpp"
#include "engine/language/decoder.hpp"
#include "engine/transformer/architectures.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

double resident() {
  FILE* f = std::fopen("/proc/self/statm", "r");
  long pages = 0, mine = 0;
  const bool read = f && std::fscanf(f, "%ld %ld", &pages, &mine) == 2;
  if (f) std::fclose(f);
  return read ? static_cast<double>(mine) * static_cast<double>(sysconf(_SC_PAGESIZE)) : 0;
}

struct Sizes {
  int64_t width = 1024, heads = 16, shared = 4, hidden = 2816, vocabulary = 8000, layers = 1;
};

void add(Model& model, const std::string& name, const Shape& shape, float scale) {
  model.parameters->declare(name, {DType::F32, shape}, Role::frozen, hx_init{HX_INIT_UNIFORM, -scale, scale}, 1).fixed =
      true;
}

Model model_of(const Sizes& s, DType cache) {
  Model model;
  model.name = "random";
  model.metadata = ModelMetadata("random", AttributeMap()
                                               .set("general.architecture", "llama")
                                               .set("llama.embedding_length", s.width)
                                               .set("llama.block_count", s.layers)
                                               .set("llama.attention.head_count", s.heads)
                                               .set("llama.attention.head_count_kv", s.shared)
                                               .set("llama.feed_forward_length", s.hidden)
                                               .set("llama.context_length", int64_t{1} << 16));
  const int64_t narrow = s.width / s.heads * s.shared;
  add(model, "token_embd.weight", {s.vocabulary, s.width}, 0.05f);
  add(model, "output_norm.weight", {s.width}, 1.0f);
  for (int64_t i = 0; i < s.layers; ++i) {
    const std::string b = fmt::format("blk.{}.", i);
    for (const char* norm : {"attn_norm.weight", "ffn_norm.weight"}) add(model, b + norm, {s.width}, 1.0f);
    for (const char* map : {"attn_q.weight", "attn_output.weight"}) add(model, b + map, {s.width, s.width}, 0.05f);
    for (const char* map : {"attn_k.weight", "attn_v.weight"}) add(model, b + map, {narrow, s.width}, 0.05f);
    for (const char* map : {"ffn_gate.weight", "ffn_up.weight"}) add(model, b + map, {s.hidden, s.width}, 0.05f);
    add(model, b + "ffn_down.weight", {s.width, s.hidden}, 0.05f);
  }
  add_architecture_entries(model, cache);
  return model;
}

double bytes_of_weights(const Model& model) {
  double bytes = 0;
  for (const auto& [name, tensor] : model.parameters->all()) bytes += static_cast<double>(tensor.type.bytes());
  return bytes;
}

// Returns tokens per second with this number of sequences in each step, best of several steps.
double rate_of(Decoder& decoder, int64_t sequences, int64_t vocabulary) {
  constexpr int kSteps = 24;
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < sequences; ++i) {
    sessions.push_back(std::make_unique<Session>(decoder, 2 * kSteps));
    tokens.push_back(static_cast<int32_t>((i * 7919 + 13) % vocabulary));
  }
  std::vector<StepPart> parts;
  for (size_t i = 0; i < sessions.size(); ++i) parts.push_back({sessions[i].get(), {&tokens[i], 1}});
  double best = 1e9;
  for (int step = 0; step < kSteps; ++step) {
    const auto begin = std::chrono::steady_clock::now();
    decoder.step(parts);
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return static_cast<double>(sequences) / best;
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t megabytes = argc > 1 ? std::atoll(argv[1]) : 200, tokens = argc > 2 ? std::atoll(argv[2]) : 256;
  const int threads = argc > 3 ? std::atoi(argv[3]) : 1;
  const std::string type = argc > 4 ? argv[4] : "f32";
  const DType cache_type = type == "q8_0" ? DType::Q8_0 : type == "f16" ? DType::F16 : DType::F32;
  if (megabytes < 1 || tokens < 2 || threads < 1 || (cache_type == DType::F32 && type != "f32")) {
    std::fprintf(stderr, "usage: decode [MEGABYTES] [TOKENS] [THREADS] [f32|f16|q8_0]\n");
    return 64;
  }
  Sizes s;
  if (megabytes < 40) s.width = 128, s.heads = 4, s.shared = 2, s.hidden = 352, s.vocabulary = 500;
  const int64_t narrow = s.width / s.heads * s.shared;
  const int64_t layer = 2 * s.width * s.width + 2 * narrow * s.width + 3 * s.width * s.hidden;
  s.layers = std::max<int64_t>(1, (megabytes * 1000000 / 4 - s.vocabulary * s.width) / layer);
  const double before = resident();
  const Model model = model_of(s, cache_type);
  const double weights = bytes_of_weights(model);
  const auto executor = make_team_executor(threads);
  Decoder decoder(model, *executor);
  std::vector<double> best(static_cast<size_t>(tokens), 1e9);
  spread_over_cores(threads, kMostSpread);
  MachinePeaks peaks(threads);
  double cache = 0, gained = 0, bandwidth = 0;
  constexpr int kRounds = 5;
  for (int round = 0; round < kRounds; ++round) {
    Session session(decoder, tokens, true);
    cache = static_cast<double>(session.cache_bytes());
    for (int64_t i = 0; i < tokens; ++i) {
      const auto token = static_cast<int32_t>((i * 7919 + 13) % s.vocabulary);
      const auto begin = std::chrono::steady_clock::now();
      session.append({&token, 1});
      const double taken = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      best[static_cast<size_t>(i)] = std::min(best[static_cast<size_t>(i)], taken);
    }
    if (round == 0)
      gained = resident() - before;
    else
      peaks.again();
    bandwidth = peaks.bandwidth(weights);
  }
  fmt::print("{:.0f} MB of f32 weights, {} layers, {} thread{}; read bandwidth {:.1f} GB/s\n", weights / 1e6, s.layers,
             threads, threads == 1 ? "" : "s", bandwidth / 1e9);
  fmt::print("{:>8} {:>10} {:>10} {:>12}\n", "token", "us", "tokens/s", "of bandwidth");
  for (int64_t at = 1; at <= tokens; at = at * 4 > tokens && at < tokens ? tokens : at * 4) {
    // The median of adjacent tokens, because single steps are disturbed by other load.
    const int64_t from = std::max<int64_t>(0, at - 1 - (at == 1 ? 0 : 4));
    std::vector<double> near(best.begin() + from, best.begin() + std::min(tokens, at + 4));
    std::nth_element(near.begin(), near.begin() + static_cast<int64_t>(near.size() / 2), near.end());
    const double seconds = near[near.size() / 2];
    fmt::print("{:>8} {:>10.0f} {:>10.0f} {:>12.2f}\n", at, seconds * 1e6, 1 / seconds, weights / seconds / bandwidth);
  }
  if (tokens >= 256) {
    const auto middle_of = [&](int64_t from) {
      std::vector<double> near(best.begin() + from, best.begin() + from + 8);
      std::nth_element(near.begin(), near.begin() + 4, near.end());
      return near[4];
    };
    fmt::print("token 256 costs {:.2f} of token 1, token 128 {:.2f}\n", middle_of(248) / middle_of(0),
               middle_of(120) / middle_of(0));
  }
  const double alone = rate_of(decoder, 1, s.vocabulary);
  fmt::print("{:>9} {:>10} {:>10}\n", "sequences", "tokens/s", "of one");
  for (const int64_t sequences : {1, 2, 4, 8, 16}) {
    const double rate = sequences == 1 ? alone : rate_of(decoder, sequences, s.vocabulary);
    fmt::print("{:>9} {:>10.0f} {:>10.2f}\n", sequences, rate, rate / alone);
  }
  fmt::print("memory: gained {:.1f} MB = weights {:.1f} + cache {:.1f} + {:.1f}\n", gained / 1e6, weights / 1e6,
             cache / 1e6, (gained - weights - cache) / 1e6);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  if (gained > weights + 1.5 * cache + 16e6) {
    std::fprintf(stderr, "decode: that is more than weights + 1.5 caches + 16 MB\n");
    return 1;
  }
#endif
  return 0;
}
