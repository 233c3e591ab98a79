// The files that a server is told of: price tables and keys. What is accepted is used.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/json.h"
#include "server/api_keys.h"
#include "server/prices.h"

namespace {

void CheckPrices(std::string_view text) {
  const auto json = minke::ParseJson(text, "prices.json");
  if (!json) return;
  const auto table = minke::PriceTable::Parse(*json, "prices.json");
  if (!table) return;
  const auto again = minke::PriceTable::Parse(table->ToJson(), "what was written");
  CHECK(again.has_value(), again.error().message);
  constexpr int64_t kTime = 1'796'040'000;
  const double price = minke::PriceOf(*table, {1, 2, 3}, kTime, kTime, kTime + 100'000);
  CHECK(price >= 0 && price <= 6 * minke::kTokenPriceMax / 1e6);
}

void CheckKeys(std::string_view text) {
  const auto keys = minke::ApiKeys::Parse(text, "keys.txt");
  if (!keys) return;
  CHECK(keys->size() > 0 && keys->size() <= minke::kApiKeysMax);
  CHECK(!keys->Check("", "").has_value());
}

void CheckHeader(std::string_view text) {
  const auto keys = minke::ApiKeys::Parse("alice sk-0123456789", "keys.txt");
  CHECK(keys.has_value());
  constexpr size_t kMessageBytesMax = 100;
  const auto name = keys->Check(text, text);
  CHECK(name.has_value() || name.error().message.size() <= kMessageBytesMax);
  CHECK(minke::TenantOf("alice", text).size() <= minke::kTenantBytesMax);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  CheckPrices(text);
  CheckKeys(text);
  CheckHeader(text);
  return 0;
}
