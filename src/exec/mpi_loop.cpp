#include "mpi_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <utility>

#include "clock.h"
#include "dapple/core/error.h"
#include "waiting.h"

namespace dapple {
namespace {

enum Tag { kFrameTag = 1, kBytesTag, kNoticeTag, kClockTag };

/// MPI counts in int.
constexpr std::size_t kMostAtOnce = std::size_t{1} << 30;

constexpr int kEnvironmentCode = 5;

std::size_t pieces_of(std::size_t size) {
  return (size + kMostAtOnce - 1) / kMostAtOnce;
}

/// To be called so many times, of which the last does the work.
std::function<void()> after(std::size_t times, std::function<void()> work) {
  return [left = std::make_shared<std::size_t>(times), work = std::move(work)] {
    if (--*left == 0) work();
  };
}

void check_mpi(int code) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw Error(ErrorKind::Environment, "MPI", {{"", text.data()}});
}

}  // namespace

MpiLoop::MpiLoop(WireHandler handler, std::chrono::nanoseconds timeout)
    : handler_(std::move(handler)) {
  std::promise<void> initialised;
  std::future<void> is_initialised = initialised.get_future();
  thread_ = std::jthread([this, promise = std::move(initialised)]() mutable { serve(promise); });
  if (is_initialised.wait_for(timeout) != std::future_status::ready) {
    thread_.detach();
    throw Error(ErrorKind::Environment, "MPI",
                {{"start", fmt::format("expected all ranks within {} s, but some did not come",
                                       seconds_of(timeout))}});
  }
  is_initialised.get();
}

MpiLoop::~MpiLoop() {
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
  }
  work_came_.notify_all();
}

void MpiLoop::serve(std::promise<void>& initialised) {
  try {
    initialise();
  } catch (...) {
    initialised.set_exception(std::current_exception());
    return;
  }
  initialised.set_value();
  try {
    while (true) {
      const bool sent = do_work();
      const bool finished = finish_requests();
      handler_.turn();
      turns_without_work_ = sent || finished ? 0 : turns_without_work_ + 1;
      const std::lock_guard lock(mutex_);
      if (is_closed_ && work_.empty()) break;
    }
    finalise();
  } catch (...) { handler_.fault(std::current_exception()); }
}

void MpiLoop::initialise() {
  int given = MPI_THREAD_SINGLE;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &given));
  if (given < MPI_THREAD_FUNNELED) {
    throw Error(ErrorKind::Environment, "MPI",
                {{"", "expected support of threads (MPI_THREAD_FUNNELED), got none"}});
  }
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank_));
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size_));
  check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host_));
  int here = 0;
  check_mpi(MPI_Comm_size(host_, &here));
  int least = 0;
  check_mpi(MPI_Allreduce(&here, &least, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD));
  is_on_one_host_ = least == size_;
  // The lowest rank of this host: rank 0 on its own.
  int lowest = rank_;
  check_mpi(MPI_Allreduce(&rank_, &lowest, 1, MPI_INT, MPI_MIN, host_));
  clock_offset_ = is_on_one_host_ ? 0 : measured_clock_offset(lowest == 0);
  await_frame();
  await_notice();
}

/// One rank after another asks rank 0 for its time, on every host alike so that rank 0 need not
/// know which of them need it.
std::int64_t MpiLoop::measured_clock_offset(bool shares_clock) const {
  constexpr int kTries = 32;
  std::int64_t offset = 0;
  std::int64_t quickest = INT64_MAX;
  for (int asking = 1; asking < size_; ++asking) {
    if (rank_ != 0 && rank_ != asking) continue;
    const int peer = rank_ == 0 ? asking : 0;
    for (int i = 0; i < kTries; ++i) {
      std::int64_t theirs = 0;
      const std::int64_t start = monotonic_now();
      if (rank_ == asking) {
        check_mpi(MPI_Send(&theirs, 1, MPI_INT64_T, peer, kClockTag, MPI_COMM_WORLD));
      }
      check_mpi(
          MPI_Recv(&theirs, 1, MPI_INT64_T, peer, kClockTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      const std::int64_t end = monotonic_now();
      if (rank_ == 0) {
        check_mpi(MPI_Send(&end, 1, MPI_INT64_T, peer, kClockTag, MPI_COMM_WORLD));
      } else if (end - start < quickest) {
        quickest = end - start;
        offset = theirs - (start + (end - start) / 2);
      }
    }
  }
  return shares_clock ? 0 : offset;
}

void MpiLoop::finalise() {
  if (!has_left_) {
    MPI_Abort(MPI_COMM_WORLD, kEnvironmentCode);
    return;
  }
  for (MPI_Request& request : requests_) {
    check_mpi(MPI_Cancel(&request));
    check_mpi(MPI_Wait(&request, MPI_STATUS_IGNORE));
  }
  if (window_ != MPI_WIN_NULL) check_mpi(MPI_Win_free(&window_));
  check_mpi(MPI_Comm_free(&host_));
  check_mpi(MPI_Finalize());
}

/// All that was handed over, or waits for some: ever longer where nothing happens, so that many
/// ranks on few cores leave them to each other.
bool MpiLoop::do_work() {
  constexpr int kBusyTurns = 20;
  constexpr std::chrono::microseconds kShortest(20);
  constexpr std::chrono::microseconds kLongest(500);
  std::deque<Work> work;
  {
    std::unique_lock lock(mutex_);
    const int doublings = std::clamp(turns_without_work_ - kBusyTurns, 0, 5);
    if (turns_without_work_ > 0 && work_.empty() && !is_closed_) {
      work_came_.wait_for(lock, std::min(kShortest * (1 << doublings), kLongest));
    }
    work.swap(work_);
  }
  for (const Work& one : work) one();
  return !work.empty();
}

bool MpiLoop::finish_requests() {
  std::vector<int> places(requests_.size());
  int count = 0;
  check_mpi(MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count,
                         places.data(), MPI_STATUSES_IGNORE));
  if (count == MPI_UNDEFINED || count == 0) return false;
  places.resize(static_cast<std::size_t>(count));
  std::sort(places.begin(), places.end());
  std::vector<Work> finished;
  for (const int place : places) {
    finished.push_back(std::move(finished_[static_cast<std::size_t>(place)]));
  }
  for (auto place = places.rbegin(); place != places.rend(); ++place) {
    requests_.erase(requests_.begin() + *place);
    finished_.erase(finished_.begin() + *place);
  }
  for (const Work& one : finished) one();
  return true;
}

void MpiLoop::hand_over(Work work) {
  {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
  }
  work_came_.notify_all();
}

void MpiLoop::track(MPI_Request request, Work finished) {
  requests_.push_back(request);
  finished_.push_back(std::move(finished));
}

std::span<std::int64_t> MpiLoop::shared_words(std::size_t count) {
  std::promise<std::span<std::int64_t>> made;
  hand_over([&] {
    // The lowest rank of the host gives the memory, the others look at it.
    int place = 0;
    check_mpi(MPI_Comm_rank(host_, &place));
    const auto own = static_cast<MPI_Aint>(place == 0 ? count * sizeof(std::int64_t) : 0);
    std::int64_t* words = nullptr;
    check_mpi(MPI_Win_allocate_shared(own, sizeof(std::int64_t), MPI_INFO_NULL, host_,
                                      static_cast<void*>(&words), &window_));
    MPI_Aint size = 0;
    int unit = 0;
    check_mpi(MPI_Win_shared_query(window_, 0, &size, &unit, static_cast<void*>(&words)));
    if (place == 0) std::fill_n(words, count, 0);
    check_mpi(MPI_Barrier(host_));
    made.set_value({words, count});
  });
  return made.get_future().get();
}

void MpiLoop::send(int to, const Frame& frame, std::span<const std::byte> bytes,
                   std::function<void()> sent) {
  hand_over([this, to, bytes, sent = std::move(sent), copy = std::make_shared<Frame>(frame)] {
    MPI_Request request = MPI_REQUEST_NULL;
    copy->from = rank_;
    check_mpi(
        MPI_Isend(copy.get(), sizeof(Frame), MPI_BYTE, to, kFrameTag, MPI_COMM_WORLD, &request));
    const Work one_less = after(1 + pieces_of(bytes.size()), sent);
    track(request, [copy, one_less] { one_less(); });
    for (std::size_t begin = 0; begin < bytes.size(); begin += kMostAtOnce) {
      const auto size = static_cast<int>(std::min(kMostAtOnce, bytes.size() - begin));
      check_mpi(
          MPI_Isend(bytes.data() + begin, size, MPI_BYTE, to, kBytesTag, MPI_COMM_WORLD, &request));
      track(request, one_less);
    }
  });
}

void MpiLoop::send(int to, const Notice& notice) {
  hand_over([this, to, copy = std::make_shared<Notice>(notice)] {
    MPI_Request request = MPI_REQUEST_NULL;
    copy->from = rank_;
    check_mpi(
        MPI_Isend(copy.get(), sizeof(Notice), MPI_BYTE, to, kNoticeTag, MPI_COMM_WORLD, &request));
    track(request, [copy] {});
  });
}

void MpiLoop::await_frame() {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Irecv(&frame_, sizeof(Frame), MPI_BYTE, MPI_ANY_SOURCE, kFrameTag, MPI_COMM_WORLD,
                      &request));
  track(request, [this] {
    take_in(frame_);
    await_frame();
  });
}

void MpiLoop::await_notice() {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Irecv(&notice_, sizeof(Notice), MPI_BYTE, MPI_ANY_SOURCE, kNoticeTag,
                      MPI_COMM_WORLD, &request));
  track(request, [this] {
    handler_.notice(notice_);
    await_notice();
  });
}

/// The bytes come in the order of their frames, as MPI lets no message overtake another one of the
/// same rank and tag.
void MpiLoop::take_in(const Frame& frame) {
  const auto bytes = std::make_shared<HostBytes>(frame.size);
  if (frame.size == 0) return handler_.message(frame, {});
  const Work one_less = after(pieces_of(frame.size),
                              [this, frame, bytes] { handler_.message(frame, std::move(*bytes)); });
  for (std::size_t begin = 0; begin < bytes->size(); begin += kMostAtOnce) {
    MPI_Request request = MPI_REQUEST_NULL;
    const auto size = static_cast<int>(std::min(kMostAtOnce, bytes->size() - begin));
    check_mpi(MPI_Irecv(bytes->data() + begin, size, MPI_BYTE, frame.from, kBytesTag,
                        MPI_COMM_WORLD, &request));
    track(request, one_less);
  }
}

std::future<void> MpiLoop::leave() {
  auto left = std::make_shared<std::promise<void>>();
  hand_over([this, left] {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Ibarrier(MPI_COMM_WORLD, &request));
    track(request, [this, left] {
      has_left_ = true;
      left->set_value();
    });
  });
  return left->get_future();
}

}  // namespace dapple
