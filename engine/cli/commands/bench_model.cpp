#include "engine/cli/commands/bench_model.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <set>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "engine/cli/commands/command.hpp"
#include "engine/cli/run/model_options.hpp"
#include "engine/cli/run/open_graph.hpp"
#include "engine/cli/run/open_model.hpp"
#include "engine/cli/run/prepared.hpp"
#include "engine/cli/terminal/output.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/execution/machine.hpp"
#include "engine/language/decoder.hpp"
#include "engine/model/type_mix.hpp"
#include "engine/transformer/ndsl_model.hpp"

namespace harmonics::engine::cli {

namespace {

struct ModelSize {
  uint64_t bytes = 0;       // of all weights
  double parameters = 0;    // elements of all weights
  double read = 0;          // bytes of weights read per token
  double multiplied = 0;    // elements of the matrices that each token is multiplied by
  std::string description;  // "qwen3 q4_k_m"
};

// Returns the fraction of the experts that a token uses; 1 without experts.
double share_of_experts(const ModelMetadata& metadata) {
  const std::string prefix = metadata.text("general.architecture", "") + ".";
  const auto all = static_cast<double>(metadata.integer(prefix + "expert_count", 0)),
             used = static_cast<double>(metadata.integer(prefix + "expert_used_count", 0));
  return all > 0 && used > 0 ? used / all : 1;
}

ModelSize size_of(const Model& model) {
  ModelSize size;
  const double share = share_of_experts(model.metadata);
  const bool tied = !model.parameters->find("output.weight");
  for (const auto& [name, tensor] : model.parameters->all()) {
    const auto bytes = static_cast<double>(tensor.type.bytes()),
               elements = static_cast<double>(tensor.type.shape.count());
    size.bytes += tensor.type.bytes();
    size.parameters += elements;
    if (name == "token_embd.weight" && !tied) continue;  // a token reads only one row
    const double used = name.find("_exps.") != std::string::npos ? share : 1;
    size.read += bytes * used;
    if (tensor.type.shape.rank() >= 2) size.multiplied += elements * used;
  }
  size.description = model.metadata.text("general.architecture", model.name);
  const int64_t file_type = model.metadata.integer("general.file_type", -1);
  for (const TypeMix& mix : type_mixes())
    if (mix.file_type == file_type) size.description += fmt::format(" {}", mix.name);
  return size;
}

struct Rate {
  const char* test;  // "pp" or "tg"
  int64_t tokens;
  int threads;
  int64_t texts;                     // texts computed at once
  std::vector<double> seconds = {};  // one per run
  double reach = 0;                  // roofline time of a run relative to its measured time

  double mean() const {
    double sum = 0;
    for (const double s : seconds) sum += total() / s;
    return sum / static_cast<double>(seconds.size());
  }
  double deviation() const {
    if (seconds.size() < 2) return 0;
    double sum = 0;
    for (const double s : seconds) sum += std::pow(total() / s - mean(), 2);
    return std::sqrt(sum / static_cast<double>(seconds.size() - 1));
  }
  double best() const { return *std::min_element(seconds.begin(), seconds.end()); }
  double total() const { return static_cast<double>(tokens * texts); }
  std::string name() const {
    return texts > 1 ? fmt::format("{}{}x{}", test, tokens, texts) : fmt::format("{}{}", test, tokens);
  }
};

class ModelBench {
 public:
  explicit ModelBench(const Options& options)
      : options_(options),
        opened_(open_model(options.files.front(), options)),
        threads_(options.threads),
        prefill_(options.prefill.empty() ? std::vector<int64_t>{512} : options.prefill),
        decode_(options.decode.empty() ? std::vector<int64_t>{128} : options.decode) {
    opened_.model.parameters->keep_packed(packed_files_of(options));
    if (threads_.empty()) threads_.push_back(1);
    if (options.threads.empty() && all_threads() > 1) threads_.push_back(all_threads());
    std::erase(prefill_, 0);
    std::erase(decode_, 0);
    context_ = 1;
    for (const auto& tokens : {prefill_, decode_})
      for (const int64_t count : tokens) context_ = std::max(context_, count);
    size_ = size_of(opened_.model);
  }

  void run() {
    if (!options_.quiet && !options_.json) print_head();
    for (const int threads : threads_) run_with(threads);
  }

  boost::json::object result() const {
    return {{"version", 1},
            {"model", options_.files.front()},
            {"description", size_.description},
            {"bytes", size_.bytes},
            {"parameters", size_.parameters},
            {"bytes_per_token", size_.read},
            {"device", options_.run.device},
            {"instructions", peak_instructions()},
            {"rows", rows_}};
  }

 private:
  void run_with(int threads) {
    const auto executor = make_team_executor(threads);
    Decoder decoder(opened_.model, *executor, text_compile_options(options_));
    Session session(decoder, context_, true);
    MachinePeaks peaks(threads);
    peaks_before(peaks, threads);
    for (const int64_t count : prefill_) {
      Rate rate{"pp", count, threads, 1};
      const std::vector<int32_t> tokens = random_tokens(count);
      for (int64_t i = -1; i < options_.repeat; ++i)
        time(i < 0 ? nullptr : &rate, session, [&] { session.append(tokens); });
      report(rate, session, peaks);
    }
    for (const int64_t count : decode_) {
      Rate rate{"tg", count, threads, 1};
      const std::vector<int32_t> tokens = random_tokens(count);
      for (int64_t i = -1; i < options_.repeat; ++i)
        time(i < 0 ? nullptr : &rate, session, [&] {
          for (const int32_t& token : tokens) session.append({&token, 1});
        });
      report(rate, session, peaks);
    }
    for (const int64_t texts : options_.texts)
      if (texts > 1)
        for (const int64_t count : decode_) decode_at_once(decoder, texts, count, threads, peaks);
  }

  void decode_at_once(Decoder& decoder, int64_t texts, int64_t count, int threads, MachinePeaks& peaks) {
    std::vector<std::unique_ptr<Session>> sessions;
    for (int64_t i = 0; i < texts; ++i) sessions.push_back(std::make_unique<Session>(decoder, context_, true));
    const std::vector<int32_t> tokens = random_tokens(count * texts);
    Rate rate{"tg", count, threads, texts};
    for (int64_t run = -1; run < options_.repeat; ++run) {
      for (const auto& session : sessions) session->keep(0);
      time(run < 0 ? nullptr : &rate, *sessions[0], [&] {
        std::vector<StepPart> parts(sessions.size());
        for (int64_t at = 0; at < count; ++at) {
          for (size_t i = 0; i < parts.size(); ++i)
            parts[i] = {sessions[i].get(), std::span(tokens).subspan(static_cast<size_t>(at * texts) + i, 1)};
          decoder.step(parts);
        }
      });
    }
    report(rate, *sessions[0], peaks);
  }

  // The measured peaks are those of the processor and do not apply to other devices.
  bool on_processor() const { return options_.run.device == "cpu"; }
  void peaks_before(MachinePeaks& peaks, int threads) const {
    if (!on_processor()) return;
    spread_over_cores(threads, kMostSpread);
    peaks.floor(1, size_.read);
  }

  template <typename Run>
  static void time(Rate* rate, Session& session, Run run) {
    using Clock = std::chrono::steady_clock;
    session.keep(0);
    const auto begin = Clock::now();
    run();
    if (rate) rate->seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }

  std::vector<int32_t> random_tokens(int64_t count) const {
    std::vector<int32_t> all(static_cast<size_t>(count));
    for (size_t i = 0; i < all.size(); ++i)
      all[i] = static_cast<int32_t>((i * 7919 + 13) % static_cast<size_t>(opened_.model.vocabulary));
    return all;
  }

  void report(Rate& rate, const Session& session, MachinePeaks& peaks) {
    const bool decodes = rate.test[0] == 't';
    const auto tokens = static_cast<double>(rate.tokens), texts = static_cast<double>(rate.texts);
    // Work of one step: it reads the weights once, and caches that on average hold half of the tokens of each text.
    const double bytes = size_.read + texts * static_cast<double>(session.cache_bytes()) /
                                          static_cast<double>(session.capacity()) * tokens / 2,
                 flops = 2 * size_.multiplied;
    boost::json::object row{{"test", rate.name()},           {"threads", rate.threads},
                            {"tokens", rate.tokens},         {"texts", rate.texts},
                            {"runs", rate.seconds.size()},   {"tokens_per_second", rate.mean()},
                            {"deviation", rate.deviation()}, {"best_tokens_per_second", rate.total() / rate.best()}};
    if (on_processor()) {
      peaks.again();
      const double bandwidth = peaks.bandwidth(bytes), peak = peaks.peak();
      if (decodes && bandwidth > 0) {
        rate.reach = bytes * tokens / bandwidth / rate.best();
        row["read_bandwidth"] = bandwidth;
        row["of_bandwidth"] = rate.reach;
      } else if (!decodes && peak > 0) {
        rate.reach = flops * tokens / peak / rate.best();
        row["peak_flops"] = peak;
        row["of_peak"] = rate.reach;
      }
    }
    if (!options_.quiet && !options_.json) print_row(rate);
    rows_.push_back(std::move(row));
  }

  void print_head() const {
    print("{}: {:.1f} MB, {:.1f} M parameters, {:.1f} MB of weights per token\n", size_.description,
          static_cast<double>(size_.bytes) / 1e6, size_.parameters / 1e6, size_.read / 1e6);
    print("| {:<20} | {:>10} | {:>9} | {:<8} | {:>7} | {:>8} | {:>19} | {:>7} |\n", "model", "size", "params",
          "backend", "threads", "test", "t/s", "of peak");
    print("| {:-<20} | {:->9}: | {:->8}: | {:-<8} | {:->6}: | {:->7}: | {:->18}: | {:->6}: |\n", "", "", "", "", "", "",
          "", "");
  }

  void print_row(const Rate& rate) const {
    print("| {:<20} | {:>6.2f} MiB | {:>7.2f} M | {:<8} | {:>7} | {:>8} | {:>19} | {:>7} |\n", size_.description,
          static_cast<double>(size_.bytes) / (1 << 20), size_.parameters / 1e6, options_.run.device, rate.threads,
          rate.name(), fmt::format("{:.2f} ± {:.2f}", rate.mean(), rate.deviation()),
          rate.reach > 0 ? fmt::format("{:.2f}", rate.reach) : "–");
    flush_output();
  }

  const Options& options_;
  OpenedModel opened_;
  std::vector<int> threads_;
  std::vector<int64_t> prefill_, decode_;
  int64_t context_ = 1;
  ModelSize size_;
  boost::json::array rows_;
};

// Throws if a flag is given that applies only to flows.
void expect_flags_of_models(const Options& options) {
  const std::string& file = options.files.front();
  if (is_ndsl(file))
    refuse_flags(options, {"weights-from", "graph"}, "a .ndsl file");
  else
    expect_no_flow_flags(options);
  if (is_ndsl(file) && options.weights.empty())
    throw Error(ErrorKind::Usage, fmt::format("'{}' lacks --weights FOLDER: a .ndsl file has no weights", file), {},
                {"give a folder of Hugging Face, saved weights or a checkpoint"});
  refuse_flags(options, {"producer", "limits", "batch", "seconds", "cycle", "optimizer", "infer", "seed"},
               "a language model");
  if (options.prefill == std::vector<int64_t>{0} && options.decode == std::vector<int64_t>{0})
    throw Error(ErrorKind::Usage, "--prefill 0 and --decode 0 leave nothing to measure", {},
                {"give one of them a number of tokens, or leave it out"});
}

}  // namespace

int bench_model(const Options& options) {
  expect_flags_of_models(options);
  ModelBench bench(options);
  bench.run();
  if (options.json) print_json(bench.result());
  return kDone;
}

}  // namespace harmonics::engine::cli
