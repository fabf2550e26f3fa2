#include "conformance.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <numeric>
#include <thread>

#include "../support/dice.h"
#include "dapple/core/error.h"
#include "dapple/exec/message/all_reduce.h"
#include "dapple/schedule/schedule.h"

namespace dapple::conformance {
namespace {

using small::Dice;

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

exec::MessageKey key_of(const Place& place, std::int32_t from, std::int32_t to,
                        std::int32_t number) {
  return {.iteration = place.iteration,
          .action = {ActionKind::SendActivation, number, {from}},
          .step = 0,
          .from = {from},
          .to = {to}};
}

/// Bytes that no other message has.
exec::HostBytes content(const exec::MessageKey& key, std::size_t size) {
  exec::HostBytes bytes(size);
  std::uint64_t word = static_cast<std::uint64_t>(key.action.index) * 1'000'003 +
                       static_cast<std::uint64_t>(key.from.value) * 1'009 +
                       static_cast<std::uint64_t>(key.step) + 1;
  for (std::byte& byte : bytes) {
    word = word * 6364136223846793005 + 1442695040888963407;
    byte = static_cast<std::byte>(word >> 56);
  }
  return bytes;
}

exec::HostBytes taken_in(exec::Transport& end, const exec::MessageKey& key) {
  const exec::Payload payload = end.receive(key, {});
  return {payload.host().begin(), payload.host().end()};
}

/// Runs `work(i)` in threads of one device; the first exception by number is thrown.
void in_threads(std::size_t count, const std::function<void(std::int32_t)>& work) {
  std::vector<std::exception_ptr> failures(count);
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < count; ++i) {
      threads.emplace_back([&, i] {
        try {
          work(static_cast<std::int32_t>(i));
        } catch (...) { failures[i] = std::current_exception(); }
      });
    }
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

void in_any_order(const Place& place, exec::Transport& end) {
  for (std::int32_t i = 0; i < 5; ++i) {
    const exec::MessageKey key = key_of(place, place.number, place.next(), i);
    end.send(key, content(key, 10));
  }
  for (std::int32_t i = 4; i >= 0; --i) {
    const exec::MessageKey key = key_of(place, place.previous(), place.number, i);
    require(taken_in(end, key) == content(key, 10), "another message than was asked for");
  }
}

/// Sanitizers look at every byte.
#ifdef DAPPLE_SANITIZED
constexpr std::size_t kLargest = std::size_t{2} << 20;
#else
constexpr std::size_t kLargest = std::size_t{64} << 20;
#endif

void of_any_size(const Place& place, exec::Transport& end) {
  const std::size_t sizes[] = {0, 1, 7, 4'096, 65'537, kLargest};
  std::int32_t number = 0;
  for (const std::size_t size : sizes) {
    const exec::MessageKey out = key_of(place, place.number, place.next(), number);
    const exec::MessageKey in = key_of(place, place.previous(), place.number, number);
    end.send(out, content(out, size));
    require(taken_in(end, in) == content(in, size), "a message has changed on its way");
    ++number;
  }
}

/// Nobody takes anything in before all have sent all: 200 messages of 20 KB to each other device.
void before_anyone_waits(const Place& place, exec::Transport& end) {
  constexpr std::int32_t kMessages = 200;
  for (std::int32_t i = 0; i < kMessages; ++i) {
    for (std::int32_t to = 0; to < place.count; ++to) {
      if (to == place.number) continue;
      const exec::MessageKey key = key_of(place, place.number, to, i);
      end.send(key, content(key, 20'000));
    }
  }
  end.barrier();
  for (std::int32_t i = kMessages - 1; i >= 0; --i) {
    for (std::int32_t from = 0; from < place.count; ++from) {
      if (from == place.number) continue;
      const exec::MessageKey key = key_of(place, from, place.number, i);
      require(taken_in(end, key) == content(key, 20'000), "a message has changed on its way");
    }
  }
}

void from_several_threads(const Place& place, exec::Transport& end) {
  constexpr std::int32_t kThreads = 3;
  constexpr std::int32_t kMessages = 60;
  in_threads(2 * kThreads, [&](std::int32_t thread) {
    Dice dice(static_cast<std::uint64_t>(3301 + thread));
    const bool sends = thread < kThreads;
    std::vector<std::int32_t> numbers(kMessages);
    std::iota(numbers.begin(), numbers.end(), thread % kThreads * kMessages);
    for (std::size_t i = numbers.size(); i-- > 1;) {
      std::swap(numbers[i], numbers[static_cast<std::size_t>(dice.roll(0, std::int64_t(i)))]);
    }
    for (const std::int32_t number : numbers) {
      const exec::MessageKey out = key_of(place, place.number, place.next(), number);
      const exec::MessageKey in = key_of(place, place.previous(), place.number, number);
      const auto size = static_cast<std::size_t>(number * 13);
      if (sends) {
        end.send(out, content(out, size));
      } else {
        require(taken_in(end, in) == content(in, size), "threads mix messages up");
      }
    }
  });
}

/// Each comes at its own time and tells the next one when; all go after the last has come.
void at_the_barrier(const Place& place, exec::Transport& end) {
  for (std::int32_t round = 0; round < 5; ++round) {
    const std::int32_t late = (place.number + round) % place.count;
    std::this_thread::sleep_for(std::chrono::milliseconds(3 * late));
    const std::int64_t came = now_ns();
    end.barrier();
    const std::int64_t left = now_ns();
    exec::HostBytes moment(sizeof came);
    std::memcpy(moment.data(), &came, sizeof came);
    for (std::int32_t to = 0; to < place.count; ++to) {
      if (to != place.number) end.send(key_of(place, place.number, to, round), moment);
    }
    for (std::int32_t from = 0; from < place.count; ++from) {
      if (from == place.number) continue;
      std::int64_t theirs = 0;
      const exec::HostBytes bytes = taken_in(end, key_of(place, from, place.number, round));
      std::memcpy(&theirs, bytes.data(), sizeof theirs);
      require(left >= theirs, "a device left the barrier before another one had come");
    }
  }
}

/// The sum of values that do not round, then of some that do, of which all must have the same bits.
void reduced(const exec::ReductionGroup& group, const Place& place, exec::Transport& end,
             std::int32_t number) {
  constexpr std::size_t kValues = 1'003;
  const exec::MessageKey key{.iteration = place.iteration,
                             .action = {ActionKind::AllReduce, number, {0}},
                             .step = 0,
                             .from = {place.number},
                             .to = {place.number}};
  const auto reduce = [&](std::int32_t step, float unit) {
    std::vector<float> values(kValues);
    for (std::size_t i = 0; i < kValues; ++i) {
      values[i] = unit * static_cast<float>((static_cast<std::size_t>(place.number) + 1) * (i + 1));
    }
    exec::MessageKey own = key;
    own.action.index = 2 * number + step;
    exec::HostReductionBuffer buffer(values);
    exec::all_reduce(group, own, buffer, end);
    exec::HostBytes bytes(kValues * sizeof(float));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  };
  const std::int64_t sent = end.sent().count;
  const exec::HostBytes whole = reduce(0, 1);
  // All parts but one leave twice; parts differ by a float at most.
  const auto ring = static_cast<std::int64_t>(place.count);
  const auto bytes = static_cast<std::int64_t>(kValues * sizeof(float));
  const std::int64_t expected = 2 * (ring - 1) * bytes / ring;
  require(std::abs(end.sent().count - sent - expected) <= 16 * ring,
          "a reduction sends other than 2 (r-1)/r of its bytes");
  const auto members = static_cast<float>(place.count * (place.count + 1) / 2);
  for (std::size_t i = 0; i < kValues; ++i) {
    float value = 0;
    std::memcpy(&value, whole.data() + i * sizeof(float), sizeof(float));
    require(value == members * static_cast<float>(i + 1), "a sum is not the sum");
  }
  const exec::HostBytes rounded = reduce(1, 0.1F);
  const exec::MessageKey out = key_of(place, place.number, place.next(), number);
  const exec::MessageKey in = key_of(place, place.previous(), place.number, number);
  end.send(out, rounded);
  require(taken_in(end, in) == rounded, "members of a reduction round differently");
}

/// The halves of a reduction: a sum of this device's shard, then everybody's.
void halved(const exec::ReductionGroup& group, const Place& place, exec::Transport& end,
            std::int32_t number) {
  constexpr std::size_t kValues = 1'003;
  const auto members = static_cast<float>(place.count * (place.count + 1) / 2);
  const exec::MessageKey key{.iteration = place.iteration,
                             .action = {ActionKind::AllReduce, 4 + number, {0}},
                             .step = 0,
                             .from = {place.number},
                             .to = {place.number}};
  std::vector<float> values(kValues);
  for (std::size_t i = 0; i < kValues; ++i) {
    values[i] = static_cast<float>((static_cast<std::size_t>(place.number) + 1) * (i + 1));
  }
  exec::HostReductionBuffer buffer(values);
  const std::int64_t before = end.sent().count;
  exec::reduce_scatter(group, key, buffer, end);
  const std::int64_t between = end.sent().count;
  const exec::ElementRange own = exec::shard_of(group, {place.number}, {0, kValues});
  for (std::size_t i = 0; i < kValues; ++i) {
    const bool is_own = own.begin <= i && i < own.end;
    require(!is_own || values[i] == members * static_cast<float>(i + 1),
            "a shard's sum is not the sum");
    if (!is_own) values[i] = -1;
  }
  exec::MessageKey gathered = key;
  gathered.action = {ActionKind::OptimizerStep, number, {0}};
  exec::all_gather(group, gathered, buffer, end);
  for (std::size_t i = 0; i < kValues; ++i) {
    require(values[i] == members * static_cast<float>(i + 1), "a shard was not gathered");
  }
  const auto ring = static_cast<std::int64_t>(place.count);
  const std::int64_t half = (ring - 1) * static_cast<std::int64_t>(kValues * sizeof(float)) / ring;
  for (const std::int64_t sent : {between - before, end.sent().count - between}) {
    require(std::abs(sent - half) <= 16 * ring,
            "half of a reduction sends other than (r-1)/r of its bytes");
  }
}

void reductions(const Place& place, exec::Transport& end) {
  exec::ReductionGroup flat{.servers = {{}}};
  exec::ReductionGroup halves{.servers = {{}, {}}};
  for (std::int32_t i = 0; i < place.count; ++i) {
    flat.servers.front().push_back({i});
    halves.servers[static_cast<std::size_t>(2 * i / place.count)].push_back({i});
  }
  reduced(flat, place, end, 0);
  halved(flat, place, end, 0);
  if (place.count % 2 != 0) return;
  reduced(halves, place, end, 1);
  halved(halves, place, end, 1);
}

void counted(const Place& place, exec::Transport& end) {
  const std::int64_t before = end.sent().count;
  // 3 + 30 + 300 bytes to the next device, and none to itself.
  std::size_t size = 3;
  for (std::int32_t i = 0; i < 3; ++i, size *= 10) {
    end.send(key_of(place, place.number, place.next(), i), exec::HostBytes(size));
    end.receive(key_of(place, place.previous(), place.number, i), {});
  }
  require(end.sent().count - before == 333, "other bytes are counted than were sent");
}

void in_vain(const Place& place, exec::Transport& end) {
  if (place.number == 0) {
    const exec::MessageKey key = key_of(place, place.next(), 0, 7);
    try {
      end.receive(key, {});
      throw Broken("a message came that nobody sent");
    } catch (const Error& error) {
      const std::string text = error.what();
      require(error.kind() == ErrorKind::Environment, "no error of the environment: " + text);
      const std::string named = to_text(key.action) + ": expected a message from";
      require(text.find(named) != std::string::npos, text);
    }
    for (std::int32_t to = 1; to < place.count; ++to) end.send(key_of(place, 0, to, 8), {});
    return;
  }
  // Whoever waits as long must not give up before: tries again.
  while (true) {
    try {
      end.receive(key_of(place, 0, place.number, 8), {});
      return;
    } catch (const Error&) { continue; }
  }
}

void aborted(const Place& place, exec::Transport& end) {
  end.barrier();
  const std::int32_t last = place.count - 1;
  if (place.number == last) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    end.abort();
  } else {
    try {
      if (place.number == 0) end.barrier();
      end.receive(key_of(place, last, place.number, 0), {});
      throw Broken("a message came that nobody sent");
    } catch (const exec::JobAborted&) {}
  }
  try {
    end.send(key_of(place, place.number, place.next(), 1), exec::HostBytes(1));
    throw Broken("a job that is over goes on");
  } catch (const exec::JobAborted&) {}
}

}  // namespace

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"messages are taken in by name, in any order", in_any_order},
      {"messages of any size arrive as they were sent", of_any_size},
      {"messages leave before anyone waits for them", before_anyone_waits},
      {"several threads share an end", from_several_threads},
      {"nobody leaves a barrier before all have come", at_the_barrier},
      {"a reduction gives all the same sum, for 2 (r-1)/r of its bytes", reductions},
      {"bytes are counted as they are sent", counted},
      {"who waits in vain is told for what", in_vain}};
  return all;
}

const Case& aborting_case() {
  static const Case one{"one end that gives up wakes all that wait", aborted};
  return one;
}

}  // namespace dapple::conformance
