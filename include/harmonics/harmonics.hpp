// Everything a program that embeds Harmonics or a plugin sees.
#pragma once

#include <harmonics/device.hpp>
#include <harmonics/error.hpp>
#include <harmonics/function.hpp>
#include <harmonics/metric.hpp>
#include <harmonics/ops.hpp>
#include <harmonics/stream.hpp>
#include <harmonics/tensor.hpp>
