#include "apps/client_settings.h"

#include <fmt/format.h>

namespace minke {

// The size of the context is told to agents because they do not know the model by its name, and
// would take another for granted.
std::string ClientSettings(const std::string& url, int64_t context_tokens_max, bool keys) {
  return fmt::format(
      R"(  Web page       {url}/
  OpenAI SDKs    OPENAI_BASE_URL={url}/v1 OPENAI_API_KEY={key}
  Anthropic SDKs ANTHROPIC_BASE_URL={url} ANTHROPIC_API_KEY={key}
  Claude Code    ANTHROPIC_BASE_URL={url} ANTHROPIC_AUTH_TOKEN={key}
                 ANTHROPIC_MODEL=deepseek-flash ANTHROPIC_DEFAULT_HAIKU_MODEL=deepseek-flash
                 CLAUDE_CODE_SUBAGENT_MODEL=deepseek-flash
                 CLAUDE_CODE_MAX_CONTEXT_TOKENS={context}
  Codex          ~/.codex/config.toml:
                 model = "deepseek-flash"
                 model_provider = "minke"
                 model_context_window = {context}
                 [model_providers.minke]
                 name = "Minke"
                 base_url = "{url}/v1"
                 wire_api = "responses"{codex_key}
  opencode       ~/.config/opencode/opencode.json:
                 {{"model": "minke/deepseek-flash", "provider": {{"minke": {{
                   "npm": "@ai-sdk/openai-compatible",
                   "options": {{"baseURL": "{url}/v1", "apiKey": "{key}"}},
                   "models": {{"deepseek-flash": {{"reasoning": true, "tool_call": true,
                     "interleaved": {{"field": "reasoning_content"}},
                     "limit": {{"context": {context}, "output": 32000}}}}}}}}}}}}
  pi             ~/.pi/agent/models.json, and pi --provider minke --model deepseek-flash:
                 {{"providers": {{"minke": {{
                   "baseUrl": "{url}/v1", "api": "openai-completions", "apiKey": "{key}",
                   "models": [{{"id": "deepseek-flash", "reasoning": true,
                     "contextWindow": {context}, "maxTokens": 32000}}]}}}}}}
)",
      // Most clients need a key, whether or not it is looked at.
      fmt::arg("url", url), fmt::arg("key", keys ? "YOUR_KEY" : "any"),
      fmt::arg("context", context_tokens_max),
      fmt::arg(
          "codex_key",
          keys ? "\n                 env_key = \"MINKE_API_KEY\"  # the variable with it" : ""));
}

}  // namespace minke
