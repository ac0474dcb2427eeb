"""The statistics on numbers whose answer is known: `python3 -m unittest` in this folder."""

import random
import unittest

from statistics_of_intervals import at_most, enough, holds
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


if __name__ == "__main__":
    unittest.main()
