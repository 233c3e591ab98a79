// What minke bench decode says of weights that are read as they are needed: how near the reads come
// to what the disk gives, in the time in which nothing else could be done.
#pragma once

#include <string>

#include "bench/samples.h"
#include "core/json.h"
#include "engine/engine.h"

namespace minke {

struct StreamReport {
  WeightsUse use;           // of the measured steps
  double step_seconds = 0;  // of all of them
  Samples disk_rates;       // bytes per second of DiskFile, once a round

  // Bytes per second while the model waited; 0 if it never did.
  double WaitedRate() const;
  // Of the disk's rate; 0 if the model never waited.
  double Ratio() const;
  Json ToJson() const;
  std::string ToText() const;
};

}  // namespace minke
