// Flows on shared ports, alone and in rounds, driven event by event without a pipeline around them.

#include "dapple/simulate/shared_network.h"

#include <catch2/catch.hpp>

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "../support/random_problem.h"

namespace dapple {
namespace {

using namespace small;

/// One flow of a scene: rounds, or work at once if it has none.
struct Part {
  Ticks start;
  simulate::FlowDemand demand;
  std::optional<simulate::Rounds> rounds;
  Wide work = 0;
};

struct Scene {
  std::vector<simulate::Rate> capacities;
  std::vector<Part> parts;
};

simulate::FlowDemand random_demand(Dice& dice, const std::vector<simulate::Rate>& capacities) {
  simulate::FlowDemand demand{dice.roll(1, 3'000), {}};
  for (std::size_t p = 0; p < capacities.size(); ++p) {
    if (!dice.chance(40)) continue;
    const std::int64_t weight =
        dice.chance(50) ? simulate::kFullWeight : dice.roll(1, simulate::kFullWeight);
    demand.ports.emplace_back(index_at<PortIndex>(p), weight);
  }
  if (demand.ports.empty()) demand.ports.emplace_back(PortIndex{0}, simulate::kFullWeight);
  return demand;
}

/// No rate that its ports would not let through.
void lower_cap(simulate::FlowDemand& demand, const std::vector<simulate::Rate>& capacities) {
  for (const auto& [port, weight] : demand.ports) {
    const Wide most = Wide{capacities[port.position()]} * simulate::kFullWeight / weight;
    demand.cap = static_cast<simulate::Rate>(std::min<Wide>(demand.cap, most));
  }
}

Scene random_scene(Dice& dice) {
  Scene scene;
  for (std::int64_t ports = dice.roll(1, 5); ports > 0; --ports) {
    scene.capacities.push_back(dice.roll(1'000, 4'000));
  }
  for (std::int64_t parts = dice.roll(1, 6); parts > 0; --parts) {
    Part part;
    part.start = {dice.roll(0, 3'000)};
    part.demand = random_demand(dice, scene.capacities);
    if (dice.chance(60)) {
      lower_cap(part.demand, scene.capacities);
      part.rounds = simulate::Rounds{
          .count = dice.roll(1, 40), .busy = {dice.roll(0, 900)}, .pause = {dice.roll(1, 60)}};
    } else {
      part.work = dice.roll(1, 900'000);
    }
    scene.parts.push_back(std::move(part));
  }
  return scene;
}

/// Plays a scene; rounds as the network knows them, or each as a flow of its own.
class Player {
 public:
  Player(const Scene& scene, bool knows_rounds)
      : scene_(scene),
        knows_rounds_(knows_rounds),
        network_(scene.capacities),
        round_of_(scene.parts.size(), 0),
        ends_(scene.parts.size()) {
    for (std::size_t part = 0; part < scene.parts.size(); ++part) {
      starts_[scene.parts[part].start].push_back(part);
    }
  }

  std::vector<Ticks> run() {
    while (!starts_.empty() || !forecasts_.empty()) {
      Ticks now{INT64_MAX};
      if (!starts_.empty()) now = starts_.begin()->first;
      if (!forecasts_.empty()) now = std::min(now, forecasts_.begin()->first);
      while (!forecasts_.empty() && forecasts_.begin()->first == now) {
        const simulate::SharedNetwork::Forecast forecast = forecasts_.begin()->second;
        forecasts_.erase(forecasts_.begin());
        ++events_;
        if (network_.end(now, forecast.flow, forecast.version)) over(forecast.flow, now);
      }
      if (!starts_.empty() && starts_.begin()->first == now) {
        const std::vector<std::size_t> parts = starts_.begin()->second;
        starts_.erase(starts_.begin());
        for (const std::size_t part : parts) start(part, now);
      }
      if (!network_.needs_settling()) continue;
      for (const simulate::SharedNetwork::Forecast& forecast : network_.settle(now)) {
        forecasts_.emplace(forecast.at, forecast);
      }
      for (std::size_t p = 0; p < scene_.capacities.size(); ++p) {
        REQUIRE(network_.carried(index_at<PortIndex>(p)) <= scene_.capacities[p]);
      }
    }
    return ends_;
  }

  std::int64_t events() const { return events_; }

 private:
  void start(std::size_t index, Ticks now) {
    const Part& part = scene_.parts[index];
    std::int32_t flow = -1;
    if (!part.rounds) {
      flow = network_.start(now, part.demand, part.work);
    } else if (knows_rounds_) {
      flow = network_.start_rounds(now, part.demand, *part.rounds);
    } else {
      const Ticks busy =
          part.rounds->busy_until(round_of_[index] + 1) - part.rounds->busy_until(round_of_[index]);
      if (busy.count == 0) {
        round_over(index, now);
        return;
      }
      flow = network_.start(now, part.demand, Wide{part.demand.cap} * busy.count);
    }
    part_of_[flow] = index;
  }

  void over(std::int32_t flow, Ticks now) {
    const std::size_t index = part_of_.at(flow);
    if (scene_.parts[index].rounds && !knows_rounds_) {
      round_over(index, now);
    } else {
      ends_[index] = now;
    }
  }

  void round_over(std::size_t index, Ticks now) {
    const simulate::Rounds& rounds = *scene_.parts[index].rounds;
    const Ticks next = now + rounds.pause;
    if (++round_of_[index] < rounds.count) {
      starts_[next].push_back(index);
    } else {
      ends_[index] = next;
    }
  }

  const Scene& scene_;
  bool knows_rounds_;
  simulate::SharedNetwork network_;
  std::vector<std::int64_t> round_of_;  // of parts whose rounds are flows of their own
  std::vector<Ticks> ends_;
  std::map<std::int32_t, std::size_t> part_of_;  // by flow
  std::map<Ticks, std::vector<std::size_t>> starts_;
  std::multimap<Ticks, simulate::SharedNetwork::Forecast> forecasts_;
  std::int64_t events_ = 0;
};

TEST_CASE("rounds that are passed over end when each would have, waited for") {
  Dice dice(81);
  std::int64_t passed_over = 0;
  std::int64_t waited_for = 0;
  for (int i = 0; i < scaled(3000); ++i) {
    CAPTURE(i);
    const Scene scene = random_scene(dice);
    Player at_once(scene, true);
    Player one_by_one(scene, false);
    REQUIRE(at_once.run() == one_by_one.run());
    passed_over += at_once.events();
    waited_for += one_by_one.events();
  }
  CHECK(passed_over < waited_for);
}

TEST_CASE("alone, rounds take their work and their pauses, to the tick") {
  Dice dice(82);
  for (int i = 0; i < scaled(1000); ++i) {
    Scene scene = random_scene(dice);
    scene.parts.resize(1);
    Part& part = scene.parts.front();
    lower_cap(part.demand, scene.capacities);
    part.rounds = simulate::Rounds{.count = dice.roll(1, 1'000),
                                   .busy = {dice.roll(0, 1'000'000)},
                                   .pause = {dice.roll(1, 1'000)}};
    const std::vector<Ticks> ends = Player(scene, true).run();
    REQUIRE(ends.front().count == part.start.count + part.rounds->busy.count +
                                      part.rounds->count * part.rounds->pause.count);
  }
}

}  // namespace
}  // namespace dapple
