// Writes safetensors files: whole from memory, or piece by piece where a file is larger than that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "core/result.h"

namespace minke {

struct TensorToWrite {
  std::string name;
  DType dtype = DType::kBf16;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
};
// One file from memory, tensors of wider elements first, so that every tensor is naturally aligned
// without padding. For tests and the trainer.
Status WriteSafetensors(const std::string& path, std::span<const TensorToWrite> tensors);

struct TensorPlan {
  std::string name;
  DType dtype = DType::kBf16;
  std::vector<int64_t> shape;

  int64_t bytes() const;
};

// One file whose tensors come later, in the order of tensors(). A file that is not finished has a
// temporary name and is removed with the object.
class SafetensorsWriter {
 public:
  // Writes the header. Tensors of wider elements come first, otherwise as given. Errors: the file
  // cannot be made or written.
  static Result<std::unique_ptr<SafetensorsWriter>> Create(const std::string& path,
                                                           std::vector<TensorPlan> tensors);
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  const std::vector<TensorPlan>& tensors() const { return tensors_; }
  // The next bytes of the data. Errors: the disk is full, or other trouble with it.
  Status Append(std::span<const std::byte> bytes);
  // Gives the file its name. REQUIRES that all bytes of all tensors were appended.
  Status Finish();

 private:
  SafetensorsWriter(std::string path, std::vector<TensorPlan> tensors);
  Status WriteBytes(std::span<const std::byte> bytes);

  std::string path_;
  std::string temporary_;
  std::vector<TensorPlan> tensors_;
  int descriptor_ = -1;
  int64_t missing_bytes_ = 0;
};

}  // namespace minke
