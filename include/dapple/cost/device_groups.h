// A topology whose devices form groups that share every layer, seen as a topology of groups.
//
// The devices of a group do the same at the same time, so that one of them stands for all: a device
// of the grouped topology is a group, and all its figures are those of each of its devices. What
// the devices of a group share, a NIC or the port of a PCIe root, is divided among them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "dapple/plan/document.h"
#include "dapple/profile/collective.h"
#include "dapple/profile/model_profile.h"
#include "dapple/profile/parallelism.h"
#include "dapple/topology/topology.h"

namespace dapple {

/// A topology of groups, and what a device of each kind in use is part of, by the kind's name.
struct GroupedTopology {
  TopologyDescription description;
  std::map<std::string, GroupShape> shapes;
};

/// Why no groups of a size can be formed: the place in the topology, and what is wrong.
struct NoGroups {
  std::string place;
  std::string reason;
};

/// Forms groups for these degrees: of devices with consecutive numbers within every server, or of
/// consecutive whole servers.
///
/// - A group's devices are on a switch, and the rings of all groups of one kind of device have the
///   same bandwidths, latencies and measured all-reduces; those of other kinds may have others. A
///   measured bus bandwidth of other sets of devices is left out.
/// - Between the servers of a group, the rings that pass the same NICs have equal parts of their
///   bandwidth.
/// - Devices of a group that use the same NIC have equal parts of its bandwidth. The narrowest part
///   of any device of the group counts. A NIC that several groups use must be the only one of each
///   of them; the NICs of one group, in each of its servers, become one.
/// - The port of a PCIe root and the uplinks of racks and pods are divided by the size of a group.
///   A group of several servers is within one rack, and has no PCIe roots.
///
/// Bandwidths are rounded down. Returns NoGroups if the degrees do not divide the devices of some
/// server, or the servers of some kind or rack, or a server's links, NICs or roots do not allow
/// groups. O(devices + NICs). Requires: a group has two devices or more, and sound degrees.
std::variant<GroupedTopology, NoGroups> group_devices(const Topology& topology,
                                                      const Parallelism& parallelism);

/// Returns the inputs as seen by one device of each group: the profile with_parallelism(), on the
/// grouped topology. Where kinds with the times of one measured kind have other rings, the profile
/// has these times for each of them (ModelProfile::other_groups). Where only some layers of a
/// stage recompute, it has the layers of both (ModelProfile::recomputing). Without parallelism
/// these are the inputs themselves. Returns NoGroups if a layer has no variant or, where ranks that
/// share layers are on several servers, no figure for their collectives
/// (layer_without_collectives()), if that makes more measured kinds in use than a search may tell
/// apart, or as group_devices() does.
std::variant<PlanInputs, NoGroups> group_inputs(const ModelProfile& profile,
                                                const Topology& topology,
                                                const Parallelism& parallelism);

/// Returns why no plan can have stages in both forms, those of two inputs that group_inputs() made
/// of one profile and topology; empty if a plan can: the forms are not the same, both shard the
/// optimizer's state or none does, devices hold parts of the same size of parameters that are tied,
/// whose gradients are added up, and both tell the same kinds of device apart by their links. Their
/// groups have one size or, where no parameters are tied, those of the other form a multiple of it
/// that divides the devices of every server (LargerGroups). O(ties + kinds^2), and that of
/// LargerGroups::fault() where sizes differ.
std::string mixing_fault(const PlanInputs& one, const PlanInputs& other);

/// Returns the inputs of group_inputs() for plans whose stages may also run in `stage_forms`: the
/// profile has these besides. Returns NoGroups, too, where mixing_fault() is not empty.
std::variant<PlanInputs, NoGroups> group_inputs(const ModelProfile& profile,
                                                const Topology& topology,
                                                const Parallelism& parallelism,
                                                const std::vector<Parallelism>& stage_forms);

}  // namespace dapple
