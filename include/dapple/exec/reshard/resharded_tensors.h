// Activations and gradients of a rank between stages that divide them differently: what arrives
// from several ranks is put together, what is made is cut for several ranks.
#pragma once

#include <cstdint>
#include <map>

#include "dapple/exec/message/payload.h"
#include "dapple/exec/reshard/fragment_place.h"
#include "dapple/exec/reshard/tensor_part.h"
#include "dapple/nn/tensor.h"

namespace dapple::exec {

class ReshardedTensors {
 public:
  bool is_empty() const { return arriving_.empty() && leaving_.empty(); }

  /// A tensor that arrives: the part of it that the rank needs, and the shape in which it holds
  /// that.
  struct Arrival {
    FragmentPlace place;
    TensorPart part;
    nn::Shape shape;
  };
  /// Takes in what the rank of another part sends (count_of_sent()).
  void take_in(const Arrival& arrival, const TensorPart& theirs, Payload payload);

  /// Returns a complete tensor, with zeros as padding. Requires: all of it has been taken in.
  nn::Tensor take_arrived(const Arrival& arrival);

  /// Stores a tensor that `receivers` ranks are to get parts of; drops it if there are none.
  void hand_on(const FragmentPlace& made, TensorPart part, nn::Tensor tensor,
               std::int64_t receivers);

  /// Returns what one of these ranks gets of the tensor.
  Payload give_out(const FragmentPlace& made, const TensorPart& theirs);

 private:
  struct Arriving {
    nn::Tensor tensor;
    std::int64_t numbers_left = 0;
  };
  struct Leaving {
    nn::Tensor tensor;
    TensorPart part;
    std::int64_t receivers_left = 0;
  };

  std::map<FragmentPlace, Arriving> arriving_;
  std::map<FragmentPlace, Leaving> leaving_;
};

}  // namespace dapple::exec
