// What the machine can do at most: bytes read per second and multiply-adds per second. The bounds
// of every other measurement.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/thread_pool.h"

namespace minke {

// Each returns units per second of one sample, split over the threads of the pool.

// Bytes: one pass over the memory with 32-byte loads, each thread over stretches of its own. Less
// than 2 MiB at the end are not read.
double MeasureReadRate(std::span<const std::byte> memory, ThreadPool& pool);
// Multiply-adds of float32 in the widest registers there are (vfmadd), no memory: about `seconds`
// long.
double MeasureFmaRate(double seconds, ThreadPool& pool);
// Multiply-adds of unsigned by signed bytes, summed to 32 bits (vpdpbusd; without AVX-512 VNNI
// vpmaddubsw, vpmaddwd, vpaddd).
double MeasureIntegerRate(double seconds, ThreadPool& pool);

}  // namespace minke
