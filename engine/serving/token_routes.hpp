// Routes for tokens of texts, as servers of vLLM and llama.cpp have them.
#pragma once

#include "engine/language/chat_template.hpp"
#include "engine/serving/api_route.hpp"
#include "engine/serving/http_handler.hpp"

namespace harmonics::engine {

ApiRoute tokenize_route();
ApiRoute detokenize_route();
ApiRoute tokenizer_info_route();
ApiRoute apply_template_route();

// Return the replies. `ids` are those of a conversation in the body; null: the body has a text. `context`: the maximum
// number of tokens. Throw ErrorKind::Usage with the name of an invalid field.
ServiceReply tokenize_reply(const std::string& body, const std::vector<int32_t>* ids, const Tokenizer& tokenizer,
                            int64_t context);
ServiceReply detokenize_reply(const std::string& body, const Tokenizer& tokenizer);
ServiceReply tokenizer_info_reply(const Tokenizer& tokenizer, const ChatTemplate& format, int64_t context);

}  // namespace harmonics::engine
