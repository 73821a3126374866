#include "engine/cli/run/open_graph.hpp"

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>

#include <fmt/core.h>

#include "dsl/load.hpp"
#include "engine/base/address.hpp"
#include "engine/base/byte_count.hpp"
#include "engine/bound/all_errors.hpp"
#include "engine/bound/other_functions.hpp"
#include "engine/checkpoint/live_types.hpp"
#include "engine/cli/terminal/exit_codes.hpp"
#include "engine/cli/terminal/command_text.hpp"
#include "engine/cli/options/installed.hpp"
#include "engine/cli/run/live_addresses.hpp"
#include "engine/cli/run/open_model.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/model/imported.hpp"
#include "engine/spool/spool.hpp"

namespace harmonics::engine::cli {

int with_source(const std::shared_ptr<const SourceText>& source, const std::function<int()>& body) {
  try {
    return body();
  } catch (const Error& e) {
    const auto* several = source ? nullptr : dynamic_cast<const SourceErrors*>(&e);
    if (several && several->texts().empty()) {
      print_error(several->errors().front());
      return exit_code(e.kind());
    }
    print_error(e, source.get());
    return exit_code(e.kind());
  }
}

namespace {

void print_notes(const Source& source) {
  std::istringstream notes(source.info().notes);
  for (std::string line; std::getline(notes, line);) print_note("'" + source.name() + "': " + line);
}

// Removes the taps for inference, and the conditions that end training.
void drop_taps(Graph& graph) {
  for (size_t i = 0; i < graph.cycles.size(); ++i) {
    if (!graph.trains(static_cast<int>(i))) continue;
    CycleSettings& c = graph.cycles[i];
    c.epochs.reset(), c.steps.reset(), c.seconds.reset();
    c.until.clear();
  }
  graph.taps.clear();
}

// Registers an override, which programs of the graph use when they are compiled.
void set_override(Registry& registry, const std::string& text) {
  const size_t eq = text.find('=');
  if (eq == std::string::npos || eq == 0 || eq + 1 == text.size())
    throw Error(ErrorKind::Usage, fmt::format("'{}' is not an override", text), {},
                {"write FUNCTIONAL=NAME, e.g. --override attention=mine"});
  const std::string functional = text.substr(0, eq), name = text.substr(eq + 1);
  const std::string before = registry.set_override(functional, name);
  if (!before.empty() && before != name)
    throw Error(ErrorKind::Usage,
                fmt::format("'{}' is overridden twice, by '{}' and by '{}'", functional, before, name), {},
                {"keep one of them"});
}

uint64_t bytes_of(const char* flag, const std::string& text) {
  const std::optional<uint64_t> bytes = parse_byte_count(text);
  if (!bytes)
    throw Error(ErrorKind::Usage, fmt::format("{} '{}' is not a number of bytes", flag, text), {},
                {"write it as 512M or 4G"});
  return *bytes;
}

std::shared_ptr<Spool> spool_of(const Options& options) {
  if (options.spool.empty()) {
    if (!options.spool_limit.empty() || options.spool_keep)
      throw Error(ErrorKind::Usage, fmt::format("{} has no effect without --spool DIR",
                                                options.spool_keep ? "--spool-keep" : "--spool-limit"));
    return nullptr;
  }
  SpoolOptions o;
  o.directory = options.spool;
  o.keeps_all = options.spool_keep;
  o.on_note = print_note;
  if (!options.spool_limit.empty()) o.most_bytes = bytes_of("--spool-limit", options.spool_limit);
  return std::make_shared<Spool>(std::move(o));
}

void note_unused_spool(const StreamSet& streams) {
  bool live = false;
  streams.each([&](const Source& source) { live = live || source.info().live; });
  if (!live) print_note("--spool has no effect: no stream of --producer is live");
}

std::shared_ptr<DeadLetters> dead_letters_of(const Options& options) {
  if (options.dead_letters.empty()) {
    if (!options.dead_letters_limit.empty())
      throw Error(ErrorKind::Usage, "--dead-letters-limit has no effect without --dead-letters DIR");
    return nullptr;
  }
  DeadLetterOptions o;
  o.directory = options.dead_letters;
  o.on_note = print_note;
  o.resumed = options.resume.has_value();
  if (!options.dead_letters_limit.empty()) o.most_bytes = bytes_of("--dead-letters-limit", options.dead_letters_limit);
  return std::make_shared<DeadLetters>(std::move(o));
}

// Notes arrows with other functions than in training: weights of the same shapes load regardless of the functions. The
// recorded flow is ignored if it cannot be read, for example for lack of a plugin.
void note_other_functions(const BoundGraph& graph, const Options& options) {
  const std::string &learned = graph.learned_flow(), &now = graph.graph().source->text();
  if (learned.empty() || learned == now) return;
  std::vector<std::string> differ;
  try {
    const Flow flow = parse_flow(std::make_shared<SourceText>(options.weights, learned));
    differ = other_functions(make_graph(flow, Registry::global(), graph.graph().name), graph.graph());
  } catch (const Error&) {
    return;
  }
  if (differ.empty()) return;
  std::string text = differ.front();
  if (differ.size() > 1) text += fmt::format(", and {} more differ", differ.size() - 1);
  print_note(fmt::format("{} was trained differently: {}", options.weights, text));
}

// Returns whether the address can be opened without blocking and without consuming samples of a live stream.
bool is_at_rest(const Graph& graph, const Binding& b) {
  if (b.address.scheme == "synth") return true;
  if (b.address.scheme != "file" || b.address.find("follow")) return false;
  if (StreamSet::field_of(graph, b.name, b.address) >= 0) return true;
  std::error_code failed;
  const auto type = std::filesystem::status(b.address.path, failed).type();
  return type != std::filesystem::file_type::fifo && type != std::filesystem::file_type::character &&
         type != std::filesystem::file_type::socket;
}

// Binds the streams of files to the producers as in a complete graph. Omits streams that cannot be opened; they are
// reported when the names are correct.
void bind_files(BoundGraph& bound, const GraphErrors::Rest& rest, const std::vector<std::string>& texts) {
  const Graph& graph = bound.graph();
  std::set<int> taken;
  std::vector<Binding> later;
  const auto bind = [&](Binding& b) {
    int n = b.name.empty() ? -1 : graph.find(b.name);
    for (int free : graph.nodes_of(DeclarationKind::Producer))
      if (rest.all_producers && b.name.empty() && n < 0 && !taken.count(free)) n = free;
    if (n < 0 || !taken.insert(n).second || !is_at_rest(graph, b)) return;
    try {
      bound.streams().bind(graph, bound.registry(), graph.nodes[static_cast<size_t>(n)].name, std::move(b.address));
    } catch (const Error&) {
    }
  };
  for (const std::string& text : texts) {
    Binding b = parse_binding(text);
    const int of = StreamSet::field_of(graph, b.name, b.address);
    if (of >= 0 && !taken.count(of))
      later.push_back(std::move(b));
    else
      bind(b);
  }
  for (Binding& b : later) bind(b);
}

// Returns the errors of shapes in a graph with errors of names.
std::vector<Error> shape_errors(const GraphErrors::Rest& rest, const Options& options, bool inference) {
  Graph graph = rest.graph;
  if (inference) drop_taps(graph);
  BoundGraph bound(std::move(graph));
  bound.set_limits(options.limits);
  for (const std::string& folder : options.weights_from) bound.allow_weights_in(folder);
  try {
    if (!options.weights.empty()) bound.load_weights(options.weights);
    bind_files(bound, rest, options.producers);
  } catch (const Error&) {
    return {};  // reported when the names are correct
  }
  return bound.shape_errors(rest, options.verb == "explain");
}

// Returns the definite errors of names and shapes in a text with syntax errors: those of the harmonic to open, or of
// all harmonics if none is to be opened.
std::vector<Error> later_errors(const Flow& flow, const Options& options) {
  const bool opens = options.verb != "validate" || !options.producers.empty();
  const bool inference = options.inference || options.verb == "infer" || options.verb == "serve";
  std::vector<Error> errors;
  for (const Harmonic& harmonic : flow.harmonics) {
    if (!options.graph.empty() && harmonic.name.text != options.graph) continue;
    Examined examined = examine(flow, harmonic, Registry::global());
    for (Error& e : examined.errors) errors.push_back(std::move(e));
    if (!opens) continue;
    for (Error& e : shape_errors(examined.rest, options, inference)) errors.push_back(std::move(e));
    break;
  }
  return errors;
}

Graph graph_of(const Flow& flow, const Options& options, bool inference) {
  try {
    return make_graph(flow, Registry::global(), options.graph);
  } catch (const GraphErrors& e) {
    refuse(*flow.source, e.errors(), shape_errors(e.rest(), options, inference));
  }
}

}  // namespace

Graph resolved(const Flow& flow, Registry& registry, const Options& options) {
  Graph graph = make_graph(flow, registry, options.graph);
  if (options.inference) drop_taps(graph);
  return graph;
}

std::shared_ptr<PackedFiles> packed_files_of(const Options& options) {
  const std::string folder = packed_files_folder();
  if (folder.empty() || options.packed_cache == 0) return nullptr;
  return std::make_shared<PackedFiles>(folder, options.packed_cache);
}

Flow read_flow(const Options& options) {
  if (options.files.empty())
    throw Error(ErrorKind::Usage, "no graph file was given", {}, {"harmonics " + options.verb + " GRAPH.hmx"});
  const std::string& path = options.files.front();
  if (!options.lora.empty())
    throw Error(ErrorKind::Usage, fmt::format("--lora is for language models, but '{}' is a flow", path), {},
                {"leave it out"});
  expect_model_folder(path);
  expect_no_misspelt_model(path);
  try {
    return parse_flow_file(path);
  } catch (const FlowErrors& e) {
    refuse(e, later_errors(e.read(), options));
  } catch (Error& e) {
    const std::string sample = e.kind() == ErrorKind::NoInput ? installed_sample(path) : "";
    if (!sample.empty()) e.note("the installed sample is " + quoted(sample));
    throw;
  }
}

std::unique_ptr<BoundGraph> open_graph(const Flow& flow, const Options& options, bool inference,
                                       const std::function<void(BoundGraph&)>& known) {
  Graph graph = graph_of(flow, options, inference);
  if (inference) drop_taps(graph);
  auto result = std::make_unique<BoundGraph>(std::move(graph));
  result->set_limits(options.limits);
  result->store().keep_packed(packed_files_of(options));
  for (const std::string& folder : options.weights_from) result->allow_weights_in(folder);
  for (const std::string& text : options.overrides) set_override(result->registry(), text);
  if (known) known(*result);
  FirstSamples first(options);
  const auto bind = [&](const std::vector<std::string>& texts, StreamSet& set) {
    if (!options.resume) set.set_awaited([&](const Address& address) { return first.of(result->registry(), address); });
    std::vector<Binding> later;  // fields of producers bound later
    for (const std::string& text : texts) {
      Binding b = parse_binding(text);
      expect_end(HX_PRODUCER, b.address);
      if (options.verb == "run" || options.verb == "infer") expect_door(b.address, options);
      if (options.insecure) set_option(result->registry(), HX_PRODUCER, b.address, "insecure", "true");
      const int of = StreamSet::field_of(result->graph(), b.name, b.address);
      if (of >= 0 && !set.bound(of))
        later.push_back(std::move(b));
      else
        set.bind(result->graph(), result->registry(), b.name, std::move(b.address));
    }
    for (Binding& b : later) set.bind(result->graph(), result->registry(), b.name, std::move(b.address));
    set.set_awaited({});
  };
  const std::shared_ptr<Spool> spool = spool_of(options);
  result->streams().set_spool(spool);
  if (!options.weights.empty()) result->load_weights(options.weights);
  if (options.resume) {
    const std::string& from = options.resume->empty() ? options.checkpoint : *options.resume;
    result->streams().expect(live_types_in(from));
    try {
      result->expect_words(metadata_in(from), from);
    } catch (const Error&) {  // reported when the whole checkpoint is read
    }
  }
  result->streams().set_dead_letters(dead_letters_of(options));
  bind(options.producers, result->streams());
  if (spool && !options.quiet) note_unused_spool(result->streams());
  result->share_words();
  bind(options.tests, result->test_streams());
  bind(options.validations, result->validation_streams());
  if (!options.quiet) {
    result->streams().each([](const Source& source) { print_notes(source); });
    result->test_streams().each([](const Source& source) { print_notes(source); });
  }
  for (const std::string& text : options.consumers) {
    Binding b = parse_binding(text);
    expect_end(HX_CONSUMER, b.address);
    if (options.insecure) set_option(result->registry(), HX_CONSUMER, b.address, "insecure", "true");
    result->bind_consumer(b.name, std::move(b.address));
  }
  if (!options.quiet)
    for (const std::string& line : result->registry().take_replacements()) print_note(line);
  if (!options.weights.empty()) note_other_functions(*result, options);
  return result;
}

}  // namespace harmonics::engine::cli
