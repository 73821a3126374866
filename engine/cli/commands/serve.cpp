// harmonics serve: answers requests with constant weights.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <ctime>

#include <unistd.h>

#include <boost/json.hpp>
#include <fmt/core.h>

#include <harmonics/quantity.hpp>

#include "engine/base/spelling.hpp"
#include "engine/checkpoint/checkpoint_folder.hpp"
#include "engine/cli/commands/command.hpp"
#include "engine/cli/run/language_model.hpp"
#include "engine/cli/run/open_graph.hpp"
#include "engine/cli/run/open_model.hpp"
#include "engine/cli/terminal/output.hpp"
#include "engine/cli/run/serving.hpp"
#include "engine/cli/run/serving_vectors.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/cycle/snapshot.hpp"
#include "engine/model/packed_files.hpp"
#include "engine/model/type_mix.hpp"
#include "engine/serving/cross_origin.hpp"
#include "engine/serving/http_server.hpp"
#include "engine/serving/language_service.hpp"
#include "engine/serving/page.hpp"
#include "engine/serving/predictor.hpp"
#include "engine/serving/zmq_server.hpp"
#include "engine/transformer/ndsl_model.hpp"

namespace harmonics::engine::cli {

namespace {

// Blocks the signals for this thread and the threads that it creates. One thread waits for them.
sigset_t hold_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGHUP);  // it remains ignored under nohup
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  return set;
}

// Returns the training step of the loaded weights; 0 if their file does not record it.
WeightsVersion version_of(const BoundGraph& graph, const std::string& path) {
  if (graph.version()) return *graph.version();
  if (!holds_state(read_safetensors(path))) return {};
  const RunState state = read_checkpoint(path).state;
  return {static_cast<int>(state.cycle), state.step};
}

int wait_for_end(const sigset_t& signals) {
  int signal = 0;
  sigwait(&signals, &signal);
  return signal;
}

// Returns a name of the model's content for clients that compare models. It is that of its size and its first bytes,
// which hold the metadata and the table of tensors.
std::string digest_of(const ImportedModel& model) {
  constexpr size_t kMost = size_t{1} << 20;
  std::string digest;
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1}}) {
    const ContentHash hash = hash_of(model.file->data(), std::min(model.file->bytes(), kMost), seed + model.bytes());
    digest += fmt::format("{:016x}{:016x}", hash[0], hash[1]);
  }
  return digest;
}

// Returns the name of the mix of types in upper case; "" if the file does not say it.
std::string quantization_of(const ImportedModel& model) {
  const int64_t file_type = model.metadata.integer("general.file_type", -1);
  std::string name;
  for (const TypeMix& mix : type_mixes())
    if (mix.file_type == file_type) name = mix.name;
  for (char& c : name)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return name;
}

ServedModel served_model(const LanguageModel& model, const Options& options) {
  ServedModel served;
  served.name = model_name(model.imported.path);
  served.architecture = model.imported.metadata.text("general.architecture", "");
  served.bytes = model.imported.bytes();
  served.parameters = model.imported.parameters();
  served.context = options.context > 0 ? options.context : model.model.context;
  served.vocabulary = model.model.vocabulary;
  served.since = static_cast<int64_t>(std::time(nullptr));
  served.quantization = quantization_of(model.imported);
  served.digest = digest_of(model.imported);
  for (const auto& [key, value] : model.imported.metadata.values().entries())
    if (const auto* size = std::get_if<int64_t>(&value); size && key.starts_with(served.architecture + "."))
      served.sizes[key] = *size;
  return served;
}

int report_texts(const Options& options, const LanguageModel& model, const TextWorker::Report& r, double seconds) {
  if (!options.quiet)
    say(fmt::format("wrote {} for {} in {}", number_of(static_cast<uint64_t>(r.tokens), "token"),
                    number_of(r.requests, "request"), duration(seconds)));
  if (options.json)
    print_json(boost::json::object{{"version", 1},
                                   {"model", model.path},
                                   {"seconds", seconds},
                                   {"requests", r.requests},
                                   {"prompt_tokens", r.prompt_tokens},
                                   {"tokens", r.tokens},
                                   {"refused", r.refused},
                                   {"failed", r.failed}});
  return kDone;
}

// Returns a factory of drafters, one per text; null without speculation.
std::function<std::shared_ptr<Drafter>()> drafters_of(const Options& options, const Speculation& speculation) {
  if (!speculation.drafter) return nullptr;
  return [&options, &speculation]() -> std::shared_ptr<Drafter> {
    if (!speculation.model) return std::make_shared<LookupDrafter>(options.lookup);
    return std::make_shared<ModelDrafter>(speculation.model->decoder, options.context);
  };
}

TextWorker::Settings worker_settings(const Options& options, const LanguageModel& model) {
  TextWorker::Settings settings{static_cast<size_t>(options.sequences), static_cast<size_t>(options.queue),
                                options.context};
  if (options.cache_memory == 0) return settings;
  const int64_t context = options.context > 0 ? options.context : model.model.context;
  settings.cached_tokens = static_cast<int64_t>(options.cache_memory / model.decoder.token_bytes());
  if (settings.cached_tokens < context)
    throw Error(
        ErrorKind::Usage,
        fmt::format("--cache-memory has room for {} tokens, but a context has {}", settings.cached_tokens, context), {},
        {"give a smaller --context, or more memory"});
  return settings;
}

int serve_language_model(const Options& options) {
  std::vector<ListenAddress> addresses;
  for (const std::string& text : options.serve.empty() ? std::vector<std::string>{"127.0.0.1:8080"} : options.serve)
    addresses.push_back(listen_address(text, options.insecure));
  const ServiceSettings settings = service_settings(options, addresses);
  const sigset_t signals = hold_signals();
  if (gives_only_vectors(options))
    return 128 + serve_vectors(options, addresses, settings, [&] { return wait_for_end(signals); });
  LanguageModel model(options);
  note_long_context(options, model);
  const ChatTemplate format = model.chat_template(options);
  if (!format.own()) print_note("the model has no chat template: messages are formatted as ChatML");
  ContinuationSettings usual = continuation_settings(options, *model.tokenizer);
  usual.tokens = served_model(model, options).context;  // no other limit: the model or the context ends the text
  usual.ends = answer_ends(*model.tokenizer);
  for (const int32_t id : model.ends()) usual.ends.push_back(id);
  usual.written = answer_marks(*model.tokenizer);
  usual.pieces = token_texts(*model.tokenizer);
  usual.filters.dry_breakers = dry_breakers(*usual.pieces);
  const Speculation speculation(options, model);
  usual.draft_tokens = speculation.tokens;
  TextWorker::Settings texts = worker_settings(options, model);
  texts.drafter = drafters_of(options, speculation);
  TextWorker worker(model.decoder, *model.tokenizer, texts);
  LanguageService service(settings, served_model(model, options), worker, *model.tokenizer, format, usual);
  put_chat_page(service);
  ServedVectors vectors(model.model, *model.executor, *model.tokenizer, options);
  if (vectors.worker) service.serve_vectors(*vectors.worker);
  const auto begun = std::chrono::steady_clock::now();
  int signal = 0;
  {
    const HttpLimits limits = text_limits(options);
    CrossOrigin handler(service, options.origins);
    std::vector<std::unique_ptr<HttpServer>> servers;
    for (const ListenAddress& address : addresses) {
      servers.push_back(std::make_unique<HttpServer>(handler, address, limits));
      const bool needed = !settings.loopback && options.token.empty();
      say(fmt::format("serving on {}{}", servers.back()->url(), needed ? " · token " + settings.token : ""));
    }
    signal = wait_for_end(signals);
    constexpr int kRounds = 300;  // rounds of 100 ms
    constexpr std::chrono::milliseconds kRound(100);
    const auto finished = [&] {
      return worker.drain(kRound) && std::ranges::all_of(servers, [&](const auto& s) { return s->finish(kRound); });
    };
    for (int i = 0; i < kRounds && !finished(); ++i) {
      if (i == 0 && !options.quiet) say("ending: finishing texts, for 30 s at most; another Ctrl-C ends at once");
      const timespec none{};
      if (::sigtimedwait(&signals, nullptr, &none) > 0) break;
    }
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  report_texts(options, model, worker.report(), seconds);
  return 128 + signal;
}

}  // namespace

int serve_command(const Options& options) {
  const std::string& file = options.files.front();
  if (is_ndsl(file) || is_model(file, Registry::global())) {
    refuse_flags(options, {"producer", "graph", "weights-from", "limits", "cycle", "control", "latency"},
                 "a language model");
    if (!is_ndsl(file)) refuse_flags(options, {"weights"}, "a model with its own weights");
    for (const std::string& address : options.serve)
      if (is_zmq_address(address))
        throw Error(ErrorKind::Usage, fmt::format("--listen {}: a language model answers over HTTP only", address), {},
                    {"write 127.0.0.1:8080, [::1]:8080, or port 0 for a free one"});
    return serve_language_model(options);
  }
  refuse_flags(
      options,
      {"tokenizer", "context", "weight-type", "cache-type", "spec", "set", "lora", "chat-template", "pooling",
       "sequences", "cache-memory", "overflow", "keep", "draft", "lookup", "draft-tokens", "queue", "allow-origin"},
      "a flow");
  const Flow flow = read_flow(options);
  return with_source(flow.source, [&] {
    if (options.weights.empty())
      throw Error(ErrorKind::Usage, "no weights are given", {},
                  {"add --weights FILE, as written by run --save or --checkpoint"});
    Options given = options;
    if (given.serve.empty()) given.serve = {"127.0.0.1:8080"};
    const std::unique_ptr<BoundGraph> graph = open_graph(flow, given, true);
    const int cycle = static_cast<int>(options.cycle) - 1;
    if (static_cast<size_t>(cycle) >= graph->graph().cycles.size())
      throw Error(ErrorKind::Usage,
                  fmt::format("'{}' has {}", graph->graph().name, quantity(graph->graph().cycles.size(), "cycle")), {},
                  {"--cycle counts from 1"});
    graph->assume_declared_streams();
    const sigset_t signals = hold_signals();
    Serving serving(given, *graph);
    const Model model = graph->model(cycle);
    model.trace(model.entry("forward"), {});  // declares its parameters
    const auto snapshots = std::make_shared<Snapshots>(graph->store(), version_of(*graph, options.weights));
    RunScene scene;
    scene.cycle = cycle;
    std::atomic<bool> told{false};
    scene.stop = [&] { told = true, ::kill(::getpid(), SIGTERM); };
    serving.control().begin(std::move(scene));
    serving.control().set_phase(RunPhase::serving);
    serving.serve(cycle, snapshots);
    const auto begun = std::chrono::steady_clock::now();
    const int signal = wait_for_end(signals);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    serving.control().end(true);
    const AnswerTimes::Report r = serving.predictor().report();
    if (!options.quiet)
      say(fmt::format("answered {} of {} in {}", number_of(static_cast<uint64_t>(r.requests), "request"),
                      number_of(static_cast<uint64_t>(r.samples), "sample"), duration(seconds)));
    if (r.not_finite > 0)
      print_note(fmt::format("the answers to {} contained infinity or NaN",
                             number_of(static_cast<uint64_t>(r.not_finite), "sample")));
    if (options.json)
      print_json(boost::json::object{{"version", 1},
                                     {"graph", graph->graph().name},
                                     {"seconds", seconds},
                                     {"requests", r.requests},
                                     {"samples", r.samples},
                                     {"refused", r.refused},
                                     {"failed", r.failed},
                                     {"not_finite", r.not_finite}});
    return told ? static_cast<int>(kDone) : 128 + signal;
  });
}

}  // namespace harmonics::engine::cli
