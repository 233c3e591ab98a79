// The progress of a run on stderr: a line that is overwritten on a terminal, once a second; whole
// lines every half minute elsewhere.
#pragma once

#include <chrono>
#include <string>

#include "train/trainer.h"

namespace minke::train {

class Progress {
 public:
  Progress();
  void Show(const StepReport& report);
  // Shows the last step, if it has not been, and ends the line.
  void Finish();

 private:
  // Means that forget: single steps are too noisy to read.
  struct Mean {
    double value = 0;
    double weight = 0;
    void Add(double next);
    double now() const { return weight > 0 ? value / weight : 0; }
  };
  void Take(const StepReport& report);
  std::string Line() const;

  bool terminal_ = false;
  std::chrono::steady_clock::time_point shown_at_;
  std::string stage_;
  int64_t step_ = 0;
  int64_t shown_step_ = 0;
  double seconds_left_ = 0;
  Mean loss_;
  Mean first_list_;
  Mean first_document_;
  Mean text_nats_;
  Mean tokens_;
  Mean seconds_;
  Mean index_loss_;
  Mean index_top1_;
};

// A note on stderr where the trainer has cut the log of the run in `folder` off.
void NoteDamagedLog(const Trainer& trainer, const std::string& folder);

// "1:05:09".
std::string Duration(double seconds);

}  // namespace minke::train
