"""pareto: time against the price of a cluster, and against memory."""

import copy
import csv
import io
import itertools
import json
import re
import xml.dom.minidom

import tool
from tool import BAD_INPUT, DONE, INFEASIBLE, NOT_VERIFIED, USAGE, ToolTest


class Pareto(ToolTest):
    def ground(self, topology=None, **changes):
        return ("--model", self.write("small.json", tool.small_profile(**changes)),
                "--topo", self.write("topo.json", topology or tool.small_topology()))

    def priced(self, price=2.5, servers=3, **changes):
        topology = tool.small_topology(**changes)
        topology["devices"]["card"]["price_per_hour"] = price
        topology["servers"][0]["count"] = servers
        return topology

    def rows(self, *words, code=DONE):
        run = self.run_tool("pareto", *words, "--csv")
        self.assertEqual(run.returncode, code, run.stderr)
        return list(csv.DictReader(io.StringIO(run.stdout)))

    def planned(self, topology, *more):
        """The plan that the command plan makes for a topology of its own."""
        run = self.run_tool("plan", "--model", "small.json", "--topo",
                            self.write("one.json", topology), "--no-baselines", "-o", "one.plan.json",
                            *more)
        if run.returncode == INFEASIBLE:
            return None
        self.assertEqual(run.returncode, DONE, run.stderr)
        return self.read("one.plan.json")

    def test_every_cluster_has_the_plan_that_it_has_by_itself(self):
        whole = self.priced()
        rows = self.rows(*self.ground(whole))
        self.assertEqual([int(row["devices"]) for row in rows], [1, 2, 4, 6])
        for row, (count, devices) in zip(rows, ((1, 1), (1, 2), (2, 2), (3, 2)), strict=True):
            topology = self.priced(servers=count)
            topology["servers"][0]["devices"] = devices
            plan = self.planned(topology)["predicted"]
            self.assertEqual(int(row["iteration_ns"]), plan["iteration_ns"])
            self.assertEqual(int(row["lower_bound_ns"]), plan["lower_bound_ns"])
            self.assertEqual(float(row["samples_per_second"]), plan["samples_per_second"])
            # 1,000 iterations at 2.5 for each device and hour.
            price = 1000 * 2.5 * count * devices * plan["iteration_ns"] / 3.6e12
            self.assertAlmostEqual(float(row["price"]) / price, 1)

    def test_the_front_and_every_choice_are_those_of_all_plans(self):
        ground = self.ground(self.priced())
        rows = self.rows(*ground)
        times = [int(row["iteration_ns"]) for row in rows]
        prices = [float(row["price"]) for row in rows]
        rates = [float(row["samples_per_second"]) for row in rows]
        for i, row in enumerate(rows):
            beaten = any(times[k] <= times[i] and prices[k] <= prices[i] and
                         (times[k] < times[i] or prices[k] < prices[i] or k < i)
                         for k in range(len(rows)) if k != i)
            self.assertEqual(row["front"], "no" if beaten else "yes")
        limits = itertools.product(
            (None, min(prices) * 0.9, sorted(prices)[1] * 1.001),
            (None, sorted(rates)[2] * 0.999, max(rates) * 1.1), ("cost", "time"))
        for budget, rate, objective in limits:
            with self.subTest(budget=budget, rate=rate, objective=objective):
                words = ["--objective", objective]
                words += [] if budget is None else ["--budget", f"{budget:.6f}"]
                words += [] if rate is None else ["--min-throughput", f"{rate:.6f}"]
                allowed = [i for i in range(len(rows))
                           if (budget is None or prices[i] <= budget) and
                           (rate is None or rates[i] >= rate)]
                found = self.rows(*ground, *words, code=DONE if allowed else INFEASIBLE)
                chosen = [i for i, row in enumerate(found) if row["chosen"] == "yes"]
                best = min(allowed, key=lambda i: (prices if objective == "cost" else times)[i],
                           default=None)
                self.assertEqual(chosen, [] if best is None else [best])

    def test_the_chosen_plan_is_written_and_can_be_verified(self):
        run = self.run_tool("pareto", *self.ground(self.priced()), "--objective", "time",
                            "--max-devices", 4, "-o", "chosen.plan.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        plan = self.read("chosen.plan.json")
        self.assertEqual(plan["topology"]["description"]["servers"][0]["count"], 2)
        self.assertEqual(plan["topology"]["name"], "2x2, 4 of 6 devices")
        self.assertEqual(self.run_tool("verify", "chosen.plan.json").returncode, DONE)
        self.assertIn("plan written to chosen.plan.json", run.stdout)

    def test_what_is_proven_is_the_least_bound_within_the_limits(self):
        ground = self.ground(self.priced(), global_batch_size=32)
        rows = self.rows(*ground)
        least = min(float(row["least_price"]) for row in rows)
        run = self.run_tool("pareto", *ground)
        best = min(float(row["price"]) for row in rows)
        proof = next(line for line in run.stdout.splitlines() if line.startswith("proven: "))
        if least < best * 0.9999:
            told = float(re.search(r"costs less than ([\d.e-]+),", proof)[1])
            self.assertAlmostEqual(told / least, 1, places=3)
        else:
            self.assertEqual(proof, "proven: no plan as asked for on these clusters costs less")

    def test_devices_without_a_price_cost_their_hours(self):
        rows = self.rows(*self.ground())
        for row in rows:
            hours = 1000 * int(row["devices"]) * int(row["iteration_ns"]) / 3.6e12
            self.assertAlmostEqual(float(row["device_hours"]) / hours, 1)
        shown = self.run_tool("pareto", *self.ground()).stdout
        self.assertIn("the topology states no prices", shown)

    def test_less_memory_is_allowed_until_nothing_fits(self):
        ground = self.ground()
        rows = self.rows(*ground, "--against", "memory")
        self.assertGreater(len(rows), 2)
        self.assertRegex(rows[-1]["remark"], r"^no plan fits, [\d.]+ \w+ short$")
        for row, last in zip(rows[1:], rows, strict=False):
            limit = int(row["memory_limit_bytes"])
            self.assertEqual(limit, int(last["peak_memory_bytes"]) // 100 * 95)
            topology = tool.small_topology(f"{limit} B")
            plan = self.planned(topology)
            if plan is None:
                self.assertEqual(row["iteration_ns"], "")
                continue
            self.assertEqual(int(row["iteration_ns"]), plan["predicted"]["iteration_ns"])
            self.assertLessEqual(int(row["peak_memory_bytes"]), limit)
            self.assertGreaterEqual(int(row["iteration_ns"]), int(rows[0]["lower_bound_ns"]))
        fitting = [row for row in rows if row["iteration_ns"]]
        for slack in (0, 0.2, 5):
            most = int(rows[0]["iteration_ns"]) * (1 + min(slack, 0.99))
            found = self.rows(*ground, "--against", "memory", "--slack", min(slack, 0.99))
            chosen = [row for row in found if row["chosen"] == "yes"]
            self.assertEqual(len(chosen), 1)
            least = min(int(row["peak_memory_bytes"]) for row in fitting
                        if int(row["iteration_ns"]) <= most)
            self.assertEqual(int(chosen[0]["peak_memory_bytes"]), least)

    def test_racks_and_several_kinds_of_servers(self):
        racks = [{"count": 3, "servers": 2, "source": "made up",
                  "uplink": {"bandwidth": "1 GB/s", "latency": "1 us"}}]
        rows = self.rows(*self.ground(self.priced(servers=6, racks=racks)), "--micro-batch", 8)
        # Of a rack one server and a part of it, then whole racks.
        self.assertEqual([int(row["devices"]) for row in rows], [1, 2, 4, 8, 12])
        mixed = self.priced(servers=2)
        mixed["devices"]["old"] = {"memory": "1 GiB", "reserved": "0 B", "source": "made up",
                                   "time_scale": {"card": 2}, "price_per_hour": 0.5}
        mixed["servers"].append({**mixed["servers"][0], "name": "older", "device": "old"})
        rows = self.rows(*self.ground(mixed), "--micro-batch", 8)
        self.assertEqual(sorted(int(row["devices"]) for row in rows), [2, 2, 4, 4, 4, 6, 6, 8])
        prices = {float(row["price"]) / int(row["iteration_ns"]) for row in rows}
        self.assertGreater(len(prices), 5)  # Each mixture has a price of its own.
        # All numbers of servers up to three, and some of up to 17, with a warning.
        for few, many, clusters in ((3, 3, 15), (1, 17, 2 * 10 - 1)):
            mixed["servers"][0]["count"], mixed["servers"][1]["count"] = few, many
            run = self.run_tool("pareto", *self.ground(mixed), "--micro-batch", 8, "--gap", "50%",
                                "--csv")
            self.assertEqual(run.returncode, DONE, run.stderr)
            self.assertEqual(len(run.stdout.splitlines()), 1 + clusters)
            self.assertEqual("numbers of servers older other than 0, 1, 2, 3, 4, 6, 8, 12, 16, 17 are "
                             "left out" in run.stderr, many == 17)
            self.assertNotIn("numbers of servers node", run.stderr)
        # Seven kinds of one server each make 127 clusters, so that one of them is always there.
        server = {**mixed["servers"][0], "count": 1}
        seven = {**mixed, "servers": [{**server, "name": name} for name in "abcdefg"]}
        run = self.run_tool("pareto", *self.ground(seven), "--micro-batch", 8, "--time-limit", "0.01",
                            "--csv")
        self.assertEqual(len(run.stdout.splitlines()), 1 + 64)
        self.assertIn("numbers of servers g other than 1 are left out", run.stderr)
        del mixed["devices"]["old"]["price_per_hour"]
        run = self.run_tool("pareto", *self.ground(mixed))
        self.assertEqual(run.returncode, BAD_INPUT)
        self.assertIn("/devices/old/price_per_hour", run.stderr)

    def test_the_plot_has_a_point_for_every_plan(self):
        ground = self.ground(self.priced(), name="<b>&\"small\"")
        run = self.run_tool("pareto", *ground, "--plot", "plot.svg")
        self.assertEqual(run.returncode, DONE, run.stderr)
        plot = (self.folder / "plot.svg").read_text()
        self.assertEqual(plot.count('r="4"'), 4)
        self.assertEqual(plot.count('r="8"'), 1)
        self.assertIn("&lt;b&gt;&amp;", plot)
        self.assertNotIn("<b>", plot)

    def certificate(self, *words):
        run = self.run_tool("pareto", *words, "--certificate", "all.json")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertIn("\ncertificate written to all.json\n", run.stdout)
        return self.read("all.json")

    def refused(self, document, *places):
        """That verify refuses a certificate, with a message for each of these places."""
        run = self.run_tool("verify", self.write("changed.json", document))
        self.assertEqual(run.returncode, BAD_INPUT, run.stdout)
        for place in places:
            self.assertIn(f"changed.json: {place}: expected ", run.stderr)

    def test_a_certificate_has_all_plans_and_can_be_verified(self):
        ground = self.ground(self.priced(), global_batch_size=4)
        for words in ((), ("--objective", "time", "--budget", "1"), ("--slack", "60%"),
                      ("--against", "memory"), ("--against", "memory", "--slack", "20%"),
                      ("--against", "memory", "--objective", "time", "--min-throughput", "1")):
            with self.subTest(words=words):
                rows = self.rows(*ground, *words)
                document = self.certificate(*ground, *words, "-o", "chosen.plan.json")
                self.assertEqual(len(document["searches"]), len(rows))
                for row, search in zip(rows, document["searches"], strict=True):
                    predicted = search.get("plan", {}).get("predicted", {})
                    self.assertEqual(row["iteration_ns"], str(predicted.get("iteration_ns", "")))
                chosen = document["searches"][document["chosen"]]["plan"]
                self.assertEqual(chosen, self.read("chosen.plan.json"))
                self.assertEqual([row["front"] == "yes" for row in rows],
                                 [i in document["front"] for i in range(len(rows))])
                run = self.run_tool("verify", "all.json")
                self.assertEqual(run.returncode, DONE, run.stdout + run.stderr)
                self.assertIn("\n  chosen   search ", run.stdout)
                run = self.run_tool("verify", "all.json", "--json")
                self.assertEqual(run.returncode, DONE, run.stderr)
                result = json.loads(run.stdout)
                self.assertEqual(result["verification"]["bound"], "proven")
                claimed = result["trade_off"]
                for key in ("front", "chosen", "proven"):
                    self.assertEqual(claimed[key], document[key])
                self.assertEqual([str(search["iteration_ns"] or "") for search in claimed["searches"]],
                                 [row["iteration_ns"] for row in rows])
                self.assertEqual(len(result["plans"]),
                                 sum("plan" in search for search in document["searches"]))

    def test_a_false_claim_of_a_certificate_is_named_by_its_place(self):
        ground = self.ground(self.priced())
        document = self.certificate(*ground)
        self.refused({**document, "front": document["front"][1:]}, "/front")
        self.refused({**document, "chosen": document["chosen"] + 1}, "/chosen")
        self.refused({**document, "objective": "time"}, "/proven")
        proven = {"price": document["proven"]["price"] * 1.001}
        self.refused({**document, "proven": proven}, "/proven")
        self.refused({**document, "proven": {}}, "/proven")

        # Every plan is verified: here a figure, a bound, and what proves it.
        changed = copy.deepcopy(document)
        changed["searches"][1]["plan"]["predicted"]["samples_per_second"] *= 2
        changed["searches"][1].pop("proof")
        self.refused(changed, "/searches/1/plan/predicted/samples_per_second")
        changed = copy.deepcopy(document)
        search = changed["searches"][1]
        search["plan"]["predicted"]["lower_bound_ns"] += 1
        self.refused(changed, "/searches/1/proof/plan_sha256")

        # A search without a plan claims that there is none.
        changed = copy.deepcopy(document)
        last = len(document["searches"]) - 1
        topology = changed["searches"][last].pop("plan")["topology"]["description"]
        fastest = document["searches"][last]["plan"]["predicted"]["iteration_ns"]
        changed["searches"][last] = {"topology": topology, "lower_bound_ns": None}
        changed["front"] = [i for i in document["front"] if i != last]
        self.refused(changed, f"/searches/{last}/lower_bound_ns")
        changed["searches"][last]["lower_bound_ns"] = fastest + 1
        self.refused(changed, f"/searches/{last}/lower_bound_ns")
        changed["searches"][last]["lower_bound_ns"] = fastest - 1
        run = self.run_tool("verify", self.write("lower.json", changed))
        self.assertEqual(run.returncode, DONE, run.stdout + run.stderr)

    def test_what_is_proven_of_memory_needs_searches_of_one_topology(self):
        document = self.certificate(*self.ground(), "--against", "memory")
        self.assertIsNone(document["searches"][-1]["lower_bound_ns"])
        self.refused({**document, "proven": {"memory_bytes": document["proven"]["memory_bytes"] + 1}},
                     "/proven")
        changed = copy.deepcopy(document)
        changed["searches"][-1]["topology"]["servers"][0]["count"] += 1
        self.refused(changed, f"/searches/{len(document['searches']) - 1}")
        # With as much memory as the search before it there is a plan.
        changed = copy.deepcopy(document)
        before = document["searches"][-2]["plan"]["topology"]["description"]["devices"]["card"]
        changed["searches"][-1]["topology"]["devices"]["card"]["memory"] = before["memory"]
        changed["proven"]["memory_bytes"] = max(
            document["proven"]["memory_bytes"],
            int(before["memory"].split()[0]) if before["memory"].endswith(" B") else 0)
        self.refused(changed)

    def mixed(self):
        topology = self.priced(servers=2)
        topology["devices"]["old"] = {"memory": "1 GiB", "reserved": "0 B", "source": "made up",
                                      "time_scale": {"card": 2}, "price_per_hour": 0.5}
        topology["servers"].append({**topology["servers"][0], "name": "older", "device": "old"})
        return topology

    def test_a_certificate_of_several_kinds_of_servers_can_be_verified(self):
        # Shares by speed are asked for where a cluster has several kinds alone.
        document = self.certificate(*self.ground(self.mixed()), "--gap", "5%")
        shares = {search["plan"]["request"].get("shares") for search in document["searches"]}
        self.assertEqual(shares, {None, "auto"})
        run = self.run_tool("verify", "all.json")
        self.assertEqual(run.returncode, DONE, run.stdout + run.stderr)
        changed = copy.deepcopy(document)
        plan = next(search["plan"] for search in changed["searches"]
                    if len(search["plan"]["topology"]["description"]["servers"]) > 1)
        plan["request"].pop("shares")
        run = self.run_tool("verify", self.write("changed.json", changed))
        self.assertEqual(run.returncode, BAD_INPUT)

    def test_prices_of_a_certificate_can_be_compared(self):
        document = self.certificate(*self.ground(self.priced()))
        last = len(document["searches"]) - 1
        topology = document["searches"][last]["plan"]["topology"]["description"]
        for price, place in ((None, ""), (0.001, "/devices/card/price_per_hour")):
            with self.subTest(price=price):
                changed = copy.deepcopy(topology)
                changed["devices"]["card"].pop("price_per_hour")
                if price is not None:
                    changed["devices"]["card"]["price_per_hour"] = price
                searches = [*document["searches"][:last],
                            {"topology": changed, "lower_bound_ns": 0}]
                self.refused({**document, "searches": searches,
                              "front": [i for i in document["front"] if i != last]},
                             f"/searches/{last}/topology{place}")

    def test_a_topology_that_the_model_does_not_suit_is_refused(self):
        document = self.certificate(*self.ground(), "--against", "memory")
        document["against"] = "price"
        for search in document["searches"]:
            search.pop("proof", None)
        last = len(document["searches"]) - 1
        for change, place in (
                (lambda topology: topology["devices"].update(
                    alien={**topology["devices"]["card"]}) or
                 topology["servers"][0].update(device="alien"), "/devices/alien"),
                (lambda topology: (topology["servers"][0]["nics"][0].update(bandwidth="1 B/s"),
                                   topology["network"].update(bandwidth="1 B/s")), "")):
            changed = copy.deepcopy(document)
            topology = changed["searches"][last]["topology"]
            topology["devices"]["card"]["memory"] = "1 GiB"
            change(topology)
            # Whatever follows from the searches is made right, as far as the file can be.
            for _ in range(4):
                run = self.run_tool("verify", self.write("changed.json", changed), "--time-limit", "5")
                self.assertEqual(run.returncode, BAD_INPUT, run.stdout)
                found = re.search(r"/(front|chosen|proven): expected (.*), got", run.stderr)
                if found is None:
                    break
                changed[found[1]] = json.loads(found[2])
            self.assertIn(f"changed.json: /searches/{last}/topology{place}: expected ", run.stderr)

    def test_what_a_certificate_cannot_be(self):
        ground = self.ground(self.priced())
        self.certificate(*ground, "-o", "chosen.plan.json")
        run = self.run_tool("verify", "all.json", "--proof", "all.json")
        self.assertEqual(run.returncode, USAGE)
        self.assertIn("--proof: expected only with a plan", run.stderr)
        run = self.run_tool("simulate", "all.json")
        self.assertEqual(run.returncode, BAD_INPUT)
        run = self.run_tool("pareto", *ground, "--certificate", "-", "--csv")
        self.assertEqual(run.returncode, USAGE)
        run = self.run_tool("pareto", *ground, "--certificate", "-")
        self.assertEqual(json.loads(run.stdout), self.read("all.json"))
        # Where nothing is chosen, nothing is written.
        run = self.run_tool("pareto", *ground, "--min-throughput", "1000000000", "--certificate",
                            "none.json")
        self.assertEqual(run.returncode, INFEASIBLE)
        self.assertFalse((self.folder / "none.json").exists())

    def test_a_verification_that_is_stopped_is_not_whole(self):
        self.certificate(*self.ground(self.priced()))
        document = self.read("all.json")
        for search in document["searches"]:
            search.pop("proof", None)
        run = self.run_tool("verify", self.write("bare.json", document), "--time-limit", "0.000000001")
        self.assertEqual(run.returncode, NOT_VERIFIED, run.stdout + run.stderr)
        self.assertIn("stopped by --time-limit", run.stdout)

    def test_what_cannot_be_asked_for(self):
        ground = self.ground(self.priced())
        for words, place in ((("--budget", "0"), "--budget"), (("--slack", "-1"), "--slack"),
                             (("--slack", "100%"), "--slack"), (("--slack", "500"), "--slack"),
                             (("--slack", "5%", "--objective", "time"), "--slack"),
                             (("--min-throughput", "many"), "--min-throughput"),
                             (("--max-devices", "-1"), "--max-devices"),
                             (("--against", "time"), "--against"),
                             (("--planner", "dapple"), "--planner"),
                             (("--against", "memory", "--budget", "3"), "--budget"),
                             (("--against", "memory", "--unlimited-memory"), "--unlimited-memory"),
                             (("--explain",), "--explain"), (("--json",), "--json"),
                             (("--orders",), "--orders"),
                             (("--csv", "-o", "-"), "--csv")):
            with self.subTest(words=words):
                run = self.run_tool("pareto", *ground, *words)
                self.assertEqual(run.returncode, USAGE)
                self.assertIn(place, run.stderr)
        uplink = {"source": "made up", "uplink": {"bandwidth": "1 GB/s", "latency": "1 us"}}
        pods = self.priced(servers=4, racks=[{"count": 2, "servers": 2, **uplink}],
                           pods=[{"count": 1, "racks": 2, **uplink}])
        run = self.run_tool("pareto", *self.ground(pods))
        self.assertEqual(run.returncode, BAD_INPUT, run.stderr)
        self.assertIn("/pods", run.stderr)
        run = self.run_tool("pareto", *self.ground(tool.small_topology("1 KiB")))
        self.assertEqual(run.returncode, INFEASIBLE)
        self.assertIn("\nno plan fits\n", run.stdout)

    def test_a_pin_that_a_cluster_is_too_small_for(self):
        ground = self.ground(self.priced())
        rows = self.rows(*ground, "--pin", "stages=4")
        self.assertEqual([bool(row["iteration_ns"]) for row in rows], [False, False, True, True])
        self.assertIn("as there are 6 layers and 1 device, got", rows[0]["remark"])
        shown = self.run_tool("pareto", *ground, "--pin", "stages=4").stdout
        self.assertIn("\nimpossible on 1 of node: --pin: expected stages=N", shown)
        # What the clusters have no plan for is no gap of the proof.
        self.assertIn("proven: no plan as asked for on these clusters costs less", shown)

    def test_what_no_cluster_can_have_is_the_error_that_plan_gives(self):
        for words, place in ((("--micro-batch", 7), "--micro-batch"),
                             (("--pin", "tensor=2"), "--pin"),
                             (("--shard", "full", "--pin", "shards=64"), "--pin"),
                             (("--for", "deepspeed", "--schedule", "zb-v"), "--schedule")):
            for more in ((), ("--against", "memory"), ("--max-devices", 2)):
                with self.subTest(words=words, more=more):
                    ground = self.ground(self.priced())
                    expected = self.run_tool("plan", *ground, *words)
                    run = self.run_tool("pareto", *ground, *words, *more)
                    self.assertEqual(run.returncode, expected.returncode)
                    self.assertIn(place, run.stderr)
                    self.assertIn(place, expected.stderr)

    def test_a_search_that_is_stopped_at_once(self):
        for against in ("price", "memory"):
            run = self.run_tool("pareto", *self.ground(self.priced()), "--against", against,
                                "--time-limit", "0.000000001")
            self.assertIn(run.returncode, (DONE, INFEASIBLE), run.stderr)
            self.assertNotIn("interrupted", run.stdout)

    def test_a_choice_that_is_not_ruled_out_is_not_said_to_be_impossible(self):
        ground = self.ground(self.priced(), global_batch_size=64)
        rows = self.rows(*ground, "--gap", "50%")
        fastest = min(int(row["lower_bound_ns"]) for row in rows)
        slowest = min(int(row["iteration_ns"]) for row in rows)
        self.assertLess(fastest, slowest)
        for time, said in (((fastest + slowest) / 2, "no plan within the limits was found"),
                           (fastest * 0.9, "no plan is within the limits")):
            run = self.run_tool("pareto", *ground, "--gap", "50%", "--min-throughput",
                                f"{64 / time * 1e9:.6f}")
            self.assertEqual(run.returncode, INFEASIBLE)
            self.assertIn(said, run.stdout)

    def test_long_names_leave_no_cluster_out_and_make_sound_plans(self):
        for name in ("x" * 200, "\u6a21" * 66 + "ab", "y" * 150):
            with self.subTest(name=name):
                topology = self.priced(name=name)
                ground = self.ground(topology)
                rows = self.rows(*ground)
                self.assertEqual([int(row["devices"]) for row in rows], [1, 2, 4, 6])
                for against in ("price", "memory"):
                    run = self.run_tool("pareto", *ground, "--against", against, "--slack", "60%",
                                        "-o", "plan.json")
                    self.assertEqual(run.returncode, DONE, run.stderr)
                    run = self.run_tool("validate", "plan.json")
                    self.assertEqual(run.returncode, DONE, run.stderr)

    def test_free_devices_and_prices_of_devices_that_are_in_no_server(self):
        ground = self.ground(self.priced(price=0))
        run = self.run_tool("pareto", *ground, "--plot", "free.svg")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertEqual((self.folder / "free.svg").read_text().count('r="4"'), 4)
        self.assertIn("plot written to free.svg", run.stdout)
        self.assertIn("costs less\n", run.stdout)
        unused = tool.small_topology()
        unused["devices"]["old"] = {**unused["devices"]["card"], "price_per_hour": 3}
        run = self.run_tool("pareto", *self.ground(unused))
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertIn("the topology states no prices", run.stdout)

    def test_every_axis_of_a_plot_has_labels(self):
        for changes in ({}, {"price": 1000}, {"servers": 1}):
            self.run_tool("pareto", *self.ground(self.priced(**changes)), "--plot", "plot.svg")
            plot = (self.folder / "plot.svg").read_text()
            self.assertGreaterEqual(len(re.findall('text-anchor="end">', plot)), 2)
            self.assertGreaterEqual(len(re.findall(r'text-anchor="middle">[\d.e+-]+<', plot)), 2)

    def test_the_form_of_parallelism_is_told(self):
        (row, *_) = self.rows(*self.ground(self.priced()))
        self.assertEqual((list(row)[-2:], row["parallelism"]), (["remark", "parallelism"], "tensor 1"))
        profile = tool.small_profile()
        layer, = profile["layers"]
        measured = {**layer["measurements"][0], "forward_ns": 100_000, "backward_ns": 200_000}
        layer["variants"] = [{"tensor_parallel": 2, "parameter_bytes": layer["parameter_bytes"] // 2,
                              "measurements": [measured]}]
        words = ("--model", self.write("forms.json", profile), "--topo",
                 self.write("topo.json", self.priced()))
        rows = self.rows(*words)
        self.assertEqual([row["parallelism"] for row in rows],
                         ["tensor 1", "tensor 2", "tensor 2", "tensor 2"])
        run = self.run_tool("pareto", *words)
        self.assertRegex(run.stdout, r"stages +parallelism\n")
        self.assertRegex(run.stdout, r"\n +2 .* tensor 2 ")
        run = self.run_tool("pareto", *self.ground(self.priced()))
        self.assertNotIn("parallelism", run.stdout)

    def test_names_in_csv_and_plot_are_data(self):
        topology = self.priced()
        topology["servers"][0]["name"] = "a\",=cmd()"
        rows = self.rows(*self.ground(topology, name="\ufffe\uffff<b>"))
        self.assertEqual(rows[2]["servers"], "2 x a\",=cmd()")
        self.run_tool("pareto", *self.ground(topology, name="\ufffe\uffff<b>"), "--plot", "plot.svg")
        xml.dom.minidom.parse(str(self.folder / "plot.svg"))


if __name__ == "__main__":
    tool.main()
