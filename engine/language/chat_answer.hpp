// The answer of a chat model while it is written: what it says, its reasoning, and its calls of tools.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace harmonics::engine {

struct AnswerPart {
  enum Kind { content, reasoning, call } kind;
  std::string text;            // of a call: its name
  std::string arguments = {};  // of a call: a JSON object
};

// Divides the text of an answer as it comes. Knows <think> blocks, and calls as <tool_call>, [TOOL_CALLS],
// <|tool_call|>, <|python_tag|> or a single JSON object mark them.
class AnswerReader {
 public:
  // `tools`: calls are read, else they are content. `prompt`: if it ends inside a block of reasoning, so the answer
  // begins.
  AnswerReader(bool tools, std::string_view prompt);
  static bool begins_in_reasoning(std::string_view prompt);
  // Returns the parts that are certain.
  std::vector<AnswerPart> push(const std::string& more);
  // The answer is over: returns the rest. A call that is not complete is content.
  std::vector<AnswerPart> finish();

 private:
  enum class Mode { content, reasoning, call };
  bool advance(std::vector<AnswerPart>& parts, bool last);
  bool advance_content(std::vector<AnswerPart>& parts, bool last);
  bool advance_block(std::vector<AnswerPart>& parts, bool last);
  void emit(std::vector<AnswerPart>& parts, AnswerPart::Kind kind, std::string text);

  const bool tools_;
  Mode mode_ = Mode::content;
  std::string held_;
  std::string open_, close_;  // of the call
  bool begun_ = false;        // content was emitted
};

// The calls in a JSON text: {"name": ..., "arguments" or "parameters": {...}} or a list of them. Empty: it is none.
std::vector<AnswerPart> tool_calls_of(std::string_view text);

}  // namespace harmonics::engine
