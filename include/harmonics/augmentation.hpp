// Augmentations of plugins: augment=name(arguments) in an address.
#pragma once

#include <string>
#include <vector>

#include <harmonics/augmentation_abi.h>
#include <harmonics/function.hpp>
#include <harmonics/philox.hpp>

namespace harmonics {

// The type of a sample.
struct SampleType {
  DType dtype;
  Shape shape;
};

// Augments one sample. `random` must be the only source of random numbers, so that runs repeat, independent of earlier
// reads and threads. Called from any thread.
class AugmentationFunction {
 public:
  // Returns the type of the result for samples of this type; throws if unsupported.
  virtual SampleType result_type(const SampleType& sample, const Arguments& arguments) const {
    (void)arguments;
    return sample;
  }
  // Writes the augmented values of one sample to `to`.
  virtual void operator()(const SampleType& sample, const void* from, PhiloxStream& random, const SampleType& result,
                          void* to, const Arguments& arguments) const = 0;
  virtual ~AugmentationFunction() = default;
};

namespace detail {

HARMONICS_FACE inline SampleType sample_type(const hx_type& t) {
  return {static_cast<DType>(t.dtype), Shape(t.dims, t.dims + t.rank)};
}

HARMONICS_FACE inline const hx_augmentation_vt* augmentation_vt() {
  static const hx_augmentation_vt vt = {
      sizeof(hx_augmentation_vt),
      [](void* self, const hx_attributes* args, const hx_type* sample, hx_type* out) {
        return guarded([&] {
          const SampleType result =
              object<AugmentationFunction>(self).result_type(sample_type(*sample), Arguments(args));
          *out = make_type(result.dtype, result.shape);
          return HX_OK;
        });
      },
      [](void* self, const hx_attributes* args, const hx_type* sample, const void* from, const hx_draw* draw,
         const hx_type* result, void* to) {
        return guarded([&] {
          PhiloxStream random({static_cast<uint32_t>(draw->key), static_cast<uint32_t>(draw->key >> 32)}, draw->record,
                              draw->ordinal);
          object<AugmentationFunction>(self)(sample_type(*sample), from, random, sample_type(*result), to,
                                             Arguments(args));
          return HX_OK;
        });
      },
      destroy<AugmentationFunction>};
  return &vt;
}

}  // namespace detail

HARMONICS_FACE inline void FunctionRegistry::register_augmentation(const std::string& name,
                                                                   std::shared_ptr<AugmentationFunction> f,
                                                                   const std::string& description,
                                                                   const std::vector<Argument>& arguments) {
  add(HX_AUGMENTATION, name, description, arguments, 0, detail::held(std::move(f), "augmentation", name),
      [] { return static_cast<const void*>(detail::augmentation_vt()); });
}

}  // namespace harmonics
