// Grammars of answers that call a tool.
#pragma once

#include <string>
#include <string_view>

#include <boost/json/array.hpp>

namespace harmonics::engine {

// An answer that is one call of one of the tools, which are those of OpenAI's API; `name`: of this one, "": of any. The
// arguments follow the tool's schema. The marks around the call, and whether a block of reasoning may precede it, are
// those of the model's chat template; `thinking`: the answer begins inside such a block. Throws ErrorKind::Usage, with
// the place, for tools and schemas that are wrong, and for a name that no tool has.
std::string grammar_of_call(const boost::json::array& tools, const std::string& name, std::string_view chat_template,
                            bool thinking);

}  // namespace harmonics::engine
