// Committed random flows (random_flows/write_golden.py): texts, data, and the results of equivalent PyTorch models.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "golden.hpp"
#include "tests/engine/runtime/memory_streams.hpp"

namespace harmonics::engine::parity {

struct RandomFlow {
  std::string name, text;
  int64_t seed = 0, batch = 0;
  bool shuffle = true;
  std::map<std::string, int64_t> classes = {};        // number of symbols of streams, if known
  std::map<std::string, std::string> consumers = {};  // by layer; "": the unnamed one
  std::map<std::string, double> allowed = {};         // allowed error of a part, relative to its largest value

  RunSettings settings() const {
    RunSettings s;
    s.threads = 1;
    s.shuffle = shuffle;
    return s;
  }
};

inline std::vector<RandomFlow> random_flows(const TensorFile& file) {
  std::vector<RandomFlow> flows;
  for (const auto& [name, text] : file.metadata) {
    const boost::json::object row = boost::json::parse(text).as_object();
    RandomFlow f{name, std::string(row.at("text").as_string()), row.at("seed").as_int64(), row.at("batch").as_int64(),
                 row.at("shuffle").as_bool()};
    for (const auto& [stream, n] : row.at("classes").as_object()) f.classes[std::string(stream)] = n.as_int64();
    for (const auto& [layer, consumer] : row.at("consumers").as_object())
      f.consumers[std::string(layer)] = consumer.as_string();
    for (const auto& [part, error] : row.at("allowed").as_object())
      f.allowed[std::string(part)] = error.to_number<double>();
    flows.push_back(std::move(f));
  }
  return flows;
}

// Rows with a known number of symbols are windows of a text.
template <typename T>
class Windows : public testing::Rows<T> {
 public:
  using testing::Rows<T>::Rows;
  std::optional<StreamInfo> describe() override {
    std::optional<StreamInfo> info = testing::Rows<T>::describe();
    info->position_axes = 1;
    return info;
  }
};

template <typename T>
Source rows_of(const std::string& name, const HTensor& t, int64_t classes) {
  const std::vector<T> values(t.data<T>(), t.data<T>() + t.size());
  if (classes > 0) return Source(name, std::make_shared<Windows<T>>(t.shape().from(1), values, classes));
  return Source(name, std::make_shared<testing::Rows<T>>(t.shape().from(1), values));
}
inline Source source_of(const std::string& name, const HTensor& t, int64_t classes) {
  switch (t.dtype()) {
    case DType::F32:
      return rows_of<float>(name, t, classes);
    case DType::I32:
      return rows_of<int32_t>(name, t, classes);
    case DType::I64:
      return rows_of<int64_t>(name, t, classes);
    case DType::U8:
      return rows_of<uint8_t>(name, t, classes);
    default:
      throw Error(ErrorKind::Internal, "no producer for " + type_of(t).str());
  }
}

// Binds the streams of a part ("train", "test", "infer") that the graph uses.
inline void bind_part(BoundGraph& graph, StreamSet& streams, const TensorFile& file, const RandomFlow& flow,
                      const std::string& part, bool taps) {
  const std::vector<int> used = graph.graph().producers_used(0, taps);
  for (const auto& [name, t] : below(file, flow.name + "/" + part)) {
    const int producer = graph.graph().find(name);
    if (std::find(used.begin(), used.end(), producer) == used.end()) continue;
    const auto classes = flow.classes.find(name);
    streams.bind(graph.graph(), producer, source_of(name, t, classes == flow.classes.end() ? 0 : classes->second));
  }
}

// Returns the flow without taps, as in `harmonics infer`.
inline std::unique_ptr<BoundGraph> inference_of(const RandomFlow& flow) {
  Graph graph = make_graph(parse_flow(std::make_shared<SourceText>("random.hmx", flow.text)), Registry::global());
  graph.taps.clear();
  for (CycleSettings& c : graph.cycles) c.epochs.reset(), c.steps.reset();
  return std::make_unique<BoundGraph>(std::move(graph));
}

// Returns the largest difference relative to the largest expected value; infinite if only one is NaN.
inline double relative_error(const HTensor& found, const HTensor& expected) {
  if (found.size() != expected.size()) return INFINITY;
  const HTensor f = cast(found, DType::F64), e = cast(expected, DType::F64);
  double difference = 0, largest = 1e-30;
  for (int64_t i = 0; i < f.size(); ++i) {
    const double a = f.data<double>()[i], b = e.data<double>()[i];
    largest = std::max(largest, std::abs(b));
    if (a == b) continue;
    if (!std::isfinite(a) || !std::isfinite(b)) return INFINITY;
    difference = std::max(difference, std::abs(a - b));
  }
  return difference / largest;
}

}  // namespace harmonics::engine::parity
