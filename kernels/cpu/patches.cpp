#include "patches.hpp"

#include "families.hpp"

namespace harmonics::cpu {

bool plan_patches(const Site& site, hx_kernel& out) {
  const bool sums = site.op() == "unpatches";
  const hx_type &image = sums ? site.out() : site.in(0), &windows = sums ? site.in(0) : site.out();
  if (!site.all_f32() || image.rank < 3 || image.rank > 5) return false;
  auto c = std::make_unique<PatchContext>();
  const uint32_t skip = 5 - image.rank;
  const auto read = [&](const char* name, int64_t(&to)[3], int64_t otherwise) {
    const auto values = site.integers(name);
    for (uint32_t i = 0; i < 3; ++i) to[i] = i < skip || values.empty() ? otherwise : values[i - skip];
  };
  read("kernel", c->kernel, 1);
  read("strides", c->stride, 1);
  read("padding_low", c->low, 0);
  read("dilation", c->dilation, 1);
  for (uint32_t i = 0; i < 3; ++i) {
    c->size[i] = i < skip ? 1 : image.dims[i - skip + 2];
    c->place[i] = i < skip ? 1 : windows.dims[i - skip + 2];
  }
  c->planes = image.dims[0] * image.dims[1];
  c->fill = static_cast<float>(site.number("fill"));
  const double ns = 0.3 * static_cast<double>(count(windows));
  c->parts = parts_for(ns, sums ? c->planes : c->planes * c->kernel[0] * c->kernel[1] * c->kernel[2]);
  answer(out, std::move(c), sums ? isa().unpatches : isa().patches, sums ? "unpatches" : "patches");
  return true;
}

}  // namespace harmonics::cpu
