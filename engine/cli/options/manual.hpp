// The contents of manual pages besides the table of verbs: exit codes, variables, addresses, the flow language.
#pragma once

#include <span>
#include <string>

namespace harmonics::engine::cli {

struct ManualRow {
  const char *name, *help;
  bool everywhere = true;  // false: on the program's page only
};

std::span<const ManualRow> exit_rows();
// Environment variables that do not set flags.
std::span<const ManualRow> variable_rows();
std::span<const ManualRow> address_rows();
std::span<const ManualRow> file_rows();
extern const char* const kAddressNotes;

// Pages of docs that are compiled into the program.
struct ManualPage {
  const char *name, *text;
};
extern const ManualPage kManualPages[];
extern const unsigned kManualPageCount;
// docs/hmx.md.
std::string language_text();

}  // namespace harmonics::engine::cli
