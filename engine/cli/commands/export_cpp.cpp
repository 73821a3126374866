// harmonics export --cpp: writes an entry of a model as C++ source that uses the public headers.
#include <boost/json.hpp>
#include <fmt/core.h>

#include "engine/base/file.hpp"
#include "engine/cli/commands/command.hpp"
#include "engine/cli/run/model_options.hpp"
#include "engine/cli/run/open_model.hpp"
#include "engine/cli/terminal/output.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/model/cpp_source.hpp"
#include "engine/passes/observe.hpp"
#include "engine/passes/pass.hpp"
#include "engine/transformer/ndsl_model.hpp"

namespace harmonics::engine::cli {

namespace {

Model model_to_write(const Options& options) {
  const std::string& from = options.files[0];
  if (!is_ndsl(from)) {
    if (!is_model(from, Registry::global()))
      throw Error(ErrorKind::Usage, fmt::format("--cpp takes a model, but '{}' is not one", from));
    return open_model(from, options).model;
  }
  if (!options.lora.empty())
    throw Error(ErrorKind::Usage, "--cpp of a .ndsl file takes no --lora", {},
                {fmt::format("merge it first: harmonics export {} FOLDER/ --weights WEIGHTS --lora PATH", from)});
  if (options.weights.empty()) print_note(fmt::format("'{}' has no weights: these are initial values", from));
  return open_ndsl(from, ndsl_options(options)).model;
}

}  // namespace

int export_cpp(const Options& options) {
  refuse_beside(options, {"format", "option", "tokenizer", "shard-size", "add-token"}, "--cpp");
  const std::string &from = options.files[0], &to = options.files[1];
  const Model model = model_to_write(options);
  const Entry& entry = model.entry(options.entry.empty() ? "forward" : options.entry);
  EntrySizes sizes;
  sizes.batch = options.run.batch.value_or(1);
  sizes.tokens = options.tokens;
  const Program program =
      dce(observe(model.trace(entry, sizes), [](const std::string& name) { return !name.starts_with(kValueOutput); }));
  CppSource source;
  source.model = model.name;
  source.function = entry.name;
  source.value_of = [&](const std::string& name) { return model.parameters->tensor(name); };
  const std::string text = cpp_source(program, source);
  write_file_atomically(to, text);
  if (options.json)
    print_json(boost::json::object{{"version", 1},
                                   {"from", from},
                                   {"to", to},
                                   {"format", "cpp"},
                                   {"tensors", program.leaves(Op::parameter).size()},
                                   {"bytes", text.size()}});
  else if (!options.quiet)
    print("{}: {} of {} tokens as C++, {:.1f} MB\n", to, entry.name, thousands(sizes.tokens),
          static_cast<double>(text.size()) / 1e6);
  return kDone;
}

}  // namespace harmonics::engine::cli
