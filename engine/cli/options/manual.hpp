// Contents of manual pages apart from the verbs: exit codes, variables, addresses, the flow language.
#pragma once

#include <span>
#include <string>

namespace harmonics::engine::cli {

struct ManualRow {
  const char *name, *help;
  bool everywhere = true;  // false: only on the program's page
};

std::span<const ManualRow> exit_rows();
// Returns the environment variables that do not set flags.
std::span<const ManualRow> variable_rows();
std::span<const ManualRow> address_rows();
std::span<const ManualRow> file_rows();
extern const char* const kAddressNotes;

// Documentation pages that are compiled into the program.
struct ManualPage {
  const char *name, *text;
};
extern const ManualPage kManualPages[];
extern const unsigned kManualPageCount;
// Returns docs/hmx.md.
std::string language_text();

}  // namespace harmonics::engine::cli
