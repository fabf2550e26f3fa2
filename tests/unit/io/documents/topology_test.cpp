#include <catch2/catch.hpp>

#include "documents_under_test.h"

namespace dapple::test {
namespace {

using Faults = std::vector<std::string>;

std::string with_memory(const std::string& memory) {
  return replaced(kTopologyText, "\"16 GiB\"", "\"" + memory + "\"");
}
std::string with_bandwidth(const std::string& bandwidth) {
  return replaced(kTopologyText, "\"1 GB/s\"", "\"" + bandwidth + "\"");
}
std::string with_latency(const std::string& latency) {
  return replaced(kTopologyText, "\"1 us\"", "\"" + latency + "\"");
}

/// The topology of kTopologyText with one server, whose links are a matrix.
std::string matrix_topology(const std::string& matrix) {
  const std::string links =
      R"({"kind": "matrix", "kinds": {"NV2": {"bandwidth": "50 GB/s", "latency": "2 us", "lanes": 2},)"
      R"( "NV1": {"bandwidth": "25 GB/s", "latency": "2 us"}}, "matrix": )" +
      matrix + R"(, "host_path": {"bandwidth": "10 GB/s", "latency": "10 us", "source": "s"}})";
  return replaced(kTopologyText, R"({"kind": "switch", "bandwidth": "1 GB/s", "latency": "1 us"})",
                  links);
}

/// The topology of kTopologyText with both servers in one rack.
std::string with_uplink(const std::string& uplink) {
  return replaced(
      kTopologyText, R"("name": "t")",
      R"("name": "t", "racks": [{"count": 1, "servers": 2, "uplink": )" + uplink + "}]");
}

/// The topology of kTopologyText with a measurement of two devices.
std::string with_measured(const std::string& points) {
  return replaced(kTopologyText, R"("name": "n")",
                  R"("name": "n", "bus_bandwidth": [{"devices": 2, "points": )" + points + "}]");
}

TEST_CASE("a bandwidth is what its unit says, exactly") {
  const auto read = [](const std::string& text) {
    return io::read_topology(with_bandwidth(text), "f.json")
        .servers[0]
        .links.port.bandwidth.bytes_per_second;
  };
  CHECK(read("1 B/s") == 1);
  CHECK(read("8 bit/s") == 1);
  CHECK(read("3 kB/s") == 3'000);
  CHECK(read("3 KiB/s") == 3 * 1'024);
  CHECK(read("25 Gbit/s") == 3'125'000'000);  // 25e9 / 8
  CHECK(read("12.5 GB/s") == 12'500'000'000);
  CHECK(read("0.1 GB/s") == 100'000'000);
  CHECK(read("1.000 TB/s") == 1'000'000'000'000);
  CHECK(read("2 Mibit/s") == 262'144);  // 2 * 1,048,576 / 8
  // As vendors write them.
  CHECK(read("25 Gbps") == 3'125'000'000);
  CHECK(read("25 Gb/s") == 3'125'000'000);
  CHECK(read("25 GBps") == 25'000'000'000);
  CHECK(read("0.5 GiB/s") == 536'870'912);
  CHECK(read("1000 TB/s") == kMaxCount);
  CHECK(read("007 MB/s") == 7'000'000);
}

TEST_CASE("a size and a time are what their units say, exactly") {
  const auto memory = [](const std::string& text) {
    return io::read_topology(with_memory(text), "f.json").devices[0].memory.count;
  };
  CHECK(memory("16 GiB") == 17'179'869'184);
  CHECK(memory("16 GB") == 16'000'000'000);
  CHECK(memory("1.5 KiB") == 1'536);
  CHECK(memory("1 B") == 1);
  const auto latency = [](const std::string& text) {
    return io::read_topology(with_latency(text), "f.json").servers[0].links.port.latency.ns;
  };
  CHECK(latency("0 us") == 0);
  CHECK(latency("1.5 us") == 1'500);
  CHECK(latency("1.5 \xc2\xb5s") == 1'500);
  CHECK(latency("3 ms") == 3'000'000);
  CHECK(latency("0.25 s") == 250'000'000);
  CHECK(latency("7 ns") == 7);
}

TEST_CASE("a quantity that is wrong says which units are possible") {
  for (const char* text :
       {"25 gbps", "25Gbit/s", "25  Gbit/s", " 25 Gbit/s", "25 Gbit/s ", "25 gb/s", "25 GB",
        "-1 GB/s", "+1 GB/s",  "1e3 B/s",    "1,5 GB/s",   ".5 GB/s",    "5. GB/s", "1.2.3 GB/s",
        "GB/s",    "",         "25",         "0x1 B/s",    "1 TiB/s",    "NaN B/s", "inf B/s"}) {
    CHECK(
        topology_faults(with_bandwidth(text)) ==
        Faults{std::string("/servers/0/links/bandwidth: expected a bandwidth such as \"25 Gbit/s\" "
                           "or \"130 GB/s\" (B/s or bit/s with k, M, G, T, Ki, Mi or Gi), got \"") +
               text + "\""});
  }
  CHECK(
      topology_faults(with_memory("16 Gb")) ==
      Faults{"/devices/D/memory: expected a size such as \"16 GiB\" (B with k, M, G, T, Ki, Mi or "
             "Gi), got \"16 Gb\""});
  CHECK(topology_faults(with_latency("5 min")) ==
        Faults{"/servers/0/links/latency: expected a time such as \"5 us\" (ns, us, ms or s), got "
               "\"5 min\""});
  CHECK(topology_faults(replaced(kTopologyText, "\"1 us\"", "1")) ==
        Faults{
            "/servers/0/links/latency: expected a time such as \"5 us\" (ns, us, ms or s), got 1"});
}

TEST_CASE("a quantity that is not whole or out of range is refused") {
  for (const char* text : {"0 GB/s", "0.3 B/s", "1 bit/s", "1000.001 TB/s",
                           "99999999999999999999999999999 B/s", "0.0000000001 GB/s"}) {
    CHECK(topology_faults(with_bandwidth(text)) ==
          Faults{
              std::string("/servers/0/links/bandwidth: expected a whole number of bytes per second "
                          "from 1 B/s to 1000000000000000 B/s, got \"") +
              text + "\""});
  }
  CHECK(
      topology_faults(with_memory("0 GiB")) ==
      Faults{"/devices/D/memory: expected a whole number of bytes from 1 B to 1000000000000000 B, "
             "got \"0 GiB\""});
  CHECK(topology_faults(with_latency("0.5 ns")) ==
        Faults{"/servers/0/links/latency: expected a whole number of nanoseconds from 0 ns to "
               "1000000000000000 ns, got \"0.5 ns\""});
}

TEST_CASE("quantities are written in the largest unit that shows them in few digits") {
  TopologyDescription topology = io::read_topology(kTopologyText, "f.json");
  const auto shows = [&topology](const std::string& text) {
    return io::write_topology(topology).find("\"" + text + "\"") != std::string::npos;
  };
  topology.network->bandwidth = {3'125'000'000};
  CHECK(shows("3.125 GB/s"));
  topology.network->bandwidth = {3'125'100'000};
  CHECK(shows("3125.1 MB/s"));
  topology.network->bandwidth = {1};
  CHECK(shows("1 B/s"));
  topology.network->bandwidth = {123'456'789};
  CHECK(shows("123456.789 kB/s"));
  topology.devices[0].memory = {16'000'000'000};
  CHECK(shows("16 GB"));
  topology.devices[0].memory = {15'872LL << 20};
  CHECK(shows("15872 MiB"));
  topology.devices[0].memory = {1'000'001};
  CHECK(shows("1000.001 kB"));
  topology.network->latency = {1'500};
  CHECK(shows("1.5 us"));
  topology.network->latency = {1'000'001};
  CHECK(shows("1000.001 us"));
}

TEST_CASE("a topology in canonical form is written byte by byte as it was") {
  CHECK(io::write_topology(io::read_topology(kTopologyText, "f.json")) == kTopologyText);
}

TEST_CASE("writing a topology and reading it gives the same topology and the same bytes") {
  Dice dice(99);
  for (int i = 0; i < 500; ++i) {
    const TopologyDescription topology = random_topology(dice);
    const std::string text = io::write_topology(topology);
    INFO("topology " << i << "\n" << text);
    const TopologyDescription again = io::read_topology(text, "f.json");
    REQUIRE(same(topology, again));
    REQUIRE(io::write_topology(again) == text);
  }
}

TEST_CASE("kinds of devices and links stand by name, whatever their order in the file") {
  const std::string two =
      replaced(kTopologyText, R"("devices": {)",
               R"("devices": {"Z": {"memory": "1 GiB"}, "A": {"memory": "2 GiB"},)");
  const TopologyDescription topology = io::read_topology(two, "f.json");
  REQUIRE(topology.devices.size() == 3);
  CHECK(topology.devices[0].name == "A");
  CHECK(topology.devices[1].name == "D");
  CHECK(topology.devices[2].name == "Z");

  const ServerLinks links =
      io::read_topology(matrix_topology(R"([["-", "NV1"], ["NV2", "-"]])"), "f.json")
          .servers[0]
          .links;
  REQUIRE(links.kinds.size() == 2);
  CHECK(links.kinds[0].name == "NV1");
  CHECK(links.kinds[0].lanes == 1);
  CHECK(links.kinds[1].lanes == 2);
  CHECK(links.matrix(0, 1) == 0);
  CHECK(links.matrix(1, 0) == 1);
  CHECK(links.matrix(0, 0) == kNoLink);
  CHECK(links.host_path->bandwidth == Bandwidth{10'000'000'000});
  CHECK(links.host_path_source == "s");
}

struct BadTopology {
  std::string text;
  const char* fault;
};

TEST_CASE("a topology that is wrong is refused with what was expected") {
  const std::string zero_devices = replaced(kTopologyText, R"("D": {
      "memory": "16 GiB"
    })",
                                            "");
  const std::vector<BadTopology> cases{
      {matrix_topology(R"([["-", "NV1"]])"),
       "/servers/0/links/matrix: expected a row for each of the 2 devices, got 1"},
      {matrix_topology(R"([["-", "NV1"], ["-"]])"),
       "/servers/0/links/matrix/1: expected a column for each of the 2 devices, got 1"},
      {matrix_topology(R"([["-", "NV3"], ["-", "-"]])"),
       "/servers/0/links/matrix/0/1: expected the name of a kind of link, or \"-\" for none, got "
       "\"NV3\""},
      {matrix_topology(R"([["NV1", "NV1"], ["-", "-"]])"),
       "/servers/0/links/matrix/0/0: expected \"-\" between a device and itself, got \"NV1\""},
      {matrix_topology(R"(["-"])"),
       "/servers/0/links/matrix: expected a row for each of the 2 devices, got 1"},
      {matrix_topology(R"([7, ["-", "-"]])"),
       "/servers/0/links/matrix/0: expected an array of link names, got 7"},
      {replaced(kTopologyText, R"("kind": "switch")", R"("kind": "ring")"),
       "/servers/0/links/kind: expected \"switch\" or \"matrix\", got \"ring\""},
      {replaced(kTopologyText, R"("device": "D")", R"("device": "E")"),
       "/servers/0/device: expected the name of a kind of device in /devices, got \"E\""},
      {replaced(kTopologyText, R"("count": 2)", R"("count": 0)"),
       "/servers/0/count: expected an integer from 1 to 65536, got 0"},
      {replaced(kTopologyText, R"("count": 2)", R"("count": 40000)"),
       "/servers: expected at most 65536 devices, got 80000"},
      {replaced(kTopologyText, R"("memory": "16 GiB")",
                R"("memory": "16 GiB", "reserved": "16 GiB")"),
       "/devices/D/reserved: expected less than the memory of 16 GiB, got \"16 GiB\""},
      {replaced(kTopologyText, R"("memory": "16 GiB")",
                R"("memory": "16 GiB", "time_scale": {"V": 0})"),
       "/devices/D/time_scale/V: expected a number above 0 and up to 1000 with at most nine "
       "decimal "
       "places, got 0"},
      {replaced(kTopologyText, R"("memory": "16 GiB")",
                R"("memory": "16 GiB", "profile": "x.json")"),
       "/devices/D/profile: \"profile\" is not supported by this version"},
      {replaced(kTopologyText, R"("name": "t")", R"("name": "t", "racks": [])"),
       "/racks: expected at least one group, got an empty array"},
      {with_uplink(R"({"oversubscription": 0, "latency": "1 us"})"),
       "/racks/0/uplink/oversubscription: expected a number above 0 and up to 1000000 with at most "
       "nine decimal places, got 0"},
      {with_uplink(R"({"oversubscription": 2, "bandwidth": "1 GB/s", "latency": "1 us"})"),
       "/racks/0/uplink/bandwidth: expected either a bandwidth or an oversubscription"},
      {with_uplink(R"({"latency": "1 us"})"),
       "/racks/0/uplink/bandwidth: expected a bandwidth such as \"25 Gbit/s\" or \"130 GB/s\" (B/s "
       "or bit/s with k, M, G, T, Ki, Mi or Gi), but the key is missing"},
      {with_uplink(R"({"bandwidth": "1 GB/s"})"),
       "/racks/0/uplink/latency: expected a time such as \"5 us\" (ns, us, ms or s), but the key "
       "is "
       "missing"},
      {replaced(kTopologyText, R"("name": "n")", R"("name": "n", "pcie_roots": [])"),
       "/servers/0/pcie_roots: expected at least one PCIe root, got an empty array"},
      {replaced(kTopologyText, R"("name": "n")",
                R"("name": "n", "pcie_roots": [{"bandwidth": "1 GB/s", "latency": "0 us", )"
                R"("devices": []}])"),
       "/servers/0/pcie_roots/0/devices: expected at least one device number, got an empty array"},
      {replaced(kTopologyText, R"("name": "t")", R"("name": "t", "overlap_slowdown": 0.9)"),
       "/overlap_slowdown: expected a number from 1 to 1000 with at most nine decimal places, got "
       "0.9"},
      {replaced(kTopologyText, R"("name": "n")", R"("name": "n", "bus_bandwidth": {})"),
       "/servers/0/bus_bandwidth: expected an array of tables, got an empty object"},
      {replaced(kTopologyText, R"("name": "n")", R"("name": "n", "bus_bandwidth": [])"),
       "/servers/0/bus_bandwidth: expected at least one table, got an empty array"},
      {with_measured(R"([])"),
       "/servers/0/bus_bandwidth/0/points: expected at least one message size, got an empty array"},
      {with_measured(R"([{"size": "0 B", "bandwidth": "1 GB/s"}])"),
       "/servers/0/bus_bandwidth/0/points/0/size: expected a whole number of bytes from 1 B to "
       "1000000000000000 B, got \"0 B\""},
      {with_measured(R"([{"size": "1 B"}])"),
       "/servers/0/bus_bandwidth/0/points/0/bandwidth: expected a bandwidth such as \"25 Gbit/s\" "
       "or \"130 GB/s\" (B/s or bit/s with k, M, G, T, Ki, Mi or Gi), but the key is missing"},
      {with_measured(R"([{"size": "1 B", "bandwidth": "1 GB/s", "time": "1 ns"}])"),
       "/servers/0/bus_bandwidth/0/points/0/time: expected one of the keys \"size\" or "
       "\"bandwidth\", "
       "got an unknown key"},
      {replaced(kTopologyText, R"("1 us"}
      ])",
                R"("1 us", "devices": [0, -1]}
      ])"),
       "/servers/0/nics/0/devices/1: expected an integer from 0 to 65535, got -1"},
      {replaced(kTopologyText,
                R"("links": {"kind": "switch", "bandwidth": "1 GB/s", "latency": "1 us"},)", ""),
       "/servers/0/links: expected an object, but the key is missing"},
  };
  for (const BadTopology& bad : cases) {
    INFO(bad.text);
    CHECK(topology_faults(bad.text) == Faults{bad.fault});
  }
  CHECK(topology_faults(zero_devices) ==
        Faults{"/devices: expected at least one kind of device, got an empty object",
               "/servers/0/device: expected the name of a kind of device in /devices, got \"D\""});
}

TEST_CASE("server names are unique, and a single device needs neither links nor network") {
  const std::string server = R"({"name": "n", "count": 1, "device": "D", "devices": 1})";
  const std::string head =
      R"({"schema": "dapple-topology/1", "name": "t", "devices": {"D": {"memory": "1 GiB"}}, "servers": [)";
  CHECK(topology_faults(head + server + "]}").empty());
  CHECK(topology_faults(head + server + ", " + server + "]}") ==
        Faults{"/servers/1/name: expected a server name of its own, got \"n\""});
  CHECK(topology_faults(head + "]}") ==
        Faults{"/servers: expected at least one kind of server, got an empty array"});
}

TEST_CASE("a huge number of devices does not make a huge matrix") {
  const std::string text =
      replaced(matrix_topology("[[]]"), R"("devices": 2)", R"("devices": 65536)");
  CHECK(topology_faults(replaced(text, R"("count": 2)", R"("count": 1)")) ==
        Faults{"/servers/0/links/matrix: expected a row for each of the 65536 devices, got 1"});
}

}  // namespace
}  // namespace dapple::test
