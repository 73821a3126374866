// Pictures as samples: one file, several, or a folder with a sub-folder for each class.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <harmonics/stream.hpp>

namespace harmonics {

struct ImageOptions {
  std::string resize;                    // "28x28": height, width; empty: all pictures must have one size
  uint64_t memory = 0;                   // the most that a picture may take; 0: as its file allows
  uint64_t channels = 0;                 // 1 grey, 3 colours; 0: as the first picture has
  std::vector<std::string> symbols;      // the classes in order; empty: the sub-folders' names, sorted
  std::string part;                      // of the pictures of each class
  std::optional<std::string> selection;  // "label": the classes
};

// The pictures directly in a folder, or those in its sub-folders; nothing when there are none.
struct ImageFolder {
  std::vector<std::string> paths, classes;
  std::vector<uint32_t> labels;  // which class each path is of; empty when there are no sub-folders
};
bool is_image_name(const std::string& path);
ImageFolder find_images(const std::string& folder);

// Samples u8[height, width] of grey, u8[3, height, width] of coloured pictures, or their classes. Pictures are decoded
// when they are read.
std::shared_ptr<Producer> open_images(const std::string& name, ImageFolder images, const ImageOptions& options);

}  // namespace harmonics
