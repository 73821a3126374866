// Images as samples: one file, several, or a folder with a sub-folder per class.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <harmonics/stream.hpp>

namespace harmonics {

struct ImageOptions {
  std::string resize;                    // "28x28": height, width; empty: all images must have one size
  uint64_t memory = 0;                   // maximum memory of an image; 0: limited by its file
  uint64_t channels = 0;                 // 1 grey, 3 colours; 0: as in the first image
  std::vector<std::string> symbols;      // the classes in order; empty: the sub-folders' names, sorted
  bool learned = false;                  // `symbols` were learned with the weights
  std::string part;                      // range of each class's images; see part.hpp
  std::optional<std::string> selection;  // "label": the classes
};

// The images directly in a folder or in its sub-folders; empty: there are none.
struct ImageFolder {
  std::vector<std::string> paths, classes;
  std::vector<uint32_t> labels;  // class of each path; empty without sub-folders
};
bool is_image_name(const std::string& path);
ImageFolder find_images(const std::string& folder);

// Opens samples u8[height, width] of grey images or u8[3, height, width] of coloured ones, or their classes. Images are
// decoded when they are read.
std::shared_ptr<Producer> open_images(const std::string& name, ImageFolder images, const ImageOptions& options);

}  // namespace harmonics
