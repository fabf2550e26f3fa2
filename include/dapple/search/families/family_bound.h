// Lower bounds on every plan of a schedule family at one micro-batch size, whatever its stages,
// replicas, placement, recomputation, depths and orders, and plan shapes that come near these
// bounds. The equations are (F1)-(F8) of docs/bounds.md.
//
// There are M micro-batches. The figures f, b and i of a stage are its forward, its whole backward
// and the part of the backward that computes the input's gradient, for the share of its first
// replica on the quickest kind of device. No stage is faster, because replicas start together and
// the first one has the largest share.
//
//   head h_s   No forward of stage s starts before one micro-batch has passed all stages and
//              boundaries in front of it. The head is the sum of their f and c.
//   way back   After the last backward of stage s the same micro-batch goes back through them. The
//              way back is the sum of their c' and b (i where backwards are split); for the first
//              stage it is b and the optimizer step in either case.
//
// One stage per device. For every stage s, the iteration takes at least
//   h_s + M(f + b) + step                     all work of the stage
//   h_s + M(f + b) - b + reduction + step     its gradients are reduced after the start of the last
//                                             backward, or of the last weight gradient; without
//                                             the step, if it goes bucket by bucket
//   h_s + M(f + b) + way back                 if backwards are not split
//   h_s + M(f + i) + way back                 if they may be, as all weight gradients may wait
// All of this follows from the layers and replicas of a stage. The least time T within which every
// stage can be done is therefore found by bisection, with a dynamic programme over (layers cut,
// devices used) for each T. It keeps the least head and the least sum of head and way back, each by
// itself. One micro-batch in flight must fit in memory.
//
// Several stages per device. The time for work is what head and way back leave of T: group g of
// devices starts no earlier than its head, and where backwards are not split, its last backward is
// of its first stage, with the way back behind it. With r_g devices in group g, the sum over layers
// of the least r M(f + b) is
//   with steps     <=  sum over groups of r_g (T - h_g)
//   without steps  <=  sum over groups of r_g (T - h_g - way back)      if not split
// where head and way back of group g are at least those of g single layers. Early groups have the
// most time, so the right-hand side is largest where they have the most devices. Layers are not
// divided: a group holds no more of them than the quickest layer fits into its time. A group that
// is alone reduces all gradients, and none before all its forwards are done, because the last
// micro-batch comes last everywhere.
//
// A boundary costs at least the largest of its flows at the widest bandwidth and the shortest
// latency of all routes. If the largest server has g devices, n devices lie on h = ceil(n / g)
// servers or more, and their all-reduce moves at least 2(h-1)/h of the gradients through the NICs
// of some server. An all-reduce inside a server counts as free.
//
// Source: the arguments of Zero Bubble Pipeline Parallelism (ICLR'24) for the start of the last
// stage, and of Megatron-LM (SC'21) for interleaving, generalised to stages of any length. For S
// uniform stages of one device each, without transfers, the bound is attained by 1F1B,
// (M+S-1)(F+B), by interleaving, (S-1)(F+B)/v + M(F+B), and by H1 with I = W,
// (S-1)(F+I-W) + M(F+I+W). With I > W it is (S-1)(I-W) below H1, whose memory it does not count.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/cost/cost_model.h"
#include "dapple/plan/pins.h"
#include "dapple/search/allowance.h"
#include "dapple/search/search_problem.h"

namespace dapple::search {

struct FamilyProblem {
  std::int64_t global_batch_size = 1;
  /// Divides the global batch size.
  std::int64_t micro_batch_size = 1;
  /// Whether backwards may be split. The bounds then hold for plans with whole ones too.
  bool split_backward = false;
  OptimizerTiming optimizer = OptimizerTiming::AtEnd;
  bool ignore_memory = false;
  /// Whether devices may have several stages: what a stage of their plans needs by itself is then
  /// no reason to leave out plans with one stage per device, from which these are made.
  bool has_loops = false;
  /// A step is counted for each stage that is visited. If the allowance ends, bounds are lower than
  /// they could be, and there are fewer shapes.
  Allowance::Limits limits = {};
  /// The shapes satisfy the pins; the bounds hold without them.
  Pins pins = {};
};

/// Lower bound on plans of any family from the work alone, by the layers' least times per sample
/// (P1). It makes no layer tables, so it can be computed when no time is left for better bounds.
/// O(layers * measurements).
Duration bound_of_work_alone(const CostModel& costs, const FamilyProblem& problem);

class FamilyBound {
 public:
  /// `costs` must outlive the object. It must not be shared between threads. The constructor looks
  /// up the times of the layers once for each largest share.
  FamilyBound(const CostModel& costs, const FamilyProblem& problem);
  ~FamilyBound();
  FamilyBound(const FamilyBound&) = delete;
  FamilyBound& operator=(const FamilyBound&) = delete;

  /// Lower bound on plans with one stage per device (F5), or `most` if no plan is below `most`.
  /// O(layers^2 * devices * shares) times the bits of `most`; where that exceeds a fixed amount of
  /// work, the bound is of_work().
  /// Requires: most > 0.
  Duration of_pipelines(Duration most);

  /// The same for plans with several stages per device (F6), (F7). With split backwards it holds
  /// for plans with one stage per device too. It is `most` where memory cannot hold the model
  /// (F10). O((layers + devices) * bits of `most`).
  Duration of_loops(Duration most) const;

  /// The same for all plans, by the work alone (F8). It also holds for independent replicas, if
  /// their shares are equal. O(bits of `most`).
  Duration of_work(Duration most) const;

  /// Returns plans with one stage per device, at most one for each number of stages up to
  /// `most_stages`, by rising number of stages. Each is the first plan found whose stages could all
  /// be done within its `bound`; bounds are tried from `least` up to twice that, in growing steps
  /// of some percent. Stages take the devices in the order of their numbers. There are no plans if
  /// the problem is too large.
  std::vector<Candidate> shapes(Duration least, std::int32_t most_stages);

 private:
  class Search;
  std::unique_ptr<Search> search_;
};

}  // namespace dapple::search
