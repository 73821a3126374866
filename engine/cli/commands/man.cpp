// harmonics man: shows manual pages.
#include <boost/json.hpp>

#include <harmonics/error.hpp>

#include "engine/cli/commands/command.hpp"
#include "engine/cli/terminal/output.hpp"

namespace harmonics::engine::cli {

namespace {

int list_verbs(const Options& options) {
  if (!options.files.empty())
    throw Error(ErrorKind::Usage, "--list takes no page, but '" + options.files.front() + "' is given", {},
                {"leave one of them out"});
  boost::json::array verbs;
  for (const std::string& name : verb_names()) {
    verbs.emplace_back(name);
    if (!options.json) print("{}\n", name);
  }
  if (options.json) print_json(boost::json::object{{"version", 1}, {"verbs", verbs}});
  return kDone;
}

}  // namespace

int man_command(const Options& options) {
  if (options.list) return list_verbs(options);
  const std::string name = options.files.empty() ? "" : options.files.front();
  const std::string text = man_page(command_table(), name);
  const std::string title = name.empty() ? "harmonics" : name == "hmx" ? name : "harmonics-" + name;
  if (options.json)
    print_json(boost::json::object{{"version", 1}, {"page", title}, {"text", text}});
  else
    print("{}", text);
  return kDone;
}

}  // namespace harmonics::engine::cli
