#include "dapple/exec_app/request/launch.h"

#include <catch2/catch.hpp>
#include <map>
#include <string>

#include "dapple/core/error.h"

namespace dapple::exec_app {
namespace {

using Variables = std::map<std::string, std::string>;

std::optional<Launch> launch(const Variables& variables) {
  return launch_of([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

/// "3 of 4 at host:port".
std::string place(const Variables& variables) {
  const std::optional<Launch> launched = launch(variables);
  REQUIRE(launched);
  REQUIRE(launched->tcp);
  CHECK(launched->rank == launched->tcp->rank);
  return std::to_string(launched->tcp->rank) + " of " + std::to_string(launched->tcp->size) +
         " at " + launched->tcp->address + ":" + std::to_string(launched->tcp->port);
}

Variables slurm(const Variables& more) {
  Variables variables{{"SLURM_PROCID", "5"},
                      {"SLURM_STEP_NUM_TASKS", "8"},
                      {"SLURM_JOB_ID", "200505"},
                      {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.9"}};
  for (const auto& [name, text] : more) variables[name] = text;
  return variables;
}

const Variables kTorchrun{
    {"RANK", "3"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29500"}};

TEST_CASE("a process that no launcher has started is no rank") {
  CHECK_FALSE(launch({}));
  CHECK_FALSE(launch({{"RANK", "0"}}));
  CHECK_FALSE(launch({{"WORLD_SIZE", "4"}}));
}

TEST_CASE("a launcher of MPI goes before all others") {
  Variables variables = kTorchrun;
  variables["OMPI_COMM_WORLD_RANK"] = "2";
  const std::optional<Launch> launched = launch(variables);
  REQUIRE(launched);
  CHECK(launched->rank == 2);
  CHECK_FALSE(launched->tcp);
}

TEST_CASE("ranks that torchrun starts listen where it does not") {
  Variables variables = kTorchrun;
  CHECK(place(variables) == "3 of 4 at 10.0.0.1:29500");
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  CHECK(place(variables) == "3 of 4 at 10.0.0.1:29500");
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  CHECK(place(variables) == "3 of 4 at 10.0.0.1:29501");
  variables["MASTER_PORT"] = "65535";
  CHECK_THROWS_WITH(launch(variables),
                    "MASTER_PORT: expected a number from 1 to 65534, got \"65535\"");
}

TEST_CASE("tasks of Slurm find rank 0 on the first host of their step") {
  // 200505 = 48 x 4096 + 3897, and 61440 + 3897 = 65337.
  CHECK(place(slurm({})) == "5 of 8 at 10.0.0.9:65337");
  CHECK(place(slurm({{"SLURM_JOB_NODELIST", "gnode[10,20,25,37]"}})) == "5 of 8 at gnode10:65337");
  CHECK(place(slurm({{"SLURM_JOB_NODELIST", "a1"}, {"SLURM_STEP_NODELIST", "a[007-012]-ib,b3"}})) ==
        "5 of 8 at a007-ib:65337");
  CHECK(place(slurm({{"SLURM_JOB_NODELIST", "login,gnode[1-2]"}})) == "5 of 8 at login:65337");
  CHECK(place(slurm({{"MASTER_ADDR", "lead"}, {"MASTER_PORT", "4000"}})) == "5 of 8 at lead:4000");
}

TEST_CASE("a batch script, or the only task of a step, is no rank") {
  CHECK_FALSE(launch({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}));
  CHECK_FALSE(launch(slurm({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}})));
}

TEST_CASE("a launcher says which of its host's ranks this one is") {
  const auto local_rank = [](const Variables& variables) {
    const std::optional<Launch> launched = launch(variables);
    REQUIRE(launched);
    return launched->local_rank;
  };
  Variables variables = kTorchrun;
  variables["SLURM_LOCALID"] = "0";  // of the task in which all ranks were started
  CHECK_FALSE(local_rank(variables));
  variables["LOCAL_RANK"] = "1";
  CHECK(local_rank(variables) == 1);
  variables["LOCAL_RANK"] = "-1";
  CHECK_THROWS_WITH(launch(variables),
                    "LOCAL_RANK: expected a number from 0 to 999999, got \"-1\"");
  CHECK(local_rank(slurm({{"SLURM_LOCALID", "2"}})) == 2);
  CHECK_FALSE(local_rank(slurm({})));
  const Variables by_mpirun{
      {"OMPI_COMM_WORLD_RANK", "5"}, {"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}};
  CHECK_FALSE(local_rank(by_mpirun));
  variables = by_mpirun;
  variables["OMPI_COMM_WORLD_LOCAL_RANK"] = "3";
  CHECK(local_rank(variables) == 3);
  CHECK(local_rank({{"PMIX_RANK", "5"}, {"SLURM_PROCID", "5"}, {"SLURM_LOCALID", "1"}}) == 1);
}

TEST_CASE("an environment that says what cannot be is refused") {
  Variables variables = kTorchrun;
  variables["RANK"] = "4";
  CHECK_THROWS_WITH(launch(variables), "RANK: expected a number from 0 to 3, got \"4\"");
  variables["RANK"] = "";
  CHECK_THROWS_WITH(launch(variables), "RANK: expected a number from 0 to 3, got \"\"");
  variables = kTorchrun;
  variables.erase("MASTER_PORT");
  CHECK_THROWS_WITH(launch(variables),
                    "MASTER_PORT: expected a number from 1 to 65535, got "
                    "nothing");
  CHECK_THROWS_WITH(launch({{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}}),
                    "SLURM_JOB_NODELIST: expected the hosts of the job, got nothing");
}

/// What a job's secret is said to be by two variables.
std::string secret(const Variables& variables) {
  return job_secret([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST_CASE("a job's secret is what one variable says, and never repeated") {
  CHECK(secret({}).empty());
  const std::string sixteen = "0123456789abcdef";
  CHECK(secret({{"DAPPLE_SECRET", sixteen}}) == sixteen);
  for (const std::string& wrong : {std::string("0123456789abcde"), std::string(4097, 'x')}) {
    try {
      secret({{"DAPPLE_SECRET", wrong}});
      FAIL("was taken");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::Environment);
      CHECK(std::string(error.what()).find(wrong) == std::string::npos);
    }
  }
}

}  // namespace
}  // namespace dapple::exec_app
