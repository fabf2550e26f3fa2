// Lower bounds on every plan of a schedule family at one micro-batch size, whatever its stages,
// replicas, placement, recomputation, depths and orders; and the shapes that come near them.
//
// M micro-batches; f, b, i of a stage: forward, whole backward, and its part that makes the input's
// gradient, of the share that its first replica has, on the quickest kind of device: no stage is
// faster than that, for its replicas start together and the first has the largest share.
//
//   head h_s   no forward of stage s starts before one micro-batch has passed all stages and
//              boundaries in front of it: the sum of their f and c
//   way back   behind the last backward of stage s the same micro-batch goes back through them: the
//              sum of their c' and b, or i where backwards are split, of the first stage b and step
//
// One stage per device. The iteration is at least, for every stage s,
//   h_s + M(f + b) + step                    all its work
//   h_s + M(f + b) - last + reduction + step its gradients are reduced behind the start of the last
//                                            weight gradient (of the last backward, if not split);
//                                            without the step, if it goes bucket by bucket
//   h_s + M(f + b) + way back                not split; with a split backward, whose weight
//   h_s + M(f + i) + way back                gradients may all wait: M(f + i)
// A stage's layers and replicas decide all of this, so that the least time of all plans is found by
// dynamic programming over (layers cut, devices used): can every stage be done within T? Of heads,
// and of head and way back together, the least is kept, each by itself. One micro-batch in flight
// must fit.
//
// Several stages per device. What head and way back leave of T is time for work: group g starts no
// earlier than its head, and where backwards are not split its last one is of its first stage, with
// the way back behind it. So with r_g devices each, the sum over layers of the least r M(f + b) is
//   with steps   <=  sum over groups of r_g (T - h_g)
//   without      <=  sum over groups of r_g (T - h_g - way back)      not split
// where head and way back of group g are at least those of g single layers. Early groups have the
// most time, so the right side is largest where they have the most devices. Layers are whole: a
// group holds no more of them than its time holds the quickest of all. One group alone reduces all
// gradients, and none before all its forwards are done: the last micro-batch comes last everywhere.
//
// A boundary costs at least the largest of its flows on the widest and the shortest route; n
// devices lie on h = ceil(n / g) servers or more, if the largest server has g, and their reduction
// moves at least 2(h-1)/h of the gradients through the NICs of some server; inside a server it is
// free here.
//
// Source: the argument of Zero Bubble Pipeline Parallelism (ICLR'24) for when the last stage
// starts, and of Megatron-LM (SC'21) for interleaving, for stages of any length. On S uniform
// stages of a device each, without transfers, it is met by 1F1B, (M+S-1)(F+B), by interleaving,
// (S-1)(F+B)/v + M(F+B), and by H1 with I = W, (S-1)(F+I-W) + M(F+I+W); with I > W it stays
// (S-1)(I-W) below H1, whose memory it does not count.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/cost/cost_model.h"
#include "dapple/plan/pins.h"
#include "dapple/search/allowance.h"
#include "dapple/search/dapple_search/dapple_search.h"

namespace dapple::search {

struct FamilyProblem {
  std::int64_t global_batch_size = 1;
  std::int64_t micro_batch_size = 1;  // divides the global batch
  bool split_backward = false;
  OptimizerTiming optimizer = OptimizerTiming::AtEnd;
  bool ignore_memory = false;
  /// A step for each stage that is looked at. Where it ends, bounds are lower than they could be,
  /// and shapes fewer.
  Allowance::Limits limits = {};
  Pins pins = {};  // shapes are as pinned; bounds hold for more
};

/// No plan of any family is faster than its work alone, by the layers' least times per sample.
/// Makes no tables, so it is what there is time for when there is none. O(layers * measurements).
Duration bound_of_work_alone(const CostModel& costs, const FamilyProblem& problem);

class FamilyBound {
 public:
  /// `costs` must outlive it. Not to be shared between threads. Times of the layers are looked up
  /// once for each largest share.
  FamilyBound(const CostModel& costs, const FamilyProblem& problem);
  ~FamilyBound();
  FamilyBound(const FamilyBound&) = delete;
  FamilyBound& operator=(const FamilyBound&) = delete;

  /// No plan of one stage per device is faster; `most` where none is below it.
  /// O(layers^2 * devices * shares), times the bits of `most`; where that is more than a fixed
  /// amount, what the work alone takes. Requires: most > 0.
  Duration of_pipelines(Duration most);

  /// The same of plans of several stages per device, and with a split backward of one too.
  /// O((layers + devices) * bits of `most`).
  Duration of_loops(Duration most) const;

  /// The same of plans of any kind, by the work alone; also of replicas that start each on its own,
  /// if their shares are equal. O(bits of `most`).
  Duration of_work(Duration most) const;

  /// Plans of one stage per device by number of stages, up to `most_stages`: each the first found
  /// whose stages could all be done within its `bound`, which grows from `least` in steps of a few
  /// percent to twice that. Devices in the order of their numbers. None where the problem is too
  /// large.
  std::vector<Candidate> shapes(Duration least, std::int32_t most_stages);

 private:
  class Search;
  std::unique_ptr<Search> search_;
};

}  // namespace dapple::search
