// The figures of ranges of layers, each in constant time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/profile/collective.h"
#include "dapple/profile/model_profile.h"
#include "dapple/profile/recomputation.h"

namespace dapple {

/// What layers take of the NIC of one of their devices, for collectives over several servers.
struct LayerNicUse {
  /// The collectives of the forward and of the backward.
  PassTraffic forward;
  PassTraffic backward;
  /// To gather sharded parameters once, and to scatter their gradients.
  NicUse gather;
  NicUse scatter;

  friend LayerNicUse operator+(const LayerNicUse& a, const LayerNicUse& b) {
    return {a.forward + b.forward, a.backward + b.backward, a.gather + b.gather,
            a.scatter + b.scatter};
  }
  friend LayerNicUse operator-(const LayerNicUse& a, const LayerNicUse& b) {
    return {a.forward - b.forward, a.backward - b.backward, a.gather - b.gather,
            a.scatter - b.scatter};
  }
};

/// The figures of all layers for one number of samples on one kind of device, as prefix sums: the
/// figure of layers [begin, end) is prefix[end] - prefix[begin]. Construction takes O(layers log
/// layers + inputs), a query O(1) unless stated otherwise. Requires: ranges and cuts lie within the
/// model.
///
/// Where only some layers of every stage recompute, a range is the layers of a stage or its first
/// ones, from which these are counted. Where they are the first ones, a figure is the sum of two
/// differences: that of the layers up to the last one that recomputes, with those that do, and that
/// of the others. Where they are every n-th, it is that of all layers keeping all, and what
/// recomputing adds to every n-th of them, as sums with a stride of n.
class LayerTable {
 public:
  /// Computes times as forward_time() and backward_time() do, and adds the layers' collectives,
  /// which no time scale changes, and what computation does not hide of gathered state. In a group
  /// all figures are those of the data-parallel rank with most of the samples. Requires: samples >=
  /// 1, and layers in an order in which inputs come first.
  LayerTable(const ModelProfile& profile, std::int64_t samples, TimeSource source)
      : LayerTable(profile, samples, std::vector<TimeSource>{source}) {}
  /// The same with the least of each layer's times over several kinds of devices. Requires: at
  /// least one source.
  LayerTable(const ModelProfile& profile, std::int64_t samples,
             const std::vector<TimeSource>& sources);
  /// The figures of the same layers where others of every stage recompute. Requires: some of them
  /// do in `other`.
  LayerTable(const LayerTable& other, LayerSelection recomputed);

  /// Return the sum over the layers, where each layer's time or size is rounded up on its own.
  /// Collectives are part of the times.
  Duration forward(LayerRange layers) const { return sum(&Sums::forward, layers); }
  Duration backward(LayerRange layers) const { return sum(&Sums::backward, layers); }
  Duration input_gradient(LayerRange layers) const { return sum(&Sums::input_gradient, layers); }
  Bytes stash(LayerRange layers) const { return sum(&Sums::stash, layers); }
  /// Return the sum over the layers of the least times that each takes in any stage, whether it
  /// recomputes there or not.
  Duration least_forward(LayerRange layers) const;
  Duration least_backward(LayerRange layers) const;
  /// Return the parts of forward() and of backward() that are collectives.
  Duration forward_collectives(LayerRange layers) const;
  Duration backward_collectives(LayerRange layers) const;
  /// Returns what the layers' collectives take of a device's NIC. Of several kinds of device it is
  /// that of the first one.
  LayerNicUse nic_use(LayerRange layers) const;
  /// Whether the layers may have collectives over several servers.
  bool passes_servers() const { return !sums_.nic_use.empty(); }

  /// Returns the size of all tensors that layers before `cut` make and layers from `cut` on
  /// consume. Each tensor counts once, even if its consumer is several stages further on, as it is
  /// forwarded at every boundary. Where such tensors are sent directly, it is the size of those
  /// that pass the boundary whatever the stages: the output of the last layer before `cut`, if the
  /// next layer consumes it. Zero at both ends of the model.
  Bytes boundary(std::int32_t cut) const { return boundary_[static_cast<std::size_t>(cut)]; }

  /// Returns the largest workspace of one layer; zero for no layers.
  Bytes largest_workspace(LayerRange layers) const;
  /// Returns the least that a layer holds of a micro-batch in any stage, its stash and its
  /// workspace: where only some layers of a stage recompute, of recomputing and keeping all. O(1).
  Bytes least_held(std::int32_t layer) const;

  /// Returns the memory that the table's elements occupy. O(log layers).
  Bytes kept() const;

 private:
  /// Prefix sums of figures of layers. Those of collectives are empty if no layer has any, those of
  /// NICs if no ring passes servers.
  struct Sums {
    std::vector<Duration> forward;
    std::vector<Duration> backward;
    std::vector<Duration> input_gradient;
    std::vector<Bytes> stash;
    std::vector<Duration> forward_collectives;
    std::vector<Duration> backward_collectives;
    std::vector<LayerNicUse> nic_use;

    /// The number of figures.
    std::size_t size() const;
  };
  template <class Quantity>
  static Quantity difference(const std::vector<Quantity>& prefix, LayerRange layers) {
    return prefix[static_cast<std::size_t>(layers.end)] -
           prefix[static_cast<std::size_t>(layers.begin)];
  }
  template <class Quantity>
  Quantity sum(std::vector<Quantity> Sums::*figure, LayerRange layers) const {
    const std::vector<Quantity>& kept = sums_.*figure;
    if (recomputing_.empty()) return difference(kept, layers);
    if (selection_.kind() == LayerSelection::Kind::EveryNth) {
      return difference(kept, layers) + difference(added_.*figure, counted(layers));
    }
    const std::int32_t end = end_of_first(layers);
    return difference(recomputing_.front().sums_.*figure, {layers.begin, end}) +
           difference(kept, {end, layers.end});
  }
  Bytes largest_in_span(LayerRange layers) const;
  Bytes largest_with_every_nth(LayerRange layers) const;
  // The end of the first layers of the range that recompute.
  std::int32_t end_of_first(LayerRange layers) const;
  // Where every n-th layer recomputes: the layers that have the parts, from the first one of the
  // range to the last one that recomputes, as positions in having_parts_. These are n times as many
  // as those that recompute.
  LayerRange counted(LayerRange layers) const {
    const std::int32_t begin = preceding_[static_cast<std::size_t>(layers.begin)];
    const std::int32_t count = preceding_[static_cast<std::size_t>(layers.end)] - begin;
    return {begin, begin + count - count % stride_};
  }
  void add_recomputing(const ModelProfile& profile, std::int64_t samples,
                       const std::vector<TimeSource>& sources);
  void add_every_nth();
  void find_workspaces_of_every_nth();

  Sums sums_;
  std::vector<Bytes> boundary_;
  // [k][layer]: the largest workspace of the 2^k layers from `layer` on (a sparse table); empty if
  // no layer has a workspace.
  std::vector<std::vector<Bytes>> workspace_;
  // The table with all layers recomputing, where only some of every stage do, and which these are.
  // sums_ and workspace_ are of layers that keep all.
  std::vector<LayerTable> recomputing_;
  LayerSelection selection_;
  // The layers that have what is recomputed, ascending, and for each cut how many precede it.
  std::vector<std::int32_t> having_parts_;
  std::vector<std::int32_t> preceding_;
  // Prefix sums of the least time of each layer in both tables.
  std::vector<Duration> least_forward_;
  std::vector<Duration> least_backward_;
  // Where every n-th layer recomputes: n, or one more than there are layers if that is less.
  std::int32_t stride_ = 1;
  // [i]: what recomputing adds to the layers at positions i - 1, i - 1 - n, i - 1 - 2n and so on of
  // having_parts_. Those before position n - 1 are left out, as no difference needs them.
  Sums added_;
  // [k][i]: the largest workspace where the layers at positions i, i + n and so on recompute: of
  // the first 2^k of them, and of the layers behind each of these up to the next one (a sparse
  // table with a stride of n).
  std::vector<std::vector<Bytes>> workspace_of_nth_;
};

}  // namespace dapple
