// harmonics validate: reports every error in every file, without running anything.
#include <boost/json.hpp>
#include <fmt/core.h>

#include "engine/cli/commands/command.hpp"
#include "engine/cli/run/open_graph.hpp"
#include "engine/cli/terminal/output.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/transformer/ndsl_mapping.hpp"
#include "engine/transformer/ndsl_model.hpp"

namespace harmonics::engine::cli {

namespace {

boost::json::array json_of(const Error& e, const std::string& file) {
  boost::json::array all;
  const auto add = [&](const Error& one) {
    boost::json::object o;
    o["file"] = file;
    o["line"] = one.span().line;
    o["column"] = one.span().column;
    o["message"] = one.what();
    o["notes"] = boost::json::value_from(one.notes());
    all.push_back(o);
  };
  if (const auto* many = dynamic_cast<const SourceErrors*>(&e))
    for (const Error& one : many->errors()) add(one);
  else
    add(e);
  return all;
}

// Errors of all harmonics are reported together.
void check_all(const Flow& flow) {
  std::vector<Error> errors;
  for (const Harmonic& h : flow.harmonics) {
    try {
      make_graph(flow, Registry::global(), h.name.text);
    } catch (const SourceErrors& e) {
      errors.insert(errors.end(), e.errors().begin(), e.errors().end());
    }
  }
  if (!errors.empty()) throw SourceErrors(*flow.source, in_order_of_text(std::move(errors)));
}

// Whether hf_mapping speaks of a layer by its number, which must then be there.
bool names_one_layer(const ndsl::ModelFile& file) {
  return std::any_of(file.hf_mapping.begin(), file.hf_mapping.end(), [](const ndsl::Mapping& mapping) {
    return mapping.tensor.text.starts_with("blocks[") && mapping.tensor.text.find("{i}") == std::string::npos;
  });
}

// A transformer: its blocks, its shapes, and hf_mapping.
void check_transformer(const std::string& file) {
  NdslOptions options;
  options.distinct_layers = !names_one_layer(read_ndsl(file));
  const auto compiled = compile_ndsl_model(file, options);
  check_ndsl(*compiled);
  folder_tensors(*compiled);
}

void check(const std::string& file, const Options& given) {
  if (is_ndsl(file)) return check_transformer(file);
  Options options = given;
  options.files = {file};
  const Flow flow = read_flow(options);
  try {
    if (!options.producers.empty()) {
      open_graph(flow, options, false)->widths();
    } else if (!options.graph.empty()) {
      make_graph(flow, Registry::global(), options.graph);
    } else {
      check_all(flow);
    }
  } catch (const SourceErrors&) {
    throw;
  } catch (const Error& e) {
    if (e.span().line) throw SourceErrors(*flow.source, {e});
    throw;
  }
}

}  // namespace

int validate_command(const Options& options) {
  int code = kDone;
  boost::json::array errors;
  for (const std::string& file : options.files) {
    try {
      check(file, options);
      if (!options.quiet)
        say(file + (is_ndsl(file)               ? ": ok"
                    : options.producers.empty() ? ": ok (widths were not checked: they depend on data, give --producer)"
                                                : ": ok"));
    } catch (const Error& e) {
      if (!options.json) print_error(e);
      for (auto& one : json_of(e, file)) errors.push_back(one);
      code = std::max(code, exit_code(e.kind()));
    }
  }
  if (options.json)
    print_json(boost::json::object{
        {"version", 1}, {"valid", code == kDone}, {"widths_checked", !options.producers.empty()}, {"errors", errors}});
  return code;
}

}  // namespace harmonics::engine::cli
