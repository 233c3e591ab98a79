// config.json. Whatever is accepted must have consistent roles and a catalogue whose sizes add up
// without overflow.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "model/config.h"
#include "model/weights.h"

namespace {

// Above this the catalogue is left out: it is correct or not at small sizes already.
constexpr int64_t kCatalogueExpertsMax = 64;
constexpr int64_t kCatalogueLayersMax = 16;

void CheckRoles(const minke::ModelConfig& config) {
  CHECK(config.layers.size() == static_cast<size_t>(config.num_hidden_layers));
  CHECK(config.compress_ratios.size() == config.layers.size());
  for (size_t layer = 0; layer < config.layers.size(); ++layer) {
    const minke::LayerRole& role = config.layers[layer];
    const bool compressed = role.compress_ratio > 0;
    CHECK((role.mode == minke::LayerMode::kSwa) == !compressed);
    CHECK((role.kv_source >= 0) == compressed && (role.index_source >= 0) == compressed);
    CHECK(role.kv_source <= role.index_source);
    CHECK(role.index_source <= static_cast<int64_t>(layer));
    if (compressed) CHECK(config.kv_source_ratio(role.kv_source_index) == role.compress_ratio);
  }
}

void CheckCatalogue(const minke::ModelConfig& config) {
  if (config.n_routed_experts > kCatalogueExpertsMax ||
      config.dspark_n_routed_experts > kCatalogueExpertsMax ||
      config.num_hidden_layers > kCatalogueLayersMax ||
      config.vision.num_hidden_layers > kCatalogueLayersMax) {
    return;
  }
  int64_t total = 0;
  for (const minke::TensorSpec& spec : minke::TensorCatalogue(config)) {
    const int64_t bytes = minke::TensorBytes(spec);
    CHECK(bytes > 0, spec.name);
    CHECK(!__builtin_add_overflow(total, bytes, &total), spec.name);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = minke::ParseConfig(text, "input");
  if (!config) {
    CHECK(!config.error().message.empty());
    return 0;
  }
  CheckRoles(*config);
  CheckCatalogue(*config);
  return 0;
}
