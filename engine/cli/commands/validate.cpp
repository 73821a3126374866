// harmonics validate: reports all errors of all files without running anything.
#include <filesystem>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "engine/cli/commands/command.hpp"
#include "engine/cli/run/model_options.hpp"
#include "engine/cli/run/open_graph.hpp"
#include "engine/cli/terminal/command_text.hpp"
#include "engine/cli/terminal/output.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/model/imported.hpp"
#include "engine/transformer/ndsl_model.hpp"

namespace harmonics::engine::cli {

namespace {

boost::json::array json_of(const Error& e, const std::string& file) {
  boost::json::array all;
  const auto add = [&](const Error& one, const std::string& in) {
    boost::json::object o;
    o["file"] = in;
    o["line"] = one.span().line;
    o["column"] = one.span().column;
    o["message"] = one.what();
    o["notes"] = boost::json::value_from(one.notes());
    all.push_back(o);
  };
  const auto* many = dynamic_cast<const SourceErrors*>(&e);
  if (!many) add(e, file);
  for (size_t i = 0; many && i < many->errors().size(); ++i)
    add(many->errors()[i], is_ndsl(file) ? many->files()[i] : file);
  return all;
}

// Throws the errors of all harmonics of the flow together.
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

void check(const std::string& file, const Options& given) {
  if (is_ndsl(file)) return check_ndsl_file(file, ndsl_options(given).set);
  if (!given.set.empty())
    throw Error(ErrorKind::Usage, fmt::format("--set is for models, and '{}' is a flow", file), {}, {"leave it out"});
  std::error_code failed;
  expect_model_folder(file);
  if (std::filesystem::is_directory(file, failed))
    throw Error(ErrorKind::Usage, fmt::format("'{}' is a model; validate checks flows and .ndsl files", file), {},
                {"harmonics explain " + quoted(file) + " reads its configuration and its weights"});
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
