// Views and owners of dense float matrices. A View never owns and never outlives the call it is
// passed to; Buffer and Arena own.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "core/result.h"

namespace minke {

inline constexpr size_t kAlignmentBytes = 64;  // one cache line, one AVX-512 vector

// Row-major matrix [rows, cols] whose rows start `stride` elements apart (stride >= cols).
template <typename T>
struct View {
  T* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;

  View() = default;
  View(T* data_in, int64_t rows_in, int64_t cols_in) : View(data_in, rows_in, cols_in, cols_in) {}
  View(T* data_in, int64_t rows_in, int64_t cols_in, int64_t stride_in)
      : data(data_in), rows(rows_in), cols(cols_in), stride(stride_in) {}
  // A view of T is also a view of const T.
  template <typename U, std::enable_if_t<std::is_same_v<std::add_const_t<U>, T>, int> = 0>
  // NOLINTNEXTLINE(google-explicit-constructor)
  View(const View<U>& other) : View(other.data, other.rows, other.cols, other.stride) {}

  T* Row(int64_t row) const {
    DCHECK(row >= 0 && row < rows);
    return data + row * stride;
  }
  View Rows(int64_t begin, int64_t count) const {
    return View(data + begin * stride, count, cols, stride);
  }
  View Cols(int64_t begin, int64_t count) const { return View(data + begin, rows, count, stride); }
};

struct AlignedDelete {
  void operator()(std::byte* pointer) const noexcept;
};
using AlignedBytes = std::unique_ptr<std::byte[], AlignedDelete>;

// Uninitialised, kAlignmentBytes-aligned memory.
AlignedBytes AllocateAligned(size_t bytes);

// Owner of one matrix; zero-initialised.
template <typename T>
class Matrix {
 public:
  static_assert(std::is_trivially_copyable_v<T>);
  Matrix() = default;
  Matrix(int64_t rows, int64_t cols)
      : bytes_(AllocateAligned(static_cast<size_t>(rows * cols) * sizeof(T))),
        rows_(rows),
        cols_(cols) {
    std::fill_n(data(), rows * cols, T{});
  }
  T* data() { return reinterpret_cast<T*>(bytes_.get()); }
  const T* data() const { return reinterpret_cast<const T*>(bytes_.get()); }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  View<T> view() { return View<T>(data(), rows_, cols_); }
  View<const T> view() const { return View<const T>(data(), rows_, cols_); }

 private:
  AlignedBytes bytes_;
  int64_t rows_ = 0;
  int64_t cols_ = 0;
};

// Bump allocator for the scratch of one step. Memory is kept across steps, so a warmed-up step
// allocates nothing. Not thread-safe; contents are uninitialised.
class Arena {
 public:
  template <typename T>
  View<T> Allocate(int64_t rows, int64_t cols) {
    return View<T>(static_cast<T*>(AllocateBytes(static_cast<size_t>(rows * cols) * sizeof(T))),
                   rows, cols);
  }
  template <typename T>
  std::span<T> AllocateSpan(int64_t count) {
    return {static_cast<T*>(AllocateBytes(static_cast<size_t>(count) * sizeof(T))),
            static_cast<size_t>(count)};
  }
  size_t capacity_bytes() const;

 private:
  friend class ArenaScope;
  struct Block {
    AlignedBytes bytes;
    size_t size = 0;
    size_t used = 0;
  };
  void* AllocateBytes(size_t bytes);
  std::vector<Block> blocks_;
  size_t current_ = 0;
};

// Gives back everything allocated from the arena during its lifetime.
class ArenaScope {
 public:
  explicit ArenaScope(Arena& arena);
  ~ArenaScope();
  ArenaScope(const ArenaScope&) = delete;
  ArenaScope& operator=(const ArenaScope&) = delete;

 private:
  Arena& arena_;
  size_t block_;
  size_t used_;
};

}  // namespace minke
