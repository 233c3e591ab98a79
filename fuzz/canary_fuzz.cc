// A target that must fail. Every run of the fuzz targets includes it, and a runner that reports
// success for it does not notice crashes at all.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (input.starts_with("crash")) std::abort();
  return 0;
}
