"""Makes derived.txt: every derived counter of four GPUs, computed a second time.

Expressions are valid Python once names are objects, so Python's own parser and operators compute them:
nothing here is shared with the Rust code but the rule of values. Run it in this directory:

    python3 derived.py > derived.txt

The rule: an event has a value at each place of its block, in the order of AMD's library (the last dimension
fastest): 1 + (sum of the bytes of its name + 31 * index of the place) mod 97; accumulated at each cycle seven
times that. A property of the agent is the sum of the bytes of its name mod 13, plus 1.
"""

import itertools
import json
import re

GPUS = ["gfx90a", "gfx942", "gfx950", "gfx1100"]


class V:
    """Values by place. A place is a tuple of (dimension, number), without the dimensions that are gone."""

    def __init__(self, at):
        self.at = at

    def _with(self, other, op):
        if not isinstance(other, V):
            other = V({(): float(other)})
        if len(other.at) == 1:
            (b,) = other.at.values()
            return V({k: op(a, b) for k, a in self.at.items()})
        if len(self.at) == 1:
            (a,) = self.at.values()
            return V({k: op(a, b) for k, b in other.at.items()})
        assert self.at.keys() == other.at.keys()
        return V({k: op(a, other.at[k]) for k, a in self.at.items()})

    def __add__(self, o): return self._with(o, lambda a, b: a + b)
    def __sub__(self, o): return self._with(o, lambda a, b: a - b)
    def __mul__(self, o): return self._with(o, lambda a, b: a * b)
    def __truediv__(self, o): return self._with(o, lambda a, b: a / b if b else 0.0)
    def __radd__(self, o): return V({(): float(o)}) + self
    def __rsub__(self, o): return V({(): float(o)}) - self
    def __rmul__(self, o): return V({(): float(o)}) * self
    def __rtruediv__(self, o): return V({(): float(o)}) / self


def places(block):
    names = [n for n, _ in block["dimensions"]]
    for index, numbers in enumerate(itertools.product(*[range(n) for _, n in block["dimensions"]])):
        yield index, tuple(zip(names, numbers))


def letters(name):
    return sum(name.encode())


class Gpu(dict):
    def __init__(self, architecture):
        super().__init__()
        self.a = architecture
        self.blocks = architecture["blocks"][max(architecture["blocks"])]
        self.how = {"sum": sum, "avr": lambda v: sum(v) / len(v), "min": min, "max": max}
        self["reduce"] = self.reduce
        self["accumulate"] = self.accumulate

    def __missing__(self, name):
        if name in self.how:
            return self.how[name]
        if name in ("HIGH_RES", "LOW_RES", "NONE"):
            return name
        if name in self.a["basic"]:
            block = self.blocks[self.a["basic"][name]["block"]]
            v = V({at: float(1 + (letters(name) + 31 * i) % 97) for i, at in places(block)})
            v.name = name
            return v
        if name in self.a["derived"]:
            return self.value(self.a["derived"][name])
        return V({(): float(letters(name) % 13 + 1)})

    def value(self, text):
        v = eval(re.sub(r"\s+", " ", text).strip(), {"__builtins__": {}}, self)
        return v if isinstance(v, V) else V({(): float(v)})

    def reduce(self, v, how):
        return V({(): float(how(list(v.at.values())))})

    def accumulate(self, v, how):
        return V({k: 7.0 * x for k, x in v.at.items()}) if how == "HIGH_RES" else v


def main():
    tables = json.load(open("../../../../api/counters.json"))["architectures"]
    for name in GPUS:
        gpu = Gpu(tables[name])
        for counter in sorted(tables[name]["derived"]):
            at = gpu[counter].at
            total = sum(at.values())
            print(f"{name} {counter} {len(at)} {total!r}")


main()
