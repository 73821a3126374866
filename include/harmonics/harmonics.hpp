// Everything a program that embeds Harmonics or a plugin sees.
#pragma once

#include <harmonics/augmentation.hpp>
#include <harmonics/device.hpp>
#include <harmonics/error.hpp>
#include <harmonics/function.hpp>
#include <harmonics/functional.hpp>
#include <harmonics/memory_device.hpp>
#include <harmonics/metric.hpp>
#include <harmonics/ops.hpp>
#include <harmonics/stream.hpp>
#include <harmonics/tensor.hpp>
#include <harmonics/training.hpp>
