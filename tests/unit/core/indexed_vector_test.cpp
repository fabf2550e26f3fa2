#include "dapple/core/indexed_vector.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

using namespace dapple;

TEST_CASE("an entry that is added has the index that was the end") {
  IndexedVector<StageIndex, std::string> names;
  CHECK(names.empty());
  CHECK(names.end_index() == StageIndex{0});
  CHECK(names.push_back("first") == StageIndex{0});
  CHECK(names.push_back("second") == StageIndex{1});
  CHECK(names.end_index() == StageIndex{2});
  CHECK(names[StageIndex{0}] == "first");
  CHECK(names.back() == "second");
}

TEST_CASE("indices are those of all entries, in order") {
  const IndexedVector<DeviceIndex, int> counts(3, 7);
  std::vector<DeviceIndex> seen;
  for (const DeviceIndex device : counts.indices()) {
    seen.push_back(device);
    CHECK(counts[device] == 7);
  }
  CHECK(seen == std::vector<DeviceIndex>{{0}, {1}, {2}});
  const IndexedVector<DeviceIndex, int> none;
  CHECK_FALSE(none.indices().begin() != none.indices().end());
}

TEST_CASE("a vector contains no index before its first entry and none behind its last") {
  IndexedVector<DeviceIndex, bool> is_used(2);
  CHECK_FALSE(is_used.contains({-1}));
  CHECK(is_used.contains({0}));
  CHECK(is_used.contains({1}));
  CHECK_FALSE(is_used.contains({2}));
  is_used.resize(3, true);
  CHECK(is_used[{2}]);
  CHECK_FALSE(is_used[{1}]);
  is_used.clear();
  CHECK_FALSE(is_used.contains({0}));
}
