// Converts text to the man macros of troff.
#pragma once

#include <string>

namespace harmonics::engine::cli {

// Escapes the characters that roff interprets.
std::string roff_text(const std::string& text);
// Converts Markdown: headings, paragraphs, lists with - and numbers, tables, code between fences or indented by four
// blanks, `code`, *emphasis*, [links](to).
std::string roff_of_markdown(const std::string& markdown);

}  // namespace harmonics::engine::cli
