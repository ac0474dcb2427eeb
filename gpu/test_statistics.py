"""The statistics on numbers whose answer is known, and names that no file of this folder has: `python3 -m unittest` here. The other files run on a machine with
a GPU alone."""

import builtins
import dis
import pathlib
import random
import types
import unittest

from statistics_of_intervals import at_most, enough, holds, meets, sampled_shares
from statistics_of_pairs import median, ratio, ratio_in_all


class Ratios(unittest.TestCase):
    def test_equal_pairs_have_a_point(self):
        self.assertEqual([round(at, 12) for at in ratio([(100.0, 90.0)] * 5)], [0.9, 0.9, 0.9])

    def test_what_differs_between_the_processes_is_taken_out(self):
        middle, low, high = ratio([(100.0, 99.0)] * 5, [(100.0, 110.0)] * 5)
        self.assertAlmostEqual(middle, 0.9)
        self.assertAlmostEqual(low, high)

    def test_one_outlier_moves_nothing(self):
        quiet = [(100.0, 95.0 + at % 3) for at in range(20)]
        self.assertEqual(ratio(quiet)[0], ratio([*quiet[:-2], (100.0, 5.0), (1.0, 500.0)])[0])

    def test_nineteen_of_twenty_intervals_hold_the_truth(self):
        source, hits, rounds = random.Random(3), 0, 150
        for _ in range(rounds):
            # Every tenth speed is far off, as on a machine that others use.
            def noise():
                return source.lognormvariate(0, 0.02) * (source.uniform(0.6, 1.0) if source.random() < 0.1 else 1.0)

            traced = [(100.0 * noise(), 95.0 * noise()) for _ in range(40)]
            before = [(100.0 * noise(), 100.0 * noise()) for _ in range(40)]
            _, low, high = ratio(traced, before)
            hits += low <= 0.95 <= high
        self.assertTrue(hits / rounds >= 0.9, hits / rounds)

    def test_an_interval_that_says_nothing_is_seen(self):
        source = random.Random(4)
        middle, low, high = ratio([(100.0, 90.0 * source.lognormvariate(0, 0.05)) for _ in range(40)])
        self.assertTrue(low < middle < high < 0.95, (low, middle, high))

    def test_what_is_lost_now_and_then_counts_in_all(self):
        # One of twenty segments stands still for 30 % of its time.
        pairs = [(100.0, 70.0 if at % 20 == 0 else 100.0) for at in range(100)]
        self.assertEqual(ratio(pairs)[0], 1.0)
        middle, low, high = ratio_in_all(pairs, [(50.0, 50.0)] * 5)
        self.assertAlmostEqual(middle, 0.985)
        self.assertTrue(low < 0.985 < high < 1.0, (low, high))
        with self.assertRaises(ValueError):
            ratio_in_all(pairs[:4])

    def test_medians(self):
        self.assertEqual(median([3, 1, 2]), 2)
        self.assertEqual(median([4, 1, 2, 3]), 2.5)

    def test_few_pairs_are_refused(self):
        with self.assertRaises(ValueError):
            ratio([(1.0, 1.0)] * 4)


class Intervals(unittest.TestCase):
    def test_ends_belong_to_an_interval(self):
        interval = {"estimate": 0.2, "low": 0.1, "high": 0.3}
        self.assertEqual([holds(interval, value) for value in (0.09, 0.1, 0.2, 0.3, 0.31)], [False, True, True, True, False])

    def test_what_is_missing_holds_nothing(self):
        self.assertFalse(holds(None, 0.0))
        self.assertFalse(holds({"estimate": 0.2, "low": None, "high": None}, 0.2))

    def test_probabilities_are_those_of_the_tables(self):
        self.assertAlmostEqual(at_most(0, 10, 0.5), 1 / 1024)
        self.assertAlmostEqual(at_most(5, 10, 0.5), 0.623046875)
        self.assertAlmostEqual(at_most(18, 20), 0.264160, places=6)
        self.assertAlmostEqual(at_most(96, 96), 1.0)

    def test_ninety_in_a_hundred_are_too_few_and_ninety_one_are_not(self):
        # P(X <= 90) is 0.028, P(X <= 91) is 0.063.
        self.assertEqual([enough(inside, 100) for inside in (0, 80, 90, 91, 92, 95, 100)], [False, False, False, True, True, True, True])
        self.assertFalse(enough(0, 0))

    def test_the_check_itself_errs_in_one_case_of_twenty_at_most(self):
        source, refused, rounds = random.Random(8), 0, 2000
        for _ in range(rounds):
            refused += not enough(sum(source.random() < 0.95 for _ in range(96)), 96)
        self.assertTrue(0.005 < refused / rounds <= 0.055, refused / rounds)

    def test_intervals_that_hold_less_are_found_out(self):
        source, refused, rounds = random.Random(9), 0, 500
        for _ in range(rounds):
            refused += not enough(sum(source.random() < 0.80 for _ in range(96)), 96)
        self.assertTrue(refused / rounds > 0.97, refused / rounds)


class Samples(unittest.TestCase):
    """A program without drift, of which two times are recorded."""

    def sample(self, source, more=1.0):
        kernels, at = [], 0
        for _ in range(600):
            # What an iteration does most of differs from one to the next.
            lengths = {"a": 900 * source.lognormvariate(0, 0.3), "b": 500 * source.lognormvariate(0, 0.3) * more, "c": 80 * source.lognormvariate(0, 0.3)}
            for name, length in lengths.items():
                kernels.append((name, at, at + int(length)))
                at += int(length) + 200
        return sampled_shares(kernels)

    def interval(self, sampled):
        share, half = sampled
        return {"estimate": share, "low": max(share - half, 0.0), "high": share + half}

    def test_shares_are_those_of_all_kernels(self):
        found = sampled_shares([("a", at, at + 30) for at in range(0, 1000, 100)] + [("b", at + 50, at + 60) for at in range(0, 1000, 100)])
        self.assertEqual(found, {"a": (0.75, 0.0), "b": (0.25, 0.0)})

    def test_two_samples_of_one_program_meet_and_do_not_hold_one_another(self):
        source, met, held, compared = random.Random(10), 0, 0, 0
        for _ in range(120):
            one, other = self.sample(source), self.sample(source)
            for name in one:
                compared += 1
                met += meets(self.interval(one[name]), other[name])
                held += holds(self.interval(one[name]), other[name][0])
        self.assertTrue(met / compared >= 0.93, met / compared)
        self.assertTrue(0.75 <= held / compared <= 0.9, held / compared)

    def test_another_share_is_found_out(self):
        source, met, compared = random.Random(11), 0, 0
        for _ in range(30):
            one, other = self.sample(source), self.sample(source, more=1.1)
            met += sum(meets(self.interval(one[name]), other[name]) for name in ("a", "b"))
            compared += 2
        self.assertTrue(met / compared < 0.1, met / compared)

    def test_what_lies_between_two_samples_meets(self):
        interval = {"estimate": 0.2, "low": 0.19, "high": 0.21}
        self.assertTrue(meets(interval, (0.1, 0.0), (0.3, 0.0)))
        self.assertTrue(meets(interval, (0.1, 0.0), (0.191, 0.0)))
        self.assertFalse(meets(interval, (0.1, 0.0), (0.18, 0.01)))
        self.assertTrue(meets(interval, (0.1, 0.0), (0.187, 0.01)))
        self.assertFalse(meets(None, (0.2, 0.1)))
        self.assertFalse(meets({"estimate": 0.2, "low": None, "high": None}, (0.2, 0.1)))


class Sources(unittest.TestCase):
    def unknown(self, source):
        """The names that a file uses and neither imports nor makes."""
        made, used, rest = {"__file__", *dir(builtins)}, set(), [compile(source, "a file", "exec")]
        while rest:
            code = rest.pop()
            rest += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
            for step in dis.get_instructions(code):
                if step.opname in ("STORE_NAME", "STORE_GLOBAL"):
                    made.add(step.argval)
                elif step.opname in ("LOAD_NAME", "LOAD_GLOBAL"):
                    used.add(step.argval)
        return used - made

    def test_a_name_that_is_not_imported_is_found(self):
        self.assertEqual(self.unknown("import os\ndef one(): return [os.sep, two(), len(three)]\ndef two(): pass"), {"three"})

    def test_each_file_has_all_names_that_it_uses(self):
        files = sorted(pathlib.Path(__file__).parent.glob("*.py"))
        self.assertIn("check_bursts.py", [file.name for file in files])
        self.assertEqual({file.name: names for file in files if (names := self.unknown(file.read_text(encoding="utf-8")))}, {})


if __name__ == "__main__":
    unittest.main()
