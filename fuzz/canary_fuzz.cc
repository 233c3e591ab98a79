// A target that must fail. Every run of the fuzz targets includes it, and a runner that reports
// success for it notices neither crashes nor hoarding.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

namespace {

constexpr size_t kHoardBytes = size_t{70} << 20;  // above the limit that ./test sets

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (input.starts_with("crash")) std::abort();
  if (input == "hoard all the memory") {
    const std::vector<char> hoard(kHoardBytes);
    volatile char last = hoard.back();  // or else the allocation is optimised away
    return last;
  }
  return 0;
}
