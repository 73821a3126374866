#include "producers/stdin.hpp"

#include <unistd.h>

#include "wire/live_streams.hpp"
#include "wire/pipe.hpp"

namespace harmonics {

std::shared_ptr<Producer> open_stdin(const std::string& path, const Arguments& options) {
  if (!path.empty()) throw Error(ErrorKind::Usage, "stdin:" + path + " names a place; write stdin: alone, or file:" + path);
  const auto reader = wire::Shared<wire::PipeReader>::at("stdin:", [] {
    wire::InboxOptions inbox;
    inbox.where = "stdin:";
    return std::make_shared<wire::PipeReader>(STDIN_FILENO, inbox);
  });
  return std::make_shared<wire::LiveProducer<wire::PipeReader>>(reader, options);
}

std::vector<Argument> stdin_options() {
  return wire::live_producer_options({Argument::text("format", "hxs", "frames of HXS/1 (docs/wire.md)").in("hxs")});
}

}  // namespace harmonics
