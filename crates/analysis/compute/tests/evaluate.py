"""Evaluates every metric of an architecture with pandas, independently of the crate.

Arguments: the directory of the tables, the architecture, a JSON file with columns and properties.
Writes a JSON object to standard output: by form and unit, by metric's number and column, the value.
"""

import ast
import json
import math
import re
import sys

import numpy as np
import pandas as pd

QUANTILES = (0, 0.25, 0.5, 0.75, 1)
WORDS = ("xfer", "coherency", "type", "transaction", "unit")


class Evaluation:
    def __init__(self, facts, frame, properties, unit, shared):
        self.facts, self.frame, self.properties, self.unit = facts, frame, properties, unit
        # `shared` has the values of what is the same in every unit.
        self.trees, self.known, self.values, self.shared = {}, {}, {}, shared

    def tree(self, text):
        if text not in self.trees:
            self.trees[text] = ast.parse(text.replace("$", "VARIABLE_").strip(), mode="eval").body
        return self.trees[text]

    def text(self, text, level):
        return self.once(text, level, lambda: self.value(self.tree(text), level))

    def quantiles(self, text, level):
        return self.once(text, (level, "quantiles"), lambda: list(self.text(text, level).quantile(list(QUANTILES))))

    def once(self, text, key, compute):
        # Most metrics are the same in both forms, and many in all units.
        values = self.values if self.has_unit(text) else self.shared
        if (text, key) not in values:
            values[text, key] = compute()
        return values[text, key]

    def has_unit(self, text):
        names = set(re.findall(r"\$(\w+)", text))
        return "denom" in names or any(self.has_unit(self.facts["builtins"][name]) for name in names if name in self.facts["builtins"])

    def variable(self, name, level):
        if name == "denom":
            if self.unit == "per_kernel":
                return pd.Series(1.0, index=self.frame.index)
            return self.text(self.facts["denominators"][self.unit], level)
        if name in self.facts["builtins"]:
            return self.text(self.facts["builtins"][name], level)
        return self.properties[name]

    def name(self, name, level):
        if name.startswith("VARIABLE_"):
            return self.variable(name.removeprefix("VARIABLE_"), level)
        if name == "SQ_ACCUM_PREV_HIRES" and level:
            name = level + "_ACCUM"
        return self.frame[name]

    def value(self, it, level):
        match it:
            case ast.Constant():
                return np.nan if it.value is None else it.value
            case ast.Name():
                return self.name(it.id, level)
            case ast.Subscript():
                return self.name(f"{it.value.id}[{it.slice.value}]", level)
            case ast.UnaryOp(op=ast.USub()):
                return -self.value(it.operand, level)
            case ast.BinOp():
                a, b = self.value(it.left, level), self.value(it.right, level)
                match it.op:
                    case ast.Add():
                        return a + b
                    case ast.Sub():
                        return a - b
                    case ast.Mult():
                        return a * b
                    case ast.Div():
                        return a / b
            case ast.IfExp():
                condition = self.value(it.test.left, level) != self.value(it.test.comparators[0], level)
                assert isinstance(it.test.ops[0], ast.NotEq)
                then, otherwise = self.value(it.body, level), self.value(it.orelse, level)
                if isinstance(then, pd.Series):
                    return then.where(condition, otherwise)
                return then if condition else otherwise
            case ast.Call():
                return getattr(self, it.func.id)(*(self.argument(a, level) for a in it.args))
        raise ValueError(ast.dump(it))

    def argument(self, it, level):
        # The mean, least and most of a metric are of the same expression, and pandas takes long for a short column.
        key = ast.dump(it), level
        if key not in self.known:
            self.known[key] = self.value(it, level)
        return self.known[key]

    @staticmethod
    def over_all(a, how):
        return how(a) if isinstance(a, pd.Series) else a

    def AVG(self, a):
        return self.over_all(a, lambda a: a.mean())

    def SUM(self, a):
        return self.over_all(a, lambda a: a.sum(min_count=1))

    def STD(self, a):
        return a.std() if len(a) > 1 else 0.0

    def MIN(self, a, b=None):
        return self.over_all(a, lambda a: a.min()) if b is None else np.minimum(a, b)

    def MAX(self, a, b=None):
        return self.over_all(a, lambda a: a.max()) if b is None else np.maximum(a, b)

    def ROUND(self, a, digits):
        return a.round(digits) if isinstance(a, pd.Series) else round(a, digits)

    def TO_INT(self, a):
        return a.astype("Int64").astype(float) if isinstance(a, pd.Series) else int(a)

    def MOD(self, a, b):
        return a % b


def number(compute):
    try:
        value = float(compute())
    except (ZeroDivisionError, ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None


def main():
    directory, architecture, file = sys.argv[1:]
    facts = json.load(open(f"{directory}/{architecture}.json"))
    given = json.load(open(file))
    frame = pd.DataFrame(given["columns"]).astype(float)
    rows = [m for p in facts["panels"] for t in p["tables"] for m in t.get("metrics") or []]
    try:
        newer = json.load(open(f"{directory}/{architecture}_2026.json"))["tables"]
    except FileNotFoundError:
        newer = {}
    own = [m for table in newer.values() for m in table if "values" in m]
    out, shared = {}, {}
    with np.errstate(all="ignore"):
        for unit in facts["denominators"]:
            it = Evaluation(facts, frame, given["properties"], unit, shared)
            for form in ("values", "sum_form"):
                values = out.setdefault(f"{form} {unit}", {})
                for row in rows + (own if form == "sum_form" else []):
                    if row["name"] == "placeholder_range":
                        continue
                    for column, text in row["values"].items():
                        if column in WORDS or text is None:
                            continue
                        text = str(row.get(form, {}).get(column, text))
                        level = row.get("coll_level", "")
                        channels = range(given["channels"]) if row["name"] == "::_1" else [0]
                        for channel in channels:
                            key = f"{row['id']} {column}" + (f" {channel}" if row["name"] == "::_1" else "")
                            here = text.replace("::_1", str(channel))
                            if column != "expr":
                                values[key] = number(lambda: it.text(here, level))
                                continue
                            for q, value in zip(QUANTILES, it.quantiles(here, level)):
                                values[f"{key} {q}"] = number(lambda: value)
    json.dump(out, sys.stdout)


main()
