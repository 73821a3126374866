// harmonics importance: measures the importance of the columns of a model's matrices, for quantize --importance.
#include <filesystem>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "engine/base/spelling.hpp"
#include "engine/base/file.hpp"
#include "engine/cli/commands/command.hpp"
#include "engine/cli/run/language_model.hpp"
#include "engine/cli/terminal/output.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/model/gather_importance.hpp"

namespace harmonics::engine::cli {

int importance_command(const Options& options) {
  const std::string &text = options.files[1], &to = options.files[2];
  if (!to.ends_with(".gguf"))
    throw Error(ErrorKind::Usage, fmt::format("the importance is written as GGUF, but '{}' does not end in .gguf", to),
                {}, {fmt::format("harmonics importance {} {} NAME.gguf", options.files[0], text)});
  std::error_code failed;
  if (std::filesystem::equivalent(to, options.files[0], failed))
    throw Error(ErrorKind::Usage, fmt::format("OUTPUT '{}' is the model that is read", to), {},
                {"give another output"});
  LanguageModel model(options);
  const std::vector<int32_t> tokens = model.tokenizer->encode(read_plain_file(text));
  GatherOptions how;
  how.chunk = options.chunk;
  how.chunks = options.chunks;
  static_cast<DeviceSettings&>(how.compile) = options.run;
  how.compile.limits = options.limits;
  int shown = 0;
  ImportanceMatrix matrix = gather_importance(model.model, tokens, how, *model.executor, [&](double fraction) {
    const int tenth = static_cast<int>(fraction * 10);
    if (options.quiet || options.json || tenth <= shown || tenth == 10) return;
    shown = tenth;
    say(fmt::format("{} % of the text", tenth * 10));
  });
  matrix.datasets.push_back(text);
  write_importance(matrix, to);
  if (options.json)
    print_json(boost::json::object{{"version", 1},
                                   {"model", model.path},
                                   {"text", text},
                                   {"to", to},
                                   {"tokens", matrix.chunks * matrix.chunk_tokens},
                                   {"chunks", matrix.chunks},
                                   {"tensors", matrix.tensors.size()}});
  else if (!options.quiet)
    print("{}: importance of the columns of {} matrices, from {} tokens in {}\n", to,
          thousands(static_cast<int64_t>(matrix.tensors.size())), thousands(matrix.chunks * matrix.chunk_tokens),
          number_of(static_cast<uint64_t>(matrix.chunks), "chunk"));
  return kDone;
}

}  // namespace harmonics::engine::cli
