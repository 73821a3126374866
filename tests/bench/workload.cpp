#include "tests/bench/workload.hpp"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "dsl/load.hpp"
#include "engine/execution/product_rates.hpp"
#include "engine/execution/work.hpp"
#include "engine/passes/pass.hpp"
#include "tests/bench/rows.hpp"

namespace harmonics::engine::bench {

namespace json = boost::json;

namespace {

std::string folder() {
  const char* own = std::getenv("HARMONICS_WORKLOADS");
  return own ? own : HARMONICS_SOURCE_DIR "/workloads";
}

std::string read_text(const std::string& path) {
  std::ifstream in(path);
  if (!in)
    throw Error(ErrorKind::NoInput,
                fmt::format("'{}' cannot be read; HARMONICS_WORKLOADS names the folder of the workloads", path));
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// Returns the lines of a flow, or of the .hmx file with this path beside the workload.
std::string flow_text(const json::value& flow) {
  if (flow.is_string()) return read_text(folder() + "/" + std::string(flow.as_string()));
  std::string text;
  for (const json::value& line : flow.as_array()) text += std::string(line.as_string()) + "\n";
  return text;
}

DataSpec data_of(const std::string& name, const json::object& o) {
  DataSpec data;
  data.name = name;
  if (const auto* shape = o.if_contains("shape")) data.shape = Shape(json::value_to<std::vector<int64_t>>(*shape));
  if (const auto* classes = o.if_contains("classes")) data.classes = classes->to_number<int64_t>();
  data.positions = o.contains("positions") && o.at("positions").as_bool();
  data.values = json::value_to<std::string>(o.at("values"));
  return data;
}

Workload workload_of(const json::object& o) {
  Workload w;
  w.name = json::value_to<std::string>(o.at("name"));
  w.trains = o.at("mode").as_string() == "train";
  w.seed = o.at("seed").to_number<uint64_t>();
  for (const auto& [name, data] : o.at("data").as_object()) w.data.push_back(data_of(name, data.as_object()));
  const json::object& net = o.at("net").as_object();
  w.flow = flow_text(net.at("flow"));
  w.parameters = net.at("parameters").to_number<int64_t>();
  w.batches = json::value_to<std::vector<int64_t>>(o.at("batches"));
  w.threads = json::value_to<std::vector<int>>(o.at("threads"));
  if (w.trains) {
    const json::object& optimizer = o.at("optimizer").as_object();
    std::string settings;
    for (const auto& [key, value] : optimizer)
      if (key != "name")
        settings += fmt::format(
            "{}{}={}", settings.empty() ? "" : ", ", std::string(key),
            value.is_string() ? std::string(value.as_string()) : fmt::format("{}", value.to_number<double>()));
    const auto rule = json::value_to<std::string>(optimizer.at("name"));
    w.moments = rule == "sgd" && !optimizer.contains("momentum") ? 0 : rule == "adam" || rule == "adamw" ? 2 : -1;
    if (const auto* stored = optimizer.if_contains("moments"))  // of AdamW's 24 bytes per f32 weight
      w.moved = stored->as_string() == "bf16" ? 16 / 24.0 : stored->as_string() == "q8" ? 12 / 24.0 : 1;
    w.optimizer = fmt::format("{}({})", rule, settings);
  }
  return w;
}

double count(const TensorType& t) { return static_cast<double>(t.shape.count()); }

}  // namespace

Workload read_workload(const std::string& name) {
  const std::string path = folder() + "/" + name + ".json";
  try {
    return workload_of(json::parse(read_text(path)).as_object());
  } catch (const boost::system::system_error& e) {
    throw Error(ErrorKind::Usage, fmt::format("{}: {}", path, e.what()));
  } catch (const std::out_of_range& e) {
    throw Error(ErrorKind::Usage, fmt::format("{}: a key is missing ({})", path, e.what()));
  }
}

double contraction_flops(const Program& program) {
  double sum = 0;
  for (const Node& n : program.nodes) sum += work_of(program, n).products;
  return sum;
}

WorkloadStep::WorkloadStep(const Workload& workload, int64_t batch, int threads, DeviceSettings device) {
  const auto source = std::make_shared<SourceText>(workload.name, workload.flow);
  graph_ = std::make_unique<BoundGraph>(make_graph(parse_flow(source), Registry::global()));
  for (const DataSpec& data : workload.data) {
    const int producer = graph_->graph().find(data.name);
    if (producer < 0)
      throw Error(ErrorKind::Usage, fmt::format("{}: the flow has no producer '{}'", workload.name, data.name));
    graph_->streams().bind(graph_->graph(), producer, Source(data.name, open_data(data, workload.seed)));
  }
  RunSettings run;
  if (workload.trains) run.optimizer = workload.optimizer;
  settle_precision(device, Registry::global(), false);
  PreparedSettings settings;
  static_cast<DeviceSettings&>(settings) = std::move(device);
  settings.trains = workload.trains;
  settings.batch = batch;
  settings.threads = threads;
  settings.seed = workload.seed;
  settings.update = graph_->settings(0, run);
  const Rows rows(*graph_, 0, workload.trains, static_cast<uint64_t>(batch), workload.seed);
  step_ = std::make_unique<PreparedStep>(*graph_, rows, settings);

  double weights = 0;
  for (const auto& [name, tensor] : graph_->store().all())
    if (tensor.role == Role::weight) weights += count(tensor.type);
  if (weights != static_cast<double>(workload.parameters))
    throw Error(ErrorKind::Usage, fmt::format("{}: the flow learns {} numbers, \"parameters\" says {}", workload.name,
                                              weights, workload.parameters));
  flops_ = contraction_flops(dce(step_->step().lowered().program));
  least_bytes_ = weights * sizeof(float) * (workload.trains ? 3 : 1);
}

}  // namespace harmonics::engine::bench
