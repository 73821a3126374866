#include "engine/cli/run/serving.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include <sys/random.h>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "engine/base/address.hpp"
#include "engine/cli/run/changed_flow.hpp"
#include "engine/cli/terminal/command_text.hpp"
#include "engine/cli/run/stop_signals.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/cycle/snapshot.hpp"
#include "engine/serving/control_socket.hpp"
#include "engine/serving/cross_origin.hpp"
#include "engine/serving/http_server.hpp"
#include "engine/serving/json_text.hpp"
#include "engine/serving/layer_cards.hpp"
#include "engine/serving/page.hpp"
#include "engine/serving/predictor.hpp"
#include "engine/serving/service.hpp"
#include "engine/serving/zmq_server.hpp"
#include "producers/http_samples.hpp"

namespace harmonics::engine::cli {

namespace {

// Maximum wait for the end of a step, or for samples, when a client inspects a run.
constexpr std::chrono::milliseconds kSampleDeadline{200};

std::string random_token() {
  unsigned char bytes[16];
  if (::getrandom(bytes, sizeof bytes, 0) != static_cast<ssize_t>(sizeof bytes))
    throw Error(ErrorKind::InputOutput, std::string("no random numbers for a token: ") + std::strerror(errno), {},
                {"give one: --token TEXT"});
  std::string token;
  for (unsigned char b : bytes) token += fmt::format("{:02x}", b);
  return token;
}

void check_token(const std::string& token) {
  constexpr size_t kShortest = 8;
  if (token.size() < kShortest)
    throw Error(ErrorKind::Usage, fmt::format("a token of {} characters is too short", token.size()), {},
                {fmt::format("give {} or more, or omit --token to have one generated", kShortest)});
  if (!std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c < 0x7f; }))
    throw Error(ErrorKind::Usage, "a token must be printable ASCII", {}, {"use letters, digits and punctuation"});
}

// Returns the addresses to listen on. The page needs an HTTP address; the default has any free port.
std::vector<std::string> listens_on(const Options& options) {
  std::vector<std::string> addresses = options.serve;
  if (options.ui && std::all_of(addresses.begin(), addresses.end(), is_zmq_address)) addresses.push_back("127.0.0.1:0");
  return addresses;
}

void take_samples(const std::string& name, ServiceRequest request, const Service::Answer& answer) {
  send_by_http(name, {std::move(request.content_type), std::move(request.body)}, [answer](const SentAnswer& sent) {
    boost::json::object body{{"accepted", sent.accepted},
                             {"refused", sent.refused},
                             {"first_refusal", sent.first_refusal.empty() ? boost::json::value(nullptr)
                                                                          : boost::json::value(sent.first_refusal)}};
    if (sent.status == 202)
      body["note"] = "the run waits for its other streams: the samples are queued until it starts";
    if (!sent.error.empty()) body["error"] = sent.error, body["note"] = sent.note;
    ServiceReply reply = Service::reply(body, sent.status);
    if (sent.status == 503) reply.headers.emplace_back("Retry-After", "1");
    answer(std::move(reply));
  });
}

}  // namespace

ListenAddress listen_address(const std::string& text, bool insecure) {
  const ListenAddress address = parse_listen(text);
  if (!address.loopback && !insecure)
    throw Error(
        ErrorKind::Denied, fmt::format("other machines can reach {}, and the traffic is not encrypted", text), {},
        {"listen on 127.0.0.1 and use a tunnel (ssh -L), or use --insecure if the address is protected otherwise"});
  return address;
}

ServiceSettings service_settings(const Options& options, const std::vector<ListenAddress>& addresses) {
  if (!options.token.empty()) check_token(options.token);
  for (const std::string& origin : options.origins) check_origin(origin);
  ServiceSettings settings;
  settings.token = options.token.empty() ? random_token() : options.token;
  settings.token_for_all = !options.token.empty();
  settings.loopback =
      std::all_of(addresses.begin(), addresses.end(), [](const ListenAddress& a) { return a.loopback; });
  return settings;
}

Serving::Serving(const Options& options, BoundGraph& graph) : options_(options), graph_(graph) {
  const std::vector<std::string> listens = listens_on(options);
  if (listens.empty() && options.control.empty()) return;
  std::vector<ListenAddress> addresses;
  for (const std::string& text : listens)
    if (!is_zmq_address(text)) addresses.push_back(listen_address(text, options.insecure));
  const ServiceSettings settings = service_settings(options, addresses);
  control_ = std::make_unique<RunControl>(graph.graph().name, static_cast<int>(graph.graph().cycles.size()));
  PredictorSettings predicting;
  predicting.latency = std::chrono::microseconds(static_cast<int64_t>(1e6 * options.latency));
  predictor_ = std::make_unique<Predictor>(predicting);
  service_ = std::make_unique<Service>(settings, *control_, *predictor_);
  put_docs(*service_);
  if (options.ui) put_page(*service_);
  for (const std::string& text : options.producers)
    if (const Address address = parse_binding(text).address; address.scheme == "http") expect_http(address.path);
  service_->set_samples(take_samples);
  for (const ListenAddress& address : addresses) {
    http_.push_back(std::make_unique<HttpServer>(*service_, address));
    const std::string url = http_.back()->url();
    say(fmt::format("serving on {}{}", url, options.token.empty() ? " · token " + settings.token : ""));
    // Browsers do not send the token after '#' to the server. A token given by the user is not printed.
    if (options.ui) say(fmt::format("page: {}/{}", url, options.token.empty() ? "#token=" + settings.token : ""));
  }
  for (const std::string& text : listens) {
    if (!is_zmq_address(text)) continue;
    zmq_.push_back(std::make_unique<ZmqServer>(*service_, text, options.insecure));
    say(fmt::format("serving on {}{}", zmq_.back()->address(),
                    options.token.empty() && zmq_.back()->asks_for_token() ? " · token " + settings.token : ""));
  }
  if (!options.control.empty()) {
    socket_ = std::make_unique<ControlSocket>(*service_, options.control);
    left_behind_ = std::make_unique<LeftBehind>(options.control);
    if (!options.quiet)
      say(fmt::format("control socket {}:  harmonics ctl {} status", options.control, options.control));
  }
}

// Closes the listeners before the service that they use.
Serving::~Serving() {
  socket_.reset();
  left_behind_.reset();
  zmq_.clear();
  for (const auto& server : http_) server->finish(std::chrono::seconds(2));  // predictions in progress
  http_.clear();
  service_.reset();
  predictor_.reset();
}

void Serving::expect_streams(ChangedFlow* changed) {
  if (!open()) return;
  changed_ = changed;
  control_->set_changer(changed);
  std::vector<std::string> names;
  for (int n : graph_.graph().nodes_of(DeclarationKind::Producer))
    names.push_back(graph_.graph().nodes[static_cast<size_t>(n)].name);
  control_->expect(names, !options_.checkpoint.empty());
  for (const std::string& text : options_.producers)
    if (const std::string scheme = parse_binding(text).address.scheme; scheme != "file" && scheme != "synth")
      control_->note("note", "waiting for samples of " + command_text({text}));
  service_->set_graph(graph_json(graph_.graph(), {}, Widths{}, graph_.store()));
}

HttpLimits text_limits(const Options& options) {
  constexpr size_t kBeside = 32;  // for other requests, and for refusals of texts
  HttpLimits limits;
  limits.connections = std::max(limits.connections,
                                static_cast<size_t>(options.sequences) + static_cast<size_t>(options.queue) + kBeside);
  return limits;
}

Serving::Attached::Attached(ChangedFlow* changed, CycleRuntime& runtime) : changed_(changed) {
  if (changed_) changed_->attach(&runtime);
}

Serving::Attached::~Attached() {
  if (changed_) changed_->attach(nullptr);
}

Serving::Attached Serving::attach(CycleRuntime& runtime, int cycle) {
  if (open()) {
    runtime.set_control(control_.get());
    runtime.keep_snapshots([this, cycle](const std::shared_ptr<Snapshots>& snapshots) { serve(cycle, snapshots); });
  }
  return {changed_, runtime};
}

void Serving::serve(int cycle, const std::shared_ptr<Snapshots>& snapshots) {
  if (!http_.empty() || !zmq_.empty())
    predictor_->serve(graph_.model(cycle, graph_.settings(cycle, options_.run).seed), cycle,
                      graph_.compile_options(options_.run), snapshots);
  show(cycle, snapshots);
  service_->set_graph(graph_json(graph_.graph(), graph_.types(), graph_.widths(), graph_.store()));
}

void Serving::show(int cycle, const std::shared_ptr<Snapshots>& snapshots) {
  const auto cards = std::make_shared<LayerCards>(graph_, cycle, options_.run, snapshots->newest()->weights());
  const auto sample = [this] { return control_->sample(RunControl::Clock::now() + kSampleDeadline); };
  const auto weights = [snapshots] { return snapshots->fresh(Snapshots::Clock::now() + kSampleDeadline); };
  service_->set_looks({[=] { return cards->cards(*weights(), sample().get()); },
                       [=](const std::string& edge, uint64_t samples) {
                         const auto late = sample();
                         if (!late) throw Error(ErrorKind::Unavailable, "no sample has arrived yet", {}, {"ask again"});
                         return cards->tap(*weights(), *late, edge, samples);
                       }});
}

void Serving::note(const std::string& text) {
  if (open()) control_->note("note", text);
}

}  // namespace harmonics::engine::cli
