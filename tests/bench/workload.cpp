#include "tests/bench/workload.hpp"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include <boost/json.hpp>
#include <fmt/core.h>
#include <harmonics/philox.hpp>

#include "dsl/load.hpp"

namespace harmonics::bench {

namespace json = boost::json;

namespace {

constexpr size_t kBatches = 8;  // made beforehand and used in turn, so that a step never sees only one batch

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

// Lines of a flow, or the path of a .hmx beside the workload.
std::string flow_text(const json::value& flow) {
  if (flow.is_string()) return read_text(folder() + "/" + std::string(flow.as_string()));
  std::string text;
  for (const json::value& line : flow.as_array()) text += std::string(line.as_string()) + "\n";
  return text;
}

Workload workload_of(const json::object& o) {
  Workload w;
  w.name = json::value_to<std::string>(o.at("name"));
  w.trains = o.at("mode").as_string() == "train";
  w.seed = o.at("seed").to_number<uint64_t>();
  const json::object& net = o.at("net").as_object();
  w.flow = flow_text(net.at("flow"));
  w.parameters = net.at("parameters").to_number<int64_t>();
  w.batches = json::value_to<std::vector<int64_t>>(o.at("batches"));
  w.threads = json::value_to<std::vector<int>>(o.at("threads"));
  if (w.trains) {
    const json::object& optimizer = o.at("optimizer").as_object();
    w.lr = optimizer.at("lr").to_number<double>();
    w.optimizer = fmt::format("{}(lr={})", json::value_to<std::string>(optimizer.at("name")), w.lr);
  }
  return w;
}

double count(const TensorType& t) { return static_cast<double>(t.shape.count()); }

double flops_of(const Program& p, const Node& n) {
  const auto in = [&](size_t i) { return p.type(n.inputs[i]); };
  const TensorType& out = p.type(n.outputs[0]);
  const auto window = [](const TensorType& weight) { return count(weight) / static_cast<double>(weight.shape[0]); };
  if (n.op == Op::dot) {
    double products = count(out);
    for (int64_t axis : n.attributes.integers("lhs_contract"))
      products *= static_cast<double>(in(0).shape[static_cast<uint32_t>(axis)]);
    return 2 * products;
  }
  if (n.op != Op::call) return 0;
  if (n.callee == "linear") return 2 * count(out) * static_cast<double>(in(0).shape.back());
  if (n.callee == "conv") return 2 * count(out) * window(in(1));
  if (n.callee == "conv_grad_input") return 2 * count(in(1)) * window(in(0));
  if (n.callee == "conv_grad_weight") return 2 * count(in(1)) * window(out);
  return 0;
}

void fill_random(const StreamType& type, PhiloxStream& random, void* to, size_t bytes) {
  if (type.dtype == DType::F32) {
    for (size_t i = 0; i < bytes / sizeof(float); ++i) static_cast<float*>(to)[i] = random.uniform();
    return;
  }
  if (type.dtype != DType::I32 || type.classes <= 0)
    throw Error(ErrorKind::Type, "workloads have streams of f32 numbers and of i32 classes");
  for (size_t i = 0; i < bytes / sizeof(int32_t); ++i)
    static_cast<int32_t*>(to)[i] = static_cast<int32_t>(random.uniform() * static_cast<float>(type.classes));
}

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
  for (const Node& n : program.nodes) sum += flops_of(program, n);
  return sum;
}

PreparedStep::PreparedStep(const Workload& workload, int64_t batch, int threads)
    : lr_(static_cast<float>(workload.lr)), seed_(workload.seed) {
  const auto source = std::make_shared<SourceText>(workload.name, workload.flow);
  graph_ = std::make_unique<HarmonicGraph>(make_graph(parse_flow(source), Registry::global()));
  graph_->assume_declared_streams();
  RunSettings run;
  if (workload.trains) run.optimizer = workload.optimizer;
  const ResolvedSettings settings = graph_->settings(0, run);
  LoweringOptions options;
  options.mode = workload.trains ? Mode::train : Mode::infer;
  options.batch = batch;
  options.seed = seed_;
  options.optimizer = settings.optimizer;
  if (!workload.trains) options.wanted = graph_->results(0);
  CompileOptions compile;
  compile.registry = &graph_->registry();
  step_ = std::make_unique<CompiledStep>(graph_->lower(options), graph_->store(), graph_->executor(threads), compile);

  double weights = 0;
  for (const auto& [name, tensor] : graph_->store().all())
    if (tensor.role == Role::weight) weights += count(tensor.type);
  if (weights != static_cast<double>(workload.parameters))
    throw Error(ErrorKind::Usage, fmt::format("{}: the flow learns {} numbers, \"parameters\" says {}", workload.name,
                                              weights, workload.parameters));
  flops_ = contraction_flops(executable().program());
  least_bytes_ = weights * sizeof(float) * (workload.trains ? 3 : 1);
  fill(workload, batch);
}

void PreparedStep::fill(const Workload& workload, int64_t batch) {
  PhiloxStream random(philox_key(workload.seed, 0), 0);
  for (size_t i = 0; i < kBatches; ++i) {
    Buffer buffer;
    std::vector<const void*> pointers;
    for (int node : step_->lowered().inputs) {
      const StreamType& type = graph_->types().at(node);
      const size_t bytes = static_cast<size_t>(batch * type.sample.count()) * element_bytes(type.dtype);
      buffer.push_back(std::make_shared<Storage>(bytes));
      fill_random(type, random, buffer.back()->data(), bytes);
      pointers.push_back(buffer.back()->data());
    }
    buffers_.push_back(std::move(buffer));
    pointers_.push_back(std::move(pointers));
  }
}

void PreparedStep::run() {
  const size_t batch = static_cast<size_t>(count_++) % kBatches;
  step_->set(pointers_[batch].data(), lr_, count_, seed_);
  step_->run();
}

}  // namespace harmonics::bench
