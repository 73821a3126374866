#include "engine/serving/service.hpp"

#include <algorithm>
#include <charconv>

#include <strings.h>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "engine/base/alternate_stack.hpp"
#include "engine/serving/json_text.hpp"

namespace harmonics::engine {

namespace json = boost::json;

namespace {

constexpr size_t kMostWaiting = 16;  // queued actions
constexpr std::string_view kSamples = "/v1/samples", kEvents = "/v1/events";
constexpr std::chrono::seconds kLayersEvery{1};
constexpr double kTaps = 10;                         // computations per second, for all clients together
constexpr std::chrono::milliseconds kTapYoung{100};  // repeated requests within this time receive the same reply

// Compares in constant time, so that the duration does not reveal a partly correct token.
bool same(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b.empty() ? 0 : b[i % b.size()]);
  return difference == 0;
}

// Returns whether the host header names this machine, for example "localhost:8080".
bool is_loopback_host(std::string_view host) {
  for (const std::string_view name : {"localhost", "127.0.0.1", "[::1]"}) {
    if (!host.starts_with(name)) continue;
    const std::string_view rest = host.substr(name.size());
    return rest.empty() ||
           (rest[0] == ':' && rest.size() <= 6 && rest.find_first_not_of("0123456789", 1) == std::string_view::npos);
  }
  return false;
}

bool is_authorised(const ServiceRequest& request, const std::string& token) {
  constexpr std::string_view kBearer = "Bearer ";
  std::string_view given = request.authorization;
  if (::strncasecmp(request.authorization.c_str(), kBearer.data(), kBearer.size()) == 0)  // RFC 9110, 11.1
    given.remove_prefix(kBearer.size());
  else if (const auto at = request.query.find("token"); at != request.query.end())
    given = at->second;
  else
    return false;
  return same(given, token);
}

int status_of(const Error& e) {
  switch (e.kind()) {
    case ErrorKind::Unavailable:
      return 503;
    case ErrorKind::Usage:
    case ErrorKind::Stream:
      return 400;
    default:
      return 500;
  }
}

// Returns a refusal of a request that may be repeated after one second.
ServiceReply too_early(int status, std::string error, std::string note) {
  ServiceReply r = Service::refusal(status, std::move(error), std::move(note));
  r.headers.emplace_back("Retry-After", "1");
  return r;
}

ServiceReply reply_of(const Error& e) {
  ServiceReply r = Service::reply(error_json(e), status_of(e));
  if (r.status == 503) r.headers.emplace_back("Retry-After", "1");
  return r;
}

}  // namespace

Service::Service(ServiceSettings settings, RunControl& control, Predictor& predictor)
    : settings_(std::move(settings)), control_(control), predictor_(predictor), taps_(kTaps), thread_([this] {
        work();
      }) {}

Service::~Service() {
  {
    const std::lock_guard<std::mutex> lock(waiting_);
    over_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Service::set_graph(json::object graph) {
  const std::lock_guard<std::mutex> lock(mutex_);
  graph_ = std::move(graph);
}

void Service::set_looks(Looks looks) {
  const std::lock_guard<std::mutex> lock(mutex_);
  looks_ = std::move(looks);
  layers_ = {};
}

void Service::put(const std::string& path, ServiceReply file) {
  const std::lock_guard<std::mutex> lock(mutex_);
  files_[path] = std::move(file);
}

ServiceReply Service::reply(const json::object& body, int status) {
  return {status, "application/json", json_line(body) + "\n", {}};
}

ServiceReply Service::refusal(int status, std::string error, std::string note) {
  return reply({{"error", std::move(error)}, {"note", std::move(note)}}, status);
}

std::optional<ServiceReply> Service::refuse(const ServiceSettings& settings, const ServiceRequest& r, bool changes) {
  if (r.trusted) return std::nullopt;
  if (settings.loopback && !r.host.empty() && !is_loopback_host(r.host))
    return refusal(403, "this address serves only this machine, but the request names another host",
                   "use 127.0.0.1 or localhost");
  if (!r.origin.empty() && r.origin != "http://" + r.host && r.origin != "https://" + r.host)
    return refusal(403, "requests from pages of other origins are refused", "use a page of this address, or a program");
  if ((changes || r.beyond || settings.token_for_all || !settings.loopback) && !is_authorised(r, settings.token)) {
    ServiceReply reply =
        refusal(401, "the token is missing or wrong",
                "give it as 'Authorization: Bearer TOKEN' or '?token=TOKEN'; it was printed when the run began");
    reply.headers.emplace_back("WWW-Authenticate", "Bearer");
    return reply;
  }
  return std::nullopt;
}

void Service::set_samples(TakeSamples take) {
  const std::lock_guard<std::mutex> lock(mutex_);
  take_samples_ = std::move(take);
}

bool Service::takes_samples(const std::string& path) {
  return path == kSamples || path.starts_with(std::string(kSamples) + "/");
}

bool Service::sends_events(const std::string& path) { return path == kEvents; }

// Samples influence training, so the token is required, as for control requests.
void Service::samples(ServiceRequest& r, const Answer& answer) {
  TakeSamples take;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    take = take_samples_;
  }
  if (!take) return answer(refusal(404, "no producer takes samples here", "bind one: --producer x=http:"));
  const std::string name = r.path.size() > kSamples.size() ? r.path.substr(kSamples.size() + 1) : "";
  take(name, std::move(r), answer);
}

void Service::handle(ServiceRequest r, Answer answer) {
  const Route* route = nullptr;
  std::string methods;
  for (const Route& candidate : table()) {
    if (!candidate.matches(r.path)) continue;
    methods = candidate.method;
    if (r.method == candidate.method || (r.method == "HEAD" && methods == "GET")) route = &candidate;
  }
  if (!route && methods.empty()) {
    if (r.method == "GET" || r.method == "HEAD") return file(r, answer);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!files_.count(r.path)) return answer(refusal(404, "unknown path", paths()));
    methods = "GET";
  }
  if (!route) {
    ServiceReply reply = refusal(405, "this path takes " + methods, "use " + methods);
    reply.headers.emplace_back("Allow", methods);
    return answer(reply);
  }
  if (route->access != RouteAccess::open)
    if (auto refused = refuse(r, route->access == RouteAccess::changes)) return answer(*refused);
  try {
    (this->*route->handle)(r, answer);
  } catch (const Error& e) {
    answer(reply_of(e));
  } catch (const std::exception& e) {
    answer(failed(e));
  }
}

// Files need no token, but pages of other origins must not read them.
void Service::file(ServiceRequest& r, const Answer& answer) {
  std::optional<ServiceReply> found;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const auto at = files_.find(r.path); at != files_.end()) found = at->second;
  }
  if (!found) return answer(refusal(404, "unknown path", paths()));
  if (auto refused = refuse(r, false); refused && refused->status == 403) return answer(*refused);
  answer(std::move(*found));
}

void Service::describe(ServiceRequest&, const Answer& answer) {
  static const std::string document = openapi_document(
      routes(), "Predictions, state and control of a run, as served by 'harmonics run --serve' and 'harmonics serve'.");
  answer({200, "application/json", document, {}});
}

void Service::model(ServiceRequest&, const Answer& answer) {
  const auto ports = predictor_.ports();
  answer(ports ? reply(json_of(*ports)) : too_early(503, "the run is starting", "try again"));
}

void Service::reply_status(ServiceRequest&, const Answer& answer) { answer(reply(status())); }
void Service::reply_graph(ServiceRequest&, const Answer& answer) { answer(reply(graph())); }
void Service::history(ServiceRequest&, const Answer& answer) { answer(reply(json_of(control_.history()))); }

void Service::reply_layers(ServiceRequest&, const Answer& answer) {
  const auto look = [this] {
    const json::object cards = layers();
    return reply(cards, cards.contains("error") ? 503 : 200);
  };
  if (!later(look, answer)) answer(too_early(503, "too many requests", "try again"));
}

// Answers plain HTTP requests; the server itself opens WebSockets of this path.
void Service::events(ServiceRequest&, const Answer& answer) {
  answer(refusal(426, "events come over a WebSocket", "open ws://…/v1/events"));
}

void Service::change(ServiceRequest& r, const Answer& answer) {
  const auto act = [this, body = std::move(r.body)] {
    const json::object done = control(body);
    const json::value* now = done.if_contains("now");
    return reply(done, !done.contains("error") ? 200 : now ? 409 : 400);
  };
  if (!later(act, answer)) answer(too_early(503, "too many requests", "try again"));
}

void Service::predict(ServiceRequest& r, const Answer& answer) {
  const auto ports = predictor_.ports();
  if (!ports) return answer(too_early(503, "the run is starting", "try again"));
  const std::string type = r.content_type.substr(0, r.content_type.find(';'));
  const bool tensors = type == "application/x-safetensors";
  if (!tensors && type != "application/json" && !type.empty())
    return answer(
        refusal(415, "a body of this type cannot be read", "send application/json or application/x-safetensors"));
  PredictInputs inputs = tensors ? inputs_from_tensors(r.body, *ports) : inputs_from_json(r.body, *ports);
  predictor_.ask(ports, inputs.samples, std::move(inputs.bytes),
                 [answer, ports, tensors](const Prediction* p, const Error* e) {
                   if (e) return answer(reply_of(*e));
                   if (tensors) return answer({200, "application/x-safetensors", tensors_text(*p, *ports), {}});
                   answer({200, "application/json", prediction_text(*p, *ports), {}});
                 });
}

void Service::health(ServiceRequest&, const Answer& answer) {
  const RunStatus s = control_.status();
  json::object streams;
  for (const StreamStatus& stream : s.streams)
    streams[stream.name] = json::object{{"health", word(stream.health)}, {"state", stream.state}};
  answer(reply({{"health", word(s.health)}, {"state", word(s.phase)}, {"streams", std::move(streams)}},
               s.health == Health::failed ? 503 : 200));
}

void Service::metrics(ServiceRequest&, const Answer& answer) {
  const auto newest = predictor_.newest();
  const AnswerTimes::Report serving = predictor_.report();
  answer({200,
          "text/plain; version=0.0.4; charset=utf-8",
          metrics_text(control_.status(), newest.get(), &serving, failed_),
          {}});
}

void Service::log(ServiceRequest& r, const Answer& answer) {
  uint64_t after = 0;
  if (const auto at = r.query.find("after"); at != r.query.end()) {
    const char* end = at->second.data() + at->second.size();
    if (std::from_chars(at->second.data(), end, after).ptr != end)
      return answer(refusal(400, "'after' is not a number", "give the number of the last line that you have"));
  }
  answer(reply(json_of(control_.log(after))));
}

// Each computation costs a forward pass and copies samples of the run, so the rate is limited.
void Service::tap(ServiceRequest& r, const Answer& answer) {
  const auto now = std::chrono::steady_clock::now();
  const auto text_of = [&](const char* key) {
    const auto at = r.query.find(key);
    return at == r.query.end() ? std::string() : at->second;
  };
  const std::pair<std::string, std::string> asked{text_of("edge"), text_of("samples")};
  std::optional<ServiceReply> at_once;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::erase_if(tapped_, [&](const auto& t) { return now - t.second.at > kTapYoung; });
    if (const auto same = tapped_.find(asked); same != tapped_.end())
      at_once = same->second.reply;
    else if (!taps_.take(now))
      at_once =
          too_early(429, fmt::format("more than {:g} requests for samples per second", kTaps), "try again in a second");
  }
  if (at_once) return answer(std::move(*at_once));
  const auto look = [this, r, asked] {
    ServiceReply reply = tap(r);
    if (reply.status == 200) {
      const std::lock_guard<std::mutex> lock(mutex_);
      tapped_[asked] = {reply, std::chrono::steady_clock::now()};
    }
    return reply;
  };
  if (!later(look, answer)) answer(too_early(503, "too many requests", "try again"));
}

ServiceReply Service::tap(const ServiceRequest& r) {
  const auto edge = r.query.find("edge"), count = r.query.find("samples");
  uint64_t samples = 1;
  if (count != r.query.end()) {
    const char* end = count->second.data() + count->second.size();
    if (std::from_chars(count->second.data(), end, samples).ptr != end || samples == 0 || samples > BatchSample::kMost)
      return refusal(400, fmt::format("'samples' must be 1 to {}", BatchSample::kMost), "write ?samples=1");
  }
  if (edge == r.query.end()) return refusal(400, "no edge is named", "write ?edge=NAME, of a producer or a layer");
  Looks looks;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    looks = looks_;
  }
  if (!looks.tap) return too_early(503, "the run is starting", "try again");
  try {
    return reply(looks.tap(edge->second, samples));
  } catch (const Error& e) {
    return reply_of(e);
  }
}

json::object Service::status() const {
  const auto newest = predictor_.newest();
  const AnswerTimes::Report serving = predictor_.report();
  return json_of(control_.status(), newest.get(), &serving);
}

json::object Service::graph() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return graph_;
}

json::object Service::layers() {
  const std::lock_guard<std::mutex> one(layering_);
  std::function<json::object()> make;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!layers_.empty() && std::chrono::steady_clock::now() - layered_ < kLayersEvery) return layers_;
    make = looks_.layers;
  }
  if (!make) return {{"error", "the run is starting"}, {"note", "try again"}};
  json::object cards;
  try {
    cards = make();
  } catch (const Error& e) {
    return error_json(e);
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  layered_ = std::chrono::steady_clock::now();
  return layers_ = std::move(cards);
}

std::optional<json::object> Service::layers_since(std::chrono::steady_clock::time_point& seen) {
  std::optional<json::object> newer;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (layered_ > seen) newer = layers_, seen = layered_;
    if (std::chrono::steady_clock::now() - layered_ < kLayersEvery || layers_wanted_ || !looks_.layers) return newer;
    layers_wanted_ = true;
  }
  const auto make = [this] {
    const std::shared_ptr<void> over(nullptr, [this](void*) {
      const std::lock_guard<std::mutex> lock(mutex_);
      layers_wanted_ = false;
    });
    layers();
    return ServiceReply{};
  };
  if (!later(make)) {
    const std::lock_guard<std::mutex> lock(mutex_);
    layers_wanted_ = false;
  }
  return newer;
}

json::object Service::control(std::string_view message) {
  ControlRequest request;
  try {
    request = control_from_json(message);
  } catch (const Error& e) {
    return error_json(e);
  }
  using Do = ControlRequest::Do;
  std::optional<LayerChange> change;
  try {
    switch (request.what) {
      case Do::status:
        break;
      case Do::pause:
        control_.pause();
        break;
      case Do::resume:
        control_.resume();
        break;
      case Do::step:
        control_.step(request.count);
        break;
      case Do::checkpoint:
        control_.checkpoint();
        break;
      case Do::learning_rate:
        control_.set_learning_rate(request.value);
        break;
      case Do::layer:
        change = control_.change_layer(request.layer, request.arguments);
        break;
      case Do::undo:
        change = control_.undo_layer();
        break;
      case Do::stop:
        control_.stop();
        break;
      case Do::events:
        throw Error(ErrorKind::Usage, "events come from GET /v1/events, or over the control socket");
      case Do::get:
        throw Error(ErrorKind::Usage, "'get' is for the control socket", {}, {"over HTTP, GET the path itself"});
    }
    json::object done{{"done", request.word}};
    if (change) done["change"] = json_of(*change);
    done["status"] = status();
    return done;
  } catch (const Error& e) {
    json::object refused = error_json(e);
    refused["now"] = word(control_.status().phase);
    return refused;
  }
}

bool Service::later(std::function<ServiceReply()> reply, Answer answer) {
  {
    const std::lock_guard<std::mutex> lock(waiting_);
    if (over_ || later_.size() >= kMostWaiting) return false;
    later_.push_back({std::move(reply), std::move(answer)});
  }
  wake_.notify_one();
  return true;
}

void Service::work() {
  const AlternateStack stack;
  for (;;) {
    Task next;
    {
      std::unique_lock<std::mutex> lock(waiting_);
      wake_.wait(lock, [&] { return over_ || !later_.empty(); });
      if (over_) return;
      next = std::move(later_.front());
      later_.pop_front();
    }
    ServiceReply made;
    try {
      made = next.reply();
    } catch (const Error& e) {
      made = reply_of(e);
    } catch (const std::exception& e) {  // a request must not terminate the process
      made = failed(e);
    }
    if (next.answer) next.answer(std::move(made));
  }
}

ServiceReply Service::failed(const std::exception& e) {
  ++failed_;
  return refusal(500, std::string("the request failed: ") + e.what(), "try again; other requests are unaffected");
}

}  // namespace harmonics::engine
