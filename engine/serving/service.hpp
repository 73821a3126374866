// Service: answers requests to a run. Independent of the transport; uses no sockets.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <boost/json/object.hpp>

#include "engine/cycle/run_control.hpp"
#include "engine/serving/api_route.hpp"
#include "engine/serving/http_handler.hpp"
#include "engine/serving/predict_request.hpp"
#include "engine/serving/predictor.hpp"
#include "engine/serving/rate_limit.hpp"

namespace harmonics::engine {

struct ServiceSettings {
  std::string token;
  bool loopback = true;        // only this machine can reach the address
  bool token_for_all = false;  // require the token for all requests, not only for those that change the run
};

class Service : public HttpHandler {
 public:
  // Forwards requests to `control` and `predictor`, which must outlive the service.
  Service(ServiceSettings settings, RunControl& control, Predictor& predictor);
  ~Service() override;
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // Sets the flow for drawing: when it becomes known, and again when another cycle begins.
  void set_graph(boost::json::object graph);
  // Callbacks for GET /v1/layers and GET /v1/tap, called on the service's thread. `layers` returns the cards, at most
  // once per second; `tap` returns the values at a producer or layer, and may throw.
  struct Looks {
    std::function<boost::json::object()> layers;
    std::function<boost::json::object(const std::string& edge, uint64_t samples)> tap;
  };
  void set_looks(Looks looks);
  // Serves a file to GET requests without a token; it must contain no data of the run.
  void put(const std::string& path, ServiceReply file);

  void handle(ServiceRequest request, Answer answer) override;
  Service* of_run() override { return this; }
  const std::string& known_paths() const override { return paths(); }
  // Sets the receiver of POST /v1/samples and /v1/samples/NAME.
  using TakeSamples = std::function<void(const std::string& name, ServiceRequest request, Answer answer)>;
  void set_samples(TakeSamples take);
  // Return whether a WebSocket of this path sends samples, or receives events.
  static bool takes_samples(const std::string& path);
  static bool sends_events(const std::string& path);
  // Returns the routes in the order of the documentation.
  static std::vector<const ApiRoute*> routes();
  // Returns a refusal if the request lacks the required authorisation, otherwise nothing. `changes`: it changes the
  // run.
  std::optional<ServiceReply> refuse(const ServiceRequest& request, bool changes) const {
    return refuse(settings_, request, changes);
  }
  // [any thread] Same, for any service with these settings.
  static std::optional<ServiceReply> refuse(const ServiceSettings& settings, const ServiceRequest& request,
                                            bool changes);

  // Executes a control message of an authorised client, and waits until it is done. Does not throw for a refused
  // request: the returned object then has the member "error".
  boost::json::object control(std::string_view message);
  boost::json::object status() const;
  boost::json::object graph() const;
  boost::json::object layers();
  // Returns the cards if they are newer than `seen`, without blocking. Requests new ones if they are outdated.
  std::optional<boost::json::object> layers_since(std::chrono::steady_clock::time_point& seen);
  const RunControl& run() const { return control_; }

  static ServiceReply reply(const boost::json::object& body, int status = 200);
  static ServiceReply refusal(int status, std::string error, std::string note);
  // Returns the paths, for messages.
  static const std::string& paths();

 private:
  struct Route : ApiRoute {
    void (Service::*handle)(ServiceRequest& request, const Answer& answer);
  };
  static const Route kRoutes[];
  static std::span<const Route> table();

  void predict(ServiceRequest& request, const Answer& answer);
  void model(ServiceRequest& request, const Answer& answer);
  void reply_status(ServiceRequest& request, const Answer& answer);
  void reply_graph(ServiceRequest& request, const Answer& answer);
  void history(ServiceRequest& request, const Answer& answer);
  void log(ServiceRequest& request, const Answer& answer);
  void reply_layers(ServiceRequest& request, const Answer& answer);
  void tap(ServiceRequest& request, const Answer& answer);
  ServiceReply tap(const ServiceRequest& request);
  void events(ServiceRequest& request, const Answer& answer);
  void samples(ServiceRequest& request, const Answer& answer);
  void change(ServiceRequest& request, const Answer& answer);
  void metrics(ServiceRequest& request, const Answer& answer);
  void health(ServiceRequest& request, const Answer& answer);
  void describe(ServiceRequest& request, const Answer& answer);
  void file(ServiceRequest& request, const Answer& answer);
  // Work for the service's thread, and the request that its reply answers; `answer` is empty if there is none.
  struct Task {
    std::function<ServiceReply()> reply;
    Answer answer;
  };
  // Returns false if the queue is full.
  bool later(std::function<ServiceReply()> reply, Answer answer = {});
  void work();
  ServiceReply failed(const std::exception& e);

  const ServiceSettings settings_;
  RunControl& control_;
  Predictor& predictor_;
  mutable std::mutex mutex_;
  boost::json::object graph_;
  std::map<std::string, ServiceReply> files_;
  Looks looks_;
  TakeSamples take_samples_;
  boost::json::object layers_;
  std::chrono::steady_clock::time_point layered_{};
  bool layers_wanted_ = false;
  struct Tapped {
    ServiceReply reply;
    std::chrono::steady_clock::time_point at;
  };
  std::map<std::pair<std::string, std::string>, Tapped>
      tapped_;  // recent replies, by edge and samples; taps_ limits their number
  RateLimit taps_;
  std::mutex layering_;  // held while cards are computed; locked before mutex_
  std::mutex waiting_;
  std::condition_variable wake_;
  std::deque<Task> later_;
  std::atomic<uint64_t> failed_{0};  // requests and other work that ended with an unexpected exception
  bool over_ = false;
  std::thread thread_;
};

}  // namespace harmonics::engine
