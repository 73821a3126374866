// The external interfaces of one command: HTTP, the control socket, and their service.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/cli/options/options.hpp"
#include "engine/cycle/cycle_runtime.hpp"
#include "engine/cycle/run_control.hpp"

namespace harmonics::engine {
class ControlSocket;
class HttpServer;
class Predictor;
class Service;
class Snapshots;
class ZmqServer;
struct HttpLimits;
struct ListenAddress;
struct ServiceSettings;
}  // namespace harmonics::engine

namespace harmonics::engine::cli {

class ChangedFlow;
class LeftBehind;

// Parses an address to listen on. Throws ErrorKind::Denied if other machines can reach it and --insecure is not given.
ListenAddress listen_address(const std::string& text, bool insecure);
// Returns the token of the flags, or a random one, and the requests that need it. Throws ErrorKind::Usage for a weak
// token.
ServiceSettings service_settings(const Options& options, const std::vector<ListenAddress>& addresses);
// Returns limits of a language model's server: enough connections for all its texts, running and waiting.
HttpLimits text_limits(const Options& options);

class Serving {
 public:
  // Opens the interfaces that `options` request and prints their addresses. Until attach(), answers report only that
  // the run is starting.
  Serving(const Options& options, BoundGraph& graph);
  ~Serving();
  Serving(const Serving&) = delete;
  Serving& operator=(const Serving&) = delete;

  // Returns whether any interface is open.
  bool open() const { return service_ != nullptr; }
  RunControl& control() { return *control_; }
  Service& service() { return *service_; }
  Predictor& predictor() { return *predictor_; }
  // Call before opening the producers, so that clients see the flow and the streams for which it waits. `changed`
  // changes layers on request; it must outlive this.
  void expect_streams(ChangedFlow* changed = nullptr);
  // Call before runtime.run(). The result must be destroyed before the runtime.
  class Attached {
   public:
    Attached(ChangedFlow* changed, CycleRuntime& runtime);
    ~Attached();
    Attached(const Attached&) = delete;
    Attached& operator=(const Attached&) = delete;

   private:
    ChangedFlow* changed_;
  };
  Attached attach(CycleRuntime& runtime, int cycle);
  // Answers later requests with these weights.
  void serve(int cycle, const std::shared_ptr<Snapshots>& snapshots);
  void note(const std::string& text);

 private:
  // Provides the contents of layers and the values on arrows to clients.
  void show(int cycle, const std::shared_ptr<Snapshots>& snapshots);

  const Options& options_;
  BoundGraph& graph_;
  ChangedFlow* changed_ = nullptr;
  std::unique_ptr<RunControl> control_;
  std::unique_ptr<Predictor> predictor_;
  std::unique_ptr<Service> service_;
  std::vector<std::unique_ptr<HttpServer>> http_;
  std::vector<std::unique_ptr<ZmqServer>> zmq_;
  std::unique_ptr<ControlSocket> socket_;
  std::unique_ptr<LeftBehind> left_behind_;  // removes the socket's file
};

}  // namespace harmonics::engine::cli
