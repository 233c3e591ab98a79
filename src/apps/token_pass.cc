#include "apps/token_pass.h"

#include <memory>

namespace minke {

Status TokenPass::Run(
    std::span<const int32_t> ids, const std::function<int64_t(int64_t done)>& rows,
    const std::function<void(int64_t done, View<const float> logits)>& use_logits) {
  const std::unique_ptr<SequenceState> state = model_.NewSequence();
  const auto total = static_cast<int64_t>(ids.size());
  for (int64_t done = 0; done < total;) {
    const int64_t count = rows(done);
    CHECK(count > 0 && count <= total - done);
    if (logits_.rows() < count) logits_ = Matrix<float>(count, model_.config().vocab_size);
    const ForwardRows call{state.get(),
                           ids.subspan(static_cast<size_t>(done), static_cast<size_t>(count)), 0};
    TRY_STATUS(
        model_.Forward({&call, 1}, logits_.view().Rows(0, count), pool_, arena_, diagnostics_));
    state->Commit(count);
    use_logits(done, logits_.view().Rows(0, count));
    done += count;
  }
  return {};
}

}  // namespace minke
