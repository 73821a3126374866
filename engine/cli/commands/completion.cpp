// harmonics completion: prints completion scripts for shells.
#include <boost/json.hpp>

#include <harmonics/error.hpp>

#include "engine/cli/commands/command.hpp"
#include "engine/cli/terminal/output.hpp"

namespace harmonics::engine::cli {

int completion_command(const Options& options) {
  const std::string script = completion_script(command_table(), options.files.front());
  if (options.json)
    print_json(boost::json::object{{"version", 1}, {"shell", options.files.front()}, {"script", script}});
  else
    print("{}", script);
  return kDone;
}

}  // namespace harmonics::engine::cli
