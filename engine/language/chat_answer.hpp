// Splits the answer of a chat model, while it is generated, into content, reasoning and tool calls.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace harmonics::engine {

struct AnswerPart {
  enum Kind { content, reasoning, call } kind;
  std::string text;            // for calls: the name
  std::string arguments = {};  // for calls: a JSON object
};

// The marks of reasoning and calls of tools. Vocabularies have some of them as tokens.
inline constexpr std::string_view kAnswerMarks[] = {"<think>",       "</think>",       "<tool_call>",  "</tool_call>",
                                                    "<|tool_call|>", "<|/tool_call|>", "[TOOL_CALLS]", "[ARGS]",
                                                    "[CALL_ID]",     "<|python_tag|>"};

// The marks of messages in answers of gpt-oss: an answer is a sequence of messages, each in a channel.
inline constexpr std::string_view kMessageMarks[] = {"<|channel|>", "<|message|>", "<|constrain|>", "<|start|>",
                                                     "<|end|>"};

// Splits the text of an answer incrementally. Recognises <think> blocks, and calls marked by <tool_call>, [TOOL_CALLS],
// <|tool_call|>, <|python_tag|> or as a single JSON object. Of the messages of gpt-oss, those in the channel analysis
// are reasoning, those to a function are calls, and all others are content (OpenAI, harmony response format).
class AnswerReader {
 public:
  // `tools`: names; without any, calls are content. A JSON object without marks is a call only if it names one of them.
  // `prompt`: if it ends inside a block of reasoning, the answer starts inside that block.
  AnswerReader(std::vector<std::string> tools, std::string_view prompt);
  static bool begins_in_reasoning(std::string_view prompt);
  // Adds text. Returns the parts that are complete or cannot change any more.
  std::vector<AnswerPart> push(const std::string& more);
  // Ends the answer and returns the remaining parts. An incomplete call is content.
  std::vector<AnswerPart> finish();

 private:
  enum class Mode { content, reasoning, call, author, channel, message };
  bool advance(std::vector<AnswerPart>& parts, bool last);
  bool advance_content(std::vector<AnswerPart>& parts, bool last);
  bool advance_block(std::vector<AnswerPart>& parts, bool last);
  bool advance_header(std::vector<AnswerPart>& parts, bool last);
  bool advance_message(std::vector<AnswerPart>& parts, bool last);
  bool is_known(const AnswerPart& call) const;
  void emit(std::vector<AnswerPart>& parts, AnswerPart::Kind kind, std::string text);

  const std::vector<std::string> tools_;
  Mode mode_ = Mode::content;
  std::string held_;
  std::string open_, close_;  // marks of the current call
  std::string header_;        // author, recipient and channel of the current message
  bool begun_ = false;        // content was emitted
};

// Returns the calls in a JSON text, {"name": ..., "arguments" or "parameters": {...}} or a list of them; empty for
// other texts.
std::vector<AnswerPart> tool_calls_of(std::string_view text);

}  // namespace harmonics::engine
