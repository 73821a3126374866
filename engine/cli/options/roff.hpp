// Text for manual pages, in the language of troff's man macros.
#pragma once

#include <string>

namespace harmonics::engine::cli {

// Escapes the characters of a page's text that roff interprets.
std::string roff_text(const std::string& text);
// Converts headings, paragraphs, lists with - and numbers, tables, code between fences or indented by four; `code`,
// *emphasis*, [links](to).
std::string roff_of_markdown(const std::string& markdown);

}  // namespace harmonics::engine::cli
