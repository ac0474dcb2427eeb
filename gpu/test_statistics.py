"""The statistics on numbers whose answer is known: `python3 -m unittest` in this folder."""

import random
import unittest

from statistics_of_pairs import point, ratio


class Ratios(unittest.TestCase):
    def test_equal_pairs_have_a_point(self):
        self.assertEqual([round(at, 12) for at in ratio([(100.0, 90.0)] * 5)], [0.9, 0.9, 0.9])

    def test_what_differs_between_the_processes_is_taken_out(self):
        middle, low, high = ratio([(100.0, 99.0)] * 5, [(100.0, 110.0)] * 5)
        self.assertAlmostEqual(middle, 0.9)
        self.assertAlmostEqual(low, high)

    def test_an_interval_by_hand(self):
        # Logarithms -0.1 and 0.1: mean 0, variance 0.02, standard error 0.1, t(1) = 12.706.
        import math

        middle, low, high = ratio([(1.0, math.exp(-0.1)), (1.0, math.exp(0.1))])
        self.assertAlmostEqual(middle, 1.0)
        self.assertAlmostEqual(math.log(high), 1.2706)
        self.assertAlmostEqual(math.log(low), -1.2706)

    def test_nineteen_of_twenty_intervals_hold_the_truth(self):
        source, hits, rounds = random.Random(3), 0, 2000
        for _ in range(rounds):
            traced = [(100.0, 95.0 * source.lognormvariate(0, 0.05)) for _ in range(12)]
            before = [(100.0, 100.0 * source.lognormvariate(0, 0.02)) for _ in range(12)]
            _, low, high = ratio(traced, before)
            hits += low <= 0.95 <= high
        self.assertTrue(0.935 <= hits / rounds <= 0.975, hits / rounds)

    def test_points_are_never_too_narrow(self):
        self.assertEqual(point(11), point(10))
        self.assertEqual(point(0.5), 12.706)
        self.assertGreater(point(1000), 1.96)

    def test_one_pair_is_refused(self):
        with self.assertRaises(ValueError):
            ratio([(1.0, 1.0)])


if __name__ == "__main__":
    unittest.main()
