#include "dapple/exec/reshard/resharded_tensors.h"

#include <utility>
#include <vector>

#include "dapple/core/error.h"
#include "exec/message/value_payload.h"

namespace dapple::exec {

void ReshardedTensors::take_in(const Arrival& arrival, const TensorPart& theirs, Payload payload) {
  const auto [found, is_new] = arriving_.try_emplace(arrival.place);
  Arriving& into = found->second;
  if (is_new) into = {nn::zeros(arrival.shape), count_of(arrival.part)};
  const std::vector<float> sent = values_of<float>(std::move(payload));
  put_sent(sent, theirs, arrival.part, into.tensor.values);
  into.numbers_left -= static_cast<std::int64_t>(sent.size());
}

nn::Tensor ReshardedTensors::take_arrived(const Arrival& arrival) {
  if (count_of(arrival.part) == 0) return nn::zeros(arrival.shape);
  const auto found = arriving_.find(arrival.place);
  check(found != arriving_.end() && found->second.numbers_left == 0,
        "a computation begins before all of its input is there");
  nn::Tensor tensor = std::move(found->second.tensor);
  arriving_.erase(found);
  return tensor;
}

void ReshardedTensors::hand_on(const FragmentPlace& made, TensorPart part, nn::Tensor tensor,
                               std::int64_t receivers) {
  if (receivers == 0) return;
  leaving_.emplace(made, Leaving{std::move(tensor), std::move(part), receivers});
}

Payload ReshardedTensors::give_out(const FragmentPlace& made, const TensorPart& theirs) {
  const auto found = leaving_.find(made);
  check(found != leaving_.end(), "a rank sends what it has not made");
  Leaving& leaving = found->second;
  Payload payload = payload_of(take_sent(leaving.tensor.values, leaving.part, theirs));
  if (--leaving.receivers_left == 0) leaving_.erase(found);
  return payload;
}

}  // namespace dapple::exec
