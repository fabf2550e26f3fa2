// Activations and gradients between the stages of one device and their neighbours. Fragments that
// arrive from several peers are assembled, tensors for several peers are cut, both by samples; what
// stays on the device is handed over directly. Math is as for ModelBackend.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "dapple/core/error.h"
#include "dapple/exec/message/payload.h"
#include "dapple/exec/reshard/fragment_place.h"
#include "exec/train/local_stage.h"

namespace dapple::exec {

template <class Math>
class TensorFragments {
 public:
  using Tensor = typename Math::Tensor;

  explicit TensorFragments(Math& math) : math_(math) {}

  bool is_empty() const { return arriving_.empty() && leaving_.empty(); }

  /// A tensor that arrives at a stage: the samples of the micro-batch that the stage works on, and
  /// the shape of one sample.
  struct Arrival {
    FragmentPlace place;
    SampleRange all;
    const nn::Shape& sample;
  };
  /// Takes in the fragment of the given samples, counted within the micro-batch.
  void take_in(const Arrival& arrival, SampleRange samples, Payload payload) {
    TensorFragment& fragment = arriving(arrival);
    math_.take_in(fragment.tensor, within(fragment, samples), std::move(payload));
    fragment.samples_left -= samples.size();
  }

  /// Returns a complete tensor. Requires: all of its samples have been taken in or handed on.
  Tensor take_arrived(const FragmentPlace& place) {
    const auto found = arriving_.find(place);
    check(found != arriving_.end() && found->second.samples_left == 0,
          "a computation begins before all of its samples are there");
    Tensor tensor = std::move(found->second.tensor);
    arriving_.erase(found);
    return tensor;
  }

  /// Stores a tensor with the samples `all` to be sent. The second form hands the samples `staying`
  /// to `taker`, a stage of the same device.
  void hand_on(const FragmentPlace& made, SampleRange all, Tensor tensor) {
    leaving_.emplace(made, TensorFragment{std::move(tensor), all, all.size()});
  }
  void hand_on(const FragmentPlace& made, SampleRange all, Tensor tensor, const Arrival& taker,
               SampleRange staying) {
    const bool is_whole = staying.size() == all.size() && staying.size() == taker.all.size();
    if (is_whole) {
      arriving_.emplace(taker.place, TensorFragment{std::move(tensor), all, 0});
      return;
    }
    TensorFragment fragment{std::move(tensor), all, all.size() - staying.size()};
    TensorFragment& into = arriving(taker);
    math_.copy_samples(fragment.tensor, within(fragment, staying), into.tensor,
                       within(into, staying));
    into.samples_left -= staying.size();
    if (fragment.samples_left > 0) leaving_.emplace(made, std::move(fragment));
  }

  /// Returns the given samples of a tensor as a message.
  Payload give_out(const FragmentPlace& made, SampleRange samples) {
    const auto found = leaving_.find(made);
    check(found != leaving_.end(), "a device sends what it has not made");
    TensorFragment& fragment = found->second;
    const bool is_whole = samples.size() == fragment.samples.size();
    Payload payload = is_whole ? math_.give_out(std::move(fragment.tensor))
                               : math_.give_out(fragment.tensor, within(fragment, samples));
    fragment.samples_left -= samples.size();
    if (fragment.samples_left == 0) leaving_.erase(found);
    return payload;
  }

 private:
  struct TensorFragment {
    Tensor tensor;
    SampleRange samples;            // within the micro-batch
    std::int64_t samples_left = 0;  // still to arrive, or to leave
  };

  static SampleRange within(const TensorFragment& fragment, SampleRange samples) {
    return {samples.begin - fragment.samples.begin, samples.end - fragment.samples.begin};
  }

  TensorFragment& arriving(const Arrival& arrival) {
    const auto [found, is_new] = arriving_.try_emplace(arrival.place);
    TensorFragment& fragment = found->second;
    if (is_new) {
      const std::int64_t samples = arrival.all.size();
      fragment = {math_.make_tensor(with_samples(samples, arrival.sample)), arrival.all, samples};
    }
    return fragment;
  }

  Math& math_;
  std::map<FragmentPlace, TensorFragment> arriving_;
  std::map<FragmentPlace, TensorFragment> leaving_;
};

}  // namespace dapple::exec
