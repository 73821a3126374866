// What manual pages are made of beside the table of verbs: exit codes, variables, addresses, the flow language.
#pragma once

#include <span>
#include <string>

namespace harmonics::cli {

struct ManualRow {
  const char *name, *help;
  bool everywhere = true;  // false: on the program's page alone
};

std::span<const ManualRow> exit_rows();
// Variables of the environment that are no values of flags.
std::span<const ManualRow> variable_rows();
std::span<const ManualRow> address_rows();
std::span<const ManualRow> file_rows();
extern const char* const kAddressNotes;

// Pages of docs that the program holds: made while building.
struct ManualPage {
  const char *name, *text;
};
extern const ManualPage kManualPages[];
extern const unsigned kManualPageCount;
// docs/hmx.md.
std::string language_text();

// Text of a page: what roff would take for its own is escaped.
std::string roff_text(const std::string& text);
// Headings, paragraphs, lists, tables, code between fences or indented by four; `code`, *emphasis*, [links](to).
std::string roff_of_markdown(const std::string& markdown);

}  // namespace harmonics::cli
