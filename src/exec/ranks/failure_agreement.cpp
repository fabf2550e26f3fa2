#include "dapple/exec/ranks/failure_agreement.h"

namespace dapple::exec {

LossResponse FailureAgreement::response(std::int64_t now, int previous,
                                        const Heartbeat& heartbeat) const {
  if (!loss_) return LossResponse::Wait;
  if (heartbeat.has_caused_loss_at(loss_->moment)) return LossResponse::Concede;
  const std::chrono::nanoseconds delay = loss_->rank == previous
                                             ? std::chrono::nanoseconds(0)
                                             : std::chrono::nanoseconds(kPeerLossDelay);
  return now - loss_->moment < delay.count() ? LossResponse::Wait : LossResponse::Report;
}

}  // namespace dapple::exec
