// Stores refused samples on disk with their original bytes, so that they can be corrected and sent again.
#pragma once

#include <map>

#include "wire/folder_budget.hpp"
#include "wire/plain/record_decoder.hpp"

namespace harmonics::plain {

// Appends one object per sample to PREFIX.reasons.jsonl: time, sender, reason. Text lines are appended to
// PREFIX.refused.jsonl or .csv, each table after its header; binary samples are stored in the object as base64. After a
// write error or at the limit, given_up() returns the reason and the stream continues. Not thread-safe.
class RefusedSamples {
 public:
  struct Sample {
    Format format;
    uint64_t sender, number;  // the sender's number and that of its sample, from 1
    std::string_view bytes, header;
  };
  // `prefix`: path of the files without extensions; the folder must exist. `most_bytes`: limit of all dead letters in
  // the folder.
  RefusedSamples(std::string where, std::string prefix, uint64_t most_bytes);
  RefusedSamples(const RefusedSamples&) = delete;
  RefusedSamples& operator=(const RefusedSamples&) = delete;
  ~RefusedSamples();

  void keep(const Sample& sample, const std::string& reason);
  // Returns why no more samples are stored; "" while they are.
  const std::string& given_up() const { return given_up_; }

 private:
  struct Lines {
    std::string name;  // without the folder
    int file = -1;
    uint64_t count = 0;
    bool is_new = false;
  };
  Lines open_lines(const std::string& name);
  Lines* lines_of(Format format, std::string_view header);
  bool write(Lines& lines, std::string_view bytes);
  void give_up(const std::string& why);

  std::string where_, folder_, name_, given_up_;
  wire::FolderBudget budget_;
  std::optional<Lines> reasons_;
  std::map<std::pair<Format, std::string>, Lines> texts_;  // by header
};

}  // namespace harmonics::plain
