#include "nccl.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "../cuda_on_host/streams.h"

namespace {

/// One member's part in a message or sum.
struct Part {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::size_t count = 0;
  std::shared_ptr<const std::atomic<bool>> is_aborted = nullptr;
  bool is_done = false;
};
using Parts = std::vector<Part*>;  // one of each member

void pass_on(const Parts& parts) {
  std::copy_n(parts[0]->from, parts[0]->count, parts[1]->to);
}

/// From the one member that has something to send to those that take it.
void spread(const Parts& parts) {
  const auto has_any = [](const Part* part) { return part->from != nullptr; };
  const Part* const source = *std::find_if(parts.begin(), parts.end(), has_any);
  for (const Part* part : parts) {
    if (part->to != nullptr) std::copy_n(source->from, part->count * sizeof(float), part->to);
  }
}

/// In the order of the members, so that all get the same bits; for those that take them.
void sum(const Parts& parts) {
  std::vector<float> sums(parts.front()->count);
  for (const Part* part : parts) {
    const auto* values = reinterpret_cast<const float*>(part->from);
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += values[i];
  }
  for (const Part* part : parts) {
    if (part->to != nullptr) {
      std::copy(sums.begin(), sums.end(), reinterpret_cast<float*>(part->to));
    }
  }
}

/// Where streams of several members wait for each other: once all are there, the last one does what
/// they have come for.
class Meeting {
 public:
  using Deed = void (*)(const Parts&);
  Meeting(std::size_t members, Deed deed) : deed_(deed), begun_(members), waiting_(members) {}

  /// By the host, before its stream takes part.
  void begin(std::size_t member) { begun_[member] = true; }
  bool have_all_begun() const {
    for (const std::atomic<bool>& has_begun : begun_) {
      if (!has_begun) return false;
    }
    return true;
  }

  /// By a stream, which must wait for the part thereafter.
  void come(std::size_t member, Part& part) {
    const std::lock_guard lock(mutex_);
    waiting_[member].push_back(&part);
    act();
  }
  /// By a stream: until it is done, or aborted.
  void wait(std::size_t member, Part& part) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return part.is_done || *part.is_aborted; });
    if (!part.is_done) std::erase(waiting_[member], &part);
  }

  void look_again() {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  }

 private:
  void act() {
    Parts first;
    for (const std::deque<Part*>& parts : waiting_) {
      // NCCL takes in as much as there is room for, and writes beyond that.
      if (parts.empty() || parts.front()->count != waiting_.front().front()->count) return;
      first.push_back(parts.front());
    }
    deed_(first);
    for (std::size_t i = 0; i < first.size(); ++i) {
      first[i]->is_done = true;
      waiting_[i].pop_front();
    }
    changed_.notify_all();
  }

  const Deed deed_;
  std::vector<std::atomic<bool>> begun_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::deque<Part*>> waiting_;
};

/// What the members of a communicator share.
struct Club {
  std::size_t size = 0;
  std::size_t members = 0;
  std::size_t finalized = 0;
  std::map<std::pair<std::size_t, std::size_t>, std::shared_ptr<Meeting>> messages;  // from, to
  std::shared_ptr<Meeting> sums;
  std::vector<std::shared_ptr<Meeting>> sums_of;      // one for each root
  std::vector<std::shared_ptr<Meeting>> spread_from;  // likewise

  void look_again() {
    for (const auto& [way, meeting] : messages) meeting->look_again();
    sums->look_again();
    for (const auto& meeting : sums_of) meeting->look_again();
    for (const auto& meeting : spread_from) meeting->look_again();
  }
};

/// Of what follows and of clubs: held by hosts, and never by streams.
std::mutex all;
std::map<std::string, std::shared_ptr<Club>> clubs;
std::int64_t ids = 0;
int alive = 0;
bool is_used = false;  // any that is alive
std::atomic<bool> broken = false;

std::string name_of(const ncclUniqueId& id) {
  return {id.internal, NCCL_UNIQUE_ID_BYTES};
}

std::shared_ptr<Club> make_club(std::size_t size) {
  auto club = std::make_shared<Club>();
  club->size = size;
  club->sums = std::make_shared<Meeting>(size, sum);
  for (std::size_t from = 0; from < size; ++from) {
    club->sums_of.push_back(std::make_shared<Meeting>(size, sum));
    club->spread_from.push_back(std::make_shared<Meeting>(size, spread));
    for (std::size_t to = 0; to < size; ++to) {
      club->messages[{from, to}] = std::make_shared<Meeting>(2, pass_on);
    }
  }
  return club;
}

}  // namespace

struct ncclComm {
  std::shared_ptr<Club> club;
  std::size_t member = 0;
  std::shared_ptr<std::atomic<bool>> is_aborted = std::make_shared<std::atomic<bool>>(false);
  std::vector<std::shared_ptr<Meeting>> last =
      {};  // of the last call, or of the last group of them
  bool is_finalized = false;
};

namespace {

bool is_in_progress(const ncclComm& communicator) {
  const Club& club = *communicator.club;
  const auto waits = [](const auto& meeting) { return !meeting->have_all_begun(); };
  return club.members < club.size || std::ranges::any_of(communicator.last, waits) ||
         (communicator.is_finalized && club.finalized < club.size);
}

void end(ncclComm_t communicator) {
  const std::lock_guard lock(all);
  if (--alive == 0) is_used = false;
  delete communicator;
}

/// A stream's part in a meeting, as member `place` of those who meet.
struct Visit {
  std::shared_ptr<Meeting> meeting;
  std::size_t place = 0;
  Part part;
};

/// The stream is at all meetings at once.
ncclResult_t enqueue(ncclComm& communicator, std::vector<Visit> visits, cudaStream_t stream) {
  const std::lock_guard lock(all);
  if (communicator.is_finalized) return ncclInvalidUsage;
  is_used = true;
  communicator.last.clear();
  for (Visit& visit : visits) {
    visit.part.is_aborted = communicator.is_aborted;
    visit.meeting->begin(visit.place);
    communicator.last.push_back(visit.meeting);
  }
  cuda_on_host::enqueue(stream, [visits = std::move(visits)]() mutable {
    for (Visit& visit : visits) visit.meeting->come(visit.place, visit.part);
    for (Visit& visit : visits) visit.meeting->wait(visit.place, visit.part);
  });
  return is_in_progress(communicator) ? ncclInProgress : ncclSuccess;
}

ncclResult_t enqueue(ncclComm& communicator, const std::shared_ptr<Meeting>& meeting,
                     std::size_t place, const Part& part, cudaStream_t stream) {
  return enqueue(communicator, {{meeting, place, part}}, stream);
}

/// The messages of a group, all of one communicator and on one stream.
struct MessageGroup {
  bool is_open = false;
  ncclComm_t communicator = nullptr;
  cudaStream_t stream = nullptr;
  std::vector<Visit> visits = {};
};
thread_local MessageGroup message_group;

ncclResult_t pass_message(ncclComm& communicator, const std::shared_ptr<Meeting>& meeting,
                          std::size_t place, const Part& part, cudaStream_t stream) {
  MessageGroup& group = message_group;
  if (!group.is_open) return enqueue(communicator, meeting, place, part, stream);
  const bool is_first = group.visits.empty();
  if (!is_first && (group.communicator != &communicator || group.stream != stream)) {
    throw std::logic_error("a group of messages has several communicators or streams");
  }
  group.communicator = &communicator;
  group.stream = stream;
  group.visits.push_back({meeting, place, part});
  return ncclSuccess;
}

}  // namespace

namespace nccl_on_host {

void break_down(bool is_broken) {
  broken = is_broken;
}

int communicators() {
  const std::lock_guard lock(all);
  return alive;
}

}  // namespace nccl_on_host

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInvalidUsage:
      return "invalid usage";
    default:
      return "invalid argument";
  }
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::lock_guard lock(all);
  *id = {};
  const std::string number = std::to_string(++ids);
  std::memcpy(id->internal, number.data(), number.size());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int size, ncclUniqueId id, int member,
                                    ncclConfig_t* config) {
  const std::lock_guard lock(all);
  if (member < 0 || member >= size || config->blocking != 0) return ncclInvalidArgument;
  if (is_used) return ncclInvalidUsage;
  std::shared_ptr<Club>& club = clubs[name_of(id)];
  if (!club) club = make_club(static_cast<std::size_t>(size));
  if (club->size != static_cast<std::size_t>(size)) return ncclInvalidArgument;
  ++club->members;
  ++alive;
  *communicator = new ncclComm{.club = club, .member = static_cast<std::size_t>(member)};
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* error) {
  const std::lock_guard lock(all);
  *error = broken ? ncclRemoteError : is_in_progress(*communicator) ? ncclInProgress : ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t communicator) {
  const std::lock_guard lock(all);
  if (communicator->is_finalized) return ncclInvalidUsage;
  communicator->is_finalized = true;
  ++communicator->club->finalized;
  return is_in_progress(*communicator) ? ncclInProgress : ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  ncclResult_t state = ncclInProgress;
  ncclCommGetAsyncError(communicator, &state);
  if (!communicator->is_finalized || state != ncclSuccess) {
    throw std::logic_error("a communicator is destroyed that was not finalized");
  }
  end(communicator);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  *communicator->is_aborted = true;
  communicator->club->look_again();
  end(communicator);
  return ncclSuccess;
}

/// A group may hold aborts, each of which is done at once, collectives, which streams do one after
/// another, or messages, which pass together.
ncclResult_t ncclGroupStart() {
  message_group = {.is_open = true};
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  MessageGroup group = std::exchange(message_group, {});
  if (group.visits.empty()) return ncclSuccess;
  return enqueue(*group.communicator, std::move(group.visits), group.stream);
}

ncclResult_t ncclSend(const void* bytes, std::size_t count, ncclDataType_t, int to,
                      ncclComm_t communicator, cudaStream_t stream) {
  const auto& meeting =
      communicator->club->messages.at({communicator->member, static_cast<std::size_t>(to)});
  return pass_message(*communicator, meeting, 0,
                      {.from = static_cast<const std::byte*>(bytes), .count = count}, stream);
}

ncclResult_t ncclRecv(void* bytes, std::size_t count, ncclDataType_t, int from,
                      ncclComm_t communicator, cudaStream_t stream) {
  const auto& meeting =
      communicator->club->messages.at({static_cast<std::size_t>(from), communicator->member});
  return pass_message(*communicator, meeting, 1,
                      {.to = static_cast<std::byte*>(bytes), .count = count}, stream);
}

ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t, ncclComm_t communicator, cudaStream_t stream) {
  if (type != ncclFloat32) return ncclInvalidArgument;
  return enqueue(*communicator, communicator->club->sums, communicator->member,
                 {.from = static_cast<const std::byte*>(from),
                  .to = static_cast<std::byte*>(to),
                  .count = count},
                 stream);
}

/// Those who are not the root may pass any address to write to.
ncclResult_t ncclReduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t, int root, ncclComm_t communicator, cudaStream_t stream) {
  if (type != ncclFloat32) return ncclInvalidArgument;
  const auto place = static_cast<std::size_t>(root);
  const bool is_root = place == communicator->member;
  return enqueue(*communicator, communicator->club->sums_of.at(place), communicator->member,
                 {.from = static_cast<const std::byte*>(from),
                  .to = is_root ? static_cast<std::byte*>(to) : nullptr,
                  .count = count},
                 stream);
}

/// Only the root's address to read from counts; the root keeps what it has.
ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t communicator, cudaStream_t stream) {
  if (type != ncclFloat32 || (static_cast<std::size_t>(root) == communicator->member && from != to))
    return ncclInvalidArgument;
  const auto place = static_cast<std::size_t>(root);
  const bool is_root = place == communicator->member;
  return enqueue(*communicator, communicator->club->spread_from.at(place), communicator->member,
                 {.from = is_root ? static_cast<const std::byte*>(from) : nullptr,
                  .to = is_root ? nullptr : static_cast<std::byte*>(to),
                  .count = count},
                 stream);
}
