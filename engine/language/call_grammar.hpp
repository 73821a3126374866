// Grammars of answers that call a tool or follow a JSON schema.
#pragma once

#include <string>
#include <string_view>

#include <boost/json/array.hpp>
#include <boost/json/value.hpp>

namespace harmonics::engine {

// Returns the grammar of an answer that is one call of a tool. `tools` has the format of OpenAI's API; `name` selects
// one of them, "" allows any. Arguments follow the schema of the tool. The chat template of the model determines the
// marks around the call, and whether a block of reasoning may precede it. `thinking`: the answer starts inside such a
// block. Throws ErrorKind::Usage for malformed tools and schemas, with the location, and for a name that no tool has.
std::string grammar_of_call(const boost::json::array& tools, const std::string& name, std::string_view chat_template,
                            bool thinking);
// Returns the grammar of an answer that is a text of the rule `text` or, if `tools` is not empty, such a call. `rules`
// contains that rule and those that it needs besides json_rules().
std::string grammar_of_answer(const std::string& rules, const boost::json::array& tools, std::string_view chat_template,
                              bool thinking);

}  // namespace harmonics::engine
