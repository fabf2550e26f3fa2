// Topologies of other tools: figures worked out by hand, and what is refused, by line.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "../../../support/refusals.h"
#include "dapple/core/error.h"
#include "dapple/interop/topologies/foreign_topology.h"
#include "dapple/io/documents/documents.h"

namespace dapple::interop {
namespace {

using test::changed;
using test::check_refusals;
using test::Malformed;
using test::sample;
using test::warns;

ForeignFile foreign(std::string text, const std::string& name = "file") {
  const auto format = detect_topology_format(text);
  REQUIRE(format);
  return {.text = std::move(text), .name = name, .format = *format};
}

/// Every figure that a file may leave out.
ForeignTopologyOptions all_figures() {
  ForeignTopologyOptions options;
  options.device = "card";
  options.memory = Bytes{std::int64_t{16} << 30};
  options.nvlink = Bandwidth{20'000'000'000};
  options.pcie = Bandwidth{12'000'000'000};
  options.socket = Bandwidth{10'000'000'000};
  return options;
}

std::string refusal_of_topology(const ForeignFile& file, const ForeignTopologyOptions& options) {
  return test::refusal_of([&] { import_topology({file}, options); });
}

/// Each variant of a sound text is refused with its reason.
void check_refusals(TopologyFormat format, const std::string& text,
                    const ForeignTopologyOptions& options, const std::vector<Malformed>& cases) {
  test::check_refusals(text, cases, [&](const std::string& variant) {
    import_topology({{variant, "file", format}}, options);
  });
}

constexpr const char* kTable =
    "\tGPU0\tGPU1\tNIC0\tCPU Affinity\n"
    "GPU0\tX\tNV2\tPIX\t0-3\n"
    "GPU1\tNV2\tX\tSYS\t4-7\n"
    "NIC0\tPIX\tSYS\tX\n";

TEST_CASE("a table of nvidia-smi with the same links everywhere is a switch only beyond a mesh") {
  // Three devices of 12 links: NV6 to each of two others may be a mesh, NV12 may not.
  const auto table = [](const std::string& cell) {
    return "\tGPU0\tGPU1\tGPU2\nGPU0\tX\t" + cell + "\t" + cell + "\nGPU1\t" + cell + "\tX\t" +
           cell + "\nGPU2\t" + cell + "\t" + cell + "\tX\n";
  };
  ForeignTopologyOptions options;
  options.device = "A100-40GB";
  const auto links_of = [&](const std::string& cell) {
    return import_topology({foreign(table(cell))}, options).description.servers.front().links;
  };
  CHECK(links_of("NV6").kind == ServerLinks::Kind::Matrix);
  CHECK(links_of("NV6").kinds.front().link.bandwidth == Bandwidth{120'000'000'000});
  CHECK(links_of("NV12").kind == ServerLinks::Kind::Switch);
  CHECK(links_of("NV12").port.bandwidth == Bandwidth{240'000'000'000});
}

TEST_CASE("a card that corrects errors out of its memory has less than its name says") {
  ForeignTopologyOptions options;
  options.device = "L4-24GB";
  const auto memory = [&] {
    return import_topology({foreign("\tGPU0\tGPU1\nGPU0\tX\tPHB\nGPU1\tPHB\tX\n")}, options)
        .description.devices.front()
        .memory;
  };
  CHECK(memory() == Bytes{std::int64_t{23'034} << 20});
  options.device = "H100-80GB";
  CHECK(memory() == Bytes{std::int64_t{80} << 30});
}

TEST_CASE("devices across sockets share what the sockets carry, others do not need it") {
  ForeignTopologyOptions options = all_figures();
  options.nic = Bandwidth{1'000'000'000};
  const ServerGroup crossed =
      import_topology({foreign(kTable)}, options).description.servers.front();
  // GPU1 reaches NIC0 across the sockets: a root for each.
  REQUIRE(crossed.pcie_roots.size() == 2);
  CHECK(crossed.pcie_roots[0].devices == std::vector<std::int32_t>{0});
  CHECK(crossed.pcie_roots[0].nics == std::vector<std::int32_t>{0});
  CHECK(crossed.pcie_roots[1].devices == std::vector<std::int32_t>{1});
  options.nic.reset();
  CHECK(import_topology({foreign(kTable)}, options).description.servers.front().pcie_roots.empty());
}

TEST_CASE("cells that differ between a row and its column count as the slower one") {
  const ImportedTopology imported =
      import_topology({foreign(changed(kTable, "GPU1\tNV2", "GPU1\tSYS"))}, all_figures());
  CHECK(warns(imported.warnings, "GPU1 sees GPU0 in another way"));
  CHECK(imported.description.servers.front().links.kinds.empty());
}

TEST_CASE("old drivers' words and escape sequences without an end are read") {
  const ImportedTopology imported = import_topology(
      {foreign("\t\x1b[4mGPU0\tGPU1\tmlx5_0\tCPU Affinity\nGPU0\tX\tSOC\tSOC\t0-3\nGPU1\tSOC\tX"
               "\tPIX\t4-7\nmlx5_0\tSOC\tPIX\tX\t\n")},
      all_figures());
  CHECK(imported.description.servers.front().devices == 2);
  CHECK(imported.description.servers.front().pcie_roots.size() == 2);
}

TEST_CASE("malformed tables of nvidia-smi are refused by line") {
  check_refusals(TopologyFormat::NvidiaSmi, kTable, all_figures(),
                 {{"", "", "expected a header"},
                  {"", "GPU\tX\n", "expected a header"},
                  {"\tGPU0\tGPU1", "\tGPU0\tGPU0", "line 1: expected each column once"},
                  {"GPU1\tNV2", "GPU0\tNV2", "line 3: expected one row for each device"},
                  {"GPU1\tNV2\tX\tSYS\t4-7\n", "", "expected a row for GPU1, got none"},
                  {"GPU1\tNV2", "GPU7\tNV2", "line 3: expected a device of the header, got GPU7"},
                  {"NV2\tX\tSYS\t4-7", "NV2", "line 3: expected 3 cells in the row of GPU1, got 1"},
                  {"X\tNV2", "NV2\tNV2", "line 2: expected X where GPU0 meets itself"},
                  {"X\tNV2", "X\tX", "line 2: expected X where GPU0 meets itself and nowhere else"},
                  {"X\tNV2", "X\tNV0", "got 'NV0'"},
                  {"X\tNV2", "X\tNV37", "got 'NV37'"},
                  {"X\tNV2", "X\tNV", "got 'NV'"},
                  {"X\tNV2", "X\tNV-2", "got 'NV-2'"},
                  {"X\tNV2", "X\tQPI", "line 2: expected X, NV1 to NV36"},
                  {"X\tNV2", "X\tpix", "got 'pix'"},
                  {"NIC0\tPIX", "NIC0\tNV2", "line 4: expected X, NV1"},
                  {"NIC0\tPIX\tSYS\tX\n", "", "expected a row for NIC0, got none"}});
}

TEST_CASE("NCCL's links to switches add up, and NICs that are left widen none that is shared") {
  const ImportedTopology imported = import_topology({foreign(sample("switched.xml"))}, {});
  const ServerGroup& group = imported.description.servers.front();
  CHECK(group.count == 2);
  // 10 + 8 links of 20.6 GB/s each.
  CHECK(group.links.port.bandwidth == Bandwidth{370'800'000'000});
  REQUIRE(group.nics.size() == 2);
  // 100,000 Mbit/s.
  CHECK(group.nics[0].link.bandwidth == Bandwidth{12'500'000'000});
  CHECK(imported.description.network->bandwidth == Bandwidth{12'500'000'000});
}

TEST_CASE("bridges and virtual interfaces of NCCL's list are no NICs") {
  const ImportedTopology plain = import_topology({foreign(sample("switched.xml"))}, {});
  // As Docker leaves them: 10 Gbit/s each, below no PCI device.
  std::string text = sample("switched.xml");
  std::string nics = "<nic>";
  for (const char* name : {"docker0", "veth12", "veth34"}) {
    nics += std::string("<net name=\"") + name + "\" dev=\"7\" speed=\"10000\" port=\"0\"/>";
  }
  nics += "</nic>";
  for (std::size_t at = text.find("</cpu>"); at != std::string::npos;
       at = text.find("</cpu>", at + nics.size() + 6)) {
    text.insert(at, nics);
  }
  const ImportedTopology imported = import_topology({foreign(text)}, {});
  CHECK(warns(imported.warnings, "docker0, veth12, veth34 stand below no PCI device"));
  CHECK(warns(imported.warnings, "count for nothing: "));
  CHECK(io::write_topology(imported.description) == io::write_topology(plain.description));
  // Where nothing else is there, somebody has to say what there is.
  const std::string alone =
      "<system version='1'><cpu host_hash='0x1' arch='x86_64' vendor='AuthenticAMD'>"
      "<pci busid='1' class='0x030200' device='0x20b5' link_speed='16 GT/s' link_width='16'>"
      "<gpu dev='0' sm='80'/></pci><nic><net name='eth0' speed='100000'/></nic></cpu></system>";
  ForeignTopologyOptions several = all_figures();
  several.servers = 2;
  CHECK_THAT(refusal_of_topology(foreign(alone), several), Catch::Contains("--nic"));
  several.nic = Bandwidth{1'250'000'000};
  several.nics = 1;
  CHECK(warns(import_topology({foreign(alone)}, several).warnings,
              "eth0 stands below no PCI device, as bridges and virtual interfaces do, and counts "
              "for nothing: no NIC is left"));
}

TEST_CASE("a table that may have left NVLinks out is told so") {
  // Of a DGX-1, the first four devices: "nvidia-smi topo -mp".
  const std::string table =
      "\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\n"
      "GPU0\tX\tPIX\tPHB\tPHB\t0-19\nGPU1\tPIX\tX\tPHB\tPHB\t0-19\n"
      "GPU2\tPHB\tPHB\tX\tPIX\t0-19\nGPU3\tPHB\tPHB\tPIX\tX\t0-19\n";
  const std::string legend =
      "\nLegend:\n\n  X    = Self\n  SYS  = Connection traversing PCIe and the link between "
      "sockets\n  PIX  = Connection traversing a single PCIe bridge\n";
  const auto import = [](const std::string& text) {
    return import_topology({foreign(text)}, all_figures());
  };
  CHECK(warns(import(table).warnings,
              "the table has no NVLinks: the devices are taken to have PCIe alone"));
  CHECK(warns(import(table + legend).warnings, "the table has no NVLinks, nor does its legend"));
  const std::string of_m = "  NV#  = Connection traversing a bonded set of # NVLinks\n";
  CHECK_FALSE(warns(import(table + legend + of_m).warnings, "no NVLinks"));
  CHECK_FALSE(warns(import_topology({foreign(kTable)}, all_figures()).warnings, "no NVLinks"));
}

TEST_CASE("malformed topologies of NCCL are refused by line") {
  const std::string text = sample("switched.xml");
  check_refusals(
      TopologyFormat::NcclXml, text, {},
      {{"", "", "expected XML"},
       {"", "<system", "expected XML"},
       {"", "<graphs/>", "expected <system> at the top"},
       {"", "<system/>", "expected a <cpu>"},
       {"", "<system><cpu/></system>", "expected a <gpu> in each host"},
       {"", "<system><cpu><pci busid='1' class='0x030200'/></cpu></system>",
        "expected <gpu> elements with their links, got 1 PCI devices alone"},
       {"</system>", "", "expected XML"},
       {"<gpu dev=\"0\"", "<gpu dev=\"zero\"", "line 6: expected dev="},
       {"<gpu dev=\"0\"", "<gpu", "line 6: expected dev="},
       {"<gpu dev=\"0\"", "<gpu dev=\"-1\"", "line 6: expected dev="},
       {"count=\"10\"", "count=\"0\"", "line 7: expected count= from 1 to 64"},
       {"count=\"10\"", "count=\"65\"", "got '65'"},
       {"count=\"10\"", "count=\"ten\"", "got 'ten'"},
       {"count=\"10\"", "", "line 7: expected count="},
       {"busid=\"0000:04:00.0\"", "busid=\"0000:02:00.0\"", "expected each device once"},
       {"busid=\"0000:04:00.0\"", "", "expected busid= on <pci>"},
       {"speed=\"100000\"", "speed=\"fast\"", "expected speed= in Mbit/s on <net>, got 'fast'"},
       {"speed=\"100000\"", "", "expected speed= in Mbit/s"},
       {"speed=\"100000\"", "speed=\"999999999\"", "expected speed= in Mbit/s"}});
}

TEST_CASE("NCCL's defaults stand for what a dump leaves out, with a warning") {
  std::string text = changed(sample("switched.xml"), "speed=\"100000\"", "speed=\"-1\"");
  text = changed(text, "link_speed=\"16 GT/s\"", "link_speed=\"\"");
  const ImportedTopology imported = import_topology({foreign(text)}, {});
  CHECK(warns(imported.warnings, "states no link speed"));
  CHECK(warns(imported.warnings, "mlx5_0 states no speed (-1): 10000 Mbit/s"));
  // The hosts are no longer alike.
  CHECK(imported.description.servers.size() == 2);
}

TEST_CASE("a result over servers is what all NICs of one carry, unless that cannot be") {
  const auto nic_with = [](const std::string& bus) {
    std::string text = sample("pair.nccl-tests.txt");
    text = changed(text, "15.00   22.50", "15.00 " + bus);
    const ImportedTopology imported =
        import_topology({foreign(sample("switched.xml")), foreign(text)}, {});
    CHECK(warns(imported.warnings, "above what the NICs") == (bus == "30.00"));
    return imported.description.servers.front().nics.front().link.bandwidth.bytes_per_second;
  };
  // Two NICs of 12.5 GB/s: 22.5 GB/s are 11.25 each, 30 are more than they have.
  CHECK(nic_with("22.50") == 11'250'000'000);
  CHECK(nic_with("30.00") == 12'500'000'000);
}

TEST_CASE("the times of an all-reduce are bus bandwidths by the size of the message") {
  // Four devices: 1.5 times size / time. A message of 32 MiB in 200 us is quicker than the smaller
  // one in 250, which is left out.
  std::string text = changed(sample("pair.nccl-tests.txt"), "150.0    7.00   10.50      0    149.0",
                             "250.0    7.00   10.50      0    250.0");
  text = changed(text, "2400.0   14.00   21.00      0   2390.0",
                 " 200.0   14.00   21.00      0    200.0");
  const ImportedTopology imported =
      import_topology({foreign(sample("switched.xml")), foreign(text)}, {});
  CHECK(warns(imported.warnings, "1 message that took longer than a larger one is left out"));
  const std::vector<BusBandwidthTable>& tables = imported.description.servers.front().bus_bandwidth;
  REQUIRE(tables.size() == 1);
  CHECK(tables[0].servers == 2);
  CHECK(tables[0].devices == 2);
  REQUIRE(tables[0].points.size() == 2);
  CHECK(tables[0].points[0].size == Bytes{33'554'432});
  CHECK(tables[0].points[0].bandwidth == Bandwidth{251'658'240'000});  // 1.5 * 33,554,432 / 200 us
  CHECK(reduction_time(tables[0], tables[0].points[1]) == Duration{71'600'000});
}

TEST_CASE("measurements of devices that the servers do not have, or no all-reduce, are no table") {
  ForeignTopologyOptions options = all_figures();
  options.servers = 2;
  options.nic = Bandwidth{10'000'000'000};
  const auto tables = [&](const std::string& text) {
    const ImportedTopology imported = import_topology({foreign(kTable), foreign(text)}, options);
    return imported.description.servers.front().bus_bandwidth.size();
  };
  const std::string text = sample("pair.nccl-tests.txt");
  CHECK(tables(text) == 1);
  options.servers = 1;
  CHECK(tables(text) == 0);
  options.servers = 2;
  // Halves of the bus bandwidth are those of a reduce-scatter.
  std::string scattered = changed(text, "15.00   22.50", "15.00   11.25");
  scattered = changed(scattered, "14.98   22.47", "14.98   11.24");
  scattered = changed(scattered, "14.00   21.00", "14.00   10.50");
  scattered = changed(scattered, "14.04   21.06", "14.04   10.53");
  CHECK(tables(scattered) == 0);
}

TEST_CASE("a result inside a server is its devices' bandwidth, the rings' where there are links") {
  ForeignTopologyOptions options = all_figures();
  // Two devices with two links: one ring of 40 GB/s. Bus bandwidth equals algorithm bandwidth.
  const std::string text =
      "# size count type redop time algbw busbw #wrong time algbw busbw #wrong\n"
      "1000000 250000 float sum 50 20.0 20.0 0 50 20.0 20.0 0\n# Avg bus bandwidth : 20\n";
  const ImportedTopology imported = import_topology({foreign(kTable), foreign(text)}, options);
  CHECK(imported.description.servers.front().links.kinds.front().link.bandwidth ==
        Bandwidth{20'000'000'000});
}

TEST_CASE("malformed results of nccl-tests are refused by line") {
  const std::string row =
      "  1073741824     268435456     float     sum      -1  71600.0   15.00   22.50      0  "
      "71700.0"
      "   14.98   22.47      0";
  std::string alone = changed(sample("pair.nccl-tests.txt"), "  beta", " alpha");
  alone = changed(alone, "  beta", " alpha");
  check_refusals(
      TopologyFormat::NcclTests, alone, {},
      {{"", "", "expected a table"},
       {"", "busbw", "expected a table"},
       {"#       size         count", "#       bytes        count", "expected a table"},
       {"alpha device", "alpha", "line 4: expected '# Rank"},
       {" on  alpha", " at  alpha", "line 4: expected '# Rank"},
       {row, "  1073741824 268435456 float", "line 14: expected size, count, type"},
       {row, "  1073741824 268435456 float sum", "line 14: expected"},
       {row, "  1e99 268435456 float sum -1 1 1 1 0", "line 14: expected size"},
       {row, "  -1 268435456 float sum -1 1 1 1 0", "line 14: expected size"},
       {"71600.0   15.00   22.50", "fast 15.00 22.50", "got 'fast 15.00 22.50'"},
       {"71600.0   15.00   22.50", "71600.0 -15.00 22.50", "got '71600.0 -15.00 22.50'"},
       {"71600.0   15.00   22.50", "71600.0 15.00 inf", "got '71600.0 15.00 inf'"},
       {"71600.0   15.00   22.50", "71600.0 15.00 nan", "got '71600.0 15.00 nan'"},
       {"71600.0   15.00   22.50", "71600.0 15.00 1e30", "got '71600.0 15.00 1e30'"},
       {"", "# size count type redop time algbw busbw\n", "expected a bus bandwidth above zero"},
       {"", "# size count type time algbw busbw\n8 2 float 1 0 0\n", "above zero"}});
}

TEST_CASE("Slurm's leaves are racks in the order of the tree, and hosts keep their zeros") {
  ForeignTopologyOptions options = all_figures();
  options.nic = Bandwidth{1'000'000'000};
  options.rack_oversubscription = kOne;
  options.pod_uplink = Bandwidth{3'000'000'000};
  const ImportedTopology imported =
      import_topology({foreign(sample("tree.conf")), foreign(kTable)}, options);
  const TopologyDescription& description = imported.description;
  // gpu01-02, gpu03-04, gpu05 with login1: three racks of two, in a pod of two and one of one.
  CHECK(description.servers.front().count == 6);
  REQUIRE(description.racks.size() == 1);
  CHECK(description.racks[0].count == 3);
  CHECK(description.pods.size() == 2);
  CHECK(description.notes.front() == "servers 0 to 1 are gpu01 to gpu02, on switch leaf1");
  CHECK(warns(imported.warnings, "2 kinds of names (gpu, login)"));
}

TEST_CASE("malformed topologies of Slurm are refused by line") {
  // Alone it is refused for want of servers, so a sound one gets as far as that.
  const std::string text =
      "SwitchName=top Switches=s[0-1]\nSwitchName=s0 Nodes=a[1-2]\n"
      "SwitchName=s1 Nodes=b\n";
  const auto import = [](const std::string& variant) {
    import_topology({{variant, "file", TopologyFormat::Slurm}}, {});
  };
  CHECK_THAT(test::refusal_of([&] { import(text); }), Catch::Contains("expected another file"));
  const std::vector<Malformed> cases{
      {"", "", "expected SwitchName= lines, got none"},
      {"", "# nothing\n", "expected SwitchName= lines, got none"},
      {"SwitchName=s1", "Name=s1", "line 3: expected SwitchName="},
      {"SwitchName=s1", "s1", "line 3: expected KEY=VALUE"},
      {"Nodes=b", "Nodes=", "line 3: expected KEY=VALUE, got 'Nodes='"},
      {"Nodes=b", "", "line 3: expected Nodes= or Switches= of s1"},
      {"Nodes=b", "Nodes=b Switches=s0", "line 3: expected Nodes= or Switches= of s1"},
      {"Nodes=b", "Nodes=b Nodes=c", "line 3: expected nodes once"},
      {"Nodes=b", "Nodes=b[1-", "line 3: expected a list of names"},
      {"Nodes=b", "Nodes=b[2-1]", "line 3: expected a list of names"},
      {"Nodes=b", "Nodes=b]", "line 3: expected a list of names"},
      {"Nodes=b", "Nodes=b,,c", "line 3: expected a list of names"},
      {"Nodes=b", "Nodes=b[0-999999999]", "line 3: expected a list of names"},
      {"Nodes=b", "Nodes=b[1-300]x[1-300]", "line 3: expected a list of names"},
      {"Nodes=b", "Nodes=a1", "line 3: expected each host on one switch, got a1"},
      {"SwitchName=s1", "SwitchName=s0", "line 3: expected each switch once, got s0"},
      {"s[0-1]", "s[0-2]", "line 1: expected a switch of the file, got s2"},
      {"s[0-1]", "s0", "expected one switch above all others, got 2"},
      {"Nodes=b", "Switches=top", "expected one switch above all others, got 0"},
      {"Nodes=b", "Switches=s2\nSwitchName=s2 Nodes=b", "expected all leaves at one depth"},
      {"SwitchName=s0", "BlockName=s0", "line 2: expected the plugin topology/tree"}};
  test::check_variants(text, cases, import);
}

TEST_CASE("malformed networks of ASTRA-sim are refused by line") {
  ForeignTopologyOptions options;
  options.device = "card";
  options.memory = Bytes{std::int64_t{16} << 30};
  check_refusals(
      TopologyFormat::AstraSim, sample("ring.astra.yml"), options,
      {{"", "", "expected topology:"},
       {"", "npus_count", "expected topology:"},
       {"", "npus_count: [", "expected YAML"},
       {"", "npus_count: [ 1 ]", "expected topology: with a list"},
       {"npus_count: [ 3,", "npus_count: [", "expected lists of one length"},
       {"npus_count: [", "npus_count: [ 9 ]\nnpus_count: [",
        "line 4: expected each key once, got npus_count again"},
       {"npus_count: [ 3", "npus_count: [ three", "line 3: npus_count: expected a number"},
       {"npus_count: [ 3", "npus_count: [ 0", "line 3: npus_count"},
       {"npus_count: [ 3", "npus_count: [ 99999", "line 3: npus_count"},
       {"npus_count: [ 3", "npus_count: [ 65536", "expected at most 65536 devices"},
       {"npus_count: [ 3", "npus_count: [ 300", "expected at most 256 devices without a switch"},
       {"npus_count: [ 3, 2, 2, 2 ]", "npus_count: 3", "expected npus_count: with a list"},
       {"100.0", "tbd", "line 4: bandwidth in GB/s: expected a number, above zero, got 'tbd'"},
       {"100.0", "0", "line 4: bandwidth in GB/s"},
       {"100.0", "-5", "line 4: bandwidth in GB/s"},
       {"500.0", "tbd", "line 5: latency in ns: expected a number, 0 or more"},
       {"500.0", "[ 5 ]", "line 5: latency in ns"},
       {"[ Ring", "[ Torus", "line 2: topology: expected Ring, FullyConnected or Switch"},
       {"[ Ring, FullyConnected, Switch, Switch ]", "[ Switch, Ring, Switch, Switch ]",
        "expected a switch in every dimension behind a server's"}});
}

TEST_CASE("hwloc's devices have the numbers of NVML, wherever they stand in the document") {
  const auto sockets = [](const std::string& text) {
    std::vector<std::vector<std::int32_t>> devices;
    const ImportedTopology imported = import_topology({foreign(text)}, all_figures());
    for (const PcieRoot& root : imported.description.servers.front().pcie_roots)
      devices.push_back(root.devices);
    std::sort(devices.begin(), devices.end());
    return devices;
  };
  using Sockets = std::vector<std::vector<std::int32_t>>;
  const std::string text = sample("bridged.hwloc.xml");
  CHECK(sockets(text) == Sockets{{0}, {1, 2}});
  // By their place these are nvml10, nvml1 and nvml0.
  const std::string other = changed(changed(text, "\"nvml0\"", "\"nvml10\""), "nvml2", "nvml0");
  CHECK(sockets(other) == Sockets{{0, 1}, {2}});
}

TEST_CASE("malformed XML of hwloc is refused by line") {
  ForeignTopologyOptions options = all_figures();
  check_refusals(TopologyFormat::HwlocXml, sample("bridged.hwloc.xml"), options,
                 {{"", "", "expected XML"},
                  {"", "<topology", "expected XML"},
                  {"", "<topology/>", "of hwloc 2"},
                  {"", "<topology version='2.0'/>", "expected OSDev objects nvml0"},
                  {"version=\"2.0\"", "version=\"1.0\"", "of hwloc 2"},
                  {"</topology>", "", "expected XML"},
                  {"5 11 13", "5 11", "expected the indexes"},
                  {"5 11 13", "", "expected the indexes"},
                  {"5 11 13", "5 11 13 14", "got 4 and 9"},
                  {"50000 1000000 ", "50000 ", "got 3 and 8"},
                  {"50000 1000000 ", "50000 1000000 7", "got 3 and 10"},
                  {"50000", "50001", "expected MB/s of whole links"},
                  {"50000", "-50000", "got '-50000'"},
                  {"50000", "fast", "got 'fast'"},
                  {"50000", "99999999999", "got '99999999999'"},
                  {"<object type=\"Machine\"", "<objekt type=\"Machine\"", "expected XML"}});
}

TEST_CASE("what files do not say is asked for, all at once") {
  CHECK(
      refusal_of_topology(foreign(kTable), {}) ==
      "--device: expected the kind of the devices, which file does not say: V100-16GB, V100-32GB, "
      "A100-40GB, A100-80GB, A100-PCIe-40GB, A100-PCIe-80GB, A800-80GB, H100-80GB, "
      "H100-PCIe-80GB, H800-80GB, H200-141GB, B200-180GB, A10-24GB, L4-24GB, RTX-6000-Ada, "
      "RTX-3090, GTX-1080-Ti, MI100-32GB, MI250X-64GB, MI300X-192GB, or another name with "
      "--memory\n"
      "--nvlink-bandwidth: expected the bandwidth of one NVLink per direction, as \"20 GB/s\", or "
      "a known --device; file has links and says neither");
}

TEST_CASE("a network faster than its NICs is doubted") {
  ForeignTopologyOptions options = all_figures();
  options.servers = 2;
  options.nic = Bandwidth{1'250'000'000};       // 10 Gbit/s
  options.network = Bandwidth{20'000'000'000};  // 20 GB/s
  const ImportedTopology imported = import_topology({foreign(kTable)}, options);
  CHECK(warns(imported.warnings, "the network has 20 GB/s a port and the NICs only 1.25 GB/s"));
}

}  // namespace
}  // namespace dapple::interop
