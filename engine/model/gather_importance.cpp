#include "engine/model/gather_importance.hpp"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <optional>
#include <set>

#include <fmt/core.h>

#include <harmonics/ops.hpp>

#include "engine/passes/observe.hpp"
#include "engine/program/functional.hpp"

namespace harmonics::engine {

namespace {

constexpr std::string_view kPrefix = "importance:", kRowsPrefix = "importance_rows:";

// Splits "blk.0.ffn_up_exps.weight[3]" into the name of the tensor and the index of the matrix.
std::pair<std::string, int64_t> matrix_of(const std::string& parameter) {
  const size_t bracket = parameter.rfind('[');
  int64_t index = 0;
  if (bracket == std::string::npos || parameter.back() != ']') return {parameter, 0};
  std::from_chars(parameter.data() + bracket + 1, parameter.data() + parameter.size(), index);
  return {parameter.substr(0, bracket), index};
}

// A linear map with one matrix for each group of rows, such as the experts of a mixture.
struct GroupedMap {
  ValueId x, offsets;
  std::vector<std::string> parameters;
};
// Recognizes a grouped map by its signature: x, offsets, and a matrix for each group.
std::optional<GroupedMap> grouped_map(const Program& program, const Node& node) {
  const FunctionalPtr functional = FunctionalTable::global().find(node.callee);
  if (!functional || functional->signature.inputs.size() != 3) return {};
  const std::vector<OperandSpec>& inputs = functional->signature.inputs;
  if (inputs[1].name != "offsets" || !inputs[2].repeated || node.inputs.size() < 3) return {};
  GroupedMap map{node.inputs[0], node.inputs[1], {}};
  for (size_t i = 2; i < node.inputs.size(); ++i) {
    const Node& weight = program.producer(node.inputs[i]);
    if (weight.op != Op::parameter || program.type(node.inputs[i]).shape.rank() != 2) return {};
    map.parameters.push_back(weight.callee);
  }
  return map;
}

// Adds outputs with the sums of squares over the rows of each group, and the number of these rows.
void output_squares(Tracer& tracer, const GroupedMap& map) {
  const HTensor x = cast(tracer.handle(map.x), DType::F32), offsets = tracer.handle(map.offsets);
  const auto groups = static_cast<int64_t>(map.parameters.size());
  const HTensor row = iota(DType::I32, {1, x.shape()[0]}, 1);
  const auto bounds = [&](int64_t from) { return reshape(slice_axis(offsets, 0, from, from + groups), {groups, 1}); };
  const HTensor own = cast(logical_and(less_equal(bounds(0), row), less(row, bounds(1))), DType::F32);
  const HTensor sums = dot(own, x * x, {1}, {0});
  const HTensor counts = slice_axis(offsets, 0, 1, groups + 1) - slice_axis(offsets, 0, 0, groups);
  for (int64_t e = 0; e < groups; ++e) {
    const std::string& parameter = map.parameters[static_cast<size_t>(e)];
    tracer.output(std::string(kPrefix) + parameter, reshape(slice_axis(sums, 0, e, e + 1), {x.shape()[1]}));
    tracer.output(std::string(kRowsPrefix) + parameter, slice_axis(counts, 0, e, e + 1));
  }
}

// Returns the program with the output "importance:NAME" for each parameter that is the weight of a linear map, and
// "importance_rows:NAME" for one that maps a part of the rows.
Program with_squares(Program program) {
  std::vector<std::pair<ValueId, std::string>> inputs;
  std::vector<GroupedMap> grouped;
  for (const Node& node : program.nodes) {
    if (node.op != Op::call || node.attributes.flag("transposed")) continue;
    if (auto map = grouped_map(program, node)) grouped.push_back(std::move(*map));
    const FunctionalPtr functional = FunctionalTable::global().find(node.callee);
    const auto matrix = functional ? functional->traits.transposable : std::nullopt;  // operand index of the weight
    if (!matrix) continue;
    const Node& weight = program.producer(node.inputs[*matrix]);
    if (weight.op == Op::parameter) inputs.emplace_back(node.inputs[0], weight.callee);
  }
  Tracer tracer(std::move(program));
  for (const auto& [value, parameter] : inputs) {
    const HTensor x = cast(tracer.handle(value), DType::F32);
    std::vector<int64_t> axes(x.rank() - 1);
    std::iota(axes.begin(), axes.end(), 0);
    tracer.output(std::string(kPrefix) + parameter, reduce_sum(x * x, axes));
  }
  for (const GroupedMap& map : grouped) output_squares(tracer, map);
  return observe(tracer.take(), [](const std::string& output) {
    return output.starts_with(kPrefix) || output.starts_with(kRowsPrefix);
  });
}

// `rows`: number of rows that the squares are of.
void add_squares(ImportanceMatrix& matrix, const std::string& parameter, const HTensor& squares, int64_t rows) {
  const auto [name, index] = matrix_of(parameter);
  ColumnImportance& entry = matrix.tensors[name];
  entry.columns = squares.size();
  const auto least = static_cast<size_t>(index + 1);
  if (entry.counts.size() < least) {
    entry.counts.resize(least);
    entry.squares.resize(least * static_cast<size_t>(entry.columns));
  }
  entry.counts[static_cast<size_t>(index)] += static_cast<double>(rows);
  double* to = entry.squares.data() + index * entry.columns;
  for (int64_t i = 0; i < entry.columns; ++i) to[i] += static_cast<double>(squares.data<float>()[i]);
}

}  // namespace

ImportanceMatrix gather_importance(const Model& model, std::span<const int32_t> tokens, const GatherOptions& options,
                                   Executor& executor, const std::function<void(double)>& progress) {
  if (tokens.empty()) throw Error(ErrorKind::Usage, "the text has no tokens", {}, {"give a longer text"});
  const auto all = static_cast<int64_t>(tokens.size());
  int64_t chunk = std::min(options.chunk, all);
  if (model.context > 0) chunk = std::min(chunk, model.context);
  const int64_t chunks = options.chunks > 0 ? std::min(options.chunks, all / chunk) : all / chunk;
  const Program program = with_squares(model.trace(model.entry("forward"), {1, chunk, chunk}));
  const auto executable = compile(program, model.parameters.get(), executor, options.compile);
  std::set<std::string> counts;  // outputs with numbers of rows
  for (const NamedValue& output : program.outputs)
    if (output.name.starts_with(kRowsPrefix)) counts.insert(output.name);
  ImportanceMatrix matrix;
  matrix.chunks = chunks;
  matrix.chunk_tokens = chunk;
  for (int64_t i = 0; i < chunks; ++i) {
    const void* input = tokens.data() + i * chunk;
    executable->run(&input);
    for (const NamedValue& output : program.outputs) {
      if (!output.name.starts_with(kPrefix)) continue;
      const std::string parameter = output.name.substr(kPrefix.size()), counted = std::string(kRowsPrefix) + parameter;
      const int64_t rows = counts.count(counted) ? executable->output(counted).data<int32_t>()[0] : chunk;
      add_squares(matrix, parameter, executable->output(output.name), rows);
    }
    if (progress) progress(static_cast<double>(i + 1) / static_cast<double>(chunks));
  }
  return matrix;
}

}  // namespace harmonics::engine
