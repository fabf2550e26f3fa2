// Activations and gradients between the stages of one device and their neighbours. Fragments that
// arrive from several peers are assembled, tensors for several peers are cut, both by samples; what
// stays on the device is handed over directly. Where ranks send shares of what all of them have, a
// share of each fragment is sent, and the ranks gather the fragment. Math is as for ModelBackend.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/exec/message/all_reduce.h"
#include "dapple/exec/message/payload.h"
#include "dapple/exec/reshard/fragment_place.h"
#include "dapple/nn/shared_layers.h"
#include "exec/train/local_stage.h"
#include "exec/train/rank_collectives.h"

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
  /// Takes in the fragment of the given samples, counted within the micro-batch, or this rank's
  /// share of it, of as many as there are tensor-parallel ranks.
  void take_in(const Arrival& arrival, SampleRange samples, Payload payload,
               const nn::TensorRank& rank) {
    TensorFragment& fragment = arriving(arrival);
    const SampleRange own = within(fragment, samples);
    if (rank.ranks == 1) {
      math_.take_in(fragment.tensor, own, std::move(payload));
    } else {
      math_.take_in(fragment.tensor, share_of(numbers_of(fragment, own), rank), std::move(payload));
      fragment.in_shares.push_back(own);
    }
    fragment.samples_left -= samples.size();
  }

  /// Returns a complete tensor, once the ranks have gathered what came in shares. Requires: all of
  /// its samples have been taken in or handed on.
  Tensor take_arrived(const FragmentPlace& place, const nn::TensorRank& rank) {
    const auto found = arriving_.find(place);
    check(found != arriving_.end() && found->second.samples_left == 0,
          "a computation begins before all of its samples are there");
    TensorFragment& fragment = found->second;
    // The ranks may have taken the fragments in in different orders.
    std::sort(fragment.in_shares.begin(), fragment.in_shares.end(),
              [](SampleRange a, SampleRange b) { return a.begin < b.begin; });
    for (const SampleRange samples : fragment.in_shares) {
      const ElementRange all = numbers_of(fragment, samples);
      math_.gather_shares(*rank.group, fragment.tensor, all, share_of(all, rank));
    }
    Tensor tensor = std::move(fragment.tensor);
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

  /// Returns the given samples of a tensor, or this rank's share of them, as a message.
  Payload give_out(const FragmentPlace& made, SampleRange samples, const nn::TensorRank& rank) {
    const auto found = leaving_.find(made);
    check(found != leaving_.end(), "a device sends what it has not made");
    TensorFragment& fragment = found->second;
    const bool is_whole = samples.size() == fragment.samples.size();
    const SampleRange own = within(fragment, samples);
    Payload payload =
        rank.ranks > 1 ? math_.give_out(fragment.tensor, share_of(numbers_of(fragment, own), rank))
        : is_whole     ? math_.give_out(std::move(fragment.tensor))
                       : math_.give_out(fragment.tensor, own);
    fragment.samples_left -= samples.size();
    if (fragment.samples_left == 0) leaving_.erase(found);
    return payload;
  }

 private:
  struct TensorFragment {
    Tensor tensor;
    SampleRange samples;                      // within the micro-batch
    std::int64_t samples_left = 0;            // still to arrive, or to leave
    std::vector<SampleRange> in_shares = {};  // of which each rank has its share, in the tensor
  };

  static SampleRange within(const TensorFragment& fragment, SampleRange samples) {
    return {samples.begin - fragment.samples.begin, samples.end - fragment.samples.begin};
  }

  static ElementRange numbers_of(const TensorFragment& fragment, SampleRange samples) {
    const std::int64_t each = Math::count_of(fragment.tensor) / fragment.samples.size();
    return {static_cast<std::size_t>(samples.begin * each),
            static_cast<std::size_t>(samples.end * each)};
  }
  static ElementRange share_of(ElementRange all, const nn::TensorRank& rank) {
    return part_of_rank(all, rank.rank, rank.ranks);
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
