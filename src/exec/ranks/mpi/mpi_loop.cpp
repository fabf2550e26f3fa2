#include "exec/ranks/mpi/mpi_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <utility>

#include "dapple/core/error.h"
#include "dapple/exec/ranks/clock_comparison.h"
#include "dapple/exec/ranks/exit_code.h"
#include "exec/message/clock.h"
#include "exec/message/waiting.h"
#include "exec/ranks/parked_thread.h"

namespace dapple::exec {
namespace {

enum Tag { kFrameTag = 1, kBytesTag, kNoticeTag, kClockTag };

/// The largest piece of a message, because MPI counts in int.
constexpr std::size_t kMostAtOnce = std::size_t{1} << 30;

std::size_t pieces_of(std::size_t size) {
  return (size + kMostAtOnce - 1) / kMostAtOnce;
}

/// Returns a function that calls `work` when it is called for the `times`th time.
std::function<void()> countdown(std::size_t times, std::function<void()> work) {
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

/// Every rank in turn asks rank 0 for its time. Ranks on the host of rank 0 do so too, so that rank
/// 0 need not know which ranks need the answer.
std::int64_t measured_clock_offset(int rank, int size) {
  ClockComparison comparison;
  for (int asking = 1; asking < size; ++asking) {
    if (rank != 0 && rank != asking) continue;
    const int peer = rank == 0 ? asking : 0;
    for (int i = 0; i < ClockComparison::kRoundTrips; ++i) {
      std::int64_t theirs = 0;
      const std::int64_t start = monotonic_now();
      if (rank == asking) {
        check_mpi(MPI_Send(&theirs, 1, MPI_INT64_T, peer, kClockTag, MPI_COMM_WORLD));
      }
      check_mpi(
          MPI_Recv(&theirs, 1, MPI_INT64_T, peer, kClockTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      const std::int64_t end = monotonic_now();
      if (rank == 0) {
        check_mpi(MPI_Send(&end, 1, MPI_INT64_T, peer, kClockTag, MPI_COMM_WORLD));
      } else {
        comparison.add(start, theirs, end);
      }
    }
  }
  return comparison.offset();
}

void initialize_mpi() {
  int given = MPI_THREAD_SINGLE;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &given));
  if (given < MPI_THREAD_FUNNELED) {
    throw Error(ErrorKind::Environment, "MPI",
                {{"", "expected support of threads (MPI_THREAD_FUNNELED), got none"}});
  }
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
}

}  // namespace

/// State shared by the loop and its thread until MPI is initialized; the loop may have been
/// destroyed by then.
struct MpiLoop::Start {
  explicit Start(MpiLoop* of) : loop(of) {}

  std::mutex mutex;
  std::condition_variable changed;
  // Null once the loop has given up.
  MpiLoop* loop;
  // True once the loop is ready, or `fault` is set.
  bool is_over = false;
  // The exception that kept the loop from starting.
  std::exception_ptr fault;
};

/// Returns once all ranks have started; every call may block without a time limit.
MpiLoop::World MpiLoop::initialize_world() {
  initialize_mpi();
  World world;
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &world.rank));
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &world.size));
  check_mpi(
      MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &world.host));
  int here = 0;
  check_mpi(MPI_Comm_size(world.host, &here));
  int least = 0;
  check_mpi(MPI_Allreduce(&here, &least, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD));
  world.is_on_one_host = least == world.size;
  if (world.is_on_one_host) return world;
  // The lowest rank of this host; it is 0 on the host of rank 0.
  int lowest = world.rank;
  check_mpi(MPI_Allreduce(&world.rank, &lowest, 1, MPI_INT, MPI_MIN, world.host));
  const std::int64_t offset = measured_clock_offset(world.rank, world.size);
  if (lowest != 0) world.clock_offset = offset;
  return world;
}

MpiLoop::MpiLoop(WireHandler handler, std::chrono::nanoseconds timeout)
    : handler_(std::move(handler)) {
  const auto start = std::make_shared<Start>(this);
  thread_ = std::thread([start] {
    World world;
    std::exception_ptr fault;
    try {
      world = initialize_world();
    } catch (...) { fault = std::current_exception(); }
    MpiLoop* loop = nullptr;
    {
      const std::lock_guard lock(start->mutex);
      loop = start->loop;
      if (loop == nullptr) return;
      // The loop exists as long as this thread holds the lock.
      try {
        if (!fault) loop->begin(world);
      } catch (...) { fault = std::current_exception(); }
      start->fault = fault;
      start->is_over = true;
    }
    start->changed.notify_all();
    if (!fault) loop->serve();
  });
  await_start(start, timeout);
}

void MpiLoop::await_start(const std::shared_ptr<Start>& start, std::chrono::nanoseconds timeout) {
  std::unique_lock lock(start->mutex);
  if (!start->changed.wait_for(lock, timeout, [&] { return start->is_over; })) {
    start->loop = nullptr;
    park(std::move(thread_));
    throw Error(ErrorKind::Environment, "MPI",
                {{"start", fmt::format("expected all ranks to start within {} s, but some did not",
                                       seconds_of(timeout))}});
  }
  if (!start->fault) return;
  lock.unlock();
  thread_.join();
  std::rethrow_exception(start->fault);
}

MpiLoop::~MpiLoop() {
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
  }
  work_added_.notify_all();
  thread_.join();
}

void MpiLoop::serve() {
  try {
    while (true) {
      const bool sent = do_work();
      const bool finished = finish_requests();
      handler_.turn();
      turns_without_work_ = sent || finished ? 0 : turns_without_work_ + 1;
      const std::lock_guard lock(mutex_);
      if (is_closed_ && work_.empty()) break;
    }
    finalize();
  } catch (...) { handler_.fault(std::current_exception()); }
}

void MpiLoop::begin(const World& world) {
  world_ = world;
  await_frame();
  await_notice();
}

void MpiLoop::finalize() {
  if (!have_all_left_) {
    MPI_Abort(MPI_COMM_WORLD, kEnvironmentCode);
    return;
  }
  for (MPI_Request& request : requests_) {
    check_mpi(MPI_Cancel(&request));
    check_mpi(MPI_Wait(&request, MPI_STATUS_IGNORE));
  }
  if (window_ != MPI_WIN_NULL) check_mpi(MPI_Win_free(&window_));
  check_mpi(MPI_Comm_free(&world_.host));
  check_mpi(MPI_Finalize());
}

/// Executes all work that was handed over, or waits for some. The wait grows as long as nothing
/// happens, so that many ranks on few cores yield them to each other.
bool MpiLoop::do_work() {
  constexpr int kBusyTurns = 20;
  constexpr std::chrono::microseconds kShortest(20);
  constexpr std::chrono::microseconds kLongest(500);
  std::deque<Work> work;
  {
    std::unique_lock lock(mutex_);
    const int doublings = std::clamp(turns_without_work_ - kBusyTurns, 0, 5);
    if (turns_without_work_ > 0 && work_.empty() && !is_closed_) {
      work_added_.wait_for(lock, std::min(kShortest * (1 << doublings), kLongest));
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
  work_added_.notify_all();
}

void MpiLoop::track(MPI_Request request, Work finished) {
  requests_.push_back(request);
  finished_.push_back(std::move(finished));
}

std::span<std::int64_t> MpiLoop::shared_words(std::size_t count) {
  std::promise<std::span<std::int64_t>> made;
  hand_over([&] {
    // The lowest rank of the host allocates the memory, and the others map it.
    int place = 0;
    check_mpi(MPI_Comm_rank(world_.host, &place));
    const auto own = static_cast<MPI_Aint>(place == 0 ? count * sizeof(std::int64_t) : 0);
    std::int64_t* words = nullptr;
    check_mpi(MPI_Win_allocate_shared(own, sizeof(std::int64_t), MPI_INFO_NULL, world_.host,
                                      static_cast<void*>(&words), &window_));
    MPI_Aint size = 0;
    int unit = 0;
    check_mpi(MPI_Win_shared_query(window_, 0, &size, &unit, static_cast<void*>(&words)));
    if (place == 0) std::fill_n(words, count, 0);
    check_mpi(MPI_Barrier(world_.host));
    made.set_value({words, count});
  });
  return made.get_future().get();
}

void MpiLoop::send(int to, const Frame& frame, std::span<const std::byte> bytes,
                   std::function<void()> sent) {
  hand_over([this, to, bytes, sent = std::move(sent), copy = std::make_shared<Frame>(frame)] {
    MPI_Request request = MPI_REQUEST_NULL;
    copy->from = world_.rank;
    check_mpi(
        MPI_Isend(copy.get(), sizeof(Frame), MPI_BYTE, to, kFrameTag, MPI_COMM_WORLD, &request));
    const Work count_down = countdown(1 + pieces_of(bytes.size()), sent);
    track(request, [copy, count_down] { count_down(); });
    for (std::size_t begin = 0; begin < bytes.size(); begin += kMostAtOnce) {
      const auto size = static_cast<int>(std::min(kMostAtOnce, bytes.size() - begin));
      check_mpi(
          MPI_Isend(bytes.data() + begin, size, MPI_BYTE, to, kBytesTag, MPI_COMM_WORLD, &request));
      track(request, count_down);
    }
  });
}

void MpiLoop::send(int to, const Notice& notice) {
  hand_over([this, to, copy = std::make_shared<Notice>(notice)] {
    MPI_Request request = MPI_REQUEST_NULL;
    copy->from = world_.rank;
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

/// The bytes arrive in the order of their frames, because MPI does not let messages of the same
/// rank and tag overtake each other.
void MpiLoop::take_in(const Frame& frame) {
  const auto bytes = std::make_shared<HostBytes>(frame.size);
  if (frame.size == 0) return handler_.message(frame, {});
  const Work count_down = countdown(
      pieces_of(frame.size), [this, frame, bytes] { handler_.message(frame, std::move(*bytes)); });
  for (std::size_t begin = 0; begin < bytes->size(); begin += kMostAtOnce) {
    MPI_Request request = MPI_REQUEST_NULL;
    const auto size = static_cast<int>(std::min(kMostAtOnce, bytes->size() - begin));
    check_mpi(MPI_Irecv(bytes->data() + begin, size, MPI_BYTE, frame.from, kBytesTag,
                        MPI_COMM_WORLD, &request));
    track(request, count_down);
  }
}

std::future<void> MpiLoop::leave() {
  auto left = std::make_shared<std::promise<void>>();
  hand_over([this, left] {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Ibarrier(MPI_COMM_WORLD, &request));
    track(request, [this, left] {
      have_all_left_ = true;
      left->set_value();
    });
  });
  return left->get_future();
}

}  // namespace dapple::exec
