// Writes a model as a self-contained HTML page: figures, blocks with shapes, tables.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace harmonics::engine::cli {

class ModelPage {
 public:
  explicit ModelPage(std::string title) : title_(std::move(title)) {}

  void figure(const std::string& name, const std::string& value);
  // Adds a block with its operations and their results. Consecutive blocks that differ only in name are merged.
  void block(const std::string& name, std::vector<std::pair<std::string, std::string>> parts);
  void table(const std::string& heading, const std::vector<std::string>& heads,
             const std::vector<std::vector<std::string>>& rows);
  // Adds the output of a verb with --json: its fields as figures, its lists of objects as tables. Throws
  // ErrorKind::Usage if `file` is not such an output.
  void numbers(const std::string& file);
  // Writes the page. Throws ErrorKind::Output.
  void write(const std::string& path) const;

 private:
  struct Block {
    std::string first, last;
    std::vector<std::pair<std::string, std::string>> parts;
  };
  std::string blocks_html() const;

  std::string title_, figures_, tables_;
  std::vector<Block> blocks_;
};

}  // namespace harmonics::engine::cli
